//! Builds the client: Region, endpoint, credentials, timeouts, user agent.

pub(crate) mod identity;
mod look;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use aws_config::identity::IdentityCache;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_smithy_http_client::tls::TlsContext;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::interceptors::SharedInterceptor;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use ebs_csi_wire::VolumeId;
use tokio::time::Instant;

use super::describe::poller_set::PollerSet;
use super::model::timestamp::Timestamp;
use super::sdk::call::Core;
use super::sdk::connector::{ByScheme, read_ca_bundle};
use super::sdk::credentials::RenewingCredentials;
use super::sdk::interceptors::{ExecutionEnvironment, IntactAnswers, RecordHttpExchange};
use super::sdk::settings::{Ec2Settings, Surroundings};
use crate::call::Call;
use crate::calls::Action;
use crate::error::Ec2Error;
use crate::model::LookResult;
use crate::model::volume::Volume;
use crate::pacing::lane::NEAR_TURN;

/// Why the client cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// No Region is known.
    NoRegion,
    /// An endpoint is not a URL.
    Endpoint(String),
    /// `AWS_CA_BUNDLE` cannot be used, for this reason.
    CaBundle(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRegion => f.write_str(
                "no AWS Region: AWS_REGION is not set, and neither the AWS profile nor the node's label (NODE_REGION) nor instance metadata names one; set AWS_REGION",
            ),
            Self::CaBundle(why) => write!(f, "AWS_CA_BUNDLE: {why}"),
            Self::Endpoint(endpoint) => {
                write!(f, "AWS_EC2_ENDPOINT: {endpoint:?} is not an http:// or https:// URL; correct it or leave it out")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// Access to EC2, which all callers share: clones are the same access.
#[derive(Clone)]
pub struct Ec2 {
    pub(super) core: Arc<Core>,
    pub(super) pollers: Arc<PollerSet>,
    sdk: Arc<SdkConfig>,
    region: Arc<str>,
}

impl fmt::Debug for Ec2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ec2").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Ec2 {
    /// Reads the environment and builds the client. Sends nothing to EC2 or STS; asks instance
    /// metadata only when nothing else names a Region.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn connect(
        settings: Ec2Settings,
        surroundings: Surroundings,
    ) -> Result<Self, StartError> {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(settings.connect_timeout)
            .read_timeout(settings.call_timeout)
            // Covers everything from the credentials to the end of the answer. There is one
            // attempt, so a timeout of the whole operation would be the same.
            .operation_attempt_timeout(settings.call_timeout)
            .build();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            // The attempt's timeout bounds each body too, and EC2's bodies are read whole, so
            // watching their rate would only cost processor time.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .time_source(surroundings.clock.clone());
        if let Some(region) = &settings.region {
            loader = loader.region(Region::new(region.clone()));
        } else if let Some(region) = &settings.region_of_node {
            // The profile goes before the node's label, because somebody wrote the profile for the
            // controller.
            let profile = settings.profile_files.then(ProfileFileRegionProvider::new);
            let region = Region::new(region.clone());
            loader = loader.region(match profile {
                Some(profile) => RegionProviderChain::first_try(profile).or_else(region),
                None => RegionProviderChain::first_try(region),
            });
        }
        let tls_context = match &settings.ca_bundle {
            Some(path) => read_ca_bundle(path).map_err(StartError::CaBundle)?,
            None => TlsContext::default(),
        };
        loader = loader.http_client(
            surroundings.http.unwrap_or_else(|| SharedHttpClient::new(ByScheme::new(tls_context))),
        );
        if let Some(credentials) = surroundings.credentials {
            loader = loader.credentials_provider(credentials);
        }
        if !settings.profile_files {
            let empty =
                EnvConfigFiles::builder().with_contents(EnvConfigFileKind::Config, "").build();
            loader = loader.profile_files(empty);
        }
        let sdk = loader.load().await;
        let credentials = sdk.credentials_provider().map(|source| {
            RenewingCredentials::new(source, settings.credentials_from.clone(), surroundings.clock)
        });
        let mut sdk = sdk.into_builder();
        if let Some(credentials) = &credentials {
            // `RenewingCredentials` is the cache. The SDK's own cache would hide from it that AWS
            // refuses the cached credentials.
            sdk = sdk
                .credentials_provider(SharedCredentialsProvider::new(credentials.clone()))
                .identity_cache(IdentityCache::no_cache());
        }
        let sdk = sdk.build();
        let region = sdk.region().map(ToString::to_string).filter(|region| !region.is_empty());
        let region = region.ok_or(StartError::NoRegion)?;
        let mut config = aws_sdk_ec2::config::Builder::from(&sdk);
        // Permanent interceptors are never disabled, so the SDK does not check before each hook
        // whether they are.
        config.push_interceptor(SharedInterceptor::permanent(IntactAnswers));
        config.push_interceptor(SharedInterceptor::permanent(RecordHttpExchange));
        config.push_interceptor(SharedInterceptor::permanent(ExecutionEnvironment::new(
            &settings.execution_environment,
        )));
        if let Some(endpoint) = &settings.ec2_endpoint {
            if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
                return Err(StartError::Endpoint(endpoint.clone()));
            }
            config = config.endpoint_url(endpoint);
        }
        let client = aws_sdk_ec2::Client::from_conf(config.build());
        let core = Arc::new(Core::new(client, credentials, settings, surroundings.observer));
        let pollers = PollerSet::new(&core);
        Ok(Self { core, pollers: Arc::new(pollers), sdk: Arc::new(sdk), region: region.into() })
    }

    /// Returns, for an error text, which actions EC2 has throttled since then; `None` when it has
    /// throttled none.
    pub fn throttling_since(&self, since: Instant) -> Option<String> {
        let actions = self.core.throttled_since(since);
        let names: Vec<_> = actions.iter().map(|action| format!("ec2:{action}")).collect();
        (!names.is_empty()).then(|| {
            format!(
                "EC2 throttles {}: other users of this account and Region share the request quota",
                names.join(", ")
            )
        })
    }

    /// Returns the Region (`us-east-1`).
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Returns the wall clock's time.
    pub fn now(&self) -> Timestamp {
        self.sdk.time_source().map_or_else(SystemTime::now, |clock| clock.now()).into()
    }

    pub(super) fn sdk_config(&self) -> &SdkConfig {
        &self.sdk
    }
}

/// The part of the expected wait within which a caller in a long queue looks once: there may be
/// nothing to wait for.
const EARLY_PART: f64 = 0.1;

impl Ec2 {
    /// Waits in the queue of `action` until the turn is near, and returns the same work with the
    /// place. Its looks are answered by the time of the turn or later, and the change is sent from
    /// that place. Does not wait where a look on arrival satisfies `is_settled`; the work then has
    /// no place.
    ///
    /// # Errors
    /// [`Deadline`](crate::Ec2ErrorKind::Deadline) when the turn does not come near in time.
    pub async fn wait_in_queue(
        &self,
        call: &Call,
        action: Action,
        volume: &VolumeId,
        is_settled: impl Fn(&LookResult<Volume>) -> bool,
    ) -> Result<Call, Ec2Error> {
        let Some(place) = self.core.take_place(action) else {
            return Ok(call.clone());
        };
        let wait = place.estimated_wait();
        if wait > NEAR_TURN {
            let early = call.with_answers_by(Instant::now() + wait.mul_f64(EARLY_PART));
            if is_settled(&self.look_volume(&early, volume).await) {
                return Ok(call.clone());
            }
        }
        let turn = place.wait_until_near(self.core.deadline_of(call)).await?;
        Ok(call.with_answers_by(turn).with_place(place))
    }
}
