//! The kernel's report about a process: `/proc/PID/status`, parsed.

/// The fields of `/proc/PID/status` that determine what a process may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The first 15 bytes of the program's name. Bytes that are no UTF-8 are replaced.
    pub name: String,
    /// The thread has ended and waits for its parent.
    pub ended: bool,
    /// The process's number in its own namespace; `None` on kernels before 4.1.
    pub own_number: Option<u32>,
    /// The number of the parent.
    pub parent: u32,
    /// Real, effective, saved and file-system user.
    pub uids: [u32; 4],
    /// Real, effective, saved and file-system group.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Number of threads.
    pub threads: u32,
    /// Inheritable capabilities, one bit each.
    pub inheritable: u64,
    /// Permitted capabilities.
    pub permitted: u64,
    /// Effective capabilities.
    pub effective: u64,
    /// The bounding set.
    pub bounding: u64,
    /// Ambient capabilities.
    pub ambient: u64,
    /// `no_new_privs` is set.
    pub no_new_privs: bool,
    /// 0: no seccomp, 1: strict, 2: filters.
    pub seccomp: u8,
    /// Number of filters; `None` on kernels before 5.9.
    pub seccomp_filters: Option<u32>,
}

/// A field that is missing or not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process status has no readable {field}")]
pub struct StatusError {
    field: &'static str,
}

impl Status {
    /// Parses the text of `/proc/PID/status`. Fails with [`StatusError`] naming the field that is
    /// missing or unreadable.
    pub fn parse(text: &[u8]) -> Result<Self, StatusError> {
        // A process may give itself any bytes as its name.
        let text = String::from_utf8_lossy(text);
        let field = |name: &'static str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
                .ok_or(StatusError { field: name })
        };
        let number = |name: &'static str| {
            field(name)?.parse::<u32>().map_err(|_| StatusError { field: name })
        };
        let set = |name: &'static str| {
            u64::from_str_radix(field(name)?, 16).map_err(|_| StatusError { field: name })
        };
        let four = |name: &'static str| -> Result<[u32; 4], StatusError> {
            numbers(field(name)?)
                .and_then(|all| all.try_into().ok())
                .ok_or(StatusError { field: name })
        };
        Ok(Self {
            name: field("Name")?.to_owned(),
            ended: field("State")?.starts_with(['Z', 'X']),
            own_number: field("NSpid")
                .ok()
                .and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok()),
            parent: number("PPid")?,
            uids: four("Uid")?,
            gids: four("Gid")?,
            groups: numbers(field("Groups")?).ok_or(StatusError { field: "Groups" })?,
            threads: number("Threads")?,
            inheritable: set("CapInh")?,
            permitted: set("CapPrm")?,
            effective: set("CapEff")?,
            bounding: set("CapBnd")?,
            ambient: set("CapAmb")?,
            no_new_privs: number("NoNewPrivs")? == 1,
            seccomp: u8::try_from(number("Seccomp")?)
                .map_err(|_| StatusError { field: "Seccomp" })?,
            seccomp_filters: number("Seccomp_filters").ok(),
        })
    }
}

fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tbroker\nUmask:\t0022\nState:\tS (sleeping)\nPPid:\t40\nNSpid:\t41\t2\n\
                        Uid:\t65531\t65531\t65531\t65531\nGid:\t0\t0\t0\t0\n\
                        Groups:\t6 \nThreads:\t33\nCapInh:\t0000000000000000\nCapPrm:\t0000000001200004\n\
                        CapEff:\t0000000000200000\nCapBnd:\t0000000001200004\nCapAmb:\t0000000000000000\n\
                        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";

    #[test]
    fn proc_status_fields_are_parsed() {
        let status = Status::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(status.name, "broker");
        assert_eq!((status.ended, status.parent, status.own_number), (false, 40, Some(2)));
        assert_eq!(status.uids, [65531; 4]);
        assert_eq!(status.groups, [6]);
        assert_eq!(status.permitted, 0x120_0004);
        assert_eq!(status.effective, 1 << 21);
        assert!(status.no_new_privs);
        assert_eq!((status.seccomp, status.seccomp_filters), (2, Some(2)));
    }

    #[test]
    fn a_missing_field_is_named() {
        let text = TEXT.replace("CapEff", "CapXyz");
        let error = Status::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("CapEff"), "{error}");
    }

    #[test]
    fn name_of_other_bytes_hides_no_field() {
        let text = [b"Name:\tbr\xffker\n", TEXT.as_bytes()].concat();
        let status = Status::parse(&text).unwrap();
        assert_eq!((&*status.name, status.uids), ("br\u{fffd}ker", [65531; 4]));
    }

    /// Old kernels do not write the line Seccomp_filters.
    #[test]
    fn status_without_seccomp_filter_count_parses() {
        let text = TEXT.replace("Seccomp_filters:\t2\n", "");
        assert_eq!(Status::parse(text.as_bytes()).unwrap().seccomp_filters, None);
    }
}
