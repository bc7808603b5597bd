//! The Query protocol: form parameters in, XML out.

mod api_error;
mod credential;
pub(crate) mod filter;
pub(crate) mod query;
pub(crate) mod xml;

pub(crate) use api_error::{ApiError, ApiResult, refuse, refuse_combination, refuse_value};
pub(crate) use credential::{Credential, check_time};
pub(crate) use filter::Filters;
pub(crate) use query::Params;
pub(crate) use xml::Xml;
