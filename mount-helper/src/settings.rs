//! The command line.
use crate::operation::CopiedMounts;
use crate::session::listen::{self, Listen};
use ebs_csi_policy::judge::disk_by_name::DisksWithoutSerial;
use ebs_csi_policy::judge::untrusted_images::{NodevNosuid, UntrustedImages};
use ebs_csi_policy::place::PlaceClass;
use ebs_csi_policy::{PRODUCTION, Policy, setting};
use ebs_csi_wire::KubeletPath;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Kubelet's own directory on a machine, the default of `--kubelet-root`.
pub(crate) fn default_kubelet_root() -> &'static str {
    setting::default_of(PROGRAM, "--kubelet-root")
}

/// What `--help` prints.
pub(crate) const HELP: &str = "\
ebs-csi-mount-helper: identifies, checks, formats and mounts EBS volumes for the node-agent, and nothing else

Usage: ebs-csi-mount-helper --listen unix:///PATH [options]

Options:
  --listen unix:///PATH|vsock://[CID]:PORT
                             socket that the node-agent connects to; may be given several times. A vsock port is for a
                             helper in a virtual machine, and needs --vsock-key-file
  --vsock-key-file FILE      key that node-agents prove over vsock: 32 to 4096 bytes, mode 0400
  --vsock-peers CID,...      machines that may connect over vsock: 2 is the host, 1 this machine itself [default: 2]
  --kubelet-root DIR         every path of a request is beneath it [default: /var/lib/kubelet]
  --paths kubernetes|any     where volumes may be mounted beneath it: kubelet's own directories,
                             or anywhere in plugins/ and pods/ [default: kubernetes; with --sandbox: any]
  --untrusted-images deny|check|allow
                             file systems that this driver did not make: refused, checked in full once after each
                             attach, or treated like its own [default: check]
  --nodev-nosuid off|untrusted|on
                             mounts that ignore device nodes and set-user-id bits whatever the volume's mount options
                             say: none, those of file systems that this driver did not make, all [default: off]
  --disks-without-serial refuse|by-name
                             disks that do not say whose they are, as on instance types that are built on Xen: refused, or
                             taken by the name that EC2 was told, as long as nothing speaks against it [default: by-name]
  --copied-mounts release|refuse
                             a volume of which a container that mounts / of the node without mount propagation keeps
                             files open: released once its file system is read-only for everybody, or held until they
                             are closed [default: release]
  --tool-deadline SECONDS    no tool runs longer, where the policy allows it more
  --grace SECONDS            time after SIGTERM for the last requests of a connected node-agent and for what runs
                             [default: 25]
  --log-format text|json     form of the journal on standard error [default: text]
  --allow-missing-landlock   run tools, and the process that makes directories, without Landlock where the kernel has none
  --allow-private-mounts     serve although mounts beneath the kubelet root stay in this mount namespace
  --guest-disks              also recognise disks that a hypervisor made for this virtual machine (virtio-blk, QEMU's NVMe)
                             by their serial, which has to be the volume's id
  --sandbox                  recognise simulated disks (loop devices) instead of EBS disks; for tests
  --help                     print this
  --version                  print the version and the policy's digest
";

/// The name of this program in the policy.
const PROGRAM: &str = "mount-helper";

/// The settings from the command line, after validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HelperSettings {
    /// The addresses, at least one.
    pub(crate) listen: Vec<Listen>,
    /// The file with the key of vsock connections; given when an address is one of vsock.
    pub(crate) key_file: Option<PathBuf>,
    /// The CIDs of the machines that may connect over vsock.
    pub(crate) vsock_peers: Vec<u32>,
    /// The kubelet root, beneath which every path of a request lies.
    pub(crate) kubelet_root: KubeletPath,
    /// The places named on the command line; None keeps the policy's own.
    pub(crate) places: Option<PlaceClass>,
    pub(crate) untrusted_images: UntrustedImages,
    pub(crate) nodev_nosuid: NodevNosuid,
    pub(crate) disks_without_serial: DisksWithoutSerial,
    pub(crate) copied_mounts: CopiedMounts,
    /// Longest time for any tool; None keeps the policy's own limits.
    pub(crate) tool_deadline: Option<Duration>,
    /// Time after SIGTERM for the last requests of a connected node-agent and for running
    /// operations.
    pub(crate) grace: Duration,
    /// Whether the journal is written as JSON.
    pub(crate) json: bool,
    pub(crate) allow_missing_landlock: bool,
    pub(crate) allow_private_mounts: bool,
    /// The policy, which says what disks are recognised.
    pub(crate) policy: Policy,
    /// The step at which a test holds the process.
    pub(crate) fault_point: Option<String>,
    /// The settings that permit more than the policy does without them.
    pub(crate) wider: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Version,
    Serve(Box<HelperSettings>),
}

/// Parses the arguments that follow the program's name. The error is one line for the user.
pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let default = |flag| setting::default_of(PROGRAM, flag);
    let mut settings = HelperSettings {
        listen: Vec::new(),
        key_file: None,
        vsock_peers: listen::peers(default("--vsock-peers"))?,
        kubelet_root: KubeletPath::parse(default("--kubelet-root")).map_err(|e| e.to_string())?,
        places: None,
        untrusted_images: UntrustedImages::default(),
        nodev_nosuid: NodevNosuid::default(),
        disks_without_serial: DisksWithoutSerial::default(),
        copied_mounts: CopiedMounts::parse(default("--copied-mounts"))
            .ok_or("the policy has no default of --copied-mounts")?,
        tool_deadline: None,
        grace: seconds(0..=3600)(default("--grace"))
            .ok_or("the policy has no default of --grace")?,
        json: default("--log-format") == "json",
        allow_missing_landlock: false,
        allow_private_mounts: false,
        policy: PRODUCTION,
        fault_point: None,
        wider: Vec::new(),
    };
    let (mut arguments, mut given) = (arguments, Vec::new());
    let mut peers_given = false;
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument.clone(), None),
        };
        let before = given.len();
        let mut value = || {
            let value = inline.clone().or_else(|| arguments.next());
            let value = value.ok_or_else(|| format!("{name} needs a value; see --help"))?;
            given.push((name.clone(), value.clone()));
            Ok::<_, String>(value)
        };
        match name.as_str() {
            "--help"
            | "--version"
            | "--guest-disks"
            | "--sandbox"
            | "--allow-missing-landlock"
            | "--allow-private-mounts"
                if inline.is_some() =>
            {
                return Err(format!("{name} takes no value"));
            }
            "--help" => return Ok(Command::Help),
            "--version" => return Ok(Command::Version),
            "--allow-private-mounts" => settings.allow_private_mounts = true,
            "--allow-missing-landlock" => settings.allow_missing_landlock = true,
            "--guest-disks" | "--sandbox" => {
                let chosen = Policy::chosen_by(&name);
                if settings.policy != PRODUCTION && chosen != Some(settings.policy) {
                    return Err("--guest-disks and --sandbox exclude each other".to_owned());
                }
                settings.policy = chosen.unwrap_or(PRODUCTION);
            }
            "--listen" => settings.listen.push(Listen::parse(&value()?)?),
            "--vsock-key-file" => {
                let file = value()?;
                if !file.starts_with('/') {
                    return Err(format!("--vsock-key-file {file:?} must be an absolute path"));
                }
                settings.key_file = Some(file.into());
            }
            "--vsock-peers" => {
                settings.vsock_peers = listen::peers(&value()?)?;
                peers_given = true;
            }
            "--kubelet-root" => {
                settings.kubelet_root =
                    KubeletPath::parse(&value()?).map_err(|e| format!("--kubelet-root: {e}"))?;
            }
            "--paths" => {
                let choices = "kubernetes or any";
                settings.places = Some(parsed(&name, &value()?, PlaceClass::parse, choices)?);
            }
            "--untrusted-images" => {
                let choices = "deny, check or allow";
                settings.untrusted_images =
                    parsed(&name, &value()?, UntrustedImages::parse, choices)?;
            }
            "--nodev-nosuid" => {
                let choices = "off, untrusted or on";
                settings.nodev_nosuid = parsed(&name, &value()?, NodevNosuid::parse, choices)?;
            }
            "--disks-without-serial" => {
                let choices = "refuse or by-name";
                settings.disks_without_serial =
                    parsed(&name, &value()?, DisksWithoutSerial::parse, choices)?;
            }
            "--copied-mounts" => {
                let choices = "release or refuse";
                settings.copied_mounts = parsed(&name, &value()?, CopiedMounts::parse, choices)?;
            }
            "--tool-deadline" => {
                let seconds = seconds(1..=86_400);
                let limit = parsed(&name, &value()?, seconds, "1 to 86400 seconds")?;
                settings.tool_deadline = Some(limit);
            }
            "--grace" => {
                settings.grace = parsed(&name, &value()?, seconds(0..=3600), "0 to 3600 seconds")?;
            }
            "--log-format" => {
                let json = |value: &str| match value {
                    "text" => Some(false),
                    "json" => Some(true),
                    _ => None,
                };
                settings.json = parsed(&name, &value()?, json, "text or json")?;
            }
            "--fault-point" => {
                let step = value()?;
                if !cfg!(feature = "fault-points") {
                    return Err("--fault-point is not part of this build".to_owned());
                }
                settings.fault_point = Some(step);
            }
            _ => return Err(format!("unknown argument {argument:?}; see --help")),
        }
        if given.len() == before {
            given.push((name, String::new()));
        }
    }
    let given: Vec<_> = given.iter().map(|(flag, value)| (flag.as_str(), value.as_str())).collect();
    settings.wider = setting::wider(PROGRAM, &given);
    listen::check(&settings.listen, settings.key_file.is_some(), peers_given)?;
    Ok(Command::Serve(Box::new(settings)))
}

/// Parses the value of an option; the error says what the value must be.
fn parsed<T>(
    name: &str,
    value: &str,
    parse: impl Fn(&str) -> Option<T>,
    choices: &str,
) -> Result<T, String> {
    parse(value).ok_or_else(|| format!("{name} {value:?} must be {choices}"))
}

fn seconds(range: RangeInclusive<u64>) -> impl Fn(&str) -> Option<Duration> {
    move |value| {
        let seconds = value.parse().ok().filter(|seconds| range.contains(seconds));
        seconds.map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests;
