//! The node facts file: labels and annotations of the node-agent's own pod, which kubelet writes
//! into a volume.
//!
//! Each line is one `key="value"`, with the value quoted as kubelet's downward API quotes it.
//! Kubernetes copies the node's topology labels onto its pods where the cluster is configured so;
//! elsewhere annotations of the pod have the facts. The file may therefore appear, or become
//! complete, after the process has started.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebs_csi_proto::keys::{NETWORK_INTERFACES, NodeFact, OTHER_VOLUMES};
use ebs_csi_wire::InstanceId;

use super::dmi::{self, Machine};
use super::{NodeFacts, Outpost, Source};

/// Larger files are ignored: kubelet never writes one.
const SIZE_LIMIT: u64 = 1 << 20;
/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(200);

/// Why DMI and the files do not suffice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeFactsError {
    /// Neither DMI nor a file has the fact.
    #[error(
        "{what} is not known: the firmware does not say it, and the node facts files (labels and annotations of \
         this pod) have neither {label} nor {annotation}"
    )]
    Missing { what: &'static str, label: &'static str, annotation: &'static str },
    /// The firmware and a file contradict each other.
    #[error(
        "the firmware says instance {firmware}, the node facts file says {file}: the file is another node's"
    )]
    OtherNode { firmware: InstanceId, file: String },
    /// A value that must be a number is not one.
    #[error("{key} in the node facts file is {given:?}, not a number from 0 to 1000")]
    Number { key: &'static str, given: String },
}

/// Reads DMI and the files, repeatedly until they are sufficient or `timeout` has passed.
///
/// # Errors
/// [`NodeFactsError`] with the fact that was still missing.
pub(crate) fn read(
    dmi: &Path,
    files: &[PathBuf],
    timeout: Duration,
) -> Result<NodeFacts, NodeFactsError> {
    let (started, machine) = (Instant::now(), Machine::read(dmi));
    loop {
        match facts(&machine, &entries(files)) {
            Err(missing @ NodeFactsError::Missing { .. }) => {
                let left = timeout.saturating_sub(started.elapsed());
                if files.is_empty() || left.is_zero() {
                    return Err(missing);
                }
                std::thread::sleep(PAUSE.min(left));
            }
            settled => return settled,
        }
    }
}

/// Returns the entries of all files; a file that does not exist yet has none.
pub(crate) fn entries(files: &[PathBuf]) -> HashMap<String, String> {
    let mut all = HashMap::new();
    for file in files {
        let fits = std::fs::metadata(file).is_ok_and(|found| found.len() <= SIZE_LIMIT);
        if let Some(text) = fits.then(|| std::fs::read_to_string(file).ok()).flatten() {
            all.extend(parse(&text));
        }
    }
    all
}

/// Returns the facts from the firmware and the entries.
///
/// # Errors
/// [`NodeFactsError`] with the first missing or contradictory fact.
pub(crate) fn facts(
    machine: &Machine,
    entries: &HashMap<String, String>,
) -> Result<NodeFacts, NodeFactsError> {
    let given = |key: &str| entries.get(key).filter(|value| !value.is_empty()).cloned();
    let fact = |of: NodeFact| of.label().and_then(given).or_else(|| given(of.annotation()));
    let missing = |what, of: NodeFact| NodeFactsError::Missing {
        what,
        label: of.label().unwrap_or("a label for it"),
        annotation: of.annotation(),
    };
    let instance = match (machine.instance.clone(), fact(NodeFact::Instance)) {
        (Some(firmware), Some(file)) if firmware.as_str() != file => {
            return Err(NodeFactsError::OtherNode { firmware, file });
        }
        (Some(firmware), _) => firmware,
        (None, file) => file
            .and_then(|id| InstanceId::parse(&id).ok())
            .ok_or_else(|| missing("the instance id", NodeFact::Instance))?,
    };
    let instance_type = machine
        .instance_type
        .clone()
        .or_else(|| {
            let name = fact(NodeFact::InstanceType)?;
            Some(name.strip_prefix("ml.").unwrap_or(&name).to_owned())
        })
        .filter(|name| dmi::is_instance_type(name))
        .ok_or_else(|| missing("the instance type", NodeFact::InstanceType))?;
    let zone = fact(NodeFact::Zone).ok_or_else(|| missing("the zone", NodeFact::Zone))?;
    let number = |key: &'static str| match given(key) {
        None => Ok(None),
        Some(text) => match text.parse::<u32>() {
            Ok(number) if number <= 1000 => Ok(Some(number)),
            _ => Err(NodeFactsError::Number { key, given: text }),
        },
    };
    let outpost = [
        NodeFact::OutpostPartition,
        NodeFact::OutpostRegion,
        NodeFact::OutpostAccount,
        NodeFact::Outpost,
    ];
    let outpost = match outpost.map(fact) {
        [Some(partition), Some(region), Some(account), Some(id)] => {
            Some(Outpost { partition, region, account, id })
        }
        _ => None,
    };
    Ok(NodeFacts {
        instance,
        instance_type,
        zone,
        region: fact(NodeFact::Region),
        network_interfaces: number(NETWORK_INTERFACES)?.unwrap_or(1),
        other_volumes: number(OTHER_VOLUMES)?.unwrap_or(0),
        outpost,
        source: Source::Kubernetes,
    })
}

/// Parses the `key="value"` lines of a text; skips lines of another form.
pub(crate) fn parse(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter_map(|line| {
            let (key, quoted) = line.split_once('=')?;
            let value = unquote(quoted.trim())?;
            Some((key.trim().to_owned(), value))
        })
        .collect()
}

/// Removes the double quotes and backslash escapes from a text.
fn unquote(quoted: &str) -> Option<String> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let mut value = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return None,
            '\\' => value.push(match characters.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                escaped @ ('"' | '\\') => escaped,
                _ => return None,
            }),
            plain => value.push(plain),
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz_inputs::quoted;

    const WHOLE: &str = "app=\"ebs-csi-node\"\n\
        topology.kubernetes.io/zone=\"eu-central-1b\"\n\
        topology.kubernetes.io/region=\"eu-central-1\"\n\
        node.kubernetes.io/instance-type=\"m5.large\"\n\
        ebs.csi.aws.com/instance-id=\"i-0123456789abcdef0\"\n\
        ebs.csi.aws.com/enis-count=\"3\"\n";

    fn write(text: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("facts");
        std::fs::write(&path, text).unwrap();
        (dir, vec![path])
    }

    #[test]
    fn complete_facts_file_suffices_without_dmi() {
        let (dir, files) = write(WHOLE);
        let wanted = NodeFacts {
            instance: InstanceId::parse("i-0123456789abcdef0").unwrap(),
            instance_type: "m5.large".to_owned(),
            zone: "eu-central-1b".to_owned(),
            region: Some("eu-central-1".to_owned()),
            network_interfaces: 3,
            other_volumes: 0,
            outpost: None,
            source: Source::Kubernetes,
        };
        assert_eq!(read(dir.path(), &files, Duration::ZERO).unwrap(), wanted);
        // A node-lifecycle that writes all facts uses annotations alone.
        let text = WHOLE
            .replace("topology.kubernetes.io/", "ebs.csi.aws.com/")
            .replace("node.kubernetes.io/", "ebs.csi.aws.com/");
        let (dir, files) = write(&text);
        assert_eq!(read(dir.path(), &files, Duration::ZERO).unwrap(), wanted);
    }

    #[test]
    fn missing_facts_file_key_is_named_in_error() {
        for key in [
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/instance-type",
            "ebs.csi.aws.com/instance-id",
        ] {
            let (dir, files) = write(&WHOLE.replace(key, "other"));
            let error = read(dir.path(), &files, Duration::ZERO).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_node_is_refused() {
        let (dir, files) = write(WHOLE);
        std::fs::write(dir.path().join("board_asset_tag"), "i-0fffffffffffffff0").unwrap();
        let error = read(dir.path(), &files, Duration::ZERO).unwrap_err();
        assert!(matches!(error, NodeFactsError::OtherNode { .. }), "{error}");
    }

    /// The 60 s are the time to wait for an incomplete file, not for a bad value.
    #[test]
    fn negative_enis_count_is_refused() {
        let (dir, files) = write(&WHOLE.replace("\"3\"", "\"-1\""));
        let error = read(dir.path(), &files, Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("enis-count"), "{error}");
    }

    #[test]
    fn read_waits_until_facts_file_is_complete() {
        let (dir, files) = write("");
        let path = files[0].clone();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            std::fs::write(path, WHOLE).unwrap();
        });
        assert!(read(dir.path(), &files, Duration::from_secs(30)).is_ok());
        writer.join().unwrap();
    }

    #[test]
    fn only_valid_kubelet_quoted_values_are_unquoted() {
        let rows = [
            (r#""a""#, Some("a")),
            (r#""a\"b\\c\n""#, Some("a\"b\\c\n")),
            (r#""""#, Some("")),
            (r#"a"#, None),
            (r#""a"b""#, None),
            (r#""a\"#, None),
            (r#""a\q""#, None),
        ];
        for (quoted, want) in rows {
            assert_eq!(unquote(quoted).as_deref(), want, "{quoted}");
        }
    }

    proptest! {
        #[test]
        fn kubelet_quoted_value_round_trips_between_noise_lines(value in "[ -~\n\t\r]{0,40}", noise in ".{0,40}") {
            let text = format!("{noise}\nkey={}\n{noise}", quoted(&value));
            let entries = parse(&text);
            prop_assert_eq!(entries.get("key"), Some(&value));
        }
    }
}
