//! The variables with which a process may be started.

use ebs_csi_policy::profile::environment::{CREDENTIALS, GIVEN, KEPT};
use ebs_csi_policy::profile::{self, Profile};

/// Returns whether a process may have been started with a variable of this name. A tool is given
/// its whole environment; any other process may find what is no credential.
pub(crate) fn may_have(profile: &Profile, variable: &str) -> bool {
    if profile.name == profile::TOOL.name {
        return GIVEN.iter().any(|row| row.name == variable);
    }
    profile.forbids_variable(variable).is_none()
}

/// Returns whether some variable is a deviation.
pub(crate) fn is_restricted(profile: &Profile) -> bool {
    profile.name == profile::TOOL.name
        || CREDENTIALS.iter().any(|row| !row.profiles.contains(&profile.name))
}

pub(crate) fn expected(profile: &Profile) -> String {
    match profile.name {
        name if name == profile::TOOL.name => {
            let names: Vec<_> = GIVEN.iter().map(|row| row.name).collect();
            format!("none but {}", names.join(" "))
        }
        _ if is_restricted(profile) => "no AWS credential".to_owned(),
        _ => "any variable".to_owned(),
    }
}

pub(crate) fn reasons(profile: &Profile) -> Vec<String> {
    if profile.name == profile::TOOL.name {
        return GIVEN.iter().map(|row| format!("{}: {}", row.name, row.why)).collect();
    }
    let kept = KEPT.iter().filter(|row| row.profiles.contains(&profile.name));
    let kept = kept.map(|row| format!("keeps {}: {}", row.begins.join(" "), row.why));
    CREDENTIALS.iter().map(|row| row.why.to_owned()).chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_credential_row_allows_and_refuses() {
        for row in CREDENTIALS {
            for profile in profile::ALL.into_iter().filter(|one| one.name != profile::TOOL.name) {
                let may = row.profiles.contains(&profile.name);
                for word in row.words {
                    let name = format!("{}X_{word}_FILE", row.begins);
                    assert_eq!(may_have(profile, &name), may, "{name} of {}", profile.name);
                    for other in [format!("X_{name}"), row.begins.to_owned() + "REGION"] {
                        assert!(may_have(profile, &other), "{other} of {}", profile.name);
                    }
                }
                assert_eq!(is_restricted(profile), !may, "{}", profile.name);
            }
        }
    }

    #[test]
    fn tool_has_only_variables_that_it_is_given() {
        for row in GIVEN {
            assert!(may_have(profile::TOOL, row.name), "{}", row.name);
            assert!(!may_have(profile::TOOL, &format!("{}X", row.name)), "{}", row.name);
        }
        assert!(!may_have(profile::TOOL, "PATH"));
    }
}
