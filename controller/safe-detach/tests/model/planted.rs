//! Each cure is taken out in turn: the model finds the fault that the cure is for.

use ebs_csi_safe_detach::OldAgents;
use ebs_csi_safe_detach::lifecycle::FenceWhen;

use crate::explore::Exploration;
use crate::page::{self, Row};
use crate::world::{Agents, Fault, Kubelet, Rules};
use crate::{EC2_ONLY, EVIDENCE, FAILOVER, explore_world, print_counts};

/// Checks that the exploration found a property broken, and prints the shortest trace to it.
pub(crate) fn assert_found(what: &str, found: Exploration, property: &str) -> Row {
    let found = print_counts(what, found);
    let (broken, trace) = found.broken.as_ref().unwrap_or_else(|| panic!("{what} is not found"));
    println!("{what}: {broken}\n  {}", trace.join("\n  "));
    assert!(broken.starts_with(property), "{what}: {broken}");
    assert!(!trace.is_empty(), "{what}");
    Row::new(what, &found)
}

fn assert_all_found(section: &str, rows: &[(&str, Rules, &str)]) {
    let find = |(what, rules, property): &(&str, Rules, &str)| {
        assert_found(what, explore_world(*rules), property)
    };
    let table: Vec<Row> = rows.iter().map(find).collect();
    page::check(section, &table);
}

#[test]
fn planted_detach_faults_are_found_with_trace() {
    let with = |fault| Rules { fault, ..EVIDENCE };
    let alone =
        |fault| Rules { persons: false, finalizers: false, agents: Agents::Stay, ..with(fault) };
    let by_kubelet = |kubelet, rules| Rules {
        agents: Agents::Old,
        old_agents: OldAgents::KubeletReport,
        kubelet,
        ..rules
    };
    let orderly = Kubelet::ORDERLY;
    let restarts = Kubelet::RESTARTS;
    let without_promise = Rules { persons: false, finalizers: false, ..with(Fault::NoPromise) };
    let finalizers = |fault| Rules { persons: false, ..with(fault) };
    assert_all_found(
        "planted-detach",
        &[
            // What kubelet's lists alone would do.
            (
                "kubelet's lists: stuck when the pod restarts in place",
                by_kubelet(orderly, without_promise),
                "L1",
            ),
            (
                "kubelet's lists: fooled when the Node registers anew",
                by_kubelet(orderly, Rules { finalizers: false, ..with(Fault::None) }),
                "S1",
            ),
            (
                "kubelet's lists: fooled after our own taint, when kubelet starts anew",
                by_kubelet(restarts, Rules { persons: false, ..FAILOVER }),
                "S1",
            ),
            // The parts of the protocol.
            ("no promise: stuck when the pod restarts in place", alone(Fault::NoPromise), "L1"),
            ("volumesAttached is not read", with(Fault::VolumesAttachedUnread), "S1"),
            ("volumesInUse is not read", with(Fault::VolumesInUseUnread), "S1"),
            ("a young Node needs no promise", with(Fault::YoungNodeTrusted), "S1"),
            ("the agent is asked before the lists are read", with(Fault::AgentBeforeLists), "S1"),
            ("holders are not looked for", alone(Fault::HolderUnseen), "S1"),
            ("the look takes no lock", with(Fault::LookWithoutLock), "S1"),
            ("the boots are not compared", alone(Fault::BootNotCompared), "S13"),
            ("the request counts as the promise", alone(Fault::RequestCountsAsPromise), "S5"),
            ("a promise for a volume in use", with(Fault::PromiseWhileHeld), "S3"),
            ("a stage ignores the promise", finalizers(Fault::StageIgnoresPromise), "S4"),
            ("the promise is kept in memory", with(Fault::PromiseInMemory), "S5"),
            ("the promise is lifted at once", finalizers(Fault::PromiseLiftedAtOnce), "S5"),
            ("the promise is never lifted", finalizers(Fault::PromiseNeverLifted), "L6"),
            // The controller.
            ("NotFound counts as the end of the instance", alone(Fault::DetachOnNotFound), "S1"),
            ("EC2's answer is older than the call", alone(Fault::ReadBeforeTheCall), "S7"),
            ("facts of any age", alone(Fault::StaleFacts), "S5"),
        ],
    );
}

#[test]
fn planted_failover_faults_are_found_with_trace() {
    let with = |fault| Rules { fault, ..FAILOVER };
    let impaired = Some(FenceWhen::Impaired);
    assert_all_found(
        "planted-failover",
        &[
            ("the taint is set after a time", with(Fault::TaintByTimeout), "S9"),
            ("the taint is removed after a time", with(Fault::TaintRemovedByTimeout), "L5"),
            (
                "the taint is set without the Node's version",
                Rules { late_answers: true, ..with(Fault::TaintWithoutVersion) },
                "S9",
            ),
            ("pods are deleted without proof", with(Fault::PodsWithoutProof), "S8"),
            (
                // In `enforce`, the node's answer would keep this fault from breaking the property.
                "a VolumeAttachment is deleted without its version",
                Rules { fault: Fault::AttachmentWithoutVersion, ..EC2_ONLY },
                "S1",
            ),
            ("the taint is never set", with(Fault::NoTaint), "L2"),
            (
                "the status checks are not read again",
                Rules { fences: impaired, ..with(Fault::FenceOnFormerChecks) },
                "S18",
            ),
        ],
    );
}
