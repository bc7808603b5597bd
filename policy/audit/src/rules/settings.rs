//! Arguments of the mount-helper that widen the policy.

use ebs_csi_policy::place::PlaceClass;
use ebs_csi_policy::profile::{self, Profile};
use ebs_csi_policy::setting::{self, Effect, Setting};
use ebs_csi_policy::variant::{PRODUCTION, Policy};

use crate::answer::{Answer, Verdict};
use crate::process::Process;
use crate::rules;
use crate::rules::digest::Build;

/// What an audit expects beside the profiles.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The policy that the mount-helper may enforce beside [`PRODUCTION`].
    pub policy: Policy,
    /// Widening settings that are known and wanted, as in [`setting_named`].
    pub settings: Vec<String>,
    /// The build whose programs may run; `None` leaves the rule `digest` out.
    pub build: Option<Build>,
}

impl Expectation {
    /// Expects a policy, and no setting that widens it.
    #[must_use]
    pub const fn of(policy: Policy) -> Self {
        Self { policy, settings: Vec::new(), build: None }
    }
}

/// Flags that other rules judge: the policy, the listeners, and the files that may be held.
const JUDGED_ELSEWHERE: [&str; 5] =
    ["--guest-disks", "--sandbox", "--listen", "--vsock-peers", "--kubelet-root"];

/// Returns the rows of the policy with a value that is wider.
fn widening() -> impl Iterator<Item = &'static Setting> {
    setting::SETTINGS.iter().filter(|row| {
        row.program == "mount-helper"
            && (row.switch || !row.wider.is_empty())
            && !JUDGED_ELSEWHERE.contains(&row.flag)
    })
}

/// Returns what the answer calls the setting: a flag that any value makes wider has no value there.
fn name(row: &Setting) -> String {
    match row.wider {
        [] | ["*"] => row.flag.to_owned(),
        values => format!("{}={}", row.flag, values.join("|")),
    }
}

fn is_in(row: &Setting, process: &Process) -> bool {
    process.values_of(row.flag).any(|value| row.effect(value) == Effect::Wider)
}

/// Returns the setting of this name, such as `--paths=any`, if it is one that widens the policy.
#[must_use]
pub fn setting_named(name: &str) -> Option<String> {
    widening().map(self::name).find(|known| known == name)
}

/// Returns whether a profile's processes take their settings from the mount-helper's arguments.
fn is_of_helper(profile: &Profile) -> bool {
    profile.name != profile::TOOL.name && rules::programs(profile) == crate::process::HELPER
}

pub(crate) fn reasons(profile: &Profile) -> Vec<String> {
    if !is_of_helper(profile) {
        return vec!["its arguments name the listeners and files that it may hold".to_owned()];
    }
    widening().map(|row| format!("{}: {}", name(row), row.why)).collect()
}

pub(crate) fn expected(profile: &Profile) -> String {
    if is_of_helper(profile) {
        "no setting wider than the policy".to_owned()
    } else {
        format!("arguments of at most {} bytes", crate::process::MOST_ARGUMENTS)
    }
}

pub(crate) fn answer(
    process: &Process,
    profile: &'static Profile,
    expectation: &Expectation,
) -> Answer {
    let evidence = format!("/proc/{}/cmdline", process.pid);
    let new =
        |verdict, found: String| Answer::new(profile, "settings", verdict, found, evidence.clone());
    let mut found = Vec::new();
    let enforced = process.policy();
    if is_of_helper(profile) {
        if enforced != expectation.policy && enforced != PRODUCTION {
            let expected = expectation.policy.name;
            found.push(format!("policy {} instead of {expected}", enforced.name));
        }
        let wider = widening().filter(|row| is_in(row, process));
        found.extend(wider.map(name).filter(|name| {
            let is_default = name == "--paths=any" && expectation.policy.places == PlaceClass::Any;
            !is_default && !expectation.settings.contains(name)
        }));
    }
    if !found.is_empty() {
        return new(Verdict::Deviates, found.join("; "));
    }
    if process.arguments_are_cut {
        return new(Verdict::NotSeen, "arguments that are longer".to_owned());
    }
    new(
        Verdict::Conforms,
        format!("policy {}, {} arguments", enforced.name, process.arguments.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::variant::{GUEST, SANDBOX};

    fn verdict(arguments: &[&str], expectation: &Expectation) -> (Verdict, String) {
        let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        let process = Process { arguments, ..Process::default() };
        let answer = answer(&process, profile::BROKER, expectation);
        (answer.verdict, answer.found)
    }

    #[test]
    fn each_widening_setting_is_named_deviation() {
        let production = Expectation::of(PRODUCTION);
        for (arguments, name) in [
            (&["h", "--paths", "any"][..], "--paths=any"),
            (&["h", "--paths=any"], "--paths=any"),
            (&["h", "--paths=kubernetes", "--paths=any"], "--paths=any"),
            (&["h", "--untrusted-images=allow"], "--untrusted-images=allow"),
            (&["h", "--allow-private-mounts"], "--allow-private-mounts"),
            (&["h", "--allow-missing-landlock"], "--allow-missing-landlock"),
            (&["h", "--fault-point", "step"], "--fault-point"),
        ] {
            assert_eq!(verdict(arguments, &production), (Verdict::Deviates, name.to_owned()));
            let settings = Vec::from_iter(setting_named(name));
            assert_eq!(settings.len(), 1, "{name}");
            let wanted = Expectation { settings, ..production.clone() };
            assert_eq!(verdict(arguments, &wanted).0, Verdict::Conforms, "{name}");
        }
        for narrow in ["--paths=kubernetes", "--untrusted-images=deny", "--nodev-nosuid=on"] {
            assert_eq!(verdict(&["h", narrow], &production).0, Verdict::Conforms, "{narrow}");
            assert_eq!(setting_named(narrow), None);
        }
    }

    #[test]
    fn unexpected_policy_is_deviation() {
        let of = |policy, arguments: &[&str]| verdict(arguments, &Expectation::of(policy));
        for (flag, policy) in [("--guest-disks", GUEST), ("--sandbox", SANDBOX)] {
            assert_eq!(of(policy, &["h", flag]).0, Verdict::Conforms);
            assert_eq!(of(policy, &["h"]).0, Verdict::Conforms);
            let other = if policy == GUEST { SANDBOX } else { GUEST };
            for expected in [PRODUCTION, other] {
                let found = format!("policy {} instead of {}", policy.name, expected.name);
                assert_eq!(of(expected, &["h", flag]), (Verdict::Deviates, found));
            }
        }
        // The sandbox's default.
        assert_eq!(of(SANDBOX, &["h", "--sandbox", "--paths=any"]).0, Verdict::Conforms);
        assert_eq!(of(GUEST, &["h", "--guest-disks", "--paths=any"]).0, Verdict::Deviates);
    }

    #[test]
    fn cut_arguments_never_conform() {
        for profile in [profile::BROKER, profile::CONTROLLER] {
            let process = Process { arguments_are_cut: true, ..Process::default() };
            let answer = answer(&process, profile, &Expectation::of(PRODUCTION));
            assert_eq!(answer.verdict, Verdict::NotSeen);
        }
    }
}
