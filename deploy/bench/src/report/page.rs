//! Generates the page of figures from stored results, so that no number is written by hand.

use std::fmt::Write;
use std::io;
use std::path::Path;

use super::bar_chart;
use super::figure::{Figure, FigureRow, Role, Statistic, number, with_unit};
use super::results::Results;

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
///
/// # Errors
/// Returns an error when a results file cannot be read or the page cannot be written.
pub fn write(directory: &Path, page: &Path) -> io::Result<()> {
    let results = Results::kept(directory)?;
    let reasons = match std::fs::read_to_string(directory.join(REASONS)) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e),
    };
    let pictures = page.with_extension("");
    match std::fs::remove_dir_all(&pictures) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => std::fs::create_dir_all(&pictures)?,
    }
    let figures = results.iter().flat_map(|part| &part.figures);
    for figure in figures.filter(|figure| DRAWN.contains(&figure.key.as_str())) {
        bar_chart::write(figure, &pictures.join(format!("{}.svg", figure.key)))?;
    }
    let name = pictures.file_name().unwrap_or_default().to_string_lossy();
    std::fs::write(page, text(&results, &reasons, &name))
}

/// Returns the text below `## key` in `reasons`.
fn reason<'t>(reasons: &'t str, key: &str) -> Option<&'t str> {
    let (_, rest) = reasons.split_once(&format!("## {key}\n"))?;
    Some(rest.split("\n## ").next().unwrap_or(rest).trim())
}

fn text(results: &[Results], reasons: &str, pictures: &str) -> String {
    let mut page = String::from(
        "# Performance\n\n\
         Generated from `deploy/bench/results/` by `./deploy/bench/run report`. Every number is a\n\
         measurement of a release build of the driver, against simulated EC2 on loopback and, for the\n\
         node, real loop devices. Ratios to the bound carry over to other machines, absolute times do\n\
         not, and nothing here has met real EC2. `deploy/bench/README.md` says how each figure is\n\
         measured. Below the tables, a figure's parts are listed with the median and, in brackets,\n\
         the quartiles, the 99th percentile and the greatest sample.\n",
    );
    for part in results {
        write_summary(&mut page, part, reasons);
    }
    for part in results {
        let _ = writeln!(page, "\n## {}: the figures", part.part);
        for figure in &part.figures {
            write_figure(&mut page, figure, reason(reasons, &figure.key), pictures);
        }
    }
    page
}

fn write_summary(page: &mut String, part: &Results, reasons: &str) {
    let host = &part.host;
    let _ = writeln!(
        page,
        "\n## {}\n\n    {}\n\n{}, {} × {}, {} GiB, Linux {}, files on {}; load average before the run {}.\n",
        part.part,
        part.command,
        part.date,
        host.processors,
        host.processor,
        host.memory_gib,
        host.kernel,
        host.file_system,
        host.load_before
    );
    if host.was_busy() {
        page.push_str(
            "**Others used this machine at the same time.** Spans of milliseconds, the bound's too, are mostly waiting then: they say neither that a target is \
             met nor that it is missed, and are marked *busy*. Counts, memory, processor time, and spans set by EC2's rates are what they are.\n\n",
        );
    }
    let peer = part.figures.iter().find_map(|f| f.first(Role::Peer));
    let (peer_title, peer_line) = match peer {
        // Some labels hold more than the name: `NAME: create, attach`.
        Some(row) => {
            let name = row.label.split(':').next().unwrap_or(&row.label);
            (format!(" {name} |"), "---|")
        }
        None => (String::new(), ""),
    };
    let _ = writeln!(
        page,
        "| figure | measured |{peer_title} bound | target | |\n|---|---|{peer_line}---|---|---|"
    );
    for figure in &part.figures {
        let Some(ours) = figure.first(Role::Ours) else {
            continue;
        };
        let other = |statistic: Statistic| match (peer, figure.first(Role::Peer)) {
            (None, _) => String::new(),
            (_, None) => " - |".to_owned(),
            (_, Some(row)) => {
                let measured = statistic.of(&row.summary);
                format!(" {} |", with_unit(measured, &figure.unit))
            }
        };
        let bound = figure.first(Role::Bound);
        let bound = bound.map_or("-".to_owned(), |row| with_unit(row.summary.median, &figure.unit));
        let named = format!("| [{}](#{})", figure.title, figure.key);
        let verdicts = figure.verdicts();
        if verdicts.is_empty() {
            let measured = with_unit(ours.summary.median, &figure.unit);
            let other = other(Statistic::Median);
            let _ = writeln!(page, "{named} | {measured} |{other} {bound} | - | |");
        }
        for verdict in verdicts {
            let busy = host.was_busy() && figure.unit == "ms";
            let word = match (verdict.met, reason(reasons, &figure.key)) {
                _ if busy => "*busy*".to_owned(),
                (true, _) => "met".to_owned(),
                (false, Some(_)) => format!("[**missed**](#{})", figure.key),
                (false, None) => "**missed**".to_owned(),
            };
            let measured = with_unit(verdict.measured, &figure.unit);
            let (other, target) = (other(verdict.statistic), verdict.target);
            let _ = writeln!(page, "{named} | {measured} |{other} {bound} | {target} | {word} |");
        }
    }
}

fn write_figure(page: &mut String, figure: &Figure, reason: Option<&str>, pictures: &str) {
    let rows: Vec<String> = figure.rows.iter().map(|row| row_in_words(row, &figure.unit)).collect();
    let _ =
        writeln!(page, "\n<a id=\"{}\"></a>**{}.** {}.", figure.key, figure.title, rows.join("; "));
    if DRAWN.contains(&figure.key.as_str()) {
        let _ = writeln!(page, "\n![{}]({pictures}/{}.svg)", figure.title, figure.key);
    }
    for more in figure.notes.iter().map(String::as_str).chain(reason) {
        let _ = writeln!(page, "\n{more}");
    }
    if !figure.command.is_empty() {
        let _ = writeln!(page, "\n    {}", figure.command);
    }
}

/// A row as a phrase: its median, and its spread where there is one.
fn row_in_words(row: &FigureRow, unit: &str) -> String {
    let s = &row.summary;
    let label = match row.role {
        Role::Ours => format!("**{}**", row.label),
        Role::Bound => format!("*bound:* {}", row.label),
        Role::Peer | Role::Part => row.label.clone(),
    };
    let median = with_unit(s.median, unit);
    if s.count <= 1 {
        return format!("{label} {median}");
    }
    format!(
        "{label} {median} ({} to {}, p99 {}, greatest {}, {} samples)",
        number(s.lower),
        number(s.upper),
        number(s.p99),
        number(s.greatest),
        s.count
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Target;

    /// On a busy machine a target in milliseconds is shown as busy, neither met nor missed.
    #[test]
    fn missed_target_is_published_with_its_reason() {
        let mut part = Results::begin("node", "run node".to_owned());
        let figure = |key: &str, measured: f64| {
            Figure::new(key, key, "ms")
                .row(Role::Ours, "driver", vec![measured])
                .target(Target::at_most(Statistic::Median, 1.0))
        };
        part.figures = vec![figure("good", 1.0), figure("bad", 2.0)];
        "0.00".clone_into(&mut part.host.load_before);
        let reasons = "## bad\n\nBecause.\n\n## other\n\nNo.\n";
        let page = text(std::slice::from_ref(&part), reasons, "pictures");
        for shown in [
            "| [good](#good) | 1.00 ms | - | median ≤ 1.00 ms | met |",
            "| [bad](#bad) | 2.00 ms | - | median ≤ 1.00 ms | [**missed**](#bad) |",
            "**bad.** **driver** 2.00 ms.\n\nBecause.\n",
        ] {
            assert!(page.contains(shown), "{page}");
        }
        assert!(!page.contains("No.") && !page.contains("busy"));

        "9.00".clone_into(&mut part.host.load_before);
        part.host.processors = 2;
        let page = text(&[part], "", "pictures");
        assert!(!page.contains("met |") && page.contains("ms | *busy* |"), "{page}");
    }

    #[test]
    fn page_shows_other_driver_where_measured() {
        let mut part = Results::begin("controller", "run controller".to_owned());
        let figure = |key: &str| {
            Figure::new(key, key, "s")
                .row(Role::Ours, "driver", vec![1.0, 1.0, 3.0])
                .target(Target::at_most(Statistic::Greatest, 2.0))
        };
        part.figures = vec![
            figure("both").row(Role::Peer, "other-v1: all", vec![2.0, 2.0, 4.0]),
            figure("alone"),
        ];
        let page = text(&[part], "", "pictures");
        for shown in [
            "| figure | measured | other-v1 | bound |",
            "| [both](#both) | 3.00 s | 4.00 s | - | greatest ≤ 2.00 s |",
            "| [alone](#alone) | 3.00 s | - | - | greatest ≤ 2.00 s |",
        ] {
            assert!(page.contains(shown), "{page}");
        }
    }
}
