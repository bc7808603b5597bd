//! Listings of the cluster's own volumes and of their health, in pages, from any replica.

use std::collections::BTreeSet;

use ebs_csi_proto::csi;
use ebs_csi_proto::csi::controller_service_capability::rpc::Type as Offer;
use ebs_csi_proto::csi::controller_service_capability::{Rpc, Type};
use ebs_csi_proto::csi::{ListVolumesRequest, VolumeHealthErrorType as Harm};
use serde_json::json;
use tonic::{Code, Status};

use crate::driver::{
    CreateRequest, Driver, NODE_1, assert_refused, assert_status, from_snapshot, from_volume,
    volume, within,
};

async fn page(
    driver: &Driver,
    max_entries: i32,
    token: &str,
) -> Result<csi::ListVolumesResponse, Status> {
    let request = ListVolumesRequest { max_entries, starting_token: token.to_owned() };
    driver.call(request).await
}

/// Creates a volume with these tags as another user of the account. Returns its id.
fn foreign_volume(driver: &Driver, tags: &[(&str, &str)]) -> String {
    let mut parameters = json!({ "AvailabilityZone": "us-east-1a", "Size": "1", "VolumeType": "gp3", "TagSpecification.1.ResourceType": "volume" });
    for (n, (key, value)) in (1..).zip(tags) {
        parameters[format!("TagSpecification.1.Tag.{n}.Key")] = json!(key);
        parameters[format!("TagSpecification.1.Tag.{n}.Value")] = json!(value);
    }
    let body = driver.world.as_foreign("CreateVolume", &parameters);
    let (_, rest) = body.split_once("<volumeId>").unwrap();
    rest.split('<').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_cluster_volumes_list_in_pages_across_replicas() {
    let driver = Driver::new().await;
    let mut own = BTreeSet::new();
    for n in 0..12 {
        own.insert(driver.created(&format!("pvc-{n}"), 1).await);
    }
    foreign_volume(
        &driver,
        &[
            ("CSIVolumeName", "pvc-other"),
            ("ebs.csi.aws.com/cluster", "true"),
            ("kubernetes.io/cluster/other", "owned"),
        ],
    );
    // A node's own disk, with the tag that cluster installers give it.
    foreign_volume(&driver, &[("kubernetes.io/cluster/test", "owned")]);
    let replica = driver.another().await;
    for most in [0, 1, 2, 5, 7, 100] {
        let (mut seen, mut token, mut turn) = (Vec::new(), String::new(), 0);
        loop {
            let from = if turn % 2 == 0 { &driver } else { &replica };
            turn += 1;
            let answer = page(from, most, &token).await.unwrap();
            assert!(most == 0 || answer.entries.len() <= most as usize);
            for entry in answer.entries {
                assert_eq!(entry.status, None);
                let volume = entry.volume.unwrap();
                assert_eq!(volume.capacity_bytes, 1 << 30);
                let zone = &volume.accessible_topology[0].segments["topology.kubernetes.io/zone"];
                assert_eq!(zone, "us-east-1a");
                seen.push(volume.volume_id);
            }
            token = answer.next_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen.len(), own.len(), "pages of {most}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), own);
    }
    driver.delete(own.first().unwrap()).await.unwrap();
    let left = page(&driver, 0, "").await.unwrap().entries.len();
    assert_eq!(left, own.len() - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_starting_token_or_max_entries_is_refused() {
    let (driver, _) = Driver::with_volume(1).await;
    for token in ["invalid-token", "skip:many:", "skip:2:nonsense"] {
        let bad = page(&driver, 3, token).await.unwrap_err();
        let advice = "list again from the beginning, with an empty starting_token";
        assert_status(&bad, Code::Aborted, &["starting_token", advice]);
    }
    assert_refused(page(&driver, -1, "").await, Code::InvalidArgument, &["max_entries"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_volume_shows_content_source() {
    let (driver, source) = Driver::with_volume(1).await;
    let snapshot = driver.ready_snapshot("s", &source).await.snapshot_id;
    for (name, from) in [("pvc-2", from_snapshot(&snapshot)), ("pvc-3", from_volume(&source))] {
        let made = driver.create(volume(name, 1).with_source(from.clone())).await.unwrap();
        let listed = page(&driver, 0, "").await.unwrap().entries;
        let found = listed
            .into_iter()
            .filter_map(|entry| entry.volume)
            .find(|volume| volume.volume_id == made.volume_id)
            .unwrap();
        assert_eq!(found.content_source, Some(from), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capabilities_are_exact_and_other_calls_unimplemented() {
    let (driver, volume_id) = Driver::with_volume(1).await;
    let answer = driver.call(csi::ControllerGetCapabilitiesRequest {}).await.unwrap();
    let offers: Vec<_> = answer
        .capabilities
        .into_iter()
        .map(|capability| match capability.r#type {
            Some(Type::Rpc(Rpc { r#type })) => Offer::try_from(r#type).unwrap(),
            None => panic!("a capability without a name"),
        })
        .collect();
    assert_eq!(
        offers,
        [
            Offer::CreateDeleteVolume,
            Offer::CloneVolume,
            Offer::PublishUnpublishVolume,
            Offer::CreateDeleteSnapshot,
            Offer::ListSnapshots,
            Offer::ExpandVolume,
            Offer::ModifyVolume,
            Offer::SingleNodeMultiWriter,
            Offer::GetSnapshot,
            Offer::ListVolumes,
            Offer::GetVolumeHealth,
            Offer::ListVolumeHealth,
        ]
    );
    let mut client = driver.client.clone();
    let capacity = client.get_capacity(within(csi::GetCapacityRequest::default(), 5)).await;
    assert_eq!(capacity.unwrap_err().code(), Code::Unimplemented);
    let one = csi::ControllerGetVolumeRequest { volume_id };
    let one = client.controller_get_volume(within(one, 5)).await;
    assert_eq!(one.unwrap_err().code(), Code::Unimplemented);
}

async fn health(driver: &Driver, id: &str) -> Result<Vec<(i32, String)>, Status> {
    let request =
        csi::ControllerGetVolumeHealthRequest { volume_id: id.to_owned(), ..Default::default() };
    let answer = driver.call(request).await?;
    let health = answer.volume_health.expect("a health");
    assert_eq!(health.volume_id, id);
    Ok(health.health_statuses.into_iter().map(|status| (status.status, status.reason)).collect())
}

async fn unhealthy(driver: &Driver) -> Vec<String> {
    let request = csi::ControllerListVolumeHealthRequest::default();
    let answer = driver.call(request).await.unwrap();
    assert_eq!(answer.next_token, "");
    answer.entries.into_iter().map(|entry| entry.volume_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_volume_is_unhealthy_in_get_and_list() {
    let (driver, well) = Driver::with_volume(1).await;
    let failed = driver.created("pvc-2", 1).await;
    assert_eq!(health(&driver, &well).await.unwrap(), []);
    let fail = |id: &str| driver.world.force(id, &json!({ "state": "error" }));
    fail(&failed);
    let lost = (Harm::DataLoss as i32, "VolumeFailed".to_owned());
    assert_eq!(health(&driver, &failed).await.unwrap()[0], lost);
    for (id, code) in [
        ("", Code::InvalidArgument),
        ("nonsense", Code::NotFound),
        ("vol-0fffffffffffffff1", Code::NotFound),
    ] {
        assert_eq!(health(&driver, id).await.unwrap_err().code(), code, "{id}");
    }

    // The list contains the unhealthy volumes of this cluster.
    let foreign = foreign_volume(&driver, &[("CSIVolumeName", "pvc-other")]);
    assert_eq!(unhealthy(&driver).await, [failed.as_str()]);
    fail(&foreign);
    assert_eq!(unhealthy(&driver).await, [failed.as_str()]);
    fail(&well);
    assert_eq!(unhealthy(&driver).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn degraded_or_stalled_volume_is_unhealthy_until_recovery() {
    let (driver, id) = Driver::with_volume(1).await;
    driver.publish(&id, NODE_1).await.unwrap();
    let rows: [(_, &[(Harm, &str)]); 6] = [
        (json!({ "performance": "degraded" }), &[(Harm::Degraded, "IoPerformanceDegraded")]),
        (
            json!({ "performance": "severely-degraded" }),
            &[(Harm::Degraded, "IoPerformanceSeverelyDegraded")],
        ),
        (json!({ "performance": "stalled" }), &[(Harm::Inaccessible, "IoPerformanceStalled")]),
        (
            json!({ "io_disabled": true }),
            &[(Harm::Inaccessible, "IoDisabled"), (Harm::Inaccessible, "IoPerformanceStalled")],
        ),
        (json!({ "performance": "normal" }), &[(Harm::Inaccessible, "IoDisabled")]),
        (json!({ "io_disabled": false }), &[]),
    ];
    assert_eq!(unhealthy(&driver).await.len(), 0);
    for (change, wanted) in rows {
        driver.world.force(&id, &change);
        let wanted: Vec<_> =
            wanted.iter().map(|(harm, reason)| (*harm as i32, (*reason).to_owned())).collect();
        assert_eq!(health(&driver, &id).await.unwrap(), wanted, "{change}");
        assert_eq!(unhealthy(&driver).await.len(), usize::from(!wanted.is_empty()), "{change}");
    }
}
