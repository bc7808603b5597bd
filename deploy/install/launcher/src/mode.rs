//! The modes of the launcher.

/// The mode: the first argument that is neither a flag nor a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Replaces this process by the controller.
    Controller,
    /// Runs node-agent and mount-helper.
    Node,
    /// Runs controller, node-agent and mount-helper, and a router that serves them on one socket.
    All,
    /// Replaces this process by the node-agent's command of that name.
    PreStopHook,
    /// Runs the router alone; mode `all` starts it.
    Router,
    /// Waits for processes that are running already; modes `node` and `all` execute it after they
    /// have started their processes.
    Supervise,
}

impl Mode {
    /// Returns the mode of this name on the command line.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "controller" => Self::Controller,
            "node" => Self::Node,
            "all" => Self::All,
            "pre-stop-hook" => Self::PreStopHook,
            "router" => Self::Router,
            "supervise" => Self::Supervise,
            _ => return None,
        })
    }
}
