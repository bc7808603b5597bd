//! User, groups, capabilities and limits.

use ebs_csi_confine::{Entering, Fault, raise};
use ebs_csi_policy::profile;
use rustix::process::{Resource, getrlimit};
use rustix::thread::capabilities_secure_bits;

use super::{Case, become_user, enter, expect, expect_fault};

pub(super) const CASES: &[(&str, Case)] = &[
    ("a_controller_stays_under_the_ordinary_user_it_was_started_as", || {
        become_user(1000, 1000, &[])?;
        let enforced = enter(profile::CONTROLLER, false).map_err(|fault| fault.to_string())?;
        expect(enforced.status.uids == [1000; 4], &enforced)
    }),
    ("a_node_agent_under_another_user_is_a_fault", || {
        become_user(1000, 1000, &[])?;
        expect_fault(enter(profile::NODE_AGENT, false), |fault| {
            matches!(
                fault,
                Fault::WrongUser {
                    wanted,
                    found: 1000
                } if *wanted == profile::NODE_AGENT.identity.uid
            )
        })
    }),
    ("a_node_agent_started_as_its_own_user_is_confined", || {
        let own = profile::NODE_AGENT.identity;
        become_user(own.uid, own.gid, &[])?;
        let enforced = enter(profile::NODE_AGENT, false).map_err(|fault| fault.to_string())?;
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
        let enforced = enter(profile::BROKER, false).map_err(|fault| fault.to_string())?;
        expect(
            enforced.missing_capabilities == ["CAP_SYS_RESOURCE", "CAP_DAC_READ_SEARCH"],
            &enforced,
        )?;
        expect(
            enforced.to_string().contains(" not_granted=CAP_SYS_RESOURCE,CAP_DAC_READ_SEARCH"),
            &enforced,
        )?;
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
        let text = |fault: Fault| fault.to_string();
        let entering = Entering::begin(profile::NODE_AGENT).map_err(text)?;
        let most_files = getrlimit(Resource::Nofile).maximum;
        entering.identity().map_err(text)?;
        for limit in profile::NODE_AGENT.limits {
            let (resource, most) = match limit.resource {
                profile::Resource::Core => (Resource::Core, None),
                profile::Resource::Descriptors => (Resource::Nofile, most_files),
            };
            let value = Some(most.map_or(limit.value, |most| most.min(limit.value)));
            let found = getrlimit(resource);
            if (found.current, found.maximum) != (value, value) {
                return Err(format!("{limit:?}: {found:?}"));
            }
        }
        Ok(())
    }),
    ("a_process_locks_what_root_would_get_back", || {
        Entering::begin(profile::BROKER)
            .and_then(Entering::identity)
            .map_err(|fault| fault.to_string())?;
        let bits = capabilities_secure_bits().map_err(|error| error.to_string())?;
        // linux/securebits.h: NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE, each with its lock,
        // and the lock of KEEP_CAPS.
        match bits.bits() {
            0xef => Ok(()),
            other => Err(format!("{other:#x}")),
        }
    }),
    ("user_0_without_capabilities_is_a_fault", || {
        keep_capabilities(|_| false)?;
        expect_fault(enter(profile::CONTROLLER, false), |fault| {
            matches!(fault, Fault::Identity { what: "groups", .. })
        })
    }),
    ("a_capability_is_effective_while_it_is_raised", || {
        let held = profile::BROKER.capabilities[2].capability;
        let is_effective = || {
            caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_DAC_READ_SEARCH)
                .map_err(|error| error.to_string())
        };
        enter(profile::BROKER, false).map_err(|fault| fault.to_string())?;
        let before = is_effective()?;
        let raised = raise(held).map_err(|fault| fault.to_string())?;
        let meanwhile = is_effective()?;
        drop(raised);
        match (before, meanwhile, is_effective()?) {
            (false, true, false) => Ok(()),
            found => Err(format!("{found:?}")),
        }
    }),
];

fn keep_capabilities(keep: impl Fn(caps::Capability) -> bool) -> Result<(), String> {
    let text = |error: caps::errors::CapsError| error.to_string();
    let left: caps::CapsHashSet = caps::read(None, caps::CapSet::Permitted)
        .map_err(text)?
        .into_iter()
        .filter(|one| keep(*one))
        .collect();
    caps::set(None, caps::CapSet::Effective, &left).map_err(text)?;
    caps::set(None, caps::CapSet::Permitted, &left).map_err(text)
}
