//! Maps the service in an RPC's path to the process that answers it.

/// A process behind the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// ebs-csi-controller.
    Controller,
    /// ebs-csi-node-agent.
    NodeAgent,
}

impl Backend {
    /// Returns the process's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::NodeAgent => "node-agent",
        }
    }

    /// Returns the name of the process's socket in the runtime directory.
    pub fn socket(self) -> &'static str {
        match self {
            Self::Controller => "controller.sock",
            Self::NodeAgent => "node.sock",
        }
    }
}

/// Returns the process for `path` (`/package.Service/Method`), or `None` when no process offers the
/// service.
///
/// The controller answers the Identity service, because its Probe also tells whether AWS can be
/// reached, as in the Go driver's mode `all`.
pub fn backend(path: &str) -> Option<Backend> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    if method.is_empty() || method.contains('/') {
        return None;
    }
    match service {
        "csi.v1.Node" => Some(Backend::NodeAgent),
        "csi.v1.Controller"
        | "csi.v1.GroupController"
        | "csi.v1.Identity"
        | "modify.v1.Modify"
        | "grpc.health.v1.Health" => Some(Backend::Controller),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_methods_of_known_services_get_a_backend() {
        for (path, expected) in [
            ("/csi.v1.Controller/CreateVolume", Some(Backend::Controller)),
            ("/csi.v1.GroupController/CreateVolumeGroupSnapshot", Some(Backend::Controller)),
            ("/csi.v1.Identity/Probe", Some(Backend::Controller)),
            ("/modify.v1.Modify/ModifyVolumeProperties", Some(Backend::Controller)),
            ("/csi.v1.Node/NodeStageVolume", Some(Backend::NodeAgent)),
            ("/grpc.health.v1.Health/Check", Some(Backend::Controller)),
            ("/csi.v1.NodeX/NodeStageVolume", None),
            ("/csi.v1.Node/", None),
            ("/csi.v1.Node/a/b", None),
            ("/csi.v1.Node", None),
            ("csi.v1.Node/NodeStageVolume", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(backend(path), expected, "{path}");
        }
    }
}
