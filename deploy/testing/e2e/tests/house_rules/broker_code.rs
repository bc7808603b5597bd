//! The mount-helper's own code that its broker, the process with CAP_SYS_ADMIN, can reach: the
//! modules that its entry imports, those that add methods to types of such modules, and so on.
//! `cargo test --workspace --test house_rules broker_ -- --nocapture` prints them.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::cycles::{Module, Source, imports, modules};

/// Returns each module that the module `entry` can reach, and its lines without tests, comments and
/// blank lines.
pub(crate) fn reachable(folder: &Path, entry: &[&str]) -> BTreeMap<String, usize> {
    let modules = modules(folder);
    let imports = imports(&modules);
    let entry: Module = entry.iter().map(|name| (*name).to_owned()).collect();
    let mut reached = BTreeSet::new();
    let mut next = vec![entry];
    while let Some(module) = next.pop() {
        if !reached.insert(module.clone()) {
            continue;
        }
        next.extend(imports[&module].iter().cloned());
        let children = modules.iter().filter(|(child, _)| {
            child.len() == module.len() + 1 && child.starts_with(&module) && !module.is_empty()
        });
        next.extend(
            children
                .filter(|(child, source)| {
                    source.extends_others() || modules[&module].names(&child[child.len() - 1])
                })
                .map(|(child, _)| child.clone()),
        );
    }
    let name = |module: Module| module.join("::");
    reached.into_iter().map(|module| (name(module.clone()), modules[&module].lines)).collect()
}

impl Source {
    /// Returns whether the code names an item of the child module of this name.
    fn names(&self, child: &str) -> bool {
        self.paths.iter().any(|(inline, path)| {
            let path = path.strip_prefix(&["self".to_owned()]).unwrap_or(path);
            inline.is_empty() && path.len() > 1 && path[0] == child
        })
    }
}
