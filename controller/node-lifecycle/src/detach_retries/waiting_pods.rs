//! Reports a refused detach on the pods that cannot start before the detach.

use crate::cluster::{BREAK_GLASS, RefusedDetach};
use crate::context::Context;
use crate::events::{EventReason, EventSubject};

/// Reports the refusals, each once on each pod that waits.
pub(super) fn report(context: &Context, refused: &[RefusedDetach]) {
    let mut waiting = Vec::new();
    for refusal in refused {
        for pod in context.tables.pods_waiting_for_end(&refusal.name) {
            let (namespace, name) = pod.name();
            let subject = EventSubject::Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: pod.uid().to_owned(),
            };
            context.events.send(subject, EventReason::PodWaits, &note(refusal, pod.node()));
            waiting.push(pod);
        }
    }
    context.events.retain(|subject, reason| match subject {
        EventSubject::Pod { uid, .. } if reason == EventReason::PodWaits => {
            waiting.iter().any(|pod| pod.uid() == uid)
        }
        _ => true,
    });
}

/// Returns what a pod on `node` waits for, and the way out.
fn note(refused: &RefusedDetach, node: &str) -> String {
    let RefusedDetach { name, node: attached_to, token, .. } = refused;
    if node == attached_to {
        // Kubelet reports the volume as in use for as long as a pod of its node wants the volume.
        format!(
            "the volume is attached anew only after its detach from this node, which is refused \
             ({token}). Delete this pod, and scale down or delete what creates it again, until \
             VolumeAttachment {name} is gone. Or order the detach: kubectl annotate \
             volumeattachment {name} {BREAK_GLASS}=\"INSTANCE ATTACHTIME\" (node-lifecycle.md, \
             Override orders)"
        )
    } else {
        format!(
            "the volume is still attached to {attached_to}, and its detach is refused ({token}); \
             status.detachError of VolumeAttachment {name} has the reason and the next step"
        )
    }
}
