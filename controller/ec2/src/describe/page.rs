//! Filters and pages of Describe calls.

use std::future::Future;

use aws_sdk_ec2::types::Filter;

use crate::calls::Action;
use crate::error::Ec2Error;
use crate::model::Page;
use crate::model::sdk_field::Incomplete;

/// The most pages of one list: EC2 is assumed to repeat itself beyond them.
const MAX_PAGES: usize = 2000;

/// Reads pages until EC2 names no next one. A page may be empty and have a next one.
pub(crate) async fn read_pages<T, F>(
    action: Action,
    mut page: impl FnMut(Option<String>) -> F,
) -> Result<Vec<T>, Ec2Error>
where
    F: Future<Output = Result<Page<T>, Ec2Error>>,
{
    let mut entries = Vec::new();
    let mut token = None;
    for _ in 0..MAX_PAGES {
        let read = page(token).await?;
        entries.extend(read.entries);
        match read.next {
            None => return Ok(entries),
            next => token = next,
        }
    }
    Err(Ec2Error::unreadable(action, format!("the list did not end after {MAX_PAGES} pages")))
}

/// Reads every entry or none: one entry that cannot be understood makes the whole answer
/// unreadable.
pub(crate) fn read_all<'a, G: 'a, T>(
    action: Action,
    entries: impl IntoIterator<Item = &'a G>,
    read: impl Fn(&G) -> Result<T, Incomplete>,
) -> Result<Vec<T>, Ec2Error> {
    entries
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(|incomplete| Ec2Error::unreadable(action, incomplete.to_string()))
}

pub(crate) fn filter(name: &str, values: impl IntoIterator<Item = String>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.into_iter().collect())).build()
}

/// Escapes a filter value, so that it matches literally. Filter values may hold wildcards, escaped
/// with a backslash (EC2 API reference, "Filter").
pub(crate) fn escape_wildcards(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '*' | '?' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code::Ec2ErrorKind;

    #[test]
    fn filter_wildcards_in_name_are_escaped() {
        assert_eq!(escape_wildcards(r"pvc-*?\x"), r"pvc-\*\?\\x");
    }

    #[tokio::test]
    async fn empty_page_continues_and_endless_list_fails() {
        let pages = [(vec![1], Some("a")), (vec![], Some("b")), (vec![2, 3], None)];
        let mut next = pages.into_iter();
        let all = read_pages(Action::DescribeVolumes, |_| {
            let (entries, token) = next.next().unwrap();
            async move { Ok(Page::new(entries, token)) }
        })
        .await
        .unwrap();
        assert_eq!(all, [1, 2, 3]);
        let endless =
            read_pages(Action::DescribeVolumes, |_| async { Ok(Page::new(vec![()], Some("a"))) })
                .await;
        assert_eq!(endless.unwrap_err().kind, Ec2ErrorKind::Unreadable);
    }
}
