//! A figure's rows as an SVG: a bar to each row's median, and a line to its 99th percentile.

use std::path::Path;

use plotters::prelude::*;

use super::figure::{Figure, FigureRow, Role};
use crate::error::Result;

const WIDTH: u32 = 860;
const FRAME: u32 = 90;
const ROW: u32 = 28;
const LABELS: u32 = 330;

fn colour(role: Role) -> RGBColor {
    match role {
        Role::Ours => RGBColor(31, 111, 178),
        Role::Bound => RGBColor(122, 122, 122),
        Role::Peer => RGBColor(196, 106, 27),
        Role::Part => RGBColor(185, 207, 226),
    }
}

/// Writes the chart of a figure's rows that have samples.
pub(crate) fn write(figure: &Figure, file: &Path) -> Result<()> {
    let measured = figure.rows.iter().filter(|row| row.summary.count > 0);
    // The axis points upwards: the first row comes last.
    let rows: Vec<&FigureRow> = measured.rev().collect();
    let most = rows
        .iter()
        .map(|row| row.summary.p99.max(row.summary.median))
        .fold(f64::MIN_POSITIVE, f64::max);
    let height = FRAME + ROW * u32::try_from(rows.len())?;
    let area = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(&figure.title, ("sans-serif", 20))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(0.0..most * 1.05, (0..rows.len()).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 15))
        .x_desc(&figure.unit)
        .y_labels(rows.len())
        .y_label_formatter(&|place| match place {
            SegmentValue::CenterOf(at) => {
                rows.get(*at).map_or(String::new(), |row| row.label.clone())
            }
            _ => String::new(),
        })
        .draw()?;
    chart.draw_series(rows.iter().enumerate().map(|(at, row)| {
        let corners =
            [(0.0, SegmentValue::Exact(at)), (row.summary.median, SegmentValue::Exact(at + 1))];
        let mut bar = Rectangle::new(corners, colour(row.role).filled());
        bar.set_margin(6, 6, 0, 0);
        bar
    }))?;
    chart.draw_series(rows.iter().enumerate().map(|(at, row)| {
        let s = &row.summary;
        let middle = SegmentValue::CenterOf(at);
        PathElement::new([(s.median, middle.clone()), (s.p99.max(s.median), middle)], BLACK)
    }))?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_shows_measured_rows_and_escapes_labels() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("chart.svg");
        let figure = Figure::new("k", "a < b", "ms").row(Role::Ours, "driver", vec![10.0]).row(
            Role::Part,
            "none",
            Vec::new(),
        );
        write(&figure, &file).expect("a chart");
        let svg = std::fs::read_to_string(&file).expect("the file");
        assert!(svg.contains("driver") && svg.contains("a &lt; b"), "{svg}");
        assert!(!svg.contains("none\n") && !svg.contains("NaN"), "{svg}");
    }
}
