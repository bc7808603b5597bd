//! Where volumes may be staged and published.

use ebs_csi_wire::path::RelativePath;
use ebs_csi_wire::{KubeletPath, Operation, PathRule, Refusal};

use crate::named_values;

pub use ebs_csi_wire::{PlaceFor, REQUESTS, RequestProperties};

named_values! {
    /// How wide the allowed places are; each class includes the class before it.
    pub PlaceClass {
        /// The places where kubelet puts volumes.
        Kubernetes => "kubernetes",
        /// Any place beneath the `plugins` and `pods` directories, for other orchestrators and
        /// conformance tests.
        Any => "any",
    }
}

/// One component of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternPart {
    /// This component.
    Name(&'static str),
    /// Any one component.
    One,
    /// One or more components; only at the end.
    Rest,
}

/// A row of `mounts.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The narrowest class that includes it.
    pub class: PlaceClass,
    /// The pattern beneath the kubelet root, as written.
    pub pattern: &'static str,
    /// The pattern, component by component.
    pub parts: &'static [PatternPart],
    /// The uses that are allowed there.
    pub operations: &'static [PlaceFor],
    /// Why it is allowed.
    pub why: &'static str,
}

mod compiled {
    use super::{PatternPart, Place, PlaceClass, PlaceFor};
    include!(concat!(env!("OUT_DIR"), "/places.rs"));
}

/// Every row.
pub const PLACES: &[Place] = compiled::PLACES;

impl Place {
    /// Returns whether the path matches the pattern.
    #[must_use]
    pub fn matches(&self, path: RelativePath<'_>) -> bool {
        let mut components = path.components();
        for part in self.parts {
            match (part, components.next()) {
                (_, None) => return false,
                (PatternPart::Name(name), Some(component)) if *name != component => return false,
                (PatternPart::Rest, Some(_)) => return true,
                (PatternPart::Name(_) | PatternPart::One, Some(_)) => {}
            }
        }
        components.next().is_none()
    }
}

/// Returns whether the path is an allowed place for one of the uses.
#[must_use]
pub fn allowed(class: PlaceClass, uses: &[PlaceFor], path: RelativePath<'_>) -> bool {
    PLACES.iter().any(|place| {
        place.class <= class
            && place.operations.iter().any(|operation| uses.contains(operation))
            && place.matches(path)
    })
}

/// Checks that every path of the request is an allowed place for the requested operation.
pub fn check(operation: &Operation, root: &KubeletPath, class: PlaceClass) -> Result<(), Refusal> {
    let mut paths = operation.paths();
    let is_allowed = |(rule, path): (&PathRule, &KubeletPath)| {
        path.strip_root(root).is_some_and(|relative| allowed(class, rule.uses, relative))
    };
    if paths.all(is_allowed) { Ok(()) } else { Err(Refusal::PathOutside) }
}
