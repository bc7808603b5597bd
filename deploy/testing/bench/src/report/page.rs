//! Generates the page of figures from stored results, so that no number is written by hand.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::bar_chart;
use super::figure::{Figure, FigureRow, Role, Statistic, with_unit};
use super::results::{ORIGIN, Results};
use crate::error::Result;

/// The file with the reasons for missed targets, by figure, in the directory of the results.
const REASONS: &str = "reasons.md";

/// The figures that are drawn as well: those whose parts a reader compares.
const DRAWN: [&str; 6] = [
    "pod-start",
    "failover-steps",
    "container-memory",
    "node-memory",
    "node-fresh-ext4",
    "cpu-100",
];

/// Writes `page` from the results in `directory`, and the charts in the directory whose path is
/// that of the page without `.md`.
pub(crate) fn write(directory: &Path, page: &Path) -> Result<()> {
    let results = Results::kept(directory)?;
    let reasons = match std::fs::read_to_string(directory.join(REASONS)) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e.into()),
    };
    let pictures = page.with_extension("");
    match std::fs::remove_dir_all(&pictures) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
        _ => std::fs::create_dir_all(&pictures)?,
    }
    let figures = results.iter().flat_map(|part| &part.figures);
    for figure in figures.filter(|figure| DRAWN.contains(&figure.key.as_str())) {
        bar_chart::write(figure, &pictures.join(format!("{}.svg", figure.key)))?;
    }
    let name = pictures.file_name().unwrap_or_default().to_string_lossy();
    Ok(std::fs::write(page, text(&results, &reasons, &name))?)
}

fn is_explained(reasons: &str, key: &str) -> bool {
    reasons.lines().any(|line| line.strip_prefix("## ") == Some(key))
}

fn text(results: &[Results], reasons: &str, pictures: &str) -> String {
    let mut page = String::from(
        "# Performance\n\n\
         For operators who size a cluster, and for developers. Generated from\n\
         `deploy/testing/bench/results/` by `./deploy/testing/bench/run report`. Every number is a\n\
         measurement of a release build of the driver, or says that it is not, against simulated EC2 on\n\
         loopback and, for the node, real loop devices. Ratios to the bound carry over to other\n\
         machines, absolute times do not, and nothing here has met real EC2. [The\n\
         bench](../testing/bench/README.md) says how it measures. The results hold the conditions,\n\
         quartiles and command of each figure.\n\n\
         | Part | Command | Measured |\n|---|---|---|\n",
    );
    for part in results {
        write_conditions(&mut page, part);
    }
    if results.iter().any(|part| part.host.was_busy()) {
        page.push_str(
            "\n*busy*: others used the machine at the same time. Spans of milliseconds, the bound's too,\n\
             are mostly waiting then, and say neither that a target is met nor that it is missed.\n",
        );
    }
    let figures = || results.iter().flat_map(|part| &part.figures);
    let peer = figures().find_map(|figure| figure.first(Role::Peer));
    let (title, line) = match peer {
        // Some labels hold more than the name: `NAME: create, attach`.
        Some(row) => {
            let name = row.label.split(':').next().unwrap_or(&row.label);
            (format!(" {name} |"), "---|")
        }
        None => (String::new(), ""),
    };
    let _ = writeln!(
        page,
        "\n| Figure | Measured |{title} Bound | Target | |\n|---|---|{line}---|---|---|"
    );
    for part in results {
        let cells = "|".repeat(4 + usize::from(peer.is_some()));
        let _ = writeln!(page, "| **{}** |{cells}", part.part);
        for figure in &part.figures {
            let is_explained = is_explained(reasons, &figure.key);
            write_figure(&mut page, figure, part.host.was_busy(), is_explained, peer.is_some());
        }
    }
    for figure in figures().filter(|figure| DRAWN.contains(&figure.key.as_str())) {
        let _ = writeln!(page, "\n![{}]({pictures}/{}.svg)", figure.title, figure.key);
    }
    page
}

fn write_conditions(page: &mut String, part: &Results) {
    let host = &part.host;
    let _ = writeln!(
        page,
        "| {} | `{}` | {}, {} × {}, {} GiB, Linux {}, files on {}; load average before {}{} |",
        part.part,
        part.command,
        part.date,
        host.processors,
        host.processor,
        host.memory_gib,
        host.kernel,
        host.file_system,
        host.load_before,
        if host.was_busy() { "; *busy*" } else { "" }
    );
}

/// Writes a row for each target of the figure, or one with all measured medians.
fn write_figure(page: &mut String, figure: &Figure, busy: bool, is_explained: bool, peer: bool) {
    let Some(ours) = figure.first(Role::Ours) else { return };
    let other = |statistic: Statistic| match (peer, figure.first(Role::Peer)) {
        (false, _) => String::new(),
        (true, None) => " - |".to_owned(),
        (true, Some(row)) => {
            format!(" {} |", with_unit(statistic.of(&row.summary), &figure.unit))
        }
    };
    let bound = figure.first(Role::Bound);
    let bound = bound.map_or("-".to_owned(), |row| with_unit(row.summary.median, &figure.unit));
    let Figure { key, title, .. } = figure;
    let why = format!("../testing/bench/results/{REASONS}#{key}");
    let mut named = format!("| <a id=\"{key}\"></a>{title}");
    if let Some(origin) = figure.notes.iter().find_map(|note| note.strip_prefix(ORIGIN)) {
        let _ = write!(named, " ({})", origin.trim_end_matches('.'));
    }
    let medians = |roles: &[Role]| -> Vec<String> {
        let rows = figure.rows.iter().filter(|row| roles.contains(&row.role));
        let measured = rows.filter(|row| row.summary.count > 0);
        measured.map(|row| median_of(row, &figure.unit)).collect()
    };
    let verdicts = figure.verdicts();
    if verdicts.is_empty() {
        let rows = medians(&[Role::Ours, Role::Part]);
        let measured = match rows.len() {
            0 | 1 => with_unit(ours.summary.median, &figure.unit),
            _ => rows.join("; "),
        };
        let other = other(Statistic::Median);
        let word = if is_explained { format!(" [why]({why})") } else { String::new() };
        let _ = writeln!(page, "{named} | {measured} |{other} {bound} | - |{word} |");
    }
    for (at, verdict) in verdicts.into_iter().enumerate() {
        let word = match (verdict.met, is_explained) {
            _ if busy && figure.unit == "ms" => "*busy*".to_owned(),
            (true, _) => "met".to_owned(),
            (false, true) => format!("[**missed**]({why})"),
            (false, false) => "**missed**".to_owned(),
        };
        let mut measured = with_unit(verdict.measured, &figure.unit);
        // A chart shows the parts of its figure.
        if at == 0 && !DRAWN.contains(&key.as_str()) {
            for part in medians(&[Role::Part]) {
                let _ = write!(measured, "; {part}");
            }
        }
        let (other, target) = (other(verdict.statistic), verdict.target);
        let _ = writeln!(page, "{named} | {measured} |{other} {bound} | {target} | {word} |");
        // The anchor stands in the first row alone.
        named = format!("| {title}");
    }
}

fn median_of(row: &FigureRow, unit: &str) -> String {
    format!("{} {}", row.label, with_unit(row.summary.median, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_target_links_to_its_reason() {
        let mut part = Results::begin("node", "run node".to_owned());
        let figure = |key: &str, measured: f64| {
            Figure::new(key, key, "ms")
                .row(Role::Ours, "driver", vec![measured])
                .at_most(Statistic::Median, 1.0)
        };
        part.figures = vec![figure("good", 1.0), figure("bad", 2.0)];
        "0.00".clone_into(&mut part.host.load_before);
        let reasons = "## bad\n\nBecause.\n\n## other\n\nNo.\n";
        let page = text(std::slice::from_ref(&part), reasons, "pictures");
        for shown in [
            "| <a id=\"good\"></a>good | 1.00 ms | - | median ≤ 1.00 ms | met |",
            "| median ≤ 1.00 ms | [**missed**](../testing/bench/results/reasons.md#bad) |",
        ] {
            assert!(page.contains(shown), "{page}");
        }
        assert!(!page.contains("busy"));

        "9.00".clone_into(&mut part.host.load_before);
        part.host.processors = 2;
        let page = text(&[part], "", "pictures");
        assert!(!page.contains("met |") && page.contains("ms | *busy* |"), "{page}");
    }

    #[test]
    fn figure_without_target_lists_all_medians() {
        let mut part = Results::begin("kubernetes", "run".to_owned());
        let steps = Figure::new("steps", "steps", "s")
            .row(Role::Part, "taint", vec![1.0])
            .row(Role::Ours, "pod", vec![2.0])
            .note(format!("{ORIGIN}2026-01-01 on a machine."));
        part.figures = vec![steps];
        let page = text(&[part], "", "pictures");
        let row = "</a>steps (2026-01-01 on a machine) | taint 1.00 s; pod 2.00 s | - | - | |";
        assert!(page.contains(row), "{page}");
    }

    #[test]
    fn page_shows_other_driver_where_measured() {
        let mut part = Results::begin("controller", "run controller".to_owned());
        let figure = |key: &str| {
            Figure::new(key, key, "s")
                .row(Role::Ours, "driver", vec![1.0, 1.0, 3.0])
                .at_most(Statistic::Greatest, 2.0)
        };
        part.figures = vec![
            figure("both").row(Role::Peer, "other-v1: all", vec![2.0, 2.0, 4.0]),
            figure("alone"),
        ];
        let page = text(&[part], "", "pictures");
        for shown in [
            "| Figure | Measured | other-v1 | Bound |",
            "both | 3.00 s | 4.00 s | - | greatest ≤ 2.00 s |",
            "alone | 3.00 s | - | - | greatest ≤ 2.00 s |",
        ] {
            assert!(page.contains(shown), "{page}");
        }
    }
}
