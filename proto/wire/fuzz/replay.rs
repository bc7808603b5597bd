//! The replay of a fuzz target's corpus, for the tests of each crate that has targets.

/// Passes each input of `fuzz/corpus/CORPUS` to a target. Each one's name says whether it is
/// accepted; of either kind there are at least so many.
pub(crate) fn replay(corpus: &str, least: usize, target: impl Fn(&[u8]) -> bool) {
    let directory = std::env::var_os("CARGO_MANIFEST_DIR").expect("tests are run by cargo");
    let directory = std::path::Path::new(&directory).join("fuzz/corpus").join(corpus);
    let mut found = [0, 0];
    for entry in std::fs::read_dir(directory).expect("the corpus is there") {
        let path = entry.expect("an entry").path();
        let accepted = target(&std::fs::read(&path).expect("a readable input"));
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let expected = if accepted { "accepted-" } else { "refused-" };
        assert!(name.starts_with(expected), "{name} is not {expected}");
        found[usize::from(accepted)] += 1;
    }
    assert!(found.iter().all(|count| *count >= least), "{found:?}");
}
