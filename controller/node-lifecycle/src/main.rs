//! The Kubernetes side of a node's death and return.
//!
//! Everything until the runtime starts is synchronous and single-threaded, because the process confines itself before its first thread.

use std::io::Write;
use std::process::ExitCode;

use ebs_csi_confine::{Fault, start};
use ebs_csi_node_lifecycle::confinement;
use ebs_csi_node_lifecycle::flags::{Config, Stop};
use ebs_csi_node_lifecycle::process;
use ebs_csi_proto::observe;

fn main() -> ExitCode {
    // A panic on this thread has said itself; 70 tells it from a failure that was foreseen.
    let ended = std::panic::catch_unwind(begin)
        .unwrap_or_else(|_| Err(end(70, "a fault of the driver; please report it")));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(end) => {
            let mut stderr = std::io::stderr();
            // Without a standard error there is nobody to tell.
            let _ = writeln!(stderr, "ebs-csi-node-lifecycle: {}", end.line);
            ExitCode::from(end.status)
        }
    }
}

struct End {
    status: u8,
    line: String,
}

fn end(status: u8, line: impl ToString) -> End {
    End {
        status,
        line: line.to_string(),
    }
}

fn begin() -> Result<(), End> {
    let faulty = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| end(Fault::EXIT, format!("{what}: {error}"))
    };
    start::close_strays(&[]).map_err(faulty("closing inherited descriptors"))?;
    start::keep_environment(&confinement::KEPT_VARIABLES)
        .map_err(faulty("clearing the environment"))?;
    let config = match Config::read(std::env::args_os().skip(1)) {
        Ok(config) => config,
        Err(Stop::Say(text)) => {
            return std::io::stdout()
                .write_all(text.as_bytes())
                .map_err(|error| end(1, error));
        }
        Err(Stop::Usage(line)) => return Err(end(64, format!("{line}; see --help"))),
    };
    observe::init_log(config.log_format, config.verbosity);
    let listener = config
        .http
        .map(|address| {
            std::net::TcpListener::bind(address)
                .map_err(|error| end(1, format!("--http-endpoint {address}: {error}")))
        })
        .transpose()?;
    let enforced = confinement::enter(config.kubeconfig.as_deref())
        .map_err(|fault| end(Fault::EXIT, fault))?;
    tracing::info!(%enforced, "confined");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| end(1, format!("starting the runtime: {error}")))?;
    let ended = runtime.block_on(process::run(config, listener));
    runtime.shutdown_background();
    ended.map_err(|ended| end(ended.status(), ended))
}
