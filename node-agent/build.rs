//! How this program is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    // The table of places that the loader corrects, packed to a fiftieth: it is read as a whole at
    // each start and stays in memory. The loader of glibc 2.36 reads it so; an older one says that
    // it misses GLIBC_ABI_DT_RELR.
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
