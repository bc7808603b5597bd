//! Local Zones and Wavelength Zones, which EC2 lists beside availability zones.

use ebs_csi_proto::csi;
use serde_json::{Value, json};
use tonic::Code;

use crate::driver::{CreateRequest, Driver, assert_status, map, volume};

const LOCAL: &str = "us-east-1-bos-1a";
const WAVELENGTH: &str = "us-east-1-wl1-bos-wlz-1";

/// Returns a Region's zones: these, and one of each other kind.
fn with_zones(zones: &Value) -> Value {
    let mut all = vec![
        json!({ "name": LOCAL, "id": "use1-bos1-az1", "type": "local-zone" }),
        json!({ "name": WAVELENGTH, "id": "use1-wl1-bos-wlz1", "type": "wavelength-zone" }),
    ];
    all.extend(zones.as_array().unwrap().iter().cloned());
    json!({ "zones": all, "instances": [] })
}

/// Returns a create request that names no zone.
fn anywhere(name: &str) -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest { accessibility_requirements: None, ..volume(name, 1) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volume_without_topology_gets_availability_zone() {
    let zones = json!([{ "name": "us-east-1a", "id": "use1-az6" }]);
    let driver = Driver::in_world(with_zones(&zones)).await;
    // The name selects among the zones, so that several names would reach each of them.
    for n in 0..16 {
        let made = driver.create(anywhere(&format!("pvc-{n}"))).await.unwrap();
        let segments = map(&[("topology.kubernetes.io/zone", "us-east-1a")]);
        assert_eq!(made.accessible_topology[0].segments, segments, "pvc-{n}");
    }
    for zone in [LOCAL, WAVELENGTH] {
        let made = driver.create(volume(zone, 1).in_zone(zone)).await.unwrap();
        let segments = map(&[("topology.kubernetes.io/zone", zone)]);
        assert_eq!(made.accessible_topology[0].segments, segments);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn region_without_availability_zone_has_no_capacity() {
    let driver = Driver::in_world(with_zones(&json!([]))).await;
    let refused = driver.create(anywhere("pvc-1")).await.unwrap_err();
    assert_status(&refused, Code::ResourceExhausted, &["no available zone"]);
    assert_eq!(driver.live("volumes"), 0);
}
