//! Texts of `/proc`, parsed. A process chooses the bytes of its name, its arguments and the names
//! of its files.

/// What the kernel adds to the path of a program whose file is no longer there.
const DELETED: &[u8] = b" (deleted)";

/// Returns the file name in the target of `/proc/PID/exe`, and whether the file is gone.
pub(crate) fn program_name(path: &[u8]) -> (String, bool) {
    let (path, is_replaced) = match path.strip_suffix(DELETED) {
        Some(path) => (path, true),
        None => (path, false),
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (String::from_utf8_lossy(name).into_owned(), is_replaced)
}

/// Returns the words of a `/proc/PID/cmdline` or `/proc/PID/environ`.
pub(crate) fn split_words(text: &[u8]) -> Vec<String> {
    let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Returns field 22 of a `/proc/PID/stat`. The name before it may hold any bytes, parentheses and
/// spaces among them; nothing after it does.
pub(crate) fn parse_start(text: &[u8]) -> Option<u64> {
    let after = text.rsplit(|byte| *byte == b')').next()?;
    std::str::from_utf8(after).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns whether a variable of the environment names files that a profile's place `credentials`
/// or `service-account` has.
pub(crate) fn names_files(pair: &str) -> bool {
    ["AWS_", "SSL_CERT_", "KUBECONFIG="].iter().any(|name| pair.starts_with(name))
}

/// Returns the absolute paths in a word such as `--endpoint=unix:///run/csi.sock`.
pub(crate) fn paths(word: &str) -> Vec<String> {
    word.split(['=', ':', ','])
        .filter(|part| part.starts_with('/'))
        .map(|part| format!("/{}", part.trim_matches('/')))
        .filter(|path| path.len() > 1)
        .collect()
}

/// Parses `/proc/PID/limits`, a table with fixed columns.
pub(crate) fn parse_limits(text: &str) -> Vec<(String, Option<u64>)> {
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let (name, rest) = line.split_at_checked(26)?;
            let hard = rest.split_whitespace().nth(1)?;
            Some((name.trim().to_owned(), hard.parse().ok()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebs_csi_policy::process_status::Status;
    use proptest::prelude::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max core file size        0                    0                    bytes     
Max open files            1024                 4096                 files     
";

    #[test]
    fn proc_limits_are_parsed_by_column() {
        let limits = parse_limits(LIMITS);
        assert_eq!(limits[0], ("Max cpu time".to_owned(), None));
        assert_eq!(limits[1], ("Max core file size".to_owned(), Some(0)));
        assert_eq!(limits[2], ("Max open files".to_owned(), Some(4096)));
    }

    #[test]
    fn absolute_paths_are_found_in_words() {
        assert_eq!(paths("--endpoint=unix:///run/csi.sock"), ["/run/csi.sock"]);
        assert_eq!(paths("AWS_CONFIG_FILE=/a/b:/c,/"), ["/a/b", "/c"]);
    }

    #[test]
    fn program_name_ends_path_and_tells_removal() {
        assert_eq!(program_name(b"/usr/bin/x"), ("x".to_owned(), false));
        assert_eq!(program_name(b"/usr/bin/x (deleted)"), ("x".to_owned(), true));
        assert_eq!(program_name(b"/usr/x\n"), ("x\n".to_owned(), false));
    }

    /// Texts in which each byte may stand, and those of the kernel's forms more often.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let form = prop_oneof![
            Just(b"Uid:\t1\t2\t3\t4\n".to_vec()),
            Just(b"Groups:\t".to_vec()),
            Just(b" (deleted)".to_vec()),
            Just(b") ".to_vec()),
            Just(b"99999999999999999999".to_vec()),
            Just(b"\x1b[2J\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..16),
        ];
        prop::collection::vec(form, 0..12).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn hostile_bytes_end_no_parser(text in hostile()) {
            let _ = Status::parse(&text);
            let _ = parse_start(&text);
            let lossy = String::from_utf8_lossy(&text).into_owned();
            parse_limits(&lossy);
            prop_assert!(paths(&lossy).iter().all(|path| path.starts_with('/')));
            let (name, _) = program_name(&text);
            prop_assert!(!name.contains('/'));
            prop_assert!(split_words(&text).iter().all(|word| !word.is_empty()));
        }

        /// The kernel writes the name as it is, parentheses and ends of lines among it.
        #[test]
        fn start_is_read_behind_any_name(name in hostile(), start in any::<u64>()) {
            let zeros = "0 ".repeat(18);
            let after = format!(") S {zeros}{start} 0 0\n");
            let text = [b"7 (", &name[..], after.as_bytes()].concat();
            prop_assert_eq!(parse_start(&text), Some(start));
        }

        /// The kernel writes a backslash and a letter for an end of a line in the name.
        #[test]
        fn status_is_read_behind_any_name(name in hostile(), uid in any::<u32>()) {
            let name = String::from_utf8_lossy(&name).replace(['\n', '\r'], "");
            let text = format!(
                "Name:\t{name}\nState:\tS\nPPid:\t1\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\n\
                 Groups:\t\nThreads:\t1\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\nCapBnd:\t0\nCapAmb:\t0\n\
                 NoNewPrivs:\t1\nSeccomp:\t2\n"
            );
            prop_assert_eq!(Status::parse(text.as_bytes()).map(|found| found.uids), Ok([uid; 4]));
        }
    }
}
