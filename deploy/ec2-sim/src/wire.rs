//! The Query protocol: form parameters in, XML out.

pub mod credential;
pub mod filter;
pub mod page;
pub mod query;
pub mod render;
pub mod signature;
pub mod wildcard;
pub mod xml;
