//! Which processes run.

/// The first word of the command line that is not a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The controller, in the place of this process.
    Controller,
    /// Node-agent and mount-helper.
    Node,
    /// All three, and a router for one socket.
    All,
    /// The node-agent's command of that name, in the place of this process.
    PreStopHook,
    /// The router alone; started by mode `all`.
    Router,
    /// Waits for processes that are running already; what modes `node` and `all` become once they
    /// have started theirs.
    Supervise,
}

impl Mode {
    /// By its name on the command line.
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
