//! The controller's credentials, fetched from their source when they are about to expire and when
//! AWS reports that they have expired.
//!
//! The SDK's own cache knows only the time of expiry. A revoked token or a wrong clock shows only
//! in AWS's answer. The cached credentials are then dropped and the source is asked again, so that
//! a rotated token file or secret is found without a restart.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future::ProvideCredentials as Providing;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_smithy_async::time::SharedTimeSource;
use ebs_csi_proto::lock;
use tokio::time::Instant;

use super::error_conversion::innermost;

/// How long before their expiry credentials are renewed: they must not expire during a call.
const RENEW_BEFORE_EXPIRY: Duration = Duration::from_secs(60);
/// How long a source may take to answer a call for credentials.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Credentials younger than this are not dropped: the source would return the same again.
const MIN_AGE_TO_DROP: Duration = Duration::from_secs(1);
/// How long a source that failed is not asked again while the cached credentials are still good.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The cache of credentials; see the module.
#[derive(Clone)]
pub(crate) struct RenewingCredentials(Arc<Shared>);

struct Shared {
    source: SharedCredentialsProvider,
    /// A description of the source.
    from: String,
    clock: SharedTimeSource,
    cached: Mutex<Option<Cached>>,
    /// Allows one renewal at a time; a caller that comes meanwhile uses its result.
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Cached {
    credentials: Credentials,
    since: Instant,
    /// No renewal is tried before this time.
    next_renewal: Option<Instant>,
}

impl fmt::Debug for RenewingCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the credentials.
        f.debug_tuple("RenewingCredentials").field(&self.0.from).finish()
    }
}

impl RenewingCredentials {
    /// Creates an empty cache of the credentials of `source`. `from` describes the source; it
    /// appears in errors.
    pub(crate) fn new(
        source: SharedCredentialsProvider,
        from: String,
        clock: SharedTimeSource,
    ) -> Self {
        Self(Arc::new(Shared {
            source,
            from,
            clock,
            cached: Mutex::new(None),
            renewal: tokio::sync::Mutex::new(()),
        }))
    }

    /// Drops credentials that AWS refused, so that the next call asks the source. Returns whether
    /// that may help.
    pub(crate) fn drop_refused(&self) -> bool {
        let mut cached = lock(&self.0.cached);
        match &*cached {
            Some(cached) if cached.since.elapsed() < MIN_AGE_TO_DROP => false,
            _ => {
                *cached = None;
                true
            }
        }
    }

    /// Returns the cached credentials, when they stay valid for longer than `margin`.
    fn valid_for(&self, margin: Duration) -> Option<Cached> {
        let until: SystemTime = self.0.clock.now() + margin;
        lock(&self.0.cached)
            .clone()
            .filter(|cached| cached.credentials.expiry().is_none_or(|expiry| expiry > until))
    }

    async fn provide(&self) -> Result<Credentials, CredentialsError> {
        let renewal_is_paused =
            |cached: &Cached| cached.next_renewal.is_some_and(|at| at > Instant::now());
        let usable = || {
            self.valid_for(RENEW_BEFORE_EXPIRY)
                .or_else(|| self.valid_for(Duration::ZERO).filter(renewal_is_paused))
        };
        if let Some(cached) = usable() {
            return Ok(cached.credentials);
        }
        let _renewal = self.0.renewal.lock().await;
        if let Some(cached) = usable() {
            return Ok(cached.credentials);
        }
        let fetched = tokio::time::timeout(SOURCE_TIMEOUT, self.0.source.provide_credentials())
            .await
            .unwrap_or_else(|_| Err(CredentialsError::provider_timed_out(SOURCE_TIMEOUT)));
        match fetched {
            Ok(credentials) => {
                *lock(&self.0.cached) = Some(Cached {
                    credentials: credentials.clone(),
                    since: Instant::now(),
                    next_renewal: None,
                });
                Ok(credentials)
            }
            Err(error) => {
                let still_valid = self.valid_for(Duration::ZERO);
                if let Some(cached) = still_valid {
                    tracing::warn!(
                        from = self.0.from,
                        why = innermost(&error),
                        "AWS credentials could not be renewed; those that are held are still good"
                    );
                    *lock(&self.0.cached) = Some(Cached {
                        next_renewal: Some(Instant::now() + RETRY_PAUSE),
                        ..cached.clone()
                    });
                    return Ok(cached.credentials);
                }
                Err(match error {
                    CredentialsError::CredentialsNotLoaded(_) => error,
                    other => {
                        let cause = innermost(&other);
                        CredentialsError::provider_error(format!("{}: {cause}", self.0.from))
                    }
                })
            }
        }
    }
}

impl ProvideCredentials for RenewingCredentials {
    fn provide_credentials<'a>(&'a self) -> Providing<'a>
    where
        Self: 'a,
    {
        Providing::new(self.provide())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_smithy_async::time::TimeSource;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A source of keys, numbered from 1, that expire at `lifetime`; it fails while `is_down`.
    #[derive(Debug, Default)]
    struct Source {
        requests: AtomicU32,
        is_down: std::sync::atomic::AtomicBool,
        lifetime: Option<Duration>,
    }

    #[derive(Clone, Debug)]
    struct Handle(Arc<Source>);

    impl ProvideCredentials for Handle {
        fn provide_credentials<'a>(&'a self) -> Providing<'a>
        where
            Self: 'a,
        {
            let number = self.0.requests.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = if self.0.is_down.load(Ordering::Relaxed) {
                Err(CredentialsError::provider_error("the source is down"))
            } else {
                let expiry = self.0.lifetime.map(|span| SystemTime::UNIX_EPOCH + span);
                Ok(Credentials::new(format!("AKIA{number}"), "secret", None, expiry, "test"))
            };
            Providing::ready(answer)
        }
    }

    #[derive(Clone, Debug)]
    struct Clock(Arc<AtomicU32>);

    impl TimeSource for Clock {
        fn now(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(self.0.load(Ordering::Relaxed)))
        }
    }

    fn credentials(lifetime: Option<u64>) -> (RenewingCredentials, Arc<Source>, Clock) {
        let source =
            Arc::new(Source { lifetime: lifetime.map(Duration::from_secs), ..Source::default() });
        let clock = Clock(Arc::default());
        let provider = SharedCredentialsProvider::new(Handle(Arc::clone(&source)));
        let credentials = RenewingCredentials::new(
            provider,
            "a test".to_owned(),
            SharedTimeSource::new(clock.clone()),
        );
        (credentials, source, clock)
    }

    /// Checks which of its keys the source has given last.
    async fn assert_key(credentials: &RenewingCredentials, key: &str) {
        let provided = credentials.provide().await.expect("credentials");
        assert_eq!(provided.access_key_id(), key);
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_renew_60_seconds_before_expiry() {
        let (credentials, _, clock) = credentials(Some(900));
        for (seconds, key) in [(0, "AKIA1"), (839, "AKIA1"), (841, "AKIA2")] {
            clock.0.store(seconds, Ordering::Relaxed);
            assert_key(&credentials, key).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_are_fetched_again_after_1_second() {
        let (credentials, _, _) = credentials(None);
        assert_key(&credentials, "AKIA1").await;
        assert!(!credentials.drop_refused(), "they were just fetched");
        assert_key(&credentials, "AKIA1").await;
        tokio::time::advance(MIN_AGE_TO_DROP).await;
        assert!(credentials.drop_refused());
        assert_key(&credentials, "AKIA2").await;
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_fetch_credentials_once() {
        let (credentials, source, _) = credentials(None);
        tokio::join!(assert_key(&credentials, "AKIA1"), assert_key(&credentials, "AKIA1"));
        assert_eq!(source.requests.load(Ordering::Relaxed), 1);
    }

    /// A source that is down is asked again only after a pause, and `Debug` never shows the
    /// credentials.
    #[tokio::test(start_paused = true)]
    async fn failed_source_leaves_cached_credentials_usable_until_expiry() {
        let (credentials, source, clock) = credentials(Some(900));
        assert_key(&credentials, "AKIA1").await;
        source.is_down.store(true, Ordering::Relaxed);
        clock.0.store(880, Ordering::Relaxed);
        assert_key(&credentials, "AKIA1").await;
        assert_key(&credentials, "AKIA1").await;
        assert_eq!(source.requests.load(Ordering::Relaxed), 2, "it is not called each time");
        clock.0.store(900, Ordering::Relaxed);
        let error = credentials.provide().await.expect_err("expired");
        assert!(innermost(&error).contains("a test: the source is down"), "{error}");
        assert!(!format!("{credentials:?}").contains("AKIA"));
    }
}
