//! What the EC2 layer takes from outside, so that a test can supply its own: HTTP, wall clock,
//! randomness, settings.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_async::time::{SharedTimeSource, SystemTimeSource};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

use crate::action::Rate;
use crate::calls::Action;
use crate::pacing::bucket::Ceiling;

/// The settings of the EC2 layer.
#[derive(Clone, Debug)]
pub struct Ec2Settings {
    /// The Region; `None` uses the SDK's chain (environment, profile, instance metadata).
    pub region: Option<String>,
    /// The Region of the node's label, used where nothing else but instance metadata names one.
    pub region_of_node: Option<String>,
    /// A file of certificate authorities (PEM), which replaces the system's.
    pub ca_bundle: Option<PathBuf>,
    /// EC2's endpoint; `None` for the Region's own.
    pub ec2_endpoint: Option<String>,
    /// STS's endpoint; `None` for the Region's own.
    pub sts_endpoint: Option<String>,
    /// Where the credentials come from, as text for errors.
    pub credentials_from: String,
    /// Whether the AWS profile files are read; looking for files that cannot be read costs time and
    /// causes warnings.
    pub profile_files: bool,
    /// The value that `AWS_EXECUTION_ENV` would have: `aws-ebs-csi-driver-v1.2.3[-extra]`.
    pub execution_environment: String,
    /// Initial rates of buckets that differ from the documented ones.
    pub rates: BTreeMap<Action, Rate>,
    /// Rates that are never exceeded, whatever EC2 accepts.
    pub max_rates: BTreeMap<Action, Rate>,
    /// The most calls of one action that may be under way at once.
    pub calls_in_flight: usize,
    /// How long establishing a connection may take.
    pub connect_timeout: Duration,
    /// How long one call may take, from the connection to the end of its answer.
    pub call_timeout: Duration,
    /// How long a caller without a deadline waits.
    pub default_timeout: Duration,
    /// The seed of the jitter.
    pub seed: u64,
}

impl Default for Ec2Settings {
    fn default() -> Self {
        Self {
            region: None,
            region_of_node: None,
            ca_bundle: None,
            ec2_endpoint: None,
            sts_endpoint: None,
            credentials_from: "the chain of the AWS SDK".to_owned(),
            profile_files: true,
            execution_environment: format!("aws-ebs-csi-driver-v{}", env!("CARGO_PKG_VERSION")),
            rates: BTreeMap::new(),
            max_rates: BTreeMap::new(),
            calls_in_flight: 100,
            connect_timeout: Duration::from_secs(3),
            call_timeout: Duration::from_secs(15),
            default_timeout: Duration::from_secs(60),
            seed: 0,
        }
    }
}

impl Ec2Settings {
    /// Returns the initial rate of the action's bucket.
    pub(crate) fn rate(&self, action: Action) -> Rate {
        let rate = self.rates.get(&action).copied();
        rate.unwrap_or_else(|| action.documented_rate())
    }

    /// Returns how far the rate may rise. The rates of reads do not rise unless a ceiling is given
    /// for them: half of their first refill is enough, and the rest is for other clients of the
    /// account.
    pub(crate) fn ceiling(&self, action: Action) -> Ceiling {
        match self.max_rates.get(&action) {
            Some(rate) => Ceiling::Rate(*rate),
            None if action.is_read() => Ceiling::Start,
            None => Ceiling::Open,
        }
    }
}

/// The outside world. Time spans and instants come from `tokio::time`, which a test can pause.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Sends HTTP requests; `None` for the SDK's own client.
    pub http: Option<SharedHttpClient>,
    /// The credentials; `None` for the SDK's chain (environment, profile, web identity, container,
    /// instance metadata).
    pub credentials: Option<SharedCredentialsProvider>,
    /// The wall clock, for signatures and ages.
    pub clock: SharedTimeSource,
    /// Who counts the calls.
    pub observer: Arc<dyn Observer>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            http: None,
            credentials: None,
            clock: SharedTimeSource::new(SystemTimeSource::new()),
            observer: Arc::new(()),
        }
    }
}

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
