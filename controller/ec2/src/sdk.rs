//! One call through the AWS SDK: the HTTP client and its credentials, the sending, and what the SDK
//! answers.

pub(super) mod call;
pub(super) mod connector;
pub(super) mod credentials;
pub(super) mod error_conversion;
pub(super) mod interceptors;
pub(super) mod settings;
