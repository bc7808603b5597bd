//! CreateTags and DeleteTags.

use super::Call;
use super::permission::requested;
use crate::state::ids::well_formed;
use crate::state::resources::tags::{self, Tags};
use crate::wire::api_error::{ApiError, ApiResult};

/// The maximum number of resources in one call.
const MAX_RESOURCES: usize = 1000;

/// Answers CreateTags. Checks all resources before changing any.
pub(super) fn create_tags(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let ids = p.list("ResourceId");
    let wanted = tags::listed(p, "Tag")?;
    p.finish()?;
    check(&ids)?;
    if wanted.is_empty() {
        return Err(ApiError::missing("Tag"));
    }
    permit(call, &ids, &wanted)?;
    call.dry_run()?;
    let merged = |tags: &Tags| {
        let mut tags = tags.clone();
        for (key, value) in &wanted {
            tags.insert(key.clone(), value.clone().unwrap_or_default());
        }
        tags
    };
    for id in &ids {
        tags::check(&merged(of(call, id)?))?;
    }
    for id in ids {
        call.realm.retag(id, |t| *t = merged(t));
        call.effects.push(id.to_owned());
    }
    Ok("<return>true</return>".to_owned())
}

/// Answers DeleteTags. A given value deletes a tag only if the tag has that value; an empty value
/// matches an empty value; deleting a missing tag succeeds.
pub(super) fn delete_tags(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let ids = p.list("ResourceId");
    let wanted = tags::listed(p, "Tag")?;
    p.finish()?;
    check(&ids)?;
    permit(call, &ids, &wanted)?;
    call.dry_run()?;
    for id in &ids {
        of(call, id)?;
    }
    for id in ids {
        call.realm.retag(id, |t| {
            if wanted.is_empty() {
                t.clear();
            }
            for (key, value) in &wanted {
                if value.is_none() || t.get(key) == value.as_ref() {
                    t.remove(key);
                }
            }
        });
        call.effects.push(id.to_owned());
    }
    Ok("<return>true</return>".to_owned())
}

/// Checks the permission. A tag that is deleted regardless of its value contributes only its key.
fn permit(call: &Call<'_>, ids: &[&str], wanted: &[(String, Option<String>)]) -> ApiResult<()> {
    call.permit(|c| {
        let with_value: Tags =
            wanted.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?))).collect();
        let keys: Vec<String> = wanted.iter().map(|(k, _)| k.clone()).collect();
        let subject = |id: &&str| {
            c.existing(id).with(|about| {
                requested(about, with_value.iter());
                about.set_all("aws:TagKeys", keys.clone());
            })
        };
        ids.iter().map(subject).collect()
    })
}

fn check(ids: &[&str]) -> ApiResult<()> {
    if ids.is_empty() {
        return Err(ApiError::missing("ResourceId"));
    }
    if ids.len() > MAX_RESOURCES {
        // unverified wording.
        return Err(ApiError::value(format!(
            "No more than {MAX_RESOURCES} resources can be named in one call"
        )));
    }
    let good = |id: &str| ["vol", "snap", "i"].iter().any(|p| well_formed(id, p));
    match ids.iter().find(|id| !good(id)) {
        Some(id) => Err(ApiError::client("InvalidID", format!("The ID '{id}' is not valid"))),
        None => Ok(()),
    }
}

fn of<'a>(call: &'a Call<'_>, id: &str) -> ApiResult<&'a Tags> {
    let realm = &*call.realm;
    if id.starts_with("vol-") {
        realm.volume(id).map(|v| &v.tags)
    } else if id.starts_with("snap-") {
        realm.snapshot(id).map(|s| &s.tags)
    } else {
        realm.instance(id).map(|i| &i.tags)
    }
}
