//! The launcher's mode `all` with the driver's real processes: one socket, the life cycle of a
//! volume.

use ebs_csi_sandbox::audit::pss_kib;
use ebs_csi_sandbox::binaries::{OF_WORLD, for_test};
use ebs_csi_sandbox::co::Claim;
use ebs_csi_sandbox::{World, WorldOptions};

/// Returns a field of a process's status, such as users, capabilities or filters.
fn field(pid: i32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn single_socket_serves_all_services_without_privilege_gain() {
    let programs = [&OF_WORLD[..], &["aws-ebs-csi-driver"]].concat();
    let Some(binaries) = for_test(&programs) else { return };
    let mut world = World::start(WorldOptions::new(binaries)).await.unwrap();
    if let Err(e) = world.start_all(0, &[]).await {
        panic!("{e}");
    }
    let (co, kubelet) = (world.co().unwrap(), world.kubelet(0).unwrap());
    let instance = world.nodes[0].instance.clone();
    assert_eq!(kubelet.info().await.unwrap().node_id, instance);
    let volume = co.create(&Claim::filesystem("pvc-1", "ext4", 1)).await.unwrap();
    let attachment = co.attach(&volume, &instance).await.unwrap();
    kubelet.stage(&volume, &attachment).await.unwrap();
    let published = kubelet.publish(&volume, &attachment, "pod", false).await.unwrap();
    std::fs::write(published.path.join("file"), "bytes").unwrap();

    let tree = world.launcher.as_ref().unwrap().process_tree();
    // Launcher, router, controller, node-agent, and the helper's four processes.
    assert!(tree.len() >= 8, "{tree:?}");
    let (mut users, mut with_mount) = (Vec::new(), Vec::new());
    for pid in &tree {
        let uid = field(*pid, "Uid").split('\t').next().unwrap_or_default().to_owned();
        assert_eq!(field(*pid, "NoNewPrivs"), "1", "{pid} of user {uid}");
        let bounding = u64::from_str_radix(&field(*pid, "CapBnd"), 16).unwrap();
        let permitted = u64::from_str_radix(&field(*pid, "CapPrm"), 16).unwrap();
        assert_eq!(permitted & !bounding, 0);
        if bounding & (1 << 21) != 0 {
            with_mount.push(uid.clone());
        }
        assert!(pss_kib(*pid).unwrap() > 0);
        users.push(uid);
    }
    assert_eq!(with_mount, ["65531"], "the broker alone may mount");
    for own in ["65528", "65529", "65530", "65531", "65524", "65525", "65526", "0"] {
        assert_eq!(users.iter().filter(|uid| *uid == own).count(), 1, "user {own} in {users:?}");
    }

    kubelet.unpublish(&volume, "pod").await.unwrap();
    kubelet.unstage(&volume).await.unwrap();
    co.detach(&volume.id, &instance).await.unwrap();
    co.delete(&volume.id).await.unwrap();
    let ended = world.shutdown().await.unwrap();
    assert_eq!(ended.killed, Vec::<String>::new());
    assert_eq!(ended.leftovers, Vec::<String>::new());
}
