//! The two text formats in which metrics are served: OpenMetrics, and the older format that every
//! scraper reads.

use std::collections::BTreeMap;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the media type and the text of an OpenMetrics page for a client with this `Accept`
/// header: OpenMetrics (<https://prometheus.io/docs/specs/om/open_metrics_spec/>), or the older
/// format (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
pub(crate) fn for_client(openmetrics: String, accept: &str) -> (&'static str, String) {
    match accepts_openmetrics(accept) {
        true => (OPENMETRICS, openmetrics),
        false => (TEXT, as_text(&openmetrics)),
    }
}

/// Returns whether an `Accept` header accepts OpenMetrics.
fn accepts_openmetrics(accept: &str) -> bool {
    accept.split(',').any(|media| {
        let mut parts = media.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let is_refused = parts.any(|part| part.strip_prefix("q=").is_some_and(is_zero));
        kind.eq_ignore_ascii_case("application/openmetrics-text") && !is_refused
    })
}

fn is_zero(quality: &str) -> bool {
    quality.parse() == Ok(0.0)
}

/// Converts OpenMetrics to the older format, in which a counter's family has the name of its
/// samples.
fn as_text(openmetrics: &str) -> String {
    let kinds: BTreeMap<&str, &str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let named = |family: &str| match kinds.get(family) {
        Some(&"counter") => format!("{family}_total"),
        Some(&"info") => format!("{family}_info"),
        _ => family.to_owned(),
    };
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let family = |prefix: &str| line.strip_prefix(prefix)?.split_once(' ');
        if let Some((name, help)) = family("# HELP ") {
            text.push_str(&format!("# HELP {} {help}\n", named(name)));
        } else if let Some((name, kind)) = family("# TYPE ") {
            let kind = match kind {
                "unknown" => "untyped",
                "info" | "stateset" => "gauge",
                kind => kind,
            };
            text.push_str(&format!("# TYPE {} {kind}\n", named(name)));
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_served_only_when_accepted() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, takes) in [
            (prometheus, true),
            ("Application/OpenMetrics-Text", true),
            ("text/plain; version=0.0.4", false),
            ("application/openmetrics-text;q=0, text/plain", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(accepts_openmetrics(accept), takes, "{accept}");
        }
    }

    #[test]
    fn openmetrics_to_text_names_families_like_samples() {
        let openmetrics = "# HELP calls Calls made.\n# TYPE calls counter\ncalls_total{code=\"OK\"} 3\n# HELP age Age of it.\n# TYPE age gauge\n# UNIT age seconds\nage 1.5\n# HELP took Duration.\n# TYPE took histogram\ntook_sum 1.0\ntook_count 2\ntook_bucket{le=\"+Inf\"} 2\n# EOF\n";
        let text = "# HELP calls_total Calls made.\n# TYPE calls_total counter\ncalls_total{code=\"OK\"} 3\n# HELP age Age of it.\n# TYPE age gauge\nage 1.5\n# HELP took Duration.\n# TYPE took histogram\ntook_sum 1.0\ntook_count 2\ntook_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(as_text(openmetrics), text);
    }
}
