//! What the fuzz targets do with an input, and the replay of their inputs. A target returns whether
//! the input was accepted.

use ebs_csi_document::{self as document, Value};
use ebs_csi_policy::PRODUCTION;
use ebs_csi_policy::process_status::Status;
use ebs_csi_policy::profile;

use super::proc_text::{parse_limits, parse_start, paths, program_name, split_words};
use super::seen::shared_mount;
use super::{Kept, Process};
use crate::answer::{self, Answer};
use crate::collected::Collected;
use crate::{Audit, Expectation, Source};

#[cfg(test)]
#[path = "../../../proto/wire/fuzz/replay.rs"]
mod replay;

/// Reads the input as each file of `/proc` that is parsed. What was read can be written as the
/// kernel writes it, and is then read as the same. Accepts a status, whose process is judged by
/// every profile and conforms to none.
pub fn proc_files(input: &[u8]) -> bool {
    let lossy = String::from_utf8_lossy(input);
    let words = split_words(input);
    assert_eq!(split_words(words.join("\0").as_bytes()), words);
    let named_paths: Vec<String> = words.iter().flat_map(|word| paths(word)).collect();
    for path in &named_paths {
        assert_eq!(paths(path), [path.as_str()]);
    }
    let (program, is_replaced) = program_name(input);
    assert!(!program.contains('/'), "{program:?}");
    let limits = parse_limits(&lossy);
    let again: String = limits.iter().map(limit_line).collect();
    assert_eq!(parse_limits(&format!("Limit\n{again}")), limits, "{again:?}");
    let mut lines = lossy.lines();
    assert!(lines.all(|line| shared_mount(line.as_bytes()).is_none() || line.contains("shared:")));
    let stat = [b"7 (", input, b") S ", "0 ".repeat(18).as_bytes(), b"99 0"].concat();
    assert_eq!(parse_start(&stat), Some(99), "the name is no field");
    let _ = parse_start(input);
    let Ok(status) = Status::parse(input) else { return false };
    assert_eq!(Status::parse(status_text(&status).as_bytes()), Ok(status.clone()));
    let process = Process {
        program,
        is_replaced,
        arguments: words,
        named_paths,
        limits,
        status,
        ..Process::default()
    };
    for profile in profile::ALL {
        let answers = process.answers(profile, &Expectation::of(PRODUCTION), None);
        assert_ne!(answer::status(&answers), 0, "{answers:?}");
        answers.iter().for_each(is_one_line);
    }
    true
}

fn limit_line((name, hard): &(String, Option<u64>)) -> String {
    let hard = hard.map_or("unlimited".to_owned(), |hard| hard.to_string());
    // A column of 26 bytes.
    format!("{name}{}0 {hard} units\n", " ".repeat(26 - name.len()))
}

fn status_text(status: &Status) -> String {
    let numbers = |all: &[u32]| all.iter().map(|one| format!("\t{one}")).collect::<String>();
    let optional = |name: &str, value: Option<u32>| {
        value.map_or(String::new(), |value| format!("{name}:\t{value}\n"))
    };
    format!(
        "Name:\t{}\nState:\t{}\n{}PPid:\t{}\nUid:{}\nGid:{}\nGroups:{}\nThreads:\t{}\n\
         CapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\n\
         NoNewPrivs:\t{}\nSeccomp:\t{}\n{}",
        status.name,
        if status.ended { "Z (zombie)" } else { "S (sleeping)" },
        optional("NSpid", status.own_number),
        status.parent,
        numbers(&status.uids),
        numbers(&status.gids),
        numbers(&status.groups),
        status.threads,
        status.inheritable,
        status.permitted,
        status.effective,
        status.bounding,
        status.ambient,
        u8::from(status.no_new_privs),
        status.seccomp,
        optional("Seccomp_filters", status.seccomp_filters),
    )
}

/// Reads the input as TOML and as what [`Collected::write`] writes. What was read can be written,
/// and is then read as the same. Accepts a file that can be judged, in which nothing conforms.
pub fn collected(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    if let Ok(table) = document::toml(text) {
        assert!(values(&Value::Table(table)) <= text.len() + 1);
    }
    let Ok(value) = document::json(text) else { return false };
    assert!(values(&value) <= text.len());
    assert_eq!(document::json(&value.to_json()), Ok(value.clone()));
    let Some(collected) = Collected::back(&value) else { return false };
    let kept = collected.keep();
    let again = Collected::back(&kept).map(|again| again.keep());
    assert_eq!(again, Some(kept));
    let (expectation, source) = (Expectation::of(PRODUCTION), Source::Collected(collected));
    let of_process = Audit::of_process(1, profile::BROKER, &expectation, &source);
    let of_machine = Audit::of_machine(&expectation, &source).expect("a list");
    let of_tree = Audit::of_tree(1, &expectation, &source).expect("a list");
    for audit in [of_process, of_machine, of_tree] {
        assert_ne!(audit.status(), 0, "{audit:?}");
        audit.answers().for_each(is_one_line);
    }
    true
}

/// Returns how many values there are, keys among them.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::List(list) => list.iter().map(values).sum::<usize>(),
        Value::Table(table) => table.values().map(|one| 1 + values(one)).sum(),
        _ => 0,
    }
}

fn is_one_line(answer: &Answer) {
    for text in [answer.to_string(), answer.evidence.clone()] {
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;
    use super::*;

    #[test]
    fn proc_files_corpus_is_accepted_as_named() {
        replay("proc_files", 2, proc_files);
    }

    #[test]
    fn collected_corpus_is_accepted_as_named() {
        replay("collected", 2, collected);
    }
}
