//! Tests of the real processes together, and of the repository's own rules: see `tests/`. This
//! library holds the code that those tests share.

pub mod bytes;
pub mod dice;
pub mod junit;
pub mod launcher;
pub mod leader;
pub mod life;
pub mod program;
pub mod requests;
pub mod seeds;
pub mod setting;
pub mod tool_at_work;
pub mod workload;

pub use life::{Life, Step};
pub use requests::Requests;
pub use setting::Setting;
