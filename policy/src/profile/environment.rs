//! Environment variables: the rows of `environment.toml`.

use super::Profile;
use crate::tool::ToolId;

/// Variables that processes keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptVariables {
    /// The names of the profiles.
    pub profiles: &'static [&'static str],
    /// A variable is kept when its name begins with one of these.
    pub begins: &'static [&'static str],
    /// The reason.
    pub why: &'static str,
}

/// A variable that a tool is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenVariable {
    /// The name.
    pub name: &'static str,
    /// The keys of the tools; none: every tool.
    pub tools: &'static [&'static str],
    /// The value. [`TIME`] stands for the time of the request.
    pub value: &'static str,
    /// The reason.
    pub why: &'static str,
}

/// Variables that are credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The beginning of their names.
    pub begins: &'static str,
    /// The names have one of these words.
    pub words: &'static [&'static str],
    /// The names of the profiles whose processes may be started with them.
    pub profiles: &'static [&'static str],
    /// The reason.
    pub why: &'static str,
}

mod compiled {
    use super::{Credentials, GivenVariable, KeptVariables};
    include!(concat!(env!("OUT_DIR"), "/environment.rs"));
}

/// Every row about variables that are kept.
pub const KEPT: &[KeptVariables] = compiled::KEPT;
/// Every row about variables that tools are given.
pub const GIVEN: &[GivenVariable] = compiled::GIVEN;
/// Every row about credentials.
pub const CREDENTIALS: &[Credentials] = compiled::CREDENTIALS;

/// Stands for the time of a request, in seconds since 1970.
const TIME: &str = "{time}";

impl Profile {
    /// Returns the rows about variables that the process keeps.
    pub fn kept_variables(&self) -> impl Iterator<Item = &'static KeptVariables> {
        KEPT.iter().filter(|row| row.profiles.contains(&self.name))
    }

    /// Returns whether the process keeps a variable of this name.
    #[must_use]
    pub fn keeps_variable(&self, name: &str) -> bool {
        self.kept_variables().flat_map(|row| row.begins).any(|begin| name.starts_with(begin))
    }

    /// Returns the row that keeps a variable of this name from the environment with which the
    /// process is started.
    #[must_use]
    pub fn forbids_variable(&self, name: &str) -> Option<&'static Credentials> {
        CREDENTIALS.iter().find(|row| {
            name.starts_with(row.begins)
                && row.words.iter().any(|word| name.contains(word))
                && !row.profiles.contains(&self.name)
        })
    }
}

/// Returns the rows about the variables of a tool.
pub fn of_tool(tool: ToolId) -> impl Iterator<Item = &'static GivenVariable> {
    let has =
        move |row: &&GivenVariable| row.tools.is_empty() || row.tools.contains(&tool.as_str());
    GIVEN.iter().filter(has)
}

/// Returns the whole environment of a tool, as `NAME=value`. `time` is that of the request, in
/// seconds since 1970; 0: there is none.
#[must_use]
pub fn given(tool: ToolId, time: u64) -> Vec<String> {
    let rows = of_tool(tool).filter(|row| row.value != TIME || time != 0);
    rows.map(|row| format!("{}={}", row.name, row.value.replace(TIME, &time.to_string()))).collect()
}
