//! Who is told of the calls, to count them.

use std::fmt::Debug;

use crate::calls::Action;

/// Counts what happens to calls. The methods of `()` do nothing.
pub trait Observer: Debug + Send + Sync {
    /// Calls of this action may follow; told once, at the start.
    fn expect_api_call(&self, action: Action);

    /// A call succeeded.
    fn api_call(&self, action: Action, seconds: f64);

    /// A call failed for another reason than throttling. `code` is EC2's, or the name of the
    /// [`Ec2ErrorKind`](crate::Ec2ErrorKind).
    fn api_error(&self, action: Action, code: &str);

    /// A call was throttled.
    fn api_throttle(&self, action: Action);

    /// One call of a poller asks for this many resources.
    fn poll_batch(&self, action: Action, size: usize);

    /// A remembered value about EC2 was looked up; `hit` says whether it was known.
    fn cache(&self, cache: &str, hit: bool);
}

impl Observer for () {
    fn expect_api_call(&self, _: Action) {}
    fn api_call(&self, _: Action, _: f64) {}
    fn api_error(&self, _: Action, _: &str) {}
    fn api_throttle(&self, _: Action) {}
    fn poll_batch(&self, _: Action, _: usize) {}
    fn cache(&self, _: &str, _: bool) {}
}
