//! The options of a world.

use std::fmt::Write;
use std::path::PathBuf;

use crate::binaries::Binaries;

/// One simulated instance that runs the driver's node side.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the node.
    pub name: String,
    /// Instance id.
    pub instance: String,
    /// Instance type.
    pub kind: String,
    /// Availability zone.
    pub zone: String,
}

impl NodeOptions {
    /// Returns the options of an m7i.large.
    pub fn new(name: &str, instance: &str, zone: &str) -> Self {
        Self {
            name: name.to_owned(),
            instance: instance.to_owned(),
            kind: "m7i.large".to_owned(),
            zone: zone.to_owned(),
        }
    }
}

/// The options of a world.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The programs of the world.
    pub binaries: Binaries,
    /// The driver's programs, when they are not among `binaries` (for example a release build).
    pub driver: Option<Binaries>,
    /// The nodes that run the driver. Volumes move only between nodes of one zone.
    pub nodes: Vec<NodeOptions>,
    /// Whether there is one zone, so that a volume without a requested zone can be attached to
    /// every node. Otherwise there are two zones, and an instance to which no volume of the nodes
    /// can be attached.
    pub one_zone: bool,
    /// `loop` (real block devices) or `none`. Node processes are started only with `loop`.
    pub devices: String,
    /// TOML appended to the simulator's scenario, for example `[latency]`.
    pub scenario: String,
    /// Another program in place of the controller, with the arguments that come before
    /// `--endpoint`.
    pub controller_program: Option<(PathBuf, Vec<String>)>,
    /// Another program in place of every node-agent and mount-helper, with the arguments that come
    /// before `--endpoint`. The program has the rights of a privileged container.
    pub node_program: Option<(PathBuf, Vec<String>)>,
    /// Further arguments of the controller.
    pub controller_arguments: Vec<String>,
    /// Further arguments of every node-agent.
    pub agent_arguments: Vec<String>,
    /// Further arguments of every mount-helper.
    pub helper_arguments: Vec<String>,
}

impl WorldOptions {
    /// Returns the options of two nodes in one zone, a third instance without the driver in another
    /// zone, and loop devices.
    pub fn new(binaries: Binaries) -> Self {
        Self {
            binaries,
            driver: None,
            nodes: vec![
                NodeOptions::new("node-a", "i-0aaaaaaaaaaaaaaa1", ZONE),
                NodeOptions::new("node-b", "i-0aaaaaaaaaaaaaaa2", ZONE),
            ],
            one_zone: false,
            devices: "loop".to_owned(),
            scenario: String::new(),
            controller_program: None,
            node_program: None,
            controller_arguments: Vec::new(),
            agent_arguments: Vec::new(),
            helper_arguments: Vec::new(),
        }
    }

    pub(crate) fn driver(&self) -> &Binaries {
        self.driver.as_ref().unwrap_or(&self.binaries)
    }

    pub(crate) fn scenario(&self) -> String {
        let mut text =
            String::from("seed = 1\naccount = \"111122223333\"\nregion = \"us-east-1\"\n");
        let mut zones = vec![format!("{{ name = \"{ZONE}\", id = \"use1-az6\" }}")];
        if !self.one_zone {
            zones.push("{ name = \"us-east-1b\", id = \"use1-az1\" }".to_owned());
        }
        let _ = writeln!(text, "zones = [ {} ]", zones.join(", "));
        // In TOML, the top-level keys of the addition must come before the first table.
        let (keys, tables) = match self.scenario.find("\n[") {
            _ if self.scenario.starts_with('[') => ("", self.scenario.as_str()),
            Some(at) => self.scenario.split_at(at),
            None => (self.scenario.as_str(), ""),
        };
        text.push_str(keys);
        let elsewhere = NodeOptions::new("elsewhere", "i-0bbbbbbbbbbbbbbb1", "us-east-1b");
        let elsewhere = (!self.one_zone).then_some(&elsewhere);
        for node in self.nodes.iter().chain(elsewhere) {
            let _ = write!(
                text,
                "\n[[instances]]\nid = \"{}\"\ntype = \"{}\"\nzone = \"{}\"\ntags = {{ Name = \"{}\" }}\n",
                node.instance, node.kind, node.zone, node.name
            );
        }
        text.push('\n');
        text.push_str(tables);
        text
    }
}

/// The zone of a world's volumes.
pub const ZONE: &str = "us-east-1a";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_keys_precede_instances_and_tables_follow() {
        let mut options = WorldOptions::new(Binaries::at("/nowhere"));
        for (added, key, table) in [
            ("profile = \"fast\"\n[latency]\nattach = 1\n", true, true),
            ("[latency]\nattach = 1\n", false, true),
            ("profile = \"fast\"\n", true, false),
            ("", false, false),
        ] {
            options.scenario = added.to_owned();
            let text = options.scenario();
            let instances = text.find("[[instances]]").unwrap();
            assert_eq!(text.find("profile").is_some_and(|at| at < instances), key, "{text}");
            assert_eq!(text.find("[latency]").is_some_and(|at| at > instances), table, "{text}");
            assert_eq!(text.matches("[[instances]]").count(), 3);
        }
    }
}
