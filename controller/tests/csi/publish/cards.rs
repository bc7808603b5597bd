//! Instances with several EBS cards: volumes are spread over them.

use ebs_csi_wire::InstanceId;
use serde_json::json;

use crate::driver::Driver;

const NODE: &str = "i-0ccccccccccccccc1";

async fn driver() -> Driver {
    Driver::in_world(json!({ "instances": [
        { "id": NODE, "type": "r8gb.48xlarge", "zone": "us-east-1a" },
        { "id": "i-0aaaaaaaaaaaaaaa1", "type": "m5.large", "zone": "us-east-1a" },
    ] }))
    .await
}

async fn published(driver: &Driver, name: &str, node: &str) -> String {
    let id = driver.created(name, 1).await;
    driver.publish(&id, node).await.unwrap();
    id
}

/// Returns the EBS card on which EC2 has the volume.
async fn card(driver: &Driver, id: &str, node: &str) -> Option<u32> {
    let node = InstanceId::parse(node).unwrap();
    driver.look(id).await.attachment(&node).unwrap().card
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volume_goes_to_least_used_ebs_card() {
    let driver = driver().await;
    // The root volume is on card 0.
    let mut counts = [1u32, 0];
    let mut ids = Vec::new();
    for n in 0..5 {
        let id = published(&driver, &format!("pvc-{n}"), NODE).await;
        let at = card(&driver, &id, NODE).await.unwrap() as usize;
        let fewest = usize::from(counts[1] < counts[0]);
        assert_eq!(at, fewest, "{counts:?}");
        counts[at] += 1;
        ids.push(id);
    }
    assert_eq!(counts, [3, 3]);
    // A slot that becomes free is used again.
    driver.unpublish(&ids[0], NODE).await.unwrap();
    let again = published(&driver, "pvc-9", NODE).await;
    assert_eq!(card(&driver, &again, NODE).await, Some(1));
    assert_eq!(driver.world.calls("DescribeInstanceTypes"), 1);
    driver.check_invariants();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_attaches_spread_over_both_ebs_cards() {
    let driver = driver().await;
    let mut on_first = 0;
    for (id, _) in driver.publish_at_once(4, NODE).await {
        on_first += u32::from(card(&driver, &id, NODE).await == Some(0));
    }
    assert!((1..=2).contains(&on_first), "{on_first} of 4 on card 0, beside the root volume");
}

/// The driver's own table still names a card for a type with two cards; for any other type the
/// attach names no card.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_works_when_describe_instance_types_is_denied() {
    let driver = driver().await;
    driver.world.deny("DescribeInstanceTypes");
    let id = published(&driver, "pvc-1", NODE).await;
    assert_eq!(card(&driver, &id, NODE).await, Some(1));
    published(&driver, "pvc-2", "i-0aaaaaaaaaaaaaaa1").await;
    let sent = driver.world.requests("AttachVolume");
    let sent: Vec<_> = sent.iter().map(|sent| sent.get("EbsCardIndex").is_some()).collect();
    assert_eq!(sent, [true, false]);
}
