//! Programs beside the controller and the nodes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{Process, Result, World, step};
use crate::sys::{self, ChildSettings};

const NAME: &str = "ebs-csi-node-lifecycle";

impl World {
    /// Starts a program that ends with the world. Does not wait until it serves.
    pub fn start_beside(
        &mut self,
        name: &str,
        make: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<()> {
        let no_socket = self.state_dir.join(format!("{name}.sock"));
        let mut process = Process::new(name, &self.state_dir, no_socket, move || {
            let mut command = make();
            sys::apply_child_settings(&mut command, ChildSettings::default());
            Ok(command)
        });
        step("starting another program", process.start())?;
        self.others.push(process);
        Ok(())
    }

    /// Starts node-lifecycle with the controller's SafeDetach socket, an API server's URL and
    /// further `flags`. Does not wait until it serves.
    pub fn start_node_lifecycle(
        &mut self,
        socket: &Path,
        api_server: &str,
        flags: &[String],
    ) -> Result<()> {
        let program = step("finding node-lifecycle", self.options.driver().path(NAME))?;
        // In a pod, both containers belong to the group that owns the socket.
        let opened = std::fs::set_permissions(socket, PermissionsExt::from_mode(0o777));
        step("opening the controller's socket", opened)?;
        let kubeconfig = self.state_dir.join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": api_server}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        step("writing a kubeconfig", std::fs::write(&kubeconfig, text.to_string()))?;
        let own = [
            format!("--safe-detach-endpoint=unix://{}", socket.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        let arguments = [&own, flags].concat();
        self.start_beside(NAME, move || {
            let mut command = Command::new(&program);
            command.env_clear().args(&arguments);
            command
        })
    }

    /// Returns node-lifecycle, once it was started.
    pub fn node_lifecycle(&self) -> Option<&Process> {
        self.others.iter().find(|process| process.name() == NAME)
    }
}
