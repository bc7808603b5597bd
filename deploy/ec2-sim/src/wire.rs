//! The Query protocol: form parameters in, XML out.

pub(crate) mod api_error;
pub(crate) mod credential;
pub(crate) mod filter;
pub(crate) mod page;
pub(crate) mod query;
pub(crate) mod wildcard;
pub(crate) mod xml;
