//! What was seen of one kind of object: kept small, replaced whole after a relist.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::{StreamExt, TryStreamExt};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;

/// The rows of one kind, by key.
#[derive(Debug)]
pub struct Table<T> {
    rows: RwLock<Rows<T>>,
}

#[derive(Debug)]
struct Rows<T> {
    known: HashMap<String, Arc<T>>,
    complete: bool,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let known = HashMap::new();
        let complete = false;
        Self {
            rows: RwLock::new(Rows { known, complete }),
        }
    }
}

impl<T> Table<T> {
    /// Whether a complete list has been seen: before that, a row that is missing says nothing.
    pub fn is_complete(&self) -> bool {
        self.read(|rows| rows.complete)
    }

    /// The row of that key.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read(|rows| rows.known.get(key).cloned())
    }

    /// All rows.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.read(|rows| rows.known.values().cloned().collect())
    }

    fn read<R>(&self, look: impl FnOnce(&Rows<T>) -> R) -> R {
        look(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut Rows<T>)) {
        change(&mut self.rows.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Keeps the table as the API server's list and watch say, for ever. `reduce` takes what matters of an object; `None`: nothing does.
pub async fn follow<K, T>(
    api: Api<K>,
    config: watcher::Config,
    key: impl Fn(&K) -> String,
    reduce: impl Fn(K) -> Option<T>,
    table: Arc<Table<T>>,
) where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut fresh = HashMap::new();
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => fresh = HashMap::new(),
            Ok(Some(Event::InitApply(object))) => {
                let key = key(&object);
                if let Some(row) = reduce(object) {
                    fresh.insert(key, Arc::new(row));
                }
            }
            Ok(Some(Event::InitDone)) => {
                let known = std::mem::take(&mut fresh);
                table.write(|rows| {
                    rows.known = known;
                    rows.complete = true;
                });
            }
            Ok(Some(Event::Apply(object))) => {
                let key = key(&object);
                let row = reduce(object).map(Arc::new);
                table.write(|rows| match row {
                    Some(row) => drop(rows.known.insert(key, row)),
                    None => drop(rows.known.remove(&key)),
                });
            }
            Ok(Some(Event::Delete(object))) => {
                table.write(|rows| drop(rows.known.remove(&key(&object))));
            }
            Ok(None) => return,
            // The stream goes on by itself after a pause. What is known stays: an act is preceded by a fresh look.
            Err(error) => {
                tracing::warn!(kind = std::any::type_name::<K>(), %error, "watching was interrupted");
            }
        }
    }
}
