//! Facts about names that were learned earlier. A lost fact costs a call to EC2, never correctness.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebs_csi_proto::lock;
use tokio::time::Instant;

const MAX_NAMES: usize = 10_000;

/// How often a full table is searched for expired values.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A value for each name, each with its own lifetime. Reading does not prolong it.
#[derive(Clone, Debug)]
pub struct ExpiringCache<V>(Arc<Mutex<Names<V>>>);

#[derive(Debug)]
struct Names<V> {
    map: HashMap<String, (V, Instant)>,
    last_sweep: Option<Instant>,
}

impl<V> Default for ExpiringCache<V> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Names { map: HashMap::new(), last_sweep: None })))
    }
}

impl<V: Clone> ExpiringCache<V> {
    /// Remembers the value for `ttl`. When the table is full, new names are not remembered.
    pub fn put(&self, name: &str, value: V, ttl: Duration) {
        let now = Instant::now();
        let mut names = lock(&self.0);
        if let Some(entry) = names.map.get_mut(name) {
            *entry = (value, now + ttl);
            return;
        }
        let is_due = names.last_sweep.is_none_or(|last_sweep| now >= last_sweep + SWEEP_INTERVAL);
        if names.map.len() >= MAX_NAMES && is_due {
            names.last_sweep = Some(now);
            names.map.retain(|_, (_, until)| *until > now);
        }
        if names.map.len() < MAX_NAMES {
            names.map.insert(name.to_owned(), (value, now + ttl));
        }
    }

    /// Returns the value, when it has not expired.
    pub fn get(&self, name: &str) -> Option<V> {
        let names = lock(&self.0);
        let (value, until) = names.map.get(name)?;
        (*until > Instant::now()).then(|| value.clone())
    }

    /// Returns the values that have not expired, with their names.
    pub fn entries(&self) -> Vec<(String, V)> {
        let now = Instant::now();
        let names = lock(&self.0);
        let entries = names.map.iter().filter(|(_, (_, until))| *until > now);
        entries.map(|(name, (value, _))| (name.clone(), value.clone())).collect()
    }

    /// Removes the name.
    pub fn remove(&self, name: &str) {
        lock(&self.0).map.remove(name);
    }

    /// Removes each name whose value satisfies the predicate.
    pub fn remove_if(&self, predicate: impl Fn(&V) -> bool) {
        lock(&self.0).map.retain(|_, (value, _)| !predicate(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn remembered_value_expires_on_time_despite_reads() {
        let names = ExpiringCache::default();
        names.put("a", 1, Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!((names.get("a"), names.get("b")), (Some(1), None));
        assert_eq!(names.entries(), [("a".to_owned(), 1)]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(names.get("a"), None);
        assert_eq!(names.entries(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn cache_is_limited_to_10000_entries() {
        let names = ExpiringCache::default();
        for n in 0..MAX_NAMES + 100 {
            names.put(&n.to_string(), n, Duration::from_secs(60));
        }
        assert_eq!(lock(&names.0).map.len(), MAX_NAMES);
        names.put("0", 7, Duration::from_secs(60));
        assert_eq!(names.get("0"), Some(7));
        tokio::time::advance(Duration::from_secs(60)).await;
        names.put("new", 1, Duration::from_secs(60));
        assert_eq!(lock(&names.0).map.len(), 1);
    }
}
