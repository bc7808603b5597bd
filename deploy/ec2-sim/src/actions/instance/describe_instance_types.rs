//! DescribeInstanceTypes.

use crate::actions::Call;
use crate::actions::describe_page::{next_token, page, select};
use crate::state::resources::instance_type::{self, InstanceType, TYPES};
use crate::state::resources::tags::NO_TAGS;
use crate::wire::api_error::{ApiError, ApiResult};
use crate::wire::filter::Filters;
use crate::wire::xml::Xml;
use std::collections::BTreeMap;

const FILTERS: &[&str] = &[
    "bare-metal",
    "current-generation",
    "ebs-info.nvme-support",
    "hypervisor",
    "instance-type",
];

pub(crate) fn describe_instance_types(call: &mut Call<'_>) -> ApiResult<String> {
    call.begin_read()?;
    let p = call.params;
    let names = p.list("InstanceType");
    p.boolean("IncludeUnsupportedInRegion")?;
    let filters = Filters::parse(p, FILTERS)?;
    let page = page(call, ("instanceTypesSet", !names.is_empty()), (5, 100))?;
    p.finish()?;
    let unknown: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| instance_type::find(n).is_none())
        .collect();
    if !unknown.is_empty() {
        // unverified wording.
        return Err(ApiError::client(
            "InvalidInstanceType",
            format!(
                "The following supplied instance types do not exist: [{}]",
                unknown.join(", ")
            ),
        ));
    }
    let all: BTreeMap<String, &InstanceType> =
        TYPES.iter().map(|t| (t.name.to_owned(), t)).collect();
    let candidates = (!names.is_empty()).then(|| {
        names
            .iter()
            .filter_map(|n| all.get(*n))
            .collect::<Vec<&&InstanceType>>()
    });
    let found = select(
        &all,
        candidates,
        &page,
        &filters,
        |t, name| {
            vec![match name {
                "bare-metal" => t.bare_metal.to_string(),
                "current-generation" => "true".to_owned(),
                "ebs-info.nvme-support" => nvme(t).to_owned(),
                "hypervisor" => t.hypervisor.to_owned(),
                "instance-type" => t.name.to_owned(),
                _ => return Vec::new(),
            }]
        },
        |_| &NO_TAGS,
    );
    let mut x = Xml::new();
    x.list("instanceTypeSet", found.rows, |x, t| member(x, t));
    next_token(&mut x, found.next.as_deref(), call.action, call.now);
    Ok(x.finish())
}

fn nvme(t: &InstanceType) -> &'static str {
    if t.hypervisor == "xen" {
        "unsupported"
    } else {
        "required"
    }
}

fn member(x: &mut Xml, t: &InstanceType) {
    x.text("instanceType", t.name)
        .value("currentGeneration", true)
        .value("bareMetal", t.bare_metal);
    if !t.hypervisor.is_empty() {
        x.text("hypervisor", t.hypervisor);
    }
    x.nest("vCpuInfo", |x| {
        x.value("defaultVCpus", t.vcpus);
    })
    .nest("memoryInfo", |x| {
        x.value("sizeInMiB", t.memory_mib);
    })
    .nest("processorInfo", |x| {
        x.list("supportedArchitectures", [t.architecture], |x, a| {
            // In a list of plain values, the item holds the text itself.
            x.plain(a);
        });
    })
    .value("instanceStorageSupported", t.store_disks > 0);
    if t.store_disks > 0 {
        x.nest("instanceStorageInfo", |x| {
            x.text("nvmeSupport", "required")
                .list("disks", [()], |x, ()| {
                    x.value("count", t.store_disks).text("type", "ssd");
                });
        });
    }
    x.nest("ebsInfo", |x| {
        x.text("ebsOptimizedSupport", "default")
            .text("encryptionSupport", "supported")
            .text("nvmeSupport", nvme(t))
            .value("maximumEbsAttachments", t.maximum_attachments)
            .text(
                "attachmentLimitType",
                if t.shared { "shared" } else { "dedicated" },
            )
            .value("maximumEbsCards", t.cards)
            .list("ebsCardSet", 0..t.cards, |x, n| {
                x.value("ebsCardIndex", n);
            });
    })
    .nest("networkInfo", |x| {
        x.value("maximumNetworkInterfaces", 4)
            .value("maximumNetworkCards", 1);
    });
}
