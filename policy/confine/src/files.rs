//! Landlock.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use ebs_csi_policy::profile::{
    FilePlace, FileRight, FileRule, Files, Landlock, Scope, Tcp, process,
};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};

use crate::places::{Places, open_path};
use crate::{Fault, LandlockState, sys};

/// Restricts the calling thread and everything that it starts.
pub(crate) fn restrict(
    rules: &Landlock,
    places: &Places,
    allow_missing: bool,
) -> Result<LandlockState, Fault> {
    let abi = sys::landlock_abi();
    if abi < rules.floor && rules.floor_is_hard && !allow_missing {
        return Err(Fault::LandlockMissing { found: abi, profile_floor: rules.floor });
    }
    if abi == 0 {
        return Ok(LandlockState::Missing);
    }
    if matches!(rules.files, Files::Inherited) {
        return Ok(LandlockState::Inherited);
    }
    let status = build(rules, places).map_err(|error| match error {
        Problem::Place(fault) => fault,
        Problem::Ruleset(error) => Fault::Landlock(error.to_string()),
    })?;
    Ok(match status {
        RulesetStatus::FullyEnforced => LandlockState::Full { abi },
        RulesetStatus::PartiallyEnforced => LandlockState::Partial { abi },
        RulesetStatus::NotEnforced => LandlockState::Missing,
    })
}

enum Problem {
    Place(Fault),
    Ruleset(landlock::RulesetError),
}

impl<E: Into<landlock::RulesetError>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Ruleset(error.into())
    }
}

fn build(rules: &Landlock, places: &Places) -> Result<RulesetStatus, Problem> {
    // An older kernel leaves out the rights that it does not know.
    let handled = ABI::from(i32::from(process::LANDLOCK.abi));
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    if matches!(rules.files, Files::Listed(_)) {
        ruleset = ruleset.handle_access(AccessFs::from_all(handled))?;
    }
    if rules.tcp == Tcp::Denied {
        ruleset = ruleset.handle_access(AccessNet::from_all(handled))?;
    }
    for scope in rules.scopes {
        ruleset = ruleset.scope(match scope {
            Scope::AbstractUnixSocket => landlock::Scope::AbstractUnixSocket,
            Scope::Signal => landlock::Scope::Signal,
        })?;
    }
    // An older kernel may know none of the requested rights; that is a state to report, not an
    // error.
    let mut created = ruleset.create()?;
    for rule in rules.files.rules() {
        let rights = rights(rule);
        for place in opened(rule, places)? {
            created = created.add_rule(PathBeneath::new(place, rights))?;
        }
    }
    Ok(created.restrict_self()?.ruleset)
}

/// Returns the descriptors to which a rule applies.
fn opened(rule: &FileRule, places: &Places) -> Result<Vec<OwnedFd>, Problem> {
    let missing =
        |place: &str, source| Problem::Place(Fault::Place { place: place.to_owned(), source });
    match rule.place {
        FilePlace::Path(path) => match open_path(Path::new(path)) {
            Ok(descriptor) => Ok(vec![descriptor]),
            Err(error) if rule.optional && error.kind() == io::ErrorKind::NotFound => {
                Ok(Vec::new())
            }
            Err(error) => Err(missing(path, error)),
        },
        FilePlace::Named(name) => {
            let mut found = Vec::new();
            for descriptor in places.named(name) {
                found.push(descriptor.try_clone().map_err(|error| missing(name, error))?);
            }
            if found.is_empty() && !rule.optional {
                return Err(missing(name, io::ErrorKind::NotFound.into()));
            }
            Ok(found)
        }
    }
}

fn rights(rule: &FileRule) -> BitFlags<AccessFs> {
    rule.rights
        .iter()
        .map(|right| match right {
            FileRight::Execute => AccessFs::Execute,
            FileRight::ReadFile => AccessFs::ReadFile,
            FileRight::ReadDir => AccessFs::ReadDir,
            FileRight::WriteFile => AccessFs::WriteFile,
            FileRight::MakeDir => AccessFs::MakeDir,
            FileRight::MakeReg => AccessFs::MakeReg,
            FileRight::MakeSock => AccessFs::MakeSock,
            FileRight::RemoveDir => AccessFs::RemoveDir,
            FileRight::RemoveFile => AccessFs::RemoveFile,
            FileRight::IoctlDev => AccessFs::IoctlDev,
            FileRight::ResolveUnix => AccessFs::ResolveUnix,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library takes a number that it does not know for its newest.
    #[test]
    fn library_knows_landlock_abi_of_policy() {
        let abi = process::LANDLOCK.abi;
        assert_eq!(ABI::from(i32::from(abi)) as u8, abi);
    }

    #[test]
    fn only_optional_place_may_be_missing() {
        use FilePlace::{Named, Path};
        for (place, optional, found) in [
            (Path("/proc"), false, Some(1)),
            (Path("/proc/none"), false, None),
            (Path("/proc/none"), true, Some(0)),
            // Not a directory: another error than a missing file's.
            (Path("/proc/version/none"), true, None),
            (Named("here"), false, Some(2)),
            (Named("none"), false, None),
            (Named("none"), true, Some(0)),
        ] {
            let places = Places::new()
                .with("here", "/")
                .and_then(|places| places.with("here", "/proc"))
                .expect("open");
            let rule = FileRule { place, optional, rights: &[], why: "" };
            let number = opened(&rule, &places).ok().map(|places| places.len());
            assert_eq!(number, found, "{place:?}, optional: {optional}");
        }
    }

    /// With inherited rules nothing binds this process.
    #[test]
    fn only_hard_floor_above_kernel_is_fault() {
        let abi = sys::landlock_abi();
        for (floor, floor_is_hard, allow_missing, starts) in [
            (abi, true, false, true),
            (abi + 1, true, false, false),
            (abi + 1, true, true, true),
            (abi + 1, false, false, true),
        ] {
            let rules = Landlock {
                floor,
                floor_is_hard,
                files: Files::Inherited,
                tcp: Tcp::Free,
                scopes: &[],
                why: "",
            };
            let found = restrict(&rules, &Places::new(), allow_missing).is_ok();
            assert_eq!(found, starts, "{rules:?}, {allow_missing}");
        }
    }
}
