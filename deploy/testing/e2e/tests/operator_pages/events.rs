//! `deploy/docs/events.md`: the events that the driver writes, and the words in its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use syn::visit::{self, Visit};

use crate::source::{last, mapping, parse, rust_files, variants};
use crate::{assert_current, cell, read, root};

const EVENTS: &str = "controller/node-lifecycle/src/events.rs";

/// Returns the variants of `EventReason` that are reported about another object than a Node, with
/// that object: those named in a file that makes such an `EventSubject`.
fn of_other_objects() -> BTreeMap<String, &'static str> {
    #[derive(Default)]
    struct Used {
        reasons: BTreeSet<String>,
        object: Option<&'static str>,
    }
    impl<'ast> Visit<'ast> for Used {
        fn visit_expr_struct(&mut self, it: &'ast syn::ExprStruct) {
            let object = match last(&it.path).as_str() {
                "Attachment" => Some("VolumeAttachment"),
                "Pod" => Some("Pod"),
                _ => None,
            };
            self.object = self.object.or(object);
            visit::visit_expr_struct(self, it);
        }
        fn visit_expr_path(&mut self, it: &'ast syn::ExprPath) {
            let names: Vec<String> = it.path.segments.iter().map(|s| s.ident.to_string()).collect();
            if let [.., of, variant] = names.as_slice()
                && of == "EventReason"
            {
                self.reasons.insert(variant.clone());
            }
        }
    }
    let mut found = BTreeMap::new();
    for path in rust_files("controller/node-lifecycle/src") {
        if path.ends_with(EVENTS) {
            continue;
        }
        let mut used = Used::default();
        used.visit_file(&parse(&path));
        if let Some(object) = used.object {
            found.extend(used.reasons.into_iter().map(|reason| (reason, object)));
        }
    }
    found
}

/// Returns the codes that `Condition::may_be_in_progress` names.
fn may_be_in_progress() -> BTreeSet<String> {
    let text = read("proto/src/status.rs");
    let function = text.split("fn may_be_in_progress").nth(1).expect("it");
    let function = function.split("\n    }\n").next().unwrap_or_default();
    let named = function.split("Code::").skip(1);
    let codes: BTreeSet<String> =
        named.map(|rest| rest.chars().take_while(char::is_ascii_alphabetic).collect()).collect();
    assert!(codes.len() >= 4, "{codes:?}");
    codes
}

fn render() -> String {
    let mut out = String::from(
        "# Events and the words in the driver's answers\n\n\
         For operators. The driver itself writes events on Nodes, Pods and VolumeAttachments (the second\n\
         table). Most failures reach a user in the events of Kubernetes' own components, which quote the\n\
         driver's answer:\n\n\
         | Event | Object | Written by | Quotes the answer to |\n|---|---|---|---|\n\
         | `ProvisioningFailed` | PersistentVolumeClaim | external-provisioner | CreateVolume |\n\
         | `FailedAttachVolume` | Pod | kube-controller-manager, from the VolumeAttachment's `status.attachError` | ControllerPublishVolume |\n\
         | `FailedMount` | Pod | kubelet | NodeStageVolume, NodePublishVolume |\n\
         | `FailedMapVolume` | Pod | kubelet | the same of a raw block volume |\n\
         | `VolumeResizeFailed` | PersistentVolumeClaim | external-resizer, kubelet | ControllerExpandVolume, NodeExpandVolume |\n\
         | `VolumeModifyFailed` | PersistentVolumeClaim | external-resizer | ControllerModifyVolume |\n\
         | `SnapshotCreationFailed`, `SnapshotDeleteError` | VolumeSnapshotContent; also the `status.error` of the VolumeSnapshot | external-snapshotter | CreateSnapshot, DeleteSnapshot |\n\
         | `VolumeFailedDelete` | PersistentVolume | external-provisioner | DeleteVolume |\n\n\
         [troubleshooting.md](troubleshooting.md) says what to do, by the words of the message.\n\n\
         Generated from the source by\n\
         `UPDATE_GENERATED=1 cargo test --workspace --test operator_pages`.\n\n\
         ## Events of node-lifecycle\n\n\
         | Reason | Object | Type | Meaning |\n|---|---|---|---|\n",
    );
    let file = parse(&root().join(EVENTS));
    let (reasons, kinds) =
        (mapping(&file, "EventReason", "reason"), mapping(&file, "EventReason", "kind"));
    let others = of_other_objects();
    for (variant, meaning) in variants(&file, "EventReason") {
        let object = others.get(&variant).unwrap_or(&"Node");
        let (reason, kind) = (&reasons[&variant], &kinds[&variant]);
        let _ = writeln!(out, "| `{reason}` | {object} | {kind} | {} |", cell(&meaning));
    }

    out.push_str(
        "\n## Codes\n\n\
         An answer begins with `rpc error: code = CODE desc = `. Sidecars and kubelet call again after\n\
         every code; the codes marked *maybe* say that the work may still be in progress.\n\n\
         | Code | | When |\n|---|---|---|\n",
    );
    let conditions = variants(&parse(&root().join("proto/src/failure.rs")), "Condition");
    let codes = mapping(&parse(&root().join("proto/src/status.rs")), "Condition", "code");
    let maybe = may_be_in_progress();
    for (variant, meaning) in conditions {
        let code = &codes[&variant];
        let maybe = if maybe.contains(code) { "maybe" } else { "" };
        let _ = writeln!(out, "| `{code}` | {maybe} | {} |", cell(&meaning));
    }

    out.push_str(
        "\n## Refusals of the mount-helper\n\n\
         In events of kubelet. The mount-helper's log has the word as `reason=WORD`; the event has the\n\
         explanation.\n\n| Word | Explanation |\n|---|---|\n",
    );
    for refusal in ebs_csi_wire::Refusal::ALL {
        let _ = writeln!(out, "| `{refusal}` | {} |", cell(refusal.explain()));
    }

    out.push_str(
        "\n## Refusals of safe detach\n\n\
         In `status.detachError` of a VolumeAttachment, as `SafeDetachRefused/WORD`\n\
         ([safe-detach.md](safe-detach.md)).\n\n| Word | Meaning | Next step |\n|---|---|---|\n",
    );
    let decide = parse(&root().join("controller/safe-detach/src/decide.rs"));
    let tokens = mapping(&decide, "Refusal", "token");
    let steps = mapping(&decide, "Refusal", "next_step");
    for (variant, meaning) in variants(&decide, "Refusal") {
        let (token, step) = (&tokens[&variant], &steps[&variant]);
        let _ = writeln!(out, "| `{token}` | {} | {} |", cell(&meaning), cell(step));
    }
    out
}

#[test]
fn events_page_matches_source() {
    assert_current("deploy/docs/events.md", &render());
}
