//! Refuses an answer that is cut off.
//!
//! The SDK's parser takes an XML document that ends early for a shorter one: a list of volumes
//! loses its end, and the lost volumes look absent. EC2 ends every success with the closing tag of
//! its root element, so a body without that tag is not an answer.

use std::fmt;

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::AfterDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

/// The error that the body ends before its root element does.
#[derive(Debug)]
pub(super) struct Truncated;

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is cut off")
    }
}

impl std::error::Error for Truncated {}

/// The interceptor that refuses truncated answers, in every EC2 client of the controller.
#[derive(Debug)]
pub(super) struct IntactAnswers;

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
            Some(body) if response.status().is_success() && !ends_with_its_root(body) => {
                Err(Truncated.into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether the document ends with the closing tag of a response element
/// (`</DescribeVolumesResponse>`).
fn ends_with_its_root(body: &[u8]) -> bool {
    let body = body.trim_ascii_end();
    let Some(start) = body.iter().rposition(|byte| *byte == b'<') else {
        return false;
    };
    let tag = &body[start..];
    tag.starts_with(b"</") && tag.ends_with(b"Response>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_needs_closed_response_root_element() {
        let whole = "<?xml version=\"1.0\"?>\n<DescribeVolumesResponse xmlns=\"x\"><requestId>r</requestId><volumeSet/></DescribeVolumesResponse>\n";
        assert!(ends_with_its_root(whole.as_bytes()));
        let closed = whole.trim_end().len();
        for end in 0..closed {
            assert!(
                !ends_with_its_root(&whole.as_bytes()[..end]),
                "{}",
                &whole[..end]
            );
        }
        assert!(!ends_with_its_root(b"<html></html>"));
    }
}
