//! The XML of resources: each method writes the members of one.

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

impl Xml {
    pub(super) fn volume(&mut self, realm: &Realm, v: &Volume, view: View) -> &mut Self {
        self.text("volumeId", &v.id).value("size", v.shape.size);
        let (snapshot, source) = match &v.origin {
            Origin::Blank => ("", None),
            Origin::Snapshot(id) => (id.as_str(), None),
            Origin::Volume(id) => ("", Some(id)),
        };
        let created = match view {
            View::Created => v.created.whole_second(),
            View::Full => v.created,
        };
        self.text("snapshotId", snapshot)
            .option("sourceVolumeId", source)
            .text("availabilityZone", &v.zone)
            .text("availabilityZoneId", realm.zone_id(&v.zone))
            .text("status", v.status())
            .text("createTime", &created.iso());
        if view == View::Full {
            self.list("attachmentSet", &v.attachments, |x, a| x.attachment(&v.id, a));
        }
        self.tags(&v.tags)
            .text("volumeType", &v.shape.volume_type)
            .option("iops", v.shape.iops)
            .option("throughput", v.shape.throughput)
            .option("volumeInitializationRate", v.initialization_rate)
            .value("encrypted", v.encrypted)
            .option("kmsKeyId", v.kms_key.as_ref())
            .option("outpostArn", v.outpost.as_ref())
            .value("multiAttachEnabled", v.shape.multi_attach)
            .option("ownerId", (view == View::Full).then_some(&realm.account))
    }

    pub(super) fn attachment(&mut self, volume: &str, a: &Attachment) -> &mut Self {
        self.text("volumeId", volume)
            .text("instanceId", &a.instance)
            .text("device", &a.device)
            .text("status", a.status())
            .text("attachTime", &a.since.iso())
            .value("deleteOnTermination", a.delete_on_termination)
            .value("ebsCardIndex", a.card)
    }

    fn tags(&mut self, tags: &Tags) -> &mut Self {
        self.list("tagSet", tags, |x, (key, value)| x.text("key", key).text("value", value))
    }

    pub(super) fn modification(&mut self, of: &str, m: &Modification, now: Millis) -> &mut Self {
        self.text("volumeId", of).text("modificationState", &name_of(m.state));
        for (prefix, shape) in [("target", &m.target), ("original", &m.original)] {
            self.value(&format!("{prefix}Size"), shape.size)
                .option(&format!("{prefix}Iops"), shape.iops)
                .text(&format!("{prefix}VolumeType"), &shape.volume_type)
                .option(&format!("{prefix}Throughput"), shape.throughput)
                .value(&format!("{prefix}MultiAttachEnabled"), shape.multi_attach);
        }
        let is_over = matches!(m.state, ModificationState::Completed | ModificationState::Failed);
        self.value("progress", m.progress(now))
            .text("startTime", &m.started.iso())
            .option("endTime", is_over.then(|| m.completed_at.iso()))
    }

    pub(super) fn snapshot(&mut self, realm: &Realm, s: &Snapshot, now: Millis) -> &mut Self {
        self.text("snapshotId", &s.id)
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
            .text("storageTier", if s.is_archived(now) { "archive" } else { "standard" })
            .tags(&s.tags)
    }

    /// Writes a member of the reply to CreateSnapshots, in which the state is named otherwise than
    /// elsewhere.
    pub(super) fn snapshot_info(
        &mut self,
        realm: &Realm,
        s: &Snapshot,
        zone: &str,
        now: Millis,
    ) -> &mut Self {
        self.text("description", &s.description)
            .tags(&s.tags)
            .value("encrypted", s.encrypted)
            .text("volumeId", &s.volume)
            .text("state", s.status())
            .value("volumeSize", s.size)
            .text("startTime", &s.started.iso())
            .text("progress", &s.progress(now))
            .text("ownerId", &realm.account)
            .text("snapshotId", &s.id)
            .option("outpostArn", s.outpost.as_ref())
            .text("availabilityZone", zone)
    }

    pub(super) fn lock(&mut self, s: &Snapshot, l: &Lock, now: Millis) -> &mut Self {
        self.text("snapshotId", &s.id)
            .text("lockState", s.lock_state(l, now))
            .text("lockCreatedOn", &l.created.iso());
        if let LockEnd::Days(days) = l.end {
            self.value("lockDuration", days)
                .option("lockDurationStartTime", s.lock_start(l).map(Millis::iso));
        }
        self.option("lockExpiresOn", s.lock_expiry(l).map(Millis::iso));
        if l.cool_off_hours > 0 {
            self.value("coolOffPeriod", l.cool_off_hours)
                .text("coolOffPeriodExpiresOn", &l.cool_off_end().iso());
        }
        self
    }

    /// Writes the code and the name of an instance's state.
    pub(super) fn state(&mut self, element: &str, (code, name): (u32, &str)) -> &mut Self {
        self.nest(element, |x| x.value("code", code).text("name", name))
    }

    pub(super) fn instance(&mut self, realm: &Realm, i: &Instance, now: Millis) -> &mut Self {
        self.text("instanceId", &i.id)
            .state("instanceState", i.state())
            .text("instanceType", &i.instance_type)
            .text("launchTime", &i.launched.iso())
            .nest("placement", |x| {
                x.text("availabilityZone", &i.zone)
                    .text("availabilityZoneId", realm.zone_id(&i.zone))
            })
            .text("rootDeviceName", ROOT_DEVICE)
            .option("outpostArn", i.outpost.as_ref());
        if let Some(code) = i.state_reason() {
            let message = format!("{code}: User initiated");
            self.nest("stateReason", |x| x.text("code", code).text("message", &message));
        }
        let mapped = realm.volumes_of(&i.id).filter_map(|v| Some((&v.id, v.attachment(&i.id)?)));
        self.nest("hibernationOptions", |x| x.value("configured", i.hibernation))
            .list("blockDeviceMapping", mapped, |x, (volume, a)| {
                x.text("deviceName", &a.device).nest("ebs", |x| {
                    x.text("volumeId", volume)
                        .text("status", a.mapping_status(now))
                        .text("attachTime", &a.since.iso())
                        .value("deleteOnTermination", a.delete_on_termination)
                        .value("ebsCardIndex", a.card)
                })
            })
            .tags(&i.tags)
    }
}
