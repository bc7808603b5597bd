//! Selects the rows of a Describe call.

use super::Call;
use crate::state::resources::tags::Tags;
use crate::time::Millis;
use crate::wire::api_error::ApiResult;
use crate::wire::filter::Filters;
use crate::wire::page::{Page, seal};
use crate::wire::xml::Xml;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The rows of one page, and the key after which the next page begins.
pub(super) struct Rows<'a, T> {
    /// The rows.
    pub rows: Vec<&'a T>,
    /// The key after which the next page begins, if there is one.
    pub next: Option<String>,
}

/// Selects rows in the order of their keys, from `candidates` that an index found, or from all
/// rows. Filters apply after the page was cut, as recorded replies of DescribeVolumeStatus show; a
/// page can therefore be empty and still have a successor.
pub(super) fn select<'a, T>(
    all: &'a BTreeMap<String, T>,
    candidates: Option<Vec<&'a T>>,
    page: &Page,
    filters: &Filters,
    field: impl Fn(&T, &str) -> Vec<String>,
    tags: impl Fn(&T) -> &Tags,
) -> Rows<'a, T> {
    let shown = |t: &&T| filters.accept(|name| field(t, name)) && filters.accept_tags(tags(t));
    if let Some(candidates) = candidates {
        let rows = candidates.into_iter().filter(shown).collect();
        return Rows { rows, next: None };
    }
    let from = match &page.after {
        Some(key) => Bound::Excluded(key.clone()),
        None => Bound::Unbounded,
    };
    let mut matching = all.range((from, Bound::Unbounded));
    let Some(max) = page.max else {
        return Rows {
            rows: matching.map(|(_, t)| t).filter(shown).collect(),
            next: None,
        };
    };
    let cut: Vec<(&String, &T)> = matching.by_ref().take(max).collect();
    let next = matching
        .next()
        .and_then(|_| cut.last().map(|(key, _)| (*key).clone()));
    Rows {
        rows: cut.into_iter().map(|(_, t)| t).filter(shown).collect(),
        next,
    }
}

/// Writes `nextToken`, if there is a next page.
pub(super) fn next_token(x: &mut Xml, next: Option<&str>, action: &str, now: Millis) {
    if let Some(key) = next {
        x.text("nextToken", &seal(key, action, now));
    }
}

/// Parses the paging parameters.
pub(super) fn page(call: &Call<'_>, ids: (&str, bool), range: (i64, i64)) -> ApiResult<Page> {
    Page::parse(call.params, call.action, ids, range, call.now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::query::Params;

    fn rows(page: &Page, query: &str) -> (Vec<u32>, Option<String>) {
        let all: BTreeMap<String, (u32, Tags)> = (0..10)
            .map(|i| {
                let tags = Tags::from([("n".to_owned(), i.to_string())]);
                (format!("k{i}"), (i, tags))
            })
            .collect();
        let filters = Filters::parse(&Params::parse(query.as_bytes()), &["even", "tag-key"])
            .expect("filters");
        let r = select(
            &all,
            None,
            page,
            &filters,
            |t, _| vec![(t.0 % 2 == 0).to_string()],
            |t| &t.1,
        );
        (r.rows.into_iter().map(|t| t.0).collect(), r.next)
    }

    fn page(max: Option<usize>, after: Option<&str>) -> Page {
        Page {
            max,
            after: after.map(str::to_owned),
        }
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_overlap() {
        assert_eq!(
            rows(&page(Some(6), None), ""),
            (vec![0, 1, 2, 3, 4, 5], Some("k5".to_owned()))
        );
        assert_eq!(
            rows(&page(Some(6), Some("k5")), ""),
            (vec![6, 7, 8, 9], None)
        );
    }

    #[test]
    fn filtering_after_paging_shortens_page() {
        let even = "Filter.1.Name=even&Filter.1.Value.1=true";
        assert_eq!(
            rows(&page(Some(5), None), even),
            (vec![0, 2, 4], Some("k4".to_owned()))
        );
    }

    #[test]
    fn tag_filter_can_leave_nonfinal_page_empty() {
        let tag = "Filter.1.Name=tag:n&Filter.1.Value.1=9";
        assert_eq!(
            rows(&page(Some(5), None), tag),
            (vec![], Some("k4".to_owned()))
        );
        assert_eq!(rows(&page(Some(5), Some("k4")), tag), (vec![9], None));
        assert_eq!(rows(&page(None, None), tag), (vec![9], None));
    }
}
