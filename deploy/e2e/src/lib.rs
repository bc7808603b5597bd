//! Tests of the real processes together, and of the repository's own rules: see `tests/`. This
//! library holds the code that those tests share. Its functions panic where a test has to fail.

pub mod bytes;
pub mod fixture;
pub mod history;
pub mod junit;
pub mod leader;
pub mod program;
pub mod repository;
pub mod requests;
pub mod seeded_random;
pub mod tool_at_work;
pub mod volume_lifecycle;
pub mod workload;

pub use fixture::Fixture;
pub use requests::Requests;
pub use volume_lifecycle::{Lifecycle, LifecycleStep};
