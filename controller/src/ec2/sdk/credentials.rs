//! The controller's credentials, fetched from their source when they are about to expire and when
//! AWS reports that they have.
//!
//! The SDK's own cache knows only the time of expiry. A revoked token or a wrong clock shows only
//! in AWS's answer. The cached credentials are then dropped and the source is asked again, so that
//! a rotated token file or secret is found without a restart.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future::ProvideCredentials as Providing;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_smithy_async::time::SharedTimeSource;
use tokio::time::Instant;

use super::error_conversion::innermost;

/// How long before their expiry credentials are renewed: a call under way must not outlive them.
const EARLY: Duration = Duration::from_secs(60);
/// How long a source may take to answer a call for credentials.
const PATIENCE: Duration = Duration::from_secs(10);
/// Credentials younger than this are not dropped: the source would return the same again.
const YOUNG: Duration = Duration::from_secs(1);
/// How long a source that failed is not asked again while the cached credentials are still good.
const REST: Duration = Duration::from_secs(10);

/// The cache of credentials; see the module.
#[derive(Clone)]
pub(in crate::ec2) struct RenewingCredentials(Arc<Shared>);

struct Shared {
    source: SharedCredentialsProvider,
    /// A description of the source.
    from: String,
    clock: SharedTimeSource,
    held: Mutex<Option<Held>>,
    /// Allows one renewal at a time; a caller that comes meanwhile uses its result.
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Held {
    credentials: Credentials,
    since: Instant,
    /// No renewal is tried before this time.
    rest: Option<Instant>,
}

impl fmt::Debug for RenewingCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the credentials.
        f.debug_tuple("RenewingCredentials").field(&self.0.from).finish()
    }
}

/// The error that there are no credentials: their source, and the last cause.
#[derive(Debug)]
struct Unavailable(String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

impl RenewingCredentials {
    /// Creates an empty cache of the credentials of `source`. `from` describes the source; it
    /// appears in errors.
    pub(in crate::ec2) fn new(
        source: SharedCredentialsProvider,
        from: String,
        clock: SharedTimeSource,
    ) -> Self {
        Self(Arc::new(Shared {
            source,
            from,
            clock,
            held: Mutex::new(None),
            renewal: tokio::sync::Mutex::new(()),
        }))
    }

    /// Drops credentials that AWS refused, so that the next call asks the source. Returns whether
    /// that may help.
    pub(in crate::ec2) fn forget(&self) -> bool {
        let mut held = self.held();
        match &*held {
            Some(young) if young.since.elapsed() < YOUNG => false,
            _ => {
                *held = None;
                true
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached credentials, when they stay valid for longer than `margin`.
    fn good(&self, margin: Duration) -> Option<Held> {
        let until: SystemTime = self.0.clock.now() + margin;
        self.held()
            .clone()
            .filter(|held| held.credentials.expiry().is_none_or(|expiry| expiry > until))
    }

    async fn provide(&self) -> Result<Credentials, CredentialsError> {
        let usable = |held: &Held| held.rest.is_some_and(|rest| rest > Instant::now());
        let early = || self.good(EARLY).or_else(|| self.good(Duration::ZERO).filter(usable));
        if let Some(held) = early() {
            return Ok(held.credentials);
        }
        let _one = self.0.renewal.lock().await;
        if let Some(held) = early() {
            return Ok(held.credentials);
        }
        let fetched = tokio::time::timeout(PATIENCE, self.0.source.provide_credentials())
            .await
            .unwrap_or_else(|_| Err(CredentialsError::provider_timed_out(PATIENCE)));
        match fetched {
            Ok(credentials) => {
                *self.held() = Some(Held {
                    credentials: credentials.clone(),
                    since: Instant::now(),
                    rest: None,
                });
                Ok(credentials)
            }
            Err(error) => {
                let still_good = self.good(Duration::ZERO);
                if let Some(held) = still_good {
                    tracing::warn!(
                        from = self.0.from,
                        why = innermost(&error),
                        "AWS credentials could not be renewed; those that are held are still good"
                    );
                    *self.held() = Some(Held { rest: Some(Instant::now() + REST), ..held.clone() });
                    return Ok(held.credentials);
                }
                Err(match error {
                    CredentialsError::CredentialsNotLoaded(_) => error,
                    other => CredentialsError::provider_error(Unavailable(format!(
                        "{}: {}",
                        self.0.from,
                        innermost(&other)
                    ))),
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

    /// A source of keys, numbered from 1, that expire at `lasts`; it fails while `down`.
    #[derive(Debug, Default)]
    struct Source {
        asked: AtomicU32,
        down: std::sync::atomic::AtomicBool,
        lasts: Option<Duration>,
    }

    #[derive(Clone, Debug)]
    struct Handle(Arc<Source>);

    impl ProvideCredentials for Handle {
        fn provide_credentials<'a>(&'a self) -> Providing<'a>
        where
            Self: 'a,
        {
            let number = self.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = if self.0.down.load(Ordering::Relaxed) {
                Err(CredentialsError::provider_error("the source is down"))
            } else {
                let expiry = self.0.lasts.map(|span| SystemTime::UNIX_EPOCH + span);
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

    fn renewing(lasts: Option<u64>) -> (RenewingCredentials, Arc<Source>, Clock) {
        let source =
            Arc::new(Source { lasts: lasts.map(Duration::from_secs), ..Source::default() });
        let clock = Clock(Arc::default());
        let provider = SharedCredentialsProvider::new(Handle(Arc::clone(&source)));
        let renewing = RenewingCredentials::new(
            provider,
            "a test".to_owned(),
            SharedTimeSource::new(clock.clone()),
        );
        (renewing, source, clock)
    }

    async fn key(renewing: &RenewingCredentials) -> String {
        let got = renewing.provide().await.expect("credentials");
        got.access_key_id().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_renew_60_seconds_before_expiry() {
        let (renewing, _, clock) = renewing(Some(900));
        assert_eq!(key(&renewing).await, "AKIA1");
        clock.0.store(839, Ordering::Relaxed);
        assert_eq!(key(&renewing).await, "AKIA1");
        clock.0.store(841, Ordering::Relaxed);
        assert_eq!(key(&renewing).await, "AKIA2");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_are_fetched_again_after_1_second() {
        let (renewing, _, _) = renewing(None);
        assert_eq!(key(&renewing).await, "AKIA1");
        assert!(!renewing.forget(), "they have just come");
        assert_eq!(key(&renewing).await, "AKIA1");
        tokio::time::advance(YOUNG).await;
        assert!(renewing.forget());
        assert_eq!(key(&renewing).await, "AKIA2");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_fetch_credentials_once() {
        let (renewing, source, _) = renewing(None);
        let (one, two) = tokio::join!(key(&renewing), key(&renewing));
        assert_eq!((one, two), ("AKIA1".to_owned(), "AKIA1".to_owned()));
        assert_eq!(source.asked.load(Ordering::Relaxed), 1);
    }

    /// A source that is down is asked again only after a pause, and `Debug` never shows the
    /// credentials.
    #[tokio::test(start_paused = true)]
    async fn failed_source_leaves_cached_credentials_usable_until_expiry() {
        let (renewing, source, clock) = renewing(Some(900));
        assert_eq!(key(&renewing).await, "AKIA1");
        source.down.store(true, Ordering::Relaxed);
        clock.0.store(880, Ordering::Relaxed);
        assert_eq!(key(&renewing).await, "AKIA1");
        assert_eq!(key(&renewing).await, "AKIA1");
        assert_eq!(source.asked.load(Ordering::Relaxed), 2, "it is not asked each time");
        clock.0.store(900, Ordering::Relaxed);
        let error = renewing.provide().await.expect_err("expired");
        assert!(innermost(&error).contains("a test: the source is down"), "{error}");
        assert!(!format!("{renewing:?}").contains("AKIA"));
    }
}
