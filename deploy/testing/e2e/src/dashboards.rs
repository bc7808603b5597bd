//! The dashboards of the chart.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::array;
use crate::repository::texts;

/// Returns the dashboards by the names of their files.
pub fn boards() -> BTreeMap<String, Value> {
    let parsed =
        texts("deploy/install/chart/dashboards", ".json").into_iter().map(|(name, text)| {
            let board = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, board)
        });
    parsed.collect()
}

/// Returns a dashboard's panels, those of its rows included.
pub fn panels(board: &Value) -> Vec<&Value> {
    let all = array(&board["panels"]).iter();
    all.flat_map(|it| std::iter::once(it).chain(array(&it["panels"]))).collect()
}

/// Returns the queries of a dashboard's panels.
pub fn queries(board: &Value) -> Vec<&str> {
    let targets = panels(board).into_iter().flat_map(|it| array(&it["targets"]));
    targets.filter_map(|it| it["expr"].as_str()).collect()
}
