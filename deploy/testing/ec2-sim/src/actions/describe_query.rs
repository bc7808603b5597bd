//! The filters and the page of a Describe call, and the rows that they select.

use super::Call;
use crate::state::Realm;
use crate::state::resources::Tags;
use crate::time::Millis;
use crate::wire::{ApiError, ApiResult, Filters, Params, Xml, refuse_combination, refuse_value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A filter's name, with the values that a resource has for the filter.
pub(super) type Field<T> = (&'static str, fn(&T) -> Vec<String>);

pub(super) struct Describe<T: 'static> {
    /// The parameter that lists ids, and EC2's internal name of the list.
    pub(super) ids: (&'static str, &'static str),
    pub(super) check_id: fn(&str) -> ApiResult<()>,
    pub(super) all: fn(&Realm) -> &BTreeMap<String, T>,
    /// Makes the error for ids that do not exist.
    pub(super) missing: fn(&[&str]) -> ApiError,
    pub(super) tags: fn(&T) -> &Tags,
    pub(super) fields: &'static [Field<T>],
    /// The filter that names ids, if there is one.
    pub(super) id_filter: &'static str,
    pub(super) page_sizes: (i64, i64),
    pub(super) set: &'static str,
}

/// A request's ids, filters and page.
pub(super) struct Query<'a, T: 'static> {
    of: &'static Describe<T>,
    pub(super) ids: Vec<&'a str>,
    pub(super) filters: Filters,
    page: Page,
    /// Whether the action shows a resource at all.
    pub(super) keep: Box<dyn Fn(&T) -> bool>,
}

impl<T> Describe<T> {
    /// Checks the permission and all parameters. The caller has read those of the action alone.
    pub(super) fn parse<'a>(&'static self, call: &Call<'a>) -> ApiResult<Query<'a, T>> {
        call.begin_read()?;
        let p = call.params;
        let ids = p.list(self.ids.0);
        let known: Vec<&str> = self.fields.iter().map(|(name, _)| *name).collect();
        let filters = Filters::parse(p, &known)?;
        let named = (self.ids.1, !ids.is_empty());
        let page = Page::parse(p, call.action, named, self.page_sizes, call.now)?;
        p.finish()?;
        ids.iter().try_for_each(|id| (self.check_id)(id))?;
        Ok(Query { of: self, ids, filters, page, keep: Box::new(|_| true) })
    }

    /// Answers a call that has no parameters of its own.
    pub(super) fn answer<'a>(
        &'static self,
        call: &'a Call<'_>,
        member: impl for<'x> FnMut(&'x mut Xml, &'a T) -> &'x mut Xml,
    ) -> ApiResult<String> {
        let query = self.parse(call)?;
        let candidates = query.candidates(call)?;
        Ok(query.answer(call, candidates, member))
    }
}

/// Resources with their ids.
type Rows<'a, T> = Vec<(&'a String, &'a T)>;

impl<T> Query<'_, T> {
    /// Returns the resources that the ids, or a filter with literal values, name; `None`: all
    /// resources have to be searched.
    pub(super) fn candidates<'a>(&self, call: &'a Call<'_>) -> ApiResult<Option<Rows<'a, T>>> {
        let all = (self.of.all)(call.realm);
        if !self.ids.is_empty() {
            return by_ids(call, all, &self.ids, self.of.missing).map(Some);
        }
        if self.page.max.is_some() || self.page.after.is_some() {
            return Ok(None);
        }
        let ids: Option<BTreeSet<&String>> = match self.filters.literal(self.of.id_filter) {
            Some(ids) => Some(ids.iter().collect()),
            None => self.filters.literal_tag().map(|(key, values)| {
                values.iter().flat_map(|v| call.realm.tagged(key, v)).collect()
            }),
        };
        Ok(ids.map(|ids| ids.into_iter().filter_map(|id| all.get_key_value(id)).collect()))
    }

    /// Answers with a list of the selected resources and the token of the next page, if any.
    pub(super) fn answer<'a>(
        &self,
        call: &'a Call<'_>,
        candidates: Option<Rows<'a, T>>,
        member: impl for<'x> FnMut(&'x mut Xml, &'a T) -> &'x mut Xml,
    ) -> String {
        let (rows, next) = self.select((self.of.all)(call.realm), candidates);
        let is_shown = |(id, t): &(&String, &T)| (self.keep)(t) && call.shows(id);
        let shown = rows.into_iter().filter(is_shown).map(|(_, t)| t);
        let mut x = Xml::default();
        x.list(self.of.set, shown, member);
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
        candidates: Option<Rows<'a, T>>,
    ) -> (Rows<'a, T>, Option<String>) {
        let accepted = |(_, t): &(&String, &T)| {
            let values = |name: &str| {
                let field = self.of.fields.iter().find(|(known, _)| *known == name);
                field.map_or_else(Vec::new, |(_, values)| values(t))
            };
            self.filters.accept(values) && self.filters.accept_tags((self.of.tags)(t))
        };
        if let Some(candidates) = candidates {
            return (candidates.into_iter().filter(accepted).collect(), None);
        }
        let from = match &self.page.after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Unbounded,
        };
        let mut rest = all.range((from, Bound::Unbounded));
        let cut: Vec<_> = rest.by_ref().take(self.page.max.unwrap_or(usize::MAX)).collect();
        let next = rest.next().and(cut.last()).map(|(key, _)| (*key).clone());
        (cut.into_iter().filter(accepted).collect(), next)
    }
}

/// Returns the resources of a list of ids, each once, in the order of the ids; all resources if the
/// list is empty. `missing` makes the error for the ids that do not exist.
pub(super) fn by_ids<'a, T>(
    call: &Call<'_>,
    all: &'a BTreeMap<String, T>,
    ids: &[&str],
    missing: fn(&[&str]) -> ApiError,
) -> ApiResult<Rows<'a, T>> {
    if ids.is_empty() {
        return Ok(all.iter().filter(|(id, _)| call.shows(id)).collect());
    }
    let ids: BTreeSet<&str> = ids.iter().copied().collect();
    let (found, absent): (Vec<&str>, Vec<&str>) =
        ids.into_iter().partition(|id| all.contains_key(*id) && call.shows(id));
    if !absent.is_empty() {
        return Err(missing(&absent));
    }
    Ok(found.into_iter().filter_map(|id| all.get_key_value(id)).collect())
}

#[derive(Debug, Clone, Default)]
struct Page {
    /// The maximum number of rows to consider; `None`: all.
    max: Option<usize>,
    /// The key after which the page begins.
    after: Option<String>,
}

/// How long a token is valid, in milliseconds.
const TOKEN_LIFE_MS: u64 = 3_600_000;

impl Page {
    fn parse(
        params: &Params,
        action: &str,
        ids: (&str, bool),
        (least, most): (i64, i64),
        now: Millis,
    ) -> ApiResult<Self> {
        let max = params.number("MaxResults")?;
        let token = params.text("NextToken");
        if ids.1 {
            let with = match (max, token) {
                (Some(_), _) => "maxResults",
                (None, Some(_)) => "nextToken",
                (None, None) => return Ok(Self::default()),
            };
            refuse_combination!("The parameter {} cannot be used with the parameter {with}", ids.0);
        }
        if let Some(n) = max.filter(|n| *n < least) {
            refuse_value!(
                "Value ( {n} ) for parameter maxResults is invalid. Expecting a value greater than {least}."
            );
        }
        let bad = || ApiError::value("Unable to parse pagination token");
        let after = token.map(|t| parse_token(t, action, now).ok_or_else(bad)).transpose()?;
        // Recorded: EC2 accepts more than the maximum and returns the maximum.
        let max = max.and_then(|n| usize::try_from(n.min(most)).ok());
        Ok(Self { max, after })
    }
}

/// Creates a token that continues after `key`.
fn issue_token(key: &str, action: &str, now: Millis) -> String {
    format!("{action}|{}|{key}", now.plus(TOKEN_LIFE_MS).0)
}

fn parse_token(token: &str, action: &str, now: Millis) -> Option<String> {
    let (until, key) = token.strip_prefix(action)?.strip_prefix('|')?.split_once('|')?;
    (until.parse::<i64>().ok()? >= now.0).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_token_is_bound_to_action_and_expires() {
        let t = issue_token("vol-1", "DescribeVolumes", Millis(0));
        assert_eq!(parse_token(&t, "DescribeVolumes", Millis(5)), Some("vol-1".to_owned()));
        assert_eq!(parse_token(&t, "DescribeSnapshots", Millis(5)), None);
        assert_eq!(parse_token(&t, "DescribeVolumes", Millis(3_600_001)), None);
        assert_eq!(parse_token("nonsense", "DescribeVolumes", Millis(5)), None);
    }
}
