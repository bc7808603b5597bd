//! Reads the command line: the mode, the launcher's own settings, and the arguments of each
//! process.

use std::path::PathBuf;

use ebs_csi_proto::Endpoint;
use ebs_csi_proto::program::Exit;

use crate::flags::{self, Process};
use crate::supervise::Running;

const HELP: &str = "\
The AWS EBS CSI driver: runs the processes of a mode, which lie beside this program.

Usage: aws-ebs-csi-driver [MODE] [FLAGS]

Modes:
  controller      CSI Controller (becomes ebs-csi-controller)
  node            CSI Node: ebs-csi-node-agent and ebs-csi-mount-helper
  all             all three, on one socket (default)
  pre-stop-hook   waits for the node's volumes to go (becomes ebs-csi-node-agent)

Own flags:
  --endpoint ENDPOINT   where to serve CSI, unix:///path or tcp://ip:port [default: unix://tmp/csi.sock]
  --runtime-dir DIR     where the processes' own sockets are [default: a fresh directory in /run]
  --version, --help

All other flags go to the processes that know them; each program's --help lists its own.
";

/// The action that a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// Replace this process by this program.
    Become { program: &'static str, arguments: Vec<String> },
    /// Run the processes of a mode.
    Run(Run),
    /// Run the router alone.
    Route { endpoint: Endpoint, runtime_directory: PathBuf },
    /// Wait for these processes, which run already.
    Supervise(Vec<Running>),
}

/// A mode with several processes, and the arguments of each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Whether to run the controller and the router as well, not only the node's two processes.
    pub(crate) all: bool,
    /// The endpoint at which kubelet or the sidecars find the driver.
    pub(crate) endpoint: Endpoint,
    /// The directory of the sockets between the processes; `None` makes a new one.
    pub(crate) runtime_directory: Option<PathBuf>,
    pub(crate) controller: Vec<String>,
    pub(crate) agent: Vec<String>,
    pub(crate) helper: Vec<String>,
}

/// The Go driver's default endpoint.
const DEFAULT_ENDPOINT: &str = "unix://tmp/csi.sock";

/// Reads the arguments after the program's name.
///
/// # Errors
/// [`Exit`]: the help, the version unless the mode executes a program that answers `--version`
/// itself, or one line that names the argument and the next step.
pub(crate) fn parse(words: &[String]) -> Result<Invocation, Exit> {
    let (mode, rest) = take_mode(words);
    match mode.as_deref() {
        Some("controller") => {
            Ok(Invocation::Become { program: "ebs-csi-controller", arguments: rest })
        }
        Some("pre-stop-hook") => {
            let mut arguments = vec!["pre-stop-hook".to_owned()];
            arguments.extend(rest);
            Ok(Invocation::Become { program: "ebs-csi-node-agent", arguments })
        }
        Some("node") => split_by_process(&rest, false),
        Some("all") | None => split_by_process(&rest, true),
        // Mode all starts the router; modes node and all become the supervisor.
        Some("router") => parse_router(&rest),
        Some("supervise") => parse_supervise(&rest),
        Some(other) => Err(Exit::usage(unknown_mode(other))),
    }
}

/// Removes and returns the first argument that is neither a flag nor a flag's value.
fn take_mode(words: &[String]) -> (Option<String>, Vec<String>) {
    let mut rest = words.to_vec();
    let mut index = 0;
    while let Some(word) = rest.get(index) {
        match name_and_value(word) {
            Some((name, None)) if flags::find(name).is_some_and(|flag| !flag.switch) => index += 2,
            Some(_) => index += 1,
            None => return (Some(rest.remove(index)), rest),
        }
    }
    (None, rest)
}

fn unknown_mode(word: &str) -> String {
    match word {
        "metadataLabeler" => format!(
            "mode {word} is not offered: node-agent counts a node's interfaces and other volumes by \
             instance metadata or the node facts file; set sidecars.metadataLabeler.enabled to false"
        ),
        _ => format!("unknown mode {word:?}; give controller, node, all or pre-stop-hook"),
    }
}

/// Splits `--name`, `-name` and `--name=value`, the forms that Go's flag library accepts.
fn name_and_value(word: &str) -> Option<(&str, Option<&str>)> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    Some(match name.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name, None),
    })
}

fn split_by_process(words: &[String], all: bool) -> Result<Invocation, Exit> {
    let usage = |text: String| Err(Exit::usage(text));
    let (mut controller, mut agent, mut helper) = (Vec::new(), Vec::new(), Vec::new());
    let (mut endpoint, mut runtime_directory) = (parse_endpoint(DEFAULT_ENDPOINT)?, None);
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some((name, given)) = name_and_value(word) else {
            return usage(format!("{word:?} is neither a flag nor the mode"));
        };
        let Some(flag) = flags::find(name) else {
            return usage(format!("unknown flag --{name}; --help lists what there is"));
        };
        let value = given.or_else(|| words.next_if(|_| !flag.switch).map(String::as_str));
        if value.is_none() && !flag.switch {
            return usage(format!("--{name} needs a value"));
        }
        let argument =
            value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}"));
        let text = value.unwrap_or_default();
        for process in flag.known_by {
            match process {
                Process::Controller if all => controller.push(argument.clone()),
                // The Go driver's mode node does not know the controller's flags, either.
                Process::Controller if flag.known_by.len() == 1 => {
                    return usage(format!("--{name} belongs to mode controller or all"));
                }
                Process::Controller => {}
                Process::NodeAgent => agent.push(argument.clone()),
                Process::MountHelper => helper.push(argument.clone()),
                Process::Launcher => match name {
                    "help" => return Err(Exit::Print(HELP.to_owned())),
                    "version" => {
                        let version = env!("CARGO_PKG_VERSION");
                        return Err(Exit::Print(format!("{{\"driverVersion\":\"v{version}\"}}\n")));
                    }
                    "endpoint" => endpoint = parse_endpoint(text)?,
                    "runtime-dir" if text.starts_with('/') => {
                        runtime_directory = Some(PathBuf::from(text));
                    }
                    "runtime-dir" => {
                        return usage(format!("--runtime-dir {text:?} is not an absolute path"));
                    }
                    _ if all => controller.push(argument.clone()),
                    _ => agent.push(argument.clone()),
                },
            }
        }
    }
    Ok(Invocation::Run(Run { all, endpoint, runtime_directory, controller, agent, helper }))
}

fn parse_router(words: &[String]) -> Result<Invocation, Exit> {
    match split_by_process(words, true)? {
        Invocation::Run(Run { endpoint, runtime_directory: Some(runtime_directory), .. }) => {
            Ok(Invocation::Route { endpoint, runtime_directory })
        }
        Invocation::Run(_) => {
            Err(Exit::usage("mode router needs --runtime-dir; mode all starts it"))
        }
        other => Ok(other),
    }
}

fn parse_supervise(words: &[String]) -> Result<Invocation, Exit> {
    let running: Result<Vec<Running>, ()> = words.iter().map(|word| word.parse()).collect();
    match running {
        Ok(running) if !running.is_empty() => Ok(Invocation::Supervise(running)),
        _ => Err(Exit::usage("mode supervise needs NAME:PID; modes node and all use it")),
    }
}

fn parse_endpoint(text: &str) -> Result<Endpoint, Exit> {
    text.parse().map_err(|e| Exit::usage(format_args!("--endpoint: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    fn run(text: &str) -> Run {
        match parse(&words(text)) {
            Ok(Invocation::Run(run)) => run,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn first_non_flag_word_is_mode() {
        for (text, all) in [
            ("node", false),
            ("all", true),
            ("", true),
            ("--endpoint unix:///a.sock node", false),
            ("--endpoint=unix:///a.sock node", false),
            ("--batching all", true),
        ] {
            assert_eq!(run(text).all, all, "{text}");
        }
        for (text, program, arguments) in [
            (
                "controller --endpoint unix:///c --x",
                "ebs-csi-controller",
                "--endpoint unix:///c --x",
            ),
            ("pre-stop-hook", "ebs-csi-node-agent", "pre-stop-hook"),
        ] {
            let expected = Invocation::Become { program, arguments: words(arguments) };
            assert_eq!(parse(&words(text)), Ok(expected), "{text}");
        }
    }

    #[test]
    fn flags_go_to_the_processes_that_know_them() {
        let run = run(
            "all --endpoint unix:///csi/csi.sock --http-endpoint :8080 --extra-tags a=b --legacy-xfs --kubelet-root /k -v 4 --batching=true",
        );
        assert_eq!(run.endpoint, "unix:///csi/csi.sock".parse().unwrap());
        assert_eq!(
            run.controller,
            words("--http-endpoint=:8080 --extra-tags=a=b --v=4 --batching=true")
        );
        assert_eq!(run.agent, words("--legacy-xfs --v=4"));
        assert_eq!(run.helper, words("--kubelet-root=/k"));
    }

    #[test]
    fn node_mode_gives_metrics_address_to_agent() {
        let run = run("node --http-endpoint=:8080");
        assert_eq!(run.agent, words("--http-endpoint=:8080"));
        assert!(run.controller.is_empty());
    }

    #[test]
    fn unusable_command_line_is_refused_in_one_line() {
        for (text, says) in [
            ("metadataLabeler", "node facts file"),
            ("labeler", "unknown mode"),
            ("node --no-such-flag", "unknown flag --no-such-flag"),
            ("node --volume-attach-limit", "needs a value"),
            ("node stray", "neither a flag nor the mode"),
            ("node --extra-tags a=b", "belongs to mode controller"),
            ("all --endpoint http://x", "--endpoint"),
            ("all --runtime-dir relative", "not an absolute path"),
            ("router", "needs --runtime-dir"),
            ("supervise", "needs NAME:PID"),
            ("supervise sh", "needs NAME:PID"),
        ] {
            let error = parse(&words(text)).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn launcher_answers_help_and_version_unless_mode_execs() {
        let printed = |text: &str| match parse(&words(text)) {
            Err(Exit::Print(printed)) => printed,
            other => panic!("{text}: {other:?}"),
        };
        assert!(printed("--help").contains("Usage:"));
        assert!(printed("--version").contains("driverVersion"));
        assert!(printed("node --version").contains("driverVersion"));
        assert!(matches!(
            parse(&words("controller --version")).unwrap(),
            Invocation::Become { .. }
        ));
    }
}
