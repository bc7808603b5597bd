//! Override orders: a person's order to detach exactly one attachment without evidence, as an
//! annotation on its VolumeAttachment.
//!
//! Every replica passes the order to the controller in its own pod, because any of the controllers
//! may be the one that detaches.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ebs_csi_proto::safe_detach::{BreakGlassRequest, Subject};
use ebs_csi_safe_detach::lifecycle::{Attachment, ObjectVersion};

use super::Controller;
use crate::cluster::{AnnotatedOrder, BREAK_GLASS};
use crate::context::Context;
use crate::events::{EventReason, EventSubject};

const ROUND_PAUSE: Duration = Duration::from_secs(2);
/// The controller forgets an order after some minutes, so an order that still exists is sent again.
const RESEND_AFTER: Duration = Duration::from_secs(60);

/// Passes on the orders, for ever. The leader reports them.
pub(crate) async fn run(context: Context) {
    // When each order was passed on. `None`: the controller refused it; that is logged once.
    let mut orders: HashMap<AnnotatedOrder, Option<Instant>> = HashMap::new();
    loop {
        tokio::time::sleep(ROUND_PAUSE).await;
        let mut present = HashMap::new();
        for row in context.tables.attachments.filter(|row| row.order().is_some()) {
            let Some(order) = row.order() else {
                continue;
            };
            let before = orders.get(order).copied();
            let mut sent = before.flatten();
            if sent.is_none_or(|at| at.elapsed() >= RESEND_AFTER) {
                let attachment = row.resolve(&context.tables.volumes);
                let was_refused = before == Some(None);
                let is_accepted =
                    send_order(&context.controller, order, &attachment, was_refused).await;
                if is_accepted && sent.is_none() && context.leader.is_leader() {
                    let note = "by the annotation its volume is detached, whatever is known";
                    let read = &attachment.object;
                    let subject = EventSubject::new(("", &read.name), &read.uid);
                    context.events.send(subject, EventReason::OverrideOrdered, note);
                }
                sent = is_accepted.then(Instant::now);
            }
            present.insert(order.clone(), sent);
        }
        orders = present;
    }
}

async fn send_order(
    controller: &Controller,
    order: &AnnotatedOrder,
    attachment: &Attachment,
    was_refused: bool,
) -> bool {
    let Attachment { object: ObjectVersion { name, uid, .. }, volume, .. } = attachment;
    let request = BreakGlassRequest {
        subject: Some(Subject { volume_id: volume.clone(), instance_id: order.instance.clone() }),
        attached_since: order.since.clone(),
        ordered_by: format!("annotation {BREAK_GLASS} of VolumeAttachment {name}, uid {uid}"),
    };
    match controller.client().break_glass(request).await {
        Ok(_) => {
            tracing::warn!(name, volume, ?order, "the controller has accepted the override order");
            true
        }
        Err(status) if was_refused => {
            tracing::debug!(name, volume, code = ?status.code(), "the controller still refuses the override order");
            false
        }
        Err(status) => {
            tracing::warn!(name, volume, ?order, code = ?status.code(), text = status.message(), "the controller refuses the override order");
            false
        }
    }
}
