//! The kernel's version and its security modules.

use ebs_csi_wire::KernelVersion;

use super::{Check, Host};

/// The oldest kernel with all the interfaces that the driver uses.
const OLDEST: KernelVersion = KernelVersion { major: 5, minor: 15 };
/// The answers of the profiles' filters.
const ACTIONS: [&str; 4] = ["kill_process", "errno", "user_notif", "allow"];

pub(super) fn checks(host: &Host, landlock: u8) -> Vec<Check> {
    vec![version(host), self::landlock(landlock), seccomp(host), yama(host), selinux(host)]
}

fn version(host: &Host) -> Check {
    const WHAT: &str = "kernel";
    let next = "use a node image with kernel 5.15 or newer";
    match host.read("/proc/sys/kernel/osrelease") {
        Ok(release) if KernelVersion::parse(&release).is_some_and(|found| found >= OLDEST) => {
            Check::ok(WHAT, release)
        }
        Ok(release) => Check::fail(WHAT, release, next),
        Err(error) => Check::fail(WHAT, super::describe_error(&error), "mount /proc"),
    }
}

fn landlock(abi: u8) -> Check {
    const WHAT: &str = "landlock";
    if abi == 0 {
        let next = "enable it (lsm=landlock,… on the kernel's command line), or start the mount-helper with \
                    --allow-missing-landlock";
        return Check::fail(WHAT, "not offered", next);
    }
    Check::ok(WHAT, format!("ABI {abi}"))
}

fn seccomp(host: &Host) -> Check {
    const WHAT: &str = "seccomp";
    let next = "use a kernel with CONFIG_SECCOMP_FILTER";
    match host.read("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(offered) => {
            let is_missing = |action: &&str| !offered.split_whitespace().any(|one| one == *action);
            match ACTIONS.into_iter().filter(is_missing).collect::<Vec<_>>().join(", ") {
                missing if missing.is_empty() => Check::ok(WHAT, "filters"),
                missing => Check::fail(WHAT, format!("without {missing}"), next),
            }
        }
        Err(error) => Check::fail(WHAT, super::describe_error(&error), next),
    }
}

fn yama(host: &Host) -> Check {
    const WHAT: &str = "yama ptrace_scope";
    match host.read("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) if ["0", "1"].contains(&scope.as_str()) => Check::ok(WHAT, scope),
        Ok(scope) => Check::fail(
            WHAT,
            scope,
            "set the sysctl kernel.yama.ptrace_scope to 1: every tool fails otherwise",
        ),
        Err(_) => Check::ok(WHAT, "no Yama"),
    }
}

fn selinux(host: &Host) -> Check {
    const WHAT: &str = "selinux";
    match host.read("/sys/fs/selinux/enforce").as_deref() {
        Ok("0") => Check::ok(WHAT, "permissive"),
        Ok(_) => Check::warn(
            WHAT,
            "enforcing",
            "run the mount-helper's container with a type that may mount (privileged: spc_t)",
        ),
        Err(_) => Check::ok(WHAT, "not in use"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn kernel_facts_decide_preflight_check_level() {
        type Look = fn(&Host) -> Check;
        let rows: [(Look, &str, &str, Level); 12] = [
            (version, "proc/sys/kernel/osrelease", "6.1.0-13-cloud", Level::Ok),
            (version, "proc/sys/kernel/osrelease", "5.15.0", Level::Ok),
            (version, "proc/sys/kernel/osrelease", "5.14.9", Level::Fail),
            (version, "proc/sys/kernel/osrelease", "new", Level::Fail),
            (version, "none", "", Level::Fail),
            (
                seccomp,
                "proc/sys/kernel/seccomp/actions_avail",
                "kill_process errno user_notif log allow",
                Level::Ok,
            ),
            (
                seccomp,
                "proc/sys/kernel/seccomp/actions_avail",
                "kill_process errno allow",
                Level::Fail,
            ),
            (yama, "proc/sys/kernel/yama/ptrace_scope", "1", Level::Ok),
            (yama, "proc/sys/kernel/yama/ptrace_scope", "2", Level::Fail),
            (selinux, "sys/fs/selinux/enforce", "1", Level::Warn),
            (selinux, "sys/fs/selinux/enforce", "0", Level::Ok),
            (selinux, "none", "", Level::Ok),
        ];
        for (look, file, text, level) in rows {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, format!("{text}\n")).unwrap();
            let host = Host { root: dir.path().to_owned(), kubelet: "/var/lib/kubelet".into() };
            let check = look(&host);
            assert_eq!(check.level, level, "{file} {text}: {check:?}");
            assert_eq!(check.level == Level::Ok, check.next.is_empty());
        }
        assert_eq!(landlock(0).level, Level::Fail);
        assert_eq!(landlock(3).level, Level::Ok);
    }
}
