//! User, groups, capabilities and limits.

use ebs_csi_confine::{Entering, Fault, raise};
use ebs_csi_policy::profile;
use rustix::process::{Resource, getrlimit};
use rustix::thread::capabilities_secure_bits;

use super::{Case, TestResult, become_user, enter, expect, expect_fault};

pub(super) const CASES: &[(&str, Case)] = &[
    ("a_controller_stays_under_the_ordinary_user_it_was_started_as", || {
        become_user(1000, 1000, &[])?;
        let enforced = enter(profile::CONTROLLER, false)?;
        expect(enforced.status.uids == [1000; 4], &enforced)
    }),
    ("a_node_agent_under_another_user_is_a_fault", || {
        become_user(1000, 1000, &[])?;
        let own = profile::NODE_AGENT.identity.uid;
        expect_fault(
            enter(profile::NODE_AGENT, false),
            |fault| matches!(fault, Fault::WrongUser { wanted, found: 1000 } if *wanted == own),
        )
    }),
    ("a_node_agent_started_as_its_own_user_is_confined", || {
        let own = profile::NODE_AGENT.identity;
        become_user(own.uid, own.gid, &[])?;
        let enforced = enter(profile::NODE_AGENT, false)?;
        expect(enforced.status.permitted == 0 && enforced.status.no_new_privs, &enforced)
    }),
    ("a_broker_without_sys_admin_is_a_fault", || {
        keep_capabilities(|one| one != caps::Capability::CAP_SYS_ADMIN)?;
        expect_fault(enter(profile::BROKER, false), |fault| {
            matches!(fault, Fault::CapabilityMissing("CAP_SYS_ADMIN"))
        })
    }),
    ("a_broker_without_an_optional_capability_reports_it", || {
        keep_capabilities(|one| {
            one != caps::Capability::CAP_SYS_RESOURCE
                && one != caps::Capability::CAP_DAC_READ_SEARCH
        })?;
        let enforced = enter(profile::BROKER, false)?;
        let missing = ["CAP_SYS_RESOURCE", "CAP_DAC_READ_SEARCH"];
        expect(enforced.missing_capabilities == missing, &enforced)?;
        let logged = format!(" not_granted={}", missing.join(","));
        expect(enforced.to_string().contains(&logged), &enforced)?;
        let held = (enforced.status.permitted, enforced.status.bounding);
        expect(held == (1 << 21, 1 << 21), &enforced)
    }),
    ("a_broker_that_may_not_drop_its_bounding_set_is_a_fault", || {
        keep_capabilities(|one| one != caps::Capability::CAP_SETPCAP)?;
        expect_fault(enter(profile::BROKER, false), |fault| {
            matches!(fault, Fault::Capabilities("bounding", _))
        })
    }),
    ("a_broker_that_may_not_change_its_user_is_a_fault", || {
        keep_capabilities(|one| one != caps::Capability::CAP_SETUID)?;
        expect_fault(enter(profile::BROKER, false), |fault| {
            matches!(fault, Fault::Identity { what: "user", id: 65531, .. })
        })
    }),
    ("a_process_gets_the_limits_of_its_profile", || {
        let entering = Entering::begin(profile::NODE_AGENT)?;
        let most_files = getrlimit(Resource::Nofile).maximum;
        entering.identity()?;
        for limit in profile::NODE_AGENT.limits {
            let (resource, most) = match limit.resource {
                profile::Resource::Core => (Resource::Core, None),
                profile::Resource::Descriptors => (Resource::Nofile, most_files),
            };
            let value = Some(most.map_or(limit.value, |most| most.min(limit.value)));
            let found = getrlimit(resource);
            expect((found.current, found.maximum) == (value, value), &(limit, found))?;
        }
        Ok(())
    }),
    ("a_process_locks_what_root_would_get_back", || {
        Entering::begin(profile::BROKER).and_then(Entering::identity)?;
        let bits = capabilities_secure_bits()?;
        // linux/securebits.h: NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock,
        // and the lock of KEEP_CAPS.
        expect(bits.bits() == 0xef, &bits)
    }),
    ("user_0_without_capabilities_is_a_fault", || {
        keep_capabilities(|_| false)?;
        expect_fault(enter(profile::CONTROLLER, false), |fault| {
            matches!(fault, Fault::Identity { what: "groups", .. })
        })
    }),
    ("a_capability_is_effective_while_it_is_raised", || {
        let held = profile::BROKER.capability("CAP_DAC_READ_SEARCH").expect("held");
        let is_effective =
            || caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_DAC_READ_SEARCH);
        enter(profile::BROKER, false)?;
        let before = is_effective()?;
        let raised = raise(held)?;
        let meanwhile = is_effective()?;
        drop(raised);
        let found = (before, meanwhile, is_effective()?);
        expect(found == (false, true, false), &found)
    }),
];

fn keep_capabilities(keep: impl Fn(caps::Capability) -> bool) -> TestResult {
    let mut left = caps::read(None, caps::CapSet::Permitted)?;
    left.retain(|one| keep(*one));
    caps::set(None, caps::CapSet::Effective, &left)?;
    Ok(caps::set(None, caps::CapSet::Permitted, &left)?)
}
