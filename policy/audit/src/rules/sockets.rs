//! Whether a socket that a process has open is one of its profile.

use ebs_csi_policy::profile::{CallAnswer, CallRule, Condition, Profile};

use crate::process::Process;
use crate::process::open_files::Socket;

/// The standard descriptors, which whoever starts a process chooses.
pub(super) const STANDARD: std::ops::RangeInclusive<u32> = 0..=2;
/// The protocols of the families that a profile may name, as the kernel names them.
const PROTOCOLS: [(&str, &[&str]); 4] = [
    ("AF_UNIX", &["UNIX", "UNIX-STREAM"]),
    ("AF_INET", &["TCP", "UDP"]),
    ("AF_INET6", &["TCPv6", "UDPv6"]),
    ("AF_VSOCK", &["AF_VSOCK"]),
];

/// Returns what is wrong with a socket that a process has open.
pub(super) fn wrong_socket(
    process: &Process,
    profile: &'static Profile,
    descriptor: u32,
    socket: &Socket,
) -> Option<String> {
    let chosen = process.choice(profile).map_or(&[][..], |choice| choice.calls);
    let calls = || profile.calls.iter().chain(chosen);
    let is_of = |family: &str| {
        PROTOCOLS.iter().any(|(known, protocols)| {
            *known == family && protocols.contains(&socket.protocol.as_str())
        })
    };
    let may_make =
        calls().filter(|rule| rule.call == "socket").any(|rule| families(rule).any(is_of));
    // A pair of unix sockets is inherited by processes that can make none.
    let passes_messages = calls().any(|rule| matches!(rule.call, "recvmsg" | "recvfrom"));
    let is_inherited = is_of("AF_UNIX") && (passes_messages || STANDARD.contains(&descriptor));
    let addresses = || profile.listeners.iter().flat_map(|one| process.values_of(one.flag));
    let ports: Vec<u16> = addresses().filter_map(tcp_port).collect();
    // The kernel chooses the port where the flag says 0.
    let is_at_listener = |port: &u16| ports.contains(port) || ports.contains(&0);
    let is_tcp = socket.protocol.starts_with("TCP");
    let is_served = match socket.port {
        Some(port) => is_at_listener(&port),
        // A connection that its peer has closed may have no address any more.
        None => !ports.is_empty() && socket.peer.is_none(),
    };
    // A process that serves what another one accepts has no listener itself.
    let own = profile.listeners.iter().filter(|one| one.accepted_by.is_none() || !socket.listens);
    let is_vsock_served = is_of("AF_VSOCK")
        && own.flat_map(|one| process.values_of(one.flag)).any(|one| one.starts_with("vsock:"));
    if is_tcp && socket.listens {
        let port = socket.port.unwrap_or_default();
        return (!is_served).then(|| {
            format!("a {} listener at port {port}, which none of its flags names", socket.protocol)
        });
    }
    let is_right = may_make || is_inherited || is_tcp && is_served || is_vsock_served;
    (!is_right).then(|| match (&socket.peer, socket.port) {
        (Some(peer), Some(port)) => {
            format!("a {} connection from port {port} to {peer}", socket.protocol)
        }
        _ => format!("a socket of {}", socket.protocol),
    })
}

/// Returns the families of sockets that a rule lets a process make.
pub(super) fn families(rule: &CallRule) -> impl Iterator<Item = &'static str> {
    let values = match (rule.answer, rule.condition) {
        (CallAnswer::Allow, Condition::OneOf { argument: 0, values, .. }) => values,
        _ => &[],
    };
    values.iter().map(|value| value.name)
}

/// Returns the port of an address such as `:9808`, `127.0.0.1:9808` or `tcp://[::1]:9808`.
fn tcp_port(address: &str) -> Option<u16> {
    let address = address.strip_prefix("tcp://").unwrap_or(address);
    let (host, port) = address.rsplit_once(':')?;
    if host.contains('/') { None } else { port.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::profile;

    #[test]
    fn sockets_beyond_profile_are_deviations() {
        let http = &["x", "--http-endpoint=:9808"][..];
        let vsock = &["x", "--listen", "vsock://:5"][..];
        let to_vm = &["x", "--helper=vsock://3:5"][..];
        for (profile, arguments, protocol, port, listens, right) in [
            (profile::CONTROLLER, &[][..], "TCP", Some(40000), false, true),
            (profile::CONTROLLER, &[], "UDPv6", None, false, true),
            (profile::CONTROLLER, &[], "TCP", Some(40000), true, false),
            (profile::CONTROLLER, http, "TCPv6", Some(9808), true, true),
            (profile::CONTROLLER, http, "TCPv6", Some(9809), true, false),
            (profile::CONTROLLER, &["x", "--endpoint", "tcp://[::]:0"], "TCP", Some(5), true, true),
            (profile::CONTROLLER, &[], "UNIX-STREAM", None, false, true),
            (profile::CONTROLLER, &[], "RAW", None, false, false),
            (profile::CONTROLLER, &[], "NETLINK", None, false, false),
            (profile::NODE_AGENT, &[], "TCP", None, false, false),
            (profile::NODE_AGENT, http, "TCP", Some(9808), false, true),
            (profile::NODE_AGENT, http, "TCP", Some(40000), false, false),
            (profile::NODE_AGENT, http, "TCP", None, false, true),
            (profile::NODE_AGENT, http, "UDP", None, false, false),
            (profile::NODE_AGENT, &[], "AF_VSOCK", None, false, false),
            (profile::NODE_AGENT, to_vm, "AF_VSOCK", None, false, true),
            (profile::BROKER, &[], "UNIX", None, false, true),
            (profile::BROKER, &[], "AF_VSOCK", None, false, false),
            (profile::BROKER, vsock, "AF_VSOCK", None, false, true),
            (profile::BROKER, vsock, "AF_VSOCK", None, true, false),
            (profile::RELAY, vsock, "AF_VSOCK", None, true, true),
            (profile::RELAY, vsock, "UNIX", None, false, true),
            (profile::RELAY, &[], "AF_VSOCK", None, false, false),
            (profile::TOOL, &[], "UNIX", None, false, false),
        ] {
            let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
            let process = Process { arguments, ..Process::default() };
            let protocol = protocol.to_owned();
            let socket = Socket { protocol, port, listens, ..Socket::default() };
            let found = wrong_socket(&process, profile, 7, &socket);
            let case = format!("{} {:?} {socket:?}", profile.name, process.arguments);
            assert_eq!(found.is_none(), right, "{case}: {found:?}");
        }
    }

    /// A connection from the port of a listener is one that the listener accepted.
    #[test]
    fn connection_is_told_by_both_ends() {
        let arguments = ["x", "--http-endpoint=:9808"].map(str::to_owned).to_vec();
        let process = Process { arguments, ..Process::default() };
        let found = |port| {
            let (protocol, peer) = ("TCP".to_owned(), Some("10.0.0.1:443".to_owned()));
            let socket = Socket { protocol, port, peer, ..Socket::default() };
            wrong_socket(&process, profile::NODE_AGENT, 7, &socket)
        };
        assert_eq!(found(Some(9808)), None);
        let outwards = "a TCP connection from port 40000 to 10.0.0.1:443";
        assert_eq!(found(Some(40000)).as_deref(), Some(outwards));
        assert!(found(None).is_some());
    }
}
