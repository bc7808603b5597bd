//! What was measured, as figures with targets, and how it is kept and shown.

mod bar_chart;
pub mod figure;
mod host;
pub mod page;
pub mod results;
pub(crate) mod summary;
