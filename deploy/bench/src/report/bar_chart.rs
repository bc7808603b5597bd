//! Draws a figure as an SVG: one bar for each row's median, with its quartiles, its 99th percentile
//! and the targets.

use std::fmt::Write;

use super::figure::{Figure, FigureRow, Role, number, with_unit};

const WIDTH: f64 = 860.0;
/// The left end of the bars and the width of the area for bars.
const LEFT: f64 = 330.0;
const SPAN: f64 = 400.0;
const LINE: f64 = 26.0;
const TOP: f64 = 48.0;

fn colour(role: Role) -> &'static str {
    match role {
        Role::Ours => "#1f6fb2",
        Role::Bound => "#7a7a7a",
        Role::Peer => "#c46a1b",
        Role::Part => "#b9cfe2",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Cuts a label that is too long at a word.
fn fitting(label: &str) -> String {
    const ROOM: usize = 52;
    if label.chars().count() <= ROOM {
        return label.to_owned();
    }
    let cut: String = label.chars().take(ROOM - 1).collect();
    format!(
        "{}…",
        cut.rsplit_once(' ')
            .map_or(cut.as_str(), |(whole, _)| whole)
    )
}

/// Returns the picture.
pub(crate) fn svg(figure: &Figure) -> String {
    let rows: Vec<&FigureRow> = figure
        .rows
        .iter()
        .filter(|row| row.summary.count > 0)
        .collect();
    let verdicts = figure.verdicts();
    let most = rows
        .iter()
        .flat_map(|row| [row.summary.median, row.summary.p99])
        .chain(verdicts.iter().map(|verdict| verdict.limit))
        .fold(0.0, f64::max);
    let scale = if most > 0.0 { SPAN / most } else { 0.0 };
    let place = |value: f64| LEFT + (value.max(0.0) * scale).min(SPAN);
    let mut line = TOP;
    let mut bars = String::new();
    for row in &rows {
        let s = &row.summary;
        let middle = line + LINE / 2.0;
        let _ = writeln!(
            bars,
            r#"<text x="{:.0}" y="{:.0}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            middle + 4.0,
            escaped(&fitting(&row.label))
        );
        let _ = writeln!(
            bars,
            r#"<rect x="{LEFT:.0}" y="{:.0}" width="{:.1}" height="14" fill="{}"/>"#,
            middle - 7.0,
            (place(s.median) - LEFT).max(1.0),
            colour(row.role)
        );
        let mut said = with_unit(s.median, &figure.unit);
        if s.count > 1 {
            // A thick line between the quartiles, a thin one up to the 99th percentile.
            for (from, to, width) in [(s.lower, s.upper, 4), (s.upper, s.p99, 1)] {
                let _ = writeln!(
                    bars,
                    r##"<line x1="{:.1}" y1="{middle:.0}" x2="{:.1}" y2="{middle:.0}" stroke="#222" stroke-width="{width}"/>"##,
                    place(from),
                    place(to)
                );
            }
            let _ = write!(said, " (p99 {})", number(s.p99));
        }
        let _ = writeln!(
            bars,
            r#"<text x="{:.0}" y="{:.0}">{}</text>"#,
            place(s.p99.max(s.median)) + 6.0,
            middle + 4.0,
            escaped(&said)
        );
        line += LINE;
    }
    for verdict in &verdicts {
        let x = place(verdict.limit);
        let _ = writeln!(
            bars,
            r##"<line x1="{x:.1}" y1="{:.0}" x2="{x:.1}" y2="{line:.0}" stroke="#b00020" stroke-dasharray="4 3"/>"##,
            TOP - 4.0
        );
    }
    let targets: Vec<String> = verdicts
        .iter()
        .map(|verdict| {
            format!(
                "{} ({})",
                verdict.target,
                if verdict.met { "met" } else { "missed" }
            )
        })
        .collect();
    let below = if targets.is_empty() {
        String::new()
    } else {
        format!("dashed: target, {}", targets.join("; "))
    };
    let height = line + 30.0;
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0}" height="{height:.0}" viewBox="0 0 {WIDTH:.0} {height:.0}" font-family="sans-serif" font-size="12" fill="#222">
<rect width="100%" height="100%" fill="#fff"/>
<text x="12" y="24" font-size="15">{}</text>
{bars}<text x="12" y="{:.0}" fill="#b00020">{}</text>
</svg>
"##,
        escaped(&figure.title),
        line + 20.0,
        escaped(&below)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::{Statistic, Target};

    #[test]
    fn bars_keep_their_proportions_and_words_are_escaped() {
        let figure = Figure::new("k", "a < b", "ms")
            .row(Role::Ours, "driver", vec![10.0])
            .row(Role::Bound, "bare", vec![5.0])
            .row(Role::Part, "none", Vec::new())
            .target(Target::at_most(Statistic::Median, 2.0).times_the_bound());
        let picture = svg(&figure);
        assert!(
            picture.contains(r##"width="400.0" height="14" fill="#1f6fb2""##),
            "{picture}"
        );
        assert!(
            picture.contains(r##"width="200.0" height="14" fill="#7a7a7a""##),
            "{picture}"
        );
        assert!(picture.contains("a &lt; b") && !picture.contains("none"));
        assert!(picture.contains("2x bound (met)"), "{picture}");
    }

    #[test]
    fn zero_and_empty_figures_render_valid_svg() {
        let zero = Figure::new("k", "t", "").row(Role::Ours, "driver", vec![0.0]);
        assert!(svg(&zero).contains(r#"width="1.0""#));
        assert!(!svg(&Figure::new("k", "t", "")).contains("NaN"));
    }

    #[test]
    fn long_labels_end_at_a_word() {
        let label = "word ".repeat(20);
        let cut = fitting(&label);
        assert!(cut.chars().count() <= 52 && cut.ends_with("word…"), "{cut}");
    }
}
