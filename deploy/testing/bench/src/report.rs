//! Measured figures with targets: how they are stored and shown.

mod bar_chart;
pub mod figure;
mod host;
pub mod page;
pub mod results;
pub mod summary;
