//! The checked-in code is the code that `helper.proto` generates.

#[test]
fn checked_in_code_matches_helper_proto() {
    let descriptors = protox::compile(["helper.proto"], ["."]).expect("helper.proto compiles");
    let out = tempfile::tempdir().expect("a temporary directory");
    prost_build::Config::new()
        .out_dir(out.path())
        .compile_fds(descriptors)
        .expect("code is generated");
    let generated = std::fs::read_to_string(out.path().join("ebs.csi.helper.v1.rs"))
        .expect("the generated file is there");

    let checked_in = "src/gen/helper.rs";
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(checked_in, &generated).expect("the generated file is written");
    }
    let present = std::fs::read_to_string(checked_in).unwrap_or_default();
    assert!(
        present == generated,
        "src/gen/helper.rs differs from helper.proto: run UPDATE_GENERATED=1 cargo test -p ebs-csi-wire --test regenerate"
    );
}
