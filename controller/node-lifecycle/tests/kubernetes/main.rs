//! Tests node-lifecycle with a real etcd, kube-apiserver, kube-controller-manager and
//! external-attacher, the real controller, and the simulator.
//!
//! Nodes are plain objects whose leases the test renews or lets expire. Everything is started once,
//! so this test has no harness: its scenarios run concurrently on nodes of their own, and each is
//! named by its number in `deploy/docs/failure-scenarios.md`.

mod environment;
mod scenarios;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let filter: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let begun = Instant::now();
    let outcomes = match runtime.block_on(scenarios::all(&filter)) {
        Ok(outcomes) => outcomes,
        Err(why) => {
            // Counts as one passed test that was skipped, like every other test that cannot run.
            println!("skipped: kubernetes: {why}");
            vec![("kubernetes", Ok(()))]
        }
    };
    println!("\nrunning {} tests", outcomes.len());
    let mut failed = 0;
    for (name, outcome) in &outcomes {
        match outcome {
            Ok(()) => println!("test {name} ... ok"),
            Err(why) => {
                failed += 1;
                println!("test {name} ... FAILED\n---- {name} ----\n{why}");
            }
        }
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        if failed == 0 { "ok" } else { "FAILED" },
        outcomes.len() - failed,
        begun.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(failed > 0))
}
