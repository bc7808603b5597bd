//! What the files of a policy say.

use std::collections::{BTreeMap, BTreeSet};

/// Why a file was not understood.
pub(super) type Outcome = Result<(), String>;

/// Privileges by their names; with a number where more of it is a wider privilege.
pub(super) type Privileges = BTreeMap<String, Option<u64>>;

/// What the files of a `policy/` directory say.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) privileges: Privileges,
    /// What is refused or looked at: fewer of these give more.
    pub(super) restrictions: BTreeSet<String>,
}
