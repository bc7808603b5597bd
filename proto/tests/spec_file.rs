//! csi.proto is the specification's own file.

use sha2::{Digest, Sha256};

#[test]
fn csi_proto_matches_spec_1_13_0_digest() {
    let digest = Sha256::digest(include_bytes!("../csi/csi.proto"));
    let hex: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "8c5604cb76fefff19c01cf88ebd229e4f8c88c419898b07e4914318d25d84af3");
}
