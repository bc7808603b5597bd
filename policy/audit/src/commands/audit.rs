//! The command `audit`: what each process is, and the answers to the rules of its profile.

use std::io::{self, Write};
use std::path::Path;

use ebs_csi_audit::answer::{Answer, Verdict};
use ebs_csi_audit::{Audit, Audited, Build, Collected, Expectation, Source, setting_named};
use ebs_csi_policy::{PRODUCTION, Policy};

use super::json;
use crate::{Failure, named_profile, unknown_command};

/// The form of the JSON report. It changes when a reader of the former one must change.
const JSON_VERSION: u8 = 1;

/// Compares the processes that the words name with their profiles.
pub(crate) fn audit(arguments: &[&str], out: &mut impl Write) -> Result<u8, Failure> {
    let (mut pid, mut tree, mut profile, mut all, mut json) = (None, None, None, false, false);
    let mut expectation = Expectation::of(PRODUCTION);
    let mut source = Source::Here;
    let mut words = arguments.iter().copied();
    while let Some(word) = words.next() {
        // The value of --expect has an equals sign of its own.
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word, None),
        };
        if word == "--all" && !all {
            all = true;
            continue;
        }
        let value = inline.or_else(|| words.next()).ok_or_else(|| unknown_command(arguments))?;
        match flag {
            "--pid" if pid.is_none() => pid = Some(parse_pid(value)?),
            "--tree" if tree.is_none() => tree = Some(parse_pid(value)?),
            "--as" if profile.is_none() => profile = Some(named_profile(value)?),
            "--policy" => {
                expectation.policy = Policy::named(value)
                    .ok_or_else(|| Failure::Usage(format!("there is no policy {value:?}")))?;
            }
            "--expect" => expectation.settings.push(setting_named(value).ok_or_else(|| {
                Failure::Usage(format!("{value:?} widens nothing, see explain supervisor/settings"))
            })?),
            "--digests" if expectation.build.is_none() => {
                let build = Build::read(Path::new(value)).map_err(Failure::Usage)?;
                expectation.build = Some(build);
            }
            "--from" => {
                let collected = Collected::read(Path::new(value)).map_err(Failure::Usage)?;
                source = Source::Collected(collected);
            }
            "--format" if ["text", "json"].contains(&value) => json = value == "json",
            _ => return Err(unknown_command(arguments)),
        }
    }
    let audit = match (pid, profile, tree, all) {
        (Some(pid), Some(profile), None, false) => {
            Audit::of_process(pid, profile, &expectation, &source)
        }
        (None, None, Some(pid), false) => Audit::of_tree(pid, &expectation, &source)?,
        (None, None, None, true) => Audit::of_machine(&expectation, &source)?,
        _ => return Err(unknown_command(arguments)),
    };
    if json {
        write_json(&audit, out)?;
    } else {
        write_text(&audit, out)?;
    }
    Ok(audit.status())
}

fn parse_pid(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| Failure::Usage(format!("{text:?} is not a process number")))
}

fn write_text(audit: &Audit, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>8} {:<22} {:<12} {:>6} {:>10} {:>10} {:>10} {:>3} {:>7}  VERDICT",
        "PID", "PROGRAM", "PROFILE", "UID", "EFFECTIVE", "PERMITTED", "BOUNDING", "NNP", "SECCOMP"
    )?;
    for audited in &audit.processes {
        let Audited { pid, program, profile, policy, status, answers } = audited;
        let (name, verdict) = (profile.map_or("-", |profile| profile.name), verdict(audited));
        match status {
            None => writeln!(out, "{pid:>8} {program:<22} {name:<12} {:>52}  {verdict}", "")?,
            Some(status) => writeln!(
                out,
                "{pid:>8} {program:<22} {name:<12} {:>6} {:>10x} {:>10x} {:>10x} {:>3} {:>7}  {verdict}",
                status.uids[1],
                status.effective,
                status.permitted,
                status.bounding,
                u8::from(status.no_new_privs),
                status.seccomp,
            )?,
        }
        if profile.is_some() && *policy != PRODUCTION {
            writeln!(out, "{:>8} policy {} {}", "", policy.name, policy.digest)?;
        }
        for answer in answers.iter().filter(|answer| is_told(answer)) {
            writeln!(out, "{:>8} {answer} [{}]", "", answer.evidence)?;
        }
    }
    for answer in &audit.machine {
        writeln!(out, "{:>8} {answer} [{}]", "", answer.evidence)?;
    }
    let count = |wanted| audit.answers().filter(|answer| answer.verdict == wanted).count();
    writeln!(
        out,
        "{} rules conform, {} deviate, {} were not seen. {} on Landlock cannot be seen by anybody: each process logs \
         its domain when it starts.",
        count(Verdict::Conforms),
        count(Verdict::Deviates),
        count(Verdict::NotSeen),
        count(Verdict::NeverSeen),
    )
}

fn is_told(answer: &Answer) -> bool {
    matches!(answer.verdict, Verdict::Deviates | Verdict::NotSeen)
}

fn verdict(audited: &Audited) -> String {
    let count = |wanted| audited.answers.iter().filter(|answer| answer.verdict == wanted).count();
    match (count(Verdict::Deviates), count(Verdict::NotSeen)) {
        (0, 0) if audited.profile.is_none() => "not of the driver".to_owned(),
        (0, 0) => "as its profile says".to_owned(),
        (0, unseen) => format!("{unseen} not seen"),
        (wrong, 0) => format!("{wrong} deviations"),
        (wrong, unseen) => format!("{wrong} deviations, {unseen} not seen"),
    }
}

fn write_json(audit: &Audit, out: &mut impl Write) -> io::Result<()> {
    let processes = audit.processes.iter().map(|audited| {
        json::object(&[
            ("pid", audited.pid.to_string()),
            ("program", json::string(&audited.program)),
            ("profile", or_null(audited.profile.map(|profile| profile.name))),
            ("policy", json::string(audited.policy.name)),
            ("policy_digest", json::string(audited.policy.digest)),
            ("answers", answers(&audited.answers, 4)),
        ])
    });
    let processes: Vec<_> = processes.collect();
    writeln!(
        out,
        "{{\n  \"version\": {JSON_VERSION},\n  \"status\": {},\n  \"processes\": {},\n  \"machine\": {}\n}}",
        audit.status(),
        json::lines(&processes, 2),
        answers(&audit.machine, 2),
    )
}

fn or_null(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), json::string)
}

fn answers(answers: &[Answer], indent: usize) -> String {
    let answers = answers.iter().map(|answer| {
        json::object(&[
            ("rule", json::string(&answer.id())),
            ("answer", json::string(answer.verdict.as_str())),
            ("by_design", (answer.verdict == Verdict::NeverSeen).to_string()),
            ("expected", json::string(&answer.expected)),
            ("found", json::string(&answer.found)),
            ("evidence", json::string(&answer.evidence)),
        ])
    });
    json::lines(&answers.collect::<Vec<_>>(), indent)
}
