//! Kubelet's directories, and whether mounts beneath them propagate.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Check, Host};

pub(super) fn checks(host: &Host) -> Vec<Check> {
    let names = ["", "plugins", "plugins_registry"];
    let mut checks: Vec<Check> = names.iter().map(|name| directory(host, name)).collect();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let root = host.kubelet("");
    let root = std::fs::canonicalize(&root).unwrap_or(root);
    checks.push(propagation(&table, &root));
    checks
}

fn directory(host: &Host, name: &str) -> Check {
    let what = match name {
        "" => "kubelet's root".to_owned(),
        name => format!("kubelet's {name}"),
    };
    let path = host.kubelet(name);
    match std::fs::metadata(&path) {
        Ok(found) if !found.is_dir() => {
            Check::fail(what, format!("{} is no directory", path.display()), "give --kubelet-root")
        }
        Ok(found) => {
            let (user, group, mode) = (found.uid(), found.gid(), found.mode() & 0o7777);
            let finding = format!("{} {user}:{group} {mode:04o}", path.display());
            if mode & 0o002 == 0 {
                Check::ok(what, finding)
            } else {
                Check::warn(what, finding, "everybody may write there: chmod o-w")
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Check::fail(
            what,
            format!("{} is not there", path.display()),
            "give --kubelet-root where kubelet has another",
        ),
        Err(error) => Check::warn(what, super::describe_error(&error), "look as root"),
    }
}

/// Checks the propagation of the mount that holds `path`, from the mount table.
fn propagation(table: &str, path: &Path) -> Check {
    const WHAT: &str = "mount propagation";
    let next = "mounts made there stay where they are made: mount --make-rshared on the node; in a container mount it \
                with mountPropagation HostToContainer and look again";
    let holder = table
        .lines()
        .filter_map(mount)
        .filter(|(point, _)| path.starts_with(point))
        // Of several mounts on one point, the last hides the others.
        .max_by_key(|(point, _)| Path::new(point).components().count());
    let Some((point, optional)) = holder else {
        return Check::warn(WHAT, "no mount table", "mount /proc");
    };
    let is_spread = |field: &&&str| field.starts_with("shared:") || field.starts_with("master:");
    match optional.iter().find(is_spread) {
        Some(field) => Check::ok(WHAT, format!("{point} is {field}")),
        None => Check::warn(WHAT, format!("{point} is private"), next),
    }
}

/// Returns the mount point and the optional fields of a line of mountinfo.
fn mount(line: &str) -> Option<(&str, Vec<&str>)> {
    let mut fields = line.split(' ');
    let point = fields.nth(4)?;
    let optional = fields.skip(1).take_while(|field| *field != "-").collect();
    Some((point, optional))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    const TABLE: &str = "\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw
30 22 0:25 / /run rw,nosuid shared:5 - tmpfs tmpfs rw
41 22 0:40 / /var/lib/kubelet rw - tmpfs tmpfs rw
52 22 0:41 / /host rw master:1 propagate_from:2 - ext4 /dev/nvme0n1p1 rw
";

    #[test]
    fn innermost_mount_of_path_decides_propagation_level() {
        for (path, level, says) in [
            ("/var/lib/other", Level::Ok, "/ is shared:1"),
            ("/var/lib/kubelet/plugins", Level::Warn, "/var/lib/kubelet is private"),
            ("/host/var/lib/kubelet", Level::Ok, "/host is master:1"),
            ("/running", Level::Ok, "/ is shared:1"),
        ] {
            let check = propagation(TABLE, Path::new(path));
            assert_eq!((check.level, check.finding.as_str()), (level, says), "{path}");
        }
        assert_eq!(propagation("", Path::new("/")).level, Level::Warn);
    }
}
