//! CreateTags and DeleteTags.

use super::permission::requested;
use super::{Call, Keys, Row};
use crate::iam::condition::Context;
use crate::state::resources::{Tags, tags};
use crate::state::well_formed;
use crate::wire::{ApiError, ApiResult};

const TAGGED: Keys =
    &["aws:RequestTag/", "aws:ResourceTag/", "aws:TagKeys", "ec2:CreateAction", "ec2:ResourceTag/"];
/// The reference has `ec2:CreateAction` for CreateTags alone.
const UNTAGGED: Keys = &["aws:RequestTag/", "aws:ResourceTag/", "aws:TagKeys", "ec2:ResourceTag/"];

pub(super) const ACTIONS: &[Row] = &[
    (
        "CreateTags",
        create_tags,
        "ResourceId.1={volume}&Tag.1.Key=a&Tag.1.Value=b",
        &[("instance", TAGGED), ("snapshot", TAGGED), ("volume", TAGGED)],
    ),
    (
        "DeleteTags",
        delete_tags,
        "ResourceId.1={volume}&Tag.1.Key=a",
        &[("instance", UNTAGGED), ("snapshot", UNTAGGED), ("volume", UNTAGGED)],
    ),
];

/// Answers CreateTags. Checks all resources before changing any.
fn create_tags(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let ids = p.list("ResourceId");
    let wanted = tags::parse_tags(p, "Tag")?;
    p.finish()?;
    check(&ids)?;
    if wanted.is_empty() {
        return Err(ApiError::missing("Tag"));
    }
    permit(call, &ids, |context| requested(context, &wanted))?;
    call.dry_run()?;
    let merged = |tags: &Tags| {
        let mut tags = tags.clone();
        tags.extend(wanted.clone());
        tags
    };
    for id in &ids {
        tags::check(&merged(tags_of(call, id)?))?;
    }
    Ok(change(call, ids, |t| *t = merged(t)))
}

/// Answers DeleteTags. Deletes the tags of these keys, where a value is given those of this value
/// alone, and all tags when no key is named; deleting a missing tag succeeds.
fn delete_tags(call: &mut Call<'_>) -> ApiResult<String> {
    let p = call.params;
    let ids = p.list("ResourceId");
    let named = tags::parse_pairs(p, "Tag")?;
    p.finish()?;
    check(&ids)?;
    permit(call, &ids, |context| {
        context.set_all("aws:TagKeys", named.iter().map(|(key, _)| key.clone()).collect());
    })?;
    call.dry_run()?;
    for id in &ids {
        tags_of(call, id)?;
    }
    let is_named = |key: &String, value: &String| {
        named.iter().any(|(k, v)| k == key && v.as_ref().is_none_or(|v| v == value))
    };
    Ok(change(call, ids, |t| t.retain(|key, value| !named.is_empty() && !is_named(key, value))))
}

fn change(call: &mut Call<'_>, ids: Vec<&str>, f: impl Fn(&mut Tags)) -> String {
    for id in ids {
        call.realm.retag(id, &f);
        call.effects.push(id.to_owned());
    }
    "<return>true</return>".to_owned()
}

fn permit(call: &Call<'_>, ids: &[&str], add_keys: impl Fn(&mut Context)) -> ApiResult<()> {
    call.permit(|c| ids.iter().map(|id| c.existing(id).with(&add_keys)).collect())
}

fn check(ids: &[&str]) -> ApiResult<()> {
    if ids.is_empty() {
        return Err(ApiError::missing("ResourceId"));
    }
    let is_good = |id: &str| ["vol", "snap", "i"].iter().any(|p| well_formed(id, p));
    match ids.iter().find(|id| !is_good(id)) {
        Some(id) => Err(ApiError::client("InvalidID", format!("The ID '{id}' is not valid"))),
        None => Ok(()),
    }
}

fn tags_of<'a>(call: &'a Call<'_>, id: &str) -> ApiResult<&'a Tags> {
    let realm = &*call.realm;
    if id.starts_with("vol-") {
        realm.volume(id).map(|v| &v.tags)
    } else if id.starts_with("snap-") {
        realm.snapshot(id).map(|s| &s.tags)
    } else {
        realm.instance(id).map(|i| &i.tags)
    }
}
