//! What the HTTP exchange of one call showed, for the log and for errors: the endpoint, and EC2's
//! id of the request.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

/// What the HTTP exchange of one call showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// `https://ec2.us-east-1.amazonaws.com`: scheme, host and port, never a credential.
    pub(super) endpoint: Option<String>,
    /// EC2's id of the request.
    pub(super) request_id: Option<String>,
}

tokio::task_local! {
    static TRAIL: Arc<Mutex<Seen>>;
}

/// Runs one call of the SDK. Returns its result and its trail.
pub(super) async fn follow<T>(send: impl Future<Output = T>) -> (T, Seen) {
    let trail = Arc::new(Mutex::new(Seen::default()));
    let answer = TRAIL.scope(Arc::clone(&trail), send).await;
    let seen = trail.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (answer, seen)
}

/// Returns EC2's id of a request, a header of every answer.
pub(super) fn request_id(response: &HttpResponse) -> Option<&str> {
    ["x-amzn-requestid", "x-amz-request-id"]
        .iter()
        .find_map(|header| response.headers().get(header))
}

/// The interceptor that records the trail, in every EC2 client of the controller.
#[derive(Debug)]
pub(super) struct LeaveTrail;

fn note(note: impl FnOnce(&mut Seen)) {
    // Outside of `follow` there is no trail, so nothing is recorded.
    let _ = TRAIL.try_with(|trail| note(&mut trail.lock().unwrap_or_else(PoisonError::into_inner)));
}

impl Intercept for LeaveTrail {
    fn name(&self) -> &'static str {
        "LeaveTrail"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        note(|seen| seen.endpoint = address(context.request().uri()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        note(|seen| seen.request_id = request_id(context.response()).map(str::to_owned));
        Ok(())
    }
}

/// Returns scheme, host and port of a URI. The part before an `@` is left out: it may be a
/// password.
pub(super) fn address(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    Some(format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_path_and_no_password() {
        for (uri, want) in [
            (
                "https://ec2.us-east-1.amazonaws.com/",
                Some("https://ec2.us-east-1.amazonaws.com"),
            ),
            (
                "http://127.0.0.1:8080/?Action=x",
                Some("http://127.0.0.1:8080"),
            ),
            ("https://user:secret@proxy:1/", Some("https://proxy:1")),
            ("https://[::1]:8443", Some("https://[::1]:8443")),
            ("nonsense", None),
        ] {
            assert_eq!(address(uri).as_deref(), want, "{uri}");
        }
    }

    #[tokio::test]
    async fn concurrent_calls_keep_separate_request_ids() {
        let call = |id: &'static str| {
            follow(async move {
                tokio::task::yield_now().await;
                note(|seen| seen.request_id = Some(id.to_owned()));
            })
        };
        let ((_, one), (_, two)) = tokio::join!(call("1"), call("2"));
        assert_eq!(
            (one.request_id.as_deref(), two.request_id.as_deref()),
            (Some("1"), Some("2"))
        );
        note(|_| panic!("nobody follows"));
    }
}
