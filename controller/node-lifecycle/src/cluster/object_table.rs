//! The retained parts of all objects of one kind, in little memory.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::{StreamExt, TryStreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};

use super::{Retained, Watched, key_of};

/// Most objects in one page of a list. A page is held as text and as objects at once, and the
/// memory of large pages is not released.
const PAGE: u32 = 250;

/// The retained part of an object.
pub trait TableRow {
    /// Returns the key of the row.
    fn key(&self) -> &str;

    /// Returns a second key of the row.
    fn second_key(&self) -> Option<&str> {
        None
    }
}

/// The rows of one kind.
#[derive(Debug)]
pub struct Table<T: TableRow> {
    rows: RwLock<Rows<T>>,
}

#[derive(Debug)]
struct Rows<T: TableRow> {
    /// Each with the number of the list that last contained the row, or after whose begin the row
    /// was last reported.
    by_key: HashSet<Entry<T, u32, false>>,
    by_second_key: HashSet<Entry<T, (), true>>,
    complete: bool,
    list_number: u32,
}

/// A row in a set by its key or, with `SECOND`, by its second key: the keys of the sets are texts
/// within the rows themselves.
#[derive(Debug)]
struct Entry<T, N, const SECOND: bool> {
    row: Arc<T>,
    list_number: N,
}

impl<T: TableRow, N, const SECOND: bool> Borrow<str> for Entry<T, N, SECOND> {
    fn borrow(&self) -> &str {
        if SECOND { self.row.second_key().unwrap_or_default() } else { self.row.key() }
    }
}

impl<T: TableRow, N, const SECOND: bool> Hash for Entry<T, N, SECOND> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<str>::borrow(self).hash(state);
    }
}

impl<T: TableRow, N, const SECOND: bool> PartialEq for Entry<T, N, SECOND> {
    fn eq(&self, other: &Self) -> bool {
        Borrow::<str>::borrow(self) == Borrow::<str>::borrow(other)
    }
}

impl<T: TableRow, N, const SECOND: bool> Eq for Entry<T, N, SECOND> {}

impl<T: TableRow> Default for Table<T> {
    fn default() -> Self {
        let rows = Rows {
            by_key: HashSet::new(),
            by_second_key: HashSet::new(),
            complete: false,
            list_number: 0,
        };
        Self { rows: RwLock::new(rows) }
    }
}

impl<T: TableRow> Table<T> {
    /// Returns whether a complete list has been seen: before that, a missing row means nothing.
    pub fn is_complete(&self) -> bool {
        self.read(|rows| rows.complete)
    }

    /// Returns the row with this key.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read(|rows| rows.by_key.get(key).map(|found| Arc::clone(&found.row)))
    }

    /// Returns the row with this second key.
    pub fn get_by_second_key(&self, key: &str) -> Option<Arc<T>> {
        self.read(|rows| rows.by_second_key.get(key).map(|found| Arc::clone(&found.row)))
    }

    /// Returns the rows that satisfy the predicate.
    pub fn filter(&self, predicate: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        self.read(|rows| {
            let rows = rows.by_key.iter().map(|found| &found.row);
            rows.filter(|row| predicate(row)).cloned().collect()
        })
    }

    /// Applies a function to each row.
    pub fn map<R>(&self, function: impl Fn(&T) -> R) -> Vec<R> {
        self.read(|rows| rows.by_key.iter().map(|found| function(&found.row)).collect())
    }

    /// Begins a list. Its rows replace the present ones one by one, so that two lists are never
    /// held at once.
    fn begin_list(&self) {
        self.write(|rows| rows.list_number = rows.list_number.wrapping_add(1));
    }

    /// Completes a list: removes the rows that were neither in the list nor reported since it
    /// began.
    fn complete_list(&self) {
        self.write(|rows| {
            let list_number = rows.list_number;
            let gone = rows.by_key.iter().filter(|found| found.list_number != list_number);
            let gone: Vec<Arc<T>> = gone.map(|found| Arc::clone(&found.row)).collect();
            for row in gone {
                rows.remove(row.key());
            }
            rows.complete = true;
        });
    }

    /// Replaces the row with this key; `None` when nothing of the object is needed.
    fn set_row(&self, key: &str, row: Option<Arc<T>>) {
        self.write(|rows| {
            rows.remove(key);
            if let Some(row) = row {
                rows.insert(row);
            }
        });
    }

    fn read<R>(&self, function: impl FnOnce(&Rows<T>) -> R) -> R {
        function(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut Rows<T>)) {
        change(&mut self.rows.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<T: TableRow> Rows<T> {
    fn insert(&mut self, row: Arc<T>) {
        if row.second_key().is_some() {
            self.by_second_key.replace(Entry { row: Arc::clone(&row), list_number: () });
        }
        let list_number = self.list_number;
        self.by_key.replace(Entry { row, list_number });
    }

    fn remove(&mut self, key: &str) {
        let Some(Entry { row, .. }) = self.by_key.take(key) else {
            return;
        };
        // Another row may have taken over the row's second key.
        if let Some(second) = row.second_key()
            && let Some(found) = self.by_second_key.get(second)
            && Arc::ptr_eq(&found.row, &row)
        {
            self.by_second_key.remove(second);
        }
    }
}

/// Keeps the table in step with the API server's list and watch of the objects with these labels
/// (a selector; empty for all objects), for ever.
pub(crate) async fn sync_table<T>(api: Api<Watched<T>>, labels: &str, table: Arc<Table<T>>)
where
    T: Retained + TableRow + Debug + Send + Sync + 'static,
{
    let mut config = watcher::Config::default().page_size(PAGE);
    if !labels.is_empty() {
        config = config.labels(labels);
    }
    let mut events = watcher(api, config).default_backoff().boxed();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => table.begin_list(),
            Ok(Some(Event::InitDone)) => table.complete_list(),
            Ok(Some(Event::InitApply(object) | Event::Apply(object))) => {
                table.set_row(&key_of(object.meta()), object.row());
            }
            Ok(Some(Event::Delete(object))) => table.set_row(&key_of(object.meta()), None),
            Ok(None) => return,
            // The stream continues by itself after a pause. The known rows stay: each act
            // follows a second read.
            Err(error) => {
                let kind = std::any::type_name::<T::Kind>();
                tracing::warn!(kind, %error, "watching was interrupted");
            }
        }
    }
}

/// `N` short texts in one allocation: most of the memory for a hundred thousand objects holds
/// names.
#[derive(Clone)]
pub(crate) struct Texts<const N: usize> {
    all: Box<str>,
    ends: [u32; N],
}

impl<const N: usize> Texts<N> {
    /// Concatenates texts. A total beyond 4 GiB is cut off; an API object has at most a few MiB.
    pub(crate) fn new(texts: [&str; N]) -> Self {
        let all = texts.concat().into_boxed_str();
        let mut end = 0_usize;
        let ends = texts.map(|text| {
            end += text.len();
            u32::try_from(end).unwrap_or(u32::MAX)
        });
        Self { all, ends }
    }

    /// Returns the text with this index; empty when there is none.
    pub(crate) fn get(&self, number: usize) -> &str {
        let at = |number: usize| self.ends.get(number).map_or(0, |end| *end as usize);
        let from = number.checked_sub(1).map_or(0, at);
        self.all.get(from..at(number)).unwrap_or_default()
    }
}

impl<const N: usize> Debug for Texts<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = (0..N).map(|number| self.get(number));
        f.debug_list().entries(texts).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Pair(&'static str, Option<&'static str>);

    impl TableRow for Pair {
        fn key(&self) -> &str {
            self.0
        }

        fn second_key(&self) -> Option<&str> {
            self.1
        }
    }

    fn set_row(table: &Table<Pair>, key: &'static str, second: Option<&'static str>) {
        table.set_row(key, Some(Arc::new(Pair(key, second))));
    }

    fn keys(table: &Table<Pair>) -> Vec<&'static str> {
        let mut keys = table.map(|row| row.0);
        keys.sort_unstable();
        keys
    }

    /// Old rows stay until the new list is complete, so that nothing is missed meanwhile.
    #[test]
    fn new_list_replaces_rows_when_complete() {
        let table = Table::default();
        assert!(!table.is_complete());
        table.begin_list();
        set_row(&table, "a", None);
        set_row(&table, "b", None);
        table.complete_list();
        assert!(table.is_complete());
        table.begin_list();
        set_row(&table, "b", None);
        // The list began again from its first page.
        table.begin_list();
        set_row(&table, "c", None);
        assert_eq!(keys(&table), ["a", "b", "c"], "nothing is missed meanwhile");
        table.complete_list();
        assert_eq!(keys(&table), ["c"]);
        table.set_row("c", None);
        assert!(keys(&table).is_empty());
    }

    #[test]
    fn second_key_resolves_to_latest_row() {
        let table: Table<Pair> = Table::default();
        let of = |key: &str| table.get_by_second_key(key).map(|row| row.0);
        set_row(&table, "a", Some("x"));
        assert_eq!(of("x"), Some("a"));
        set_row(&table, "b", Some("x"));
        assert_eq!(of("x"), Some("b"));
        table.set_row("a", None);
        assert_eq!(of("x"), Some("b"));
        set_row(&table, "b", Some("y"));
        assert_eq!((of("x"), of("y")), (None, Some("b")));
        set_row(&table, "b", None);
        assert_eq!(of("y"), None);
    }

    #[test]
    fn stored_texts_are_returned_by_index() {
        let texts = Texts::new(["default/a", "", "ü", "x"]);
        let back: Vec<&str> = (0..5).map(|number| texts.get(number)).collect();
        assert_eq!(back, ["default/a", "", "ü", "x", ""]);
        assert_eq!(format!("{texts:?}"), r#"["default/a", "", "ü", "x"]"#);
    }
}
