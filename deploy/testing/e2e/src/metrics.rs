//! The metrics that the driver's processes serve, and their names in other texts.

use std::collections::BTreeMap;

use crate::repository::read;

/// Returns the words of a text that begin as the driver's metrics do.
pub fn named(text: &str) -> impl Iterator<Item = &str> {
    let prefixes = ["aws_ebs_csi_", "ebs_csi_node_agent_", "cloudprovider_aws_"];
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(move |word| prefixes.iter().any(|it| word.starts_with(it)))
}

/// Returns the metrics that the processes serve with their kinds, from the page that another test
/// compares with the processes' source.
pub fn served() -> BTreeMap<String, String> {
    let page = read("deploy/docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let kind = |rest: &str| rest.split(' ').next().unwrap_or_default().to_owned();
    let served: BTreeMap<_, _> = rows.map(|(name, rest)| (name.to_owned(), kind(rest))).collect();
    assert!(served.len() >= 40, "{}", served.len());
    served
}

/// Returns the metric of a sample; `None`: no process serves the sample.
pub fn of_sample<'a>(served: &BTreeMap<String, String>, sample: &'a str) -> Option<&'a str> {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|part| {
        let metric = sample.strip_suffix(part)?;
        (served.get(metric)? == "histogram").then_some(metric)
    });
    let is_plain = served.get(sample).is_some_and(|kind| kind != "histogram");
    of_histogram.or(is_plain.then_some(sample))
}
