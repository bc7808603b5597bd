//! DescribeInstanceTypes.

use crate::actions::Call;
use crate::state::resources::instance_type::TYPES;
use crate::state::resources::{InstanceType, instance_type};
use crate::wire::{ApiResult, Xml, refuse};

pub(crate) fn answer(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let names = p.list("InstanceType");
    p.finish()?;
    let is_known = |name: &&&str| instance_type::find(name).is_some();
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        // unverified wording.
        refuse!(
            "InvalidInstanceType",
            "The following supplied instance types do not exist: [{unknown}]"
        );
    }
    let shown = TYPES.iter().filter(|t| names.is_empty() || names.contains(&t.name));
    let mut x = Xml::default();
    x.list("instanceTypeSet", shown, member);
    Ok(x.finish())
}

fn member(x: &mut Xml, t: &InstanceType) {
    x.text("instanceType", t.name);
    x.nest("ebsInfo", |x| {
        x.value("maximumEbsAttachments", t.maximum_attachments)
            .value("maximumEbsCards", t.cards)
            .list("ebsCardSet", 0..t.cards, |x, n| {
                x.value("ebsCardIndex", n);
            });
    });
}
