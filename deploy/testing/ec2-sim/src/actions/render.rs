//! The XML of resources: each function writes the members of one.

use crate::state::Realm;
use crate::state::resources::{
    Attachment, Instance, Lock, LockEnd, Modification, ModificationState, Origin, ROOT_DEVICE,
    Snapshot, Tags, Volume, name_of,
};
use crate::time::Millis;
use crate::wire::Xml;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// The reply to CreateVolume: times to the second, no attachments, no owner.
    Created,
    /// DescribeVolumes and CopyVolumes.
    Full,
}

pub(super) fn volume(x: &mut Xml, realm: &Realm, v: &Volume, view: View) {
    x.text("volumeId", &v.id).value("size", v.shape.size);
    x.text(
        "snapshotId",
        match &v.origin {
            Origin::Snapshot(id) => id,
            _ => "",
        },
    );
    if let Origin::Volume(source) = &v.origin {
        x.text("sourceVolumeId", source);
    }
    x.text("availabilityZone", &v.zone)
        .text("availabilityZoneId", realm.zone_id(&v.zone))
        .text("status", v.status());
    let created = match view {
        View::Created => v.created.whole_second(),
        View::Full => v.created,
    };
    x.text("createTime", &created.iso());
    if view == View::Full {
        x.list("attachmentSet", &v.attachments, |x, a| {
            attachment(x, &v.id, a);
        });
    }
    tags(x, &v.tags);
    x.text("volumeType", &v.shape.volume_type)
        .option("iops", v.shape.iops)
        .option("throughput", v.shape.throughput)
        .option("volumeInitializationRate", v.initialization_rate)
        .value("encrypted", v.encrypted)
        .option("kmsKeyId", v.kms_key.as_ref())
        .option("outpostArn", v.outpost.as_ref())
        .value("multiAttachEnabled", v.shape.multi_attach);
    if view == View::Full {
        x.text("ownerId", &realm.account);
    }
}

pub(super) fn attachment(x: &mut Xml, volume: &str, a: &Attachment) {
    x.text("volumeId", volume)
        .text("instanceId", &a.instance)
        .text("device", &a.device)
        .text("status", a.status())
        .text("attachTime", &a.since.iso())
        .value("deleteOnTermination", a.delete_on_termination)
        .value("ebsCardIndex", a.card);
}

pub(super) fn tags(x: &mut Xml, tags: &Tags) {
    x.list("tagSet", tags, |x, (key, value)| {
        x.text("key", key).text("value", value);
    });
}

pub(super) fn modification(x: &mut Xml, volume: &str, m: &Modification, now: Millis) {
    x.text("volumeId", volume).text("modificationState", &name_of(m.state));
    for (prefix, shape) in [("target", &m.target), ("original", &m.original)] {
        x.value(&format!("{prefix}Size"), shape.size)
            .option(&format!("{prefix}Iops"), shape.iops)
            .text(&format!("{prefix}VolumeType"), &shape.volume_type)
            .option(&format!("{prefix}Throughput"), shape.throughput)
            .value(&format!("{prefix}MultiAttachEnabled"), shape.multi_attach);
    }
    x.value("progress", m.progress(now)).text("startTime", &m.started.iso());
    if matches!(m.state, ModificationState::Completed | ModificationState::Failed) {
        x.text("endTime", &m.completed_at.iso());
    }
}

pub(super) fn snapshot(x: &mut Xml, realm: &Realm, s: &Snapshot, now: Millis) {
    x.text("snapshotId", &s.id)
        .text("volumeId", &s.volume)
        .text("status", s.status())
        .text("startTime", &s.started.iso())
        .text("progress", &s.progress(now))
        .text("ownerId", &realm.account)
        .text("description", &s.description)
        .value("volumeSize", s.size)
        .value("encrypted", s.encrypted)
        .option("kmsKeyId", s.kms_key.as_ref())
        .option("outpostArn", s.outpost.as_ref())
        .text("storageTier", if s.is_archived(now) { "archive" } else { "standard" });
    tags(x, &s.tags);
}

/// Writes a member of the reply to CreateSnapshots, in which the state is named otherwise than
/// elsewhere.
pub(super) fn snapshot_info(x: &mut Xml, realm: &Realm, s: &Snapshot, zone: &str, now: Millis) {
    x.text("description", &s.description);
    tags(x, &s.tags);
    x.value("encrypted", s.encrypted)
        .text("volumeId", &s.volume)
        .text("state", s.status())
        .value("volumeSize", s.size)
        .text("startTime", &s.started.iso())
        .text("progress", &s.progress(now))
        .text("ownerId", &realm.account)
        .text("snapshotId", &s.id)
        .option("outpostArn", s.outpost.as_ref())
        .text("availabilityZone", zone);
}

pub(super) fn lock(x: &mut Xml, s: &Snapshot, l: &Lock, now: Millis) {
    x.text("snapshotId", &s.id)
        .text("lockState", s.lock_state(l, now))
        .text("lockCreatedOn", &l.created.iso());
    if let LockEnd::Days(days) = l.end {
        x.value("lockDuration", days)
            .option("lockDurationStartTime", s.lock_start(l).map(Millis::iso));
    }
    x.option("lockExpiresOn", s.lock_expiry(l).map(Millis::iso));
    if l.cool_off_hours > 0 {
        x.value("coolOffPeriod", l.cool_off_hours)
            .text("coolOffPeriodExpiresOn", &l.cool_off_end().iso());
    }
}

pub(super) fn instance(x: &mut Xml, realm: &Realm, i: &Instance, now: Millis) {
    let (code, name) = i.state();
    x.text("instanceId", &i.id)
        .nest("instanceState", |x| {
            x.value("code", code).text("name", name);
        })
        .text("instanceType", &i.instance_type)
        .text("launchTime", &i.launched.iso())
        .nest("placement", |x| {
            x.text("availabilityZone", &i.zone).text("availabilityZoneId", realm.zone_id(&i.zone));
        })
        .text("rootDeviceName", ROOT_DEVICE)
        .option("outpostArn", i.outpost.as_ref());
    if let Some(code) = i.state_reason() {
        x.nest("stateReason", |x| {
            x.text("code", code).text("message", &format!("{code}: User initiated"));
        });
    }
    x.nest("hibernationOptions", |x| {
        x.value("configured", i.hibernation);
    });
    x.list("blockDeviceMapping", realm.volumes_of(&i.id), |x, v| {
        let Some(a) = v.attachment(&i.id) else { return };
        x.text("deviceName", &a.device).nest("ebs", |x| {
            x.text("volumeId", &v.id)
                .text("status", a.mapping_status(now))
                .text("attachTime", &a.since.iso())
                .value("deleteOnTermination", a.delete_on_termination)
                .value("ebsCardIndex", a.card);
        });
    });
    tags(x, &i.tags);
}
