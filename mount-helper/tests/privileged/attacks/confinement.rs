//! What a compromised broker, supervisor, runner or tool can still do.
mod broker;
mod opener;
mod peer;
mod script;
mod supervisor;
mod sys;
mod tool;

/// Runs in the process that [`script::run`] starts; it is no test of its own.
#[test]
#[ignore = "started by the tests of attacks"]
fn script() {
    let Some(words) = script::given() else {
        println!("skipped: started by the tests of attacks");
        return;
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    script::alone(|| match words.as_slice() {
        ["clone", flags] => supervisor::clone_with(flags),
        ["runners"] => supervisor::serve_greedy_broker(false),
        ["runners-flooded"] => supervisor::serve_greedy_broker(true),
        ["tool", what] => tool::reach(what),
        ["broker", what, path] => broker::reach(what, path),
        ["opener", devices, mounted, disk, unused, free] => {
            opener::send_requests(devices, (mounted, disk), (unused, free));
        }
        other => panic!("{other:?} is no script"),
    });
}
