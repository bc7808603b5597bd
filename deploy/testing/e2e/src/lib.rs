//! Tests of the real processes together, and of the repository's own rules: see `tests/`. This
//! library holds the code that those tests share. Its functions panic where a test has to fail.

pub mod dashboards;
pub mod digest;
pub mod fixture;
pub mod metrics;
pub mod program;
pub mod registry;
pub mod repository;
pub mod volume_lifecycle;

pub use fixture::Fixture;
pub use volume_lifecycle::{Lifecycle, LifecycleStep};

use serde_json::Value;

/// Returns the members of a list; none of any other value.
pub fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
