//! Paths of requests, in a tree whose links lead out of the kubelet root.
#![no_main]

use ebs_csi_mount_helper::fuzz_inputs::KubeletTree;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TREE: OnceLock<(tempfile::TempDir, KubeletTree)> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    let (_, tree) = TREE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("tempdir");
        let tree = KubeletTree::new(directory.path());
        (directory, tree)
    });
    tree.kubelet_path(input);
});
