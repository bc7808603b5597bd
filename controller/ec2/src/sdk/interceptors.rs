//! What the driver adds to the exchange of each call: its name in the user agent, a record of the
//! endpoint and of EC2's id of the request, and a check that the answer is whole.
//!
//! The SDK's parser takes an XML document that ends early for a shorter one: a list of volumes
//! loses its end, and the lost volumes look absent. EC2 ends every success with the closing tag of
//! its root element, so a body without that tag is not an answer.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    AfterDeserializationInterceptorContextRef, BeforeDeserializationInterceptorContextRef,
    BeforeTransmitInterceptorContextMut, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use ebs_csi_proto::lock;

/// What the HTTP exchange of one call showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HttpExchange {
    /// `https://ec2.us-east-1.amazonaws.com`: scheme, host and port, never a credential.
    pub(crate) endpoint: Option<String>,
    pub(crate) request_id: Option<String>,
}

tokio::task_local! {
    static HTTP_EXCHANGE: Arc<Mutex<HttpExchange>>;
}

/// Runs one call of the SDK. Returns the result and the record of the HTTP exchange.
pub(crate) async fn record_exchange<T>(send: impl Future<Output = T>) -> (T, HttpExchange) {
    let exchange = Arc::new(Mutex::new(HttpExchange::default()));
    let answer = HTTP_EXCHANGE.scope(Arc::clone(&exchange), send).await;
    let recorded = lock(&exchange).clone();
    (answer, recorded)
}

/// Returns EC2's id of a request, a header of every answer.
pub(crate) fn request_id(response: &HttpResponse) -> Option<&str> {
    ["x-amzn-requestid", "x-amz-request-id"]
        .iter()
        .find_map(|header| response.headers().get(header))
}

/// The interceptor that records the HTTP exchange, in every EC2 client of the controller.
#[derive(Debug)]
pub(crate) struct RecordHttpExchange;

fn record(update: impl FnOnce(&mut HttpExchange)) {
    // Outside of `record_exchange` there is nothing to record into.
    let _ = HTTP_EXCHANGE.try_with(|exchange| update(&mut lock(exchange)));
}

impl Intercept for RecordHttpExchange {
    fn name(&self) -> &'static str {
        "RecordHttpExchange"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        record(|exchange| exchange.endpoint = endpoint_of(context.request().uri()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        record(|exchange| exchange.request_id = request_id(context.response()).map(str::to_owned));
        Ok(())
    }
}

/// Returns scheme, host and port of a URI. The part before an `@` is left out: it may be a
/// password.
fn endpoint_of(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    Some(format!("{scheme}://{host}"))
}

/// The error that the body ends before its root element does.
#[derive(Debug)]
pub(crate) struct Truncated;

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is cut off")
    }
}

impl std::error::Error for Truncated {}

/// The interceptor that refuses truncated answers, in every EC2 client of the controller.
#[derive(Debug)]
pub(crate) struct IntactAnswers;

impl Intercept for IntactAnswers {
    fn name(&self) -> &'static str {
        "IntactAnswers"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        match response.body().bytes() {
            Some(body) if response.status().is_success() && !is_complete(body) => {
                Err(Truncated.into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether the document ends with the closing tag of a response element
/// (`</DescribeVolumesResponse>`).
fn is_complete(body: &[u8]) -> bool {
    let body = body.trim_ascii_end();
    let Some(start) = body.iter().rposition(|byte| *byte == b'<') else {
        return false;
    };
    let tag = &body[start..];
    tag.starts_with(b"</") && tag.ends_with(b"Response>")
}

/// Names the driver in the user agent, where AWS support and CloudTrail searches look for it: adds
/// `exec-env/NAME`, which the SDK would add for the variable `AWS_EXECUTION_ENV`. The driver
/// does not change its own environment.
#[derive(Debug)]
pub(crate) struct ExecutionEnvironment(String);

impl ExecutionEnvironment {
    /// Replaces each character that a header cannot hold with `-`.
    pub(crate) fn new(name: &str) -> Self {
        let replace = |c: char| {
            if c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c) { c } else { '-' }
        };
        Self(name.chars().map(replace).collect())
    }
}

impl Intercept for ExecutionEnvironment {
    fn name(&self) -> &'static str {
        "ExecutionEnvironment"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        for name in ["user-agent", "x-amz-user-agent"] {
            if let Some(agent) = headers.get(name) {
                let agent = format!("{agent} exec-env/{}", self.0);
                headers.insert(name, agent);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_path_and_no_password() {
        for (uri, want) in [
            ("https://ec2.us-east-1.amazonaws.com/", Some("https://ec2.us-east-1.amazonaws.com")),
            ("http://127.0.0.1:8080/?Action=x", Some("http://127.0.0.1:8080")),
            ("https://user:secret@proxy:1/", Some("https://proxy:1")),
            ("https://[::1]:8443", Some("https://[::1]:8443")),
            ("nonsense", None),
        ] {
            assert_eq!(endpoint_of(uri).as_deref(), want, "{uri}");
        }
    }

    #[tokio::test]
    async fn concurrent_calls_keep_separate_request_ids() {
        let call = |id: &'static str| {
            record_exchange(async move {
                tokio::task::yield_now().await;
                record(|exchange| exchange.request_id = Some(id.to_owned()));
            })
        };
        let ((_, one), (_, two)) = tokio::join!(call("1"), call("2"));
        assert_eq!((one.request_id.as_deref(), two.request_id.as_deref()), (Some("1"), Some("2")));
        record(|_| panic!("nobody records"));
    }

    #[test]
    fn answer_needs_closed_response_root_element() {
        let whole = "<?xml version=\"1.0\"?>\n<DescribeVolumesResponse xmlns=\"x\"><requestId>r</requestId><volumeSet/></DescribeVolumesResponse>\n";
        assert!(is_complete(whole.as_bytes()));
        let closed = whole.trim_end().len();
        for end in 0..closed {
            assert!(!is_complete(&whole.as_bytes()[..end]), "{}", &whole[..end]);
        }
        assert!(!is_complete(b"<html></html>"));
    }
}
