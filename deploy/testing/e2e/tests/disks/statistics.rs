//! The node-agent's pages: the counters of a disk's controller, from EC2's side of the disk to the
//! metrics page, and what the kernel holds.

use std::time::Duration;

use ebs_csi_e2e::Fixture;
use ebs_csi_sandbox::co::{Claim, Volume};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An address that no other process of the machine gets by chance: the port is below the kernel's
/// ephemeral ports, and no other test uses this loopback address.
const METRICS: &str = "127.0.77.1:3302";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The longest wait for a change; the simulator updates the counters once a second.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

async fn page(path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(METRICS).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

fn written(page: &str, volume: &Volume) -> Option<u64> {
    let line = page.lines().find(|line| {
        line.starts_with("aws_ebs_csi_write_bytes_total{") && line.contains(&volume.id)
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Polls the page until it shows more than `before` bytes.
async fn written_beyond(before: u64, volume: &Volume) -> u64 {
    let mut last = String::new();
    let polling = async {
        loop {
            if let Ok(now) = page("/metrics").await {
                if let Some(bytes) = written(&now, volume).filter(|bytes| *bytes > before) {
                    return bytes;
                }
                last = now;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let found = tokio::time::timeout(CHANGE_TIMEOUT, polling).await;
    found.unwrap_or_else(|_| panic!("not more than {before} bytes on the page:\n{last}"))
}

/// Returns the state of the volume's disk on the page that node-lifecycle reads.
async fn held(fixture: &Fixture, volume: &Volume) -> String {
    let path = format!("/held?volume={}&attached=&question=7", volume.id);
    let page = page(&path).await.expect("the page");
    let (instance, boot) = (fixture.instance(0), std::fs::read_to_string(BOOT).expect("the boot"));
    let boot = boot.trim();
    let whose = format!("question 7\npod pod-of-node-a\ninstance {instance}\nboot {boot}\nstate ");
    let state = page.split_once(&whose).unwrap_or_else(|| panic!("not {whose}: {page}")).1;
    state.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn node_pages_show_writes_and_held_state() {
    let one_node = Fixture::with(|options| {
        options.nodes.truncate(1);
        options.agent_arguments.push(format!("--http-endpoint={METRICS}"));
    });
    let Some(fixture) = one_node.await else { return };
    let claim = Claim::filesystem("pvc-counted", "ext4", 1);
    let (volume, attachment) = fixture.attached(&claim).await;
    let kubelet = &fixture.kubelets[0];
    let published = fixture.published(&volume, &attachment, "pod-1").await;
    assert_eq!(held(&fixture, &volume).await, "held");
    let formatted = written_beyond(0, &volume).await;
    const MEBIBYTE: usize = 1 << 20;
    let file = std::fs::File::create(published.join("data")).expect("a file of the pod");
    std::io::Write::write_all(&mut &file, &vec![7; MEBIBYTE]).expect("the pod writes");
    file.sync_all().expect("the pod syncs");
    drop(file);
    let more = written_beyond(formatted + MEBIBYTE as u64 - 1, &volume).await;
    assert!(more >= formatted + MEBIBYTE as u64);
    fixture.must("unpublish", kubelet.unpublish(&volume, "pod-1")).await;
    fixture.must("unstage", kubelet.unstage(&volume)).await;
    assert_eq!(held(&fixture, &volume).await, "free");
    fixture.remove(&volume).await;
    fixture.finish().await;
}
