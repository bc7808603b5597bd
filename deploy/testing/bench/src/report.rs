//! Measured figures with targets: how they are stored and shown.

mod bar_chart;
pub(crate) mod figure;
mod host;
pub(crate) mod page;
pub(crate) mod results;
pub(crate) mod summary;
