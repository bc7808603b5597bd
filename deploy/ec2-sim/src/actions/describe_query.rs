//! The filters and the page of a Describe call, and the rows that they select.

use super::Call;
use crate::state::realm::Realm;
use crate::state::resources::instance::Instance;
use crate::state::resources::snapshot::Snapshot;
use crate::state::resources::tags::Tags;
use crate::state::resources::volume::Volume;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::page::{Page, issue_token};
use crate::wire::xml::Xml;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A filter's name, with the values that a resource has for the filter.
pub(super) type Field<T> = (&'static str, fn(&T) -> Vec<String>);

/// A resource that a Describe call shows.
pub(super) trait Row {
    fn id(&self) -> &str;

    fn tags(&self) -> &Tags;
}

macro_rules! rows {
    ($($kind:ty)*) => {$(
        impl Row for $kind {
            fn id(&self) -> &str {
                &self.id
            }
            fn tags(&self) -> &Tags {
                &self.tags
            }
        }
    )*};
}

rows! { Volume Snapshot Instance }

/// The filters and the page of a Describe call.
pub(super) struct Query<T: 'static> {
    fields: &'static [Field<T>],
    filters: Filters,
    page: Page,
    /// Whether the action shows a resource at all.
    pub(super) keep: fn(&T) -> bool,
}

impl<T: Row> Query<T> {
    /// Reads the filters and the page, and refuses unknown parameters. `ids` are the requested ids
    /// with the parameter's internal name, `range` the permitted page sizes.
    pub(super) fn parse(
        call: &Call<'_>,
        fields: &'static [Field<T>],
        ids: (&str, &[&str]),
        range: (i64, i64),
    ) -> ApiResult<Self> {
        let known: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let filters = Filters::parse(call.params, &known)?;
        let ids = (ids.0, !ids.1.is_empty());
        let page = Page::parse(call.params, call.action, ids, range, call.now)?;
        call.params.finish()?;
        Ok(Self { fields, filters, page, keep: |_| true })
    }

    /// Returns whether the call asks for neither a page's size nor a later page, so that an index
    /// can answer.
    fn unpaged(&self) -> bool {
        self.page.max.is_none() && self.page.after.is_none()
    }

    /// Returns the resources that the ids name or that the filter `by` names literally; `None`: all
    /// resources have to be searched. `missing` makes the error for ids that do not exist.
    pub(super) fn named<'a>(
        &self,
        call: &Call<'_>,
        all: &'a BTreeMap<String, T>,
        ids: &[&str],
        by: &str,
        missing: fn(&[&str]) -> ApiError,
    ) -> ApiResult<Option<Vec<&'a T>>> {
        if !ids.is_empty() {
            return by_ids(call, all, ids, missing).map(Some);
        }
        let literal = self.filters.literal(by).filter(|_| self.unpaged());
        Ok(literal.map(|ids| {
            let ids: BTreeSet<&String> = ids.iter().collect();
            ids.into_iter().filter_map(|id| all.get(id)).collect()
        }))
    }

    /// Returns the resources that the first `tag:KEY` filter with literal values selects, if the
    /// call asks for no page.
    pub(super) fn tagged<'a>(
        &self,
        realm: &Realm,
        all: &'a BTreeMap<String, T>,
    ) -> Option<Vec<&'a T>> {
        let (key, values) = self.filters.literal_tag().filter(|_| self.unpaged())?;
        let ids: BTreeSet<&String> = values.iter().flat_map(|v| realm.tagged(key, v)).collect();
        Some(ids.into_iter().filter_map(|id| all.get(id)).collect())
    }

    /// Answers with a list of the selected resources and the token of the next page, if any.
    pub(super) fn answer<'a>(
        &self,
        call: &Call<'_>,
        set: &str,
        all: &'a BTreeMap<String, T>,
        candidates: Option<Vec<&'a T>>,
        member: impl FnMut(&mut Xml, &'a T),
    ) -> String {
        let (rows, next) = self.select(all, candidates);
        let mut x = Xml::default();
        let shown = rows.into_iter().filter(|t| (self.keep)(t) && call.shows(t.id()));
        x.list(set, shown, member);
        if let Some(key) = next {
            x.text("nextToken", &issue_token(&key, call.action, call.now));
        }
        x.finish()
    }

    /// Selects rows in the order of their keys, from `candidates` that an index found, or from all
    /// rows. Also returns the key after which the next page begins, if there is one. Filters apply
    /// after the page was cut, as recorded replies of DescribeVolumeStatus show; a page can
    /// therefore be empty and still have a successor.
    fn select<'a>(
        &self,
        all: &'a BTreeMap<String, T>,
        candidates: Option<Vec<&'a T>>,
    ) -> (Vec<&'a T>, Option<String>) {
        let shown = |t: &&T| {
            let values = |name: &str| {
                let field = self.fields.iter().find(|(known, _)| *known == name);
                field.map_or_else(Vec::new, |(_, values)| values(t))
            };
            self.filters.accept(values) && self.filters.accept_tags(t.tags())
        };
        if let Some(candidates) = candidates {
            return (candidates.into_iter().filter(shown).collect(), None);
        }
        let from = match &self.page.after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Unbounded,
        };
        let mut rest = all.range((from, Bound::Unbounded));
        let cut: Vec<_> = rest.by_ref().take(self.page.max.unwrap_or(usize::MAX)).collect();
        let next = rest.next().and(cut.last()).map(|(key, _)| (*key).clone());
        let rows = cut.into_iter().map(|(_, t)| t).filter(shown).collect();
        (rows, next)
    }
}

/// Returns the resources of a list of ids, each once, in the order of the ids; all resources if the
/// list is empty. `missing` makes the error for the ids that do not exist.
pub(super) fn by_ids<'a, T: Row>(
    call: &Call<'_>,
    all: &'a BTreeMap<String, T>,
    ids: &[&str],
    missing: fn(&[&str]) -> ApiError,
) -> ApiResult<Vec<&'a T>> {
    if ids.is_empty() {
        return Ok(all.values().filter(|t| call.shows(t.id())).collect());
    }
    let ids: BTreeSet<&str> = ids.iter().copied().collect();
    let (found, absent): (Vec<&str>, Vec<&str>) =
        ids.into_iter().partition(|id| all.contains_key(*id) && call.shows(id));
    if !absent.is_empty() {
        return Err(missing(&absent));
    }
    Ok(found.into_iter().filter_map(|id| all.get(id)).collect())
}
