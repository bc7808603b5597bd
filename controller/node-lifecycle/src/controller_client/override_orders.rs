//! Override orders: a person's order to detach exactly one attachment without evidence, as an
//! annotation on its VolumeAttachment.
//!
//! Every replica passes the order to the controller in its own pod, because any of the controllers
//! may be the one that detaches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebs_csi_proto::safe_detach::{BreakGlassRequest, Subject};

use super::Controller;
use crate::cluster::{Order, Tables};
use crate::events::{EventReason, EventSender, EventSubject};
use crate::leader::Leader;

/// Pause between two looks.
const EVERY: Duration = Duration::from_secs(2);
/// The controller forgets an order after some minutes, so an order that still exists is sent again.
const AGAIN: Duration = Duration::from_secs(60);

/// Passes on the orders, for ever. The leader reports them.
pub(crate) async fn run(
    tables: Arc<Tables>,
    controller: Controller,
    leader: Arc<Leader>,
    teller: Arc<EventSender>,
) {
    let mut given: HashMap<Order, Instant> = HashMap::new();
    // Orders that the controller refused at the last look: each is reported once.
    let mut refused: HashSet<Order> = HashSet::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let ordered = tables.attachments.pick(|seen| seen.order().is_some());
        let (mut standing, mut still_refused) = (HashMap::new(), HashSet::new());
        for attachment in &ordered {
            let Some(order) = attachment.order() else {
                continue;
            };
            let seen = attachment.resolve(&tables.volumes);
            match given.get(order) {
                Some(at) if at.elapsed() < AGAIN => {
                    standing.insert(order.clone(), *at);
                }
                before => {
                    let again = refused.contains(order);
                    if !hand_over(&controller, order, &seen.volume, &seen.name, again).await {
                        still_refused.insert(order.clone());
                        continue;
                    }
                    standing.insert(order.clone(), Instant::now());
                    if before.is_none() && leader.leads() {
                        let note = "by the annotation its volume is detached, whatever is known";
                        let (name, uid) = (seen.name, seen.uid);
                        let about = EventSubject::Attachment { name, uid };
                        teller.tell(about, EventReason::GlassBroken, note);
                    }
                }
            }
        }
        (given, refused) = (standing, still_refused);
    }
}

async fn hand_over(
    controller: &Controller,
    order: &Order,
    volume: &str,
    name: &str,
    again: bool,
) -> bool {
    let request = BreakGlassRequest {
        subject: Some(Subject {
            volume_id: volume.to_owned(),
            instance_id: order.instance.clone(),
        }),
        attached_since: order.since.clone(),
        ordered_by: format!("the annotation of VolumeAttachment {name}"),
    };
    match controller.client().break_glass(request).await {
        Ok(_) => {
            tracing::warn!(name, volume, ?order, "the override order is handed to the controller");
            true
        }
        Err(status) if again => {
            tracing::debug!(name, volume, code = ?status.code(), "the controller still does not take the order to break the glass");
            false
        }
        Err(status) => {
            tracing::warn!(name, volume, ?order, code = ?status.code(), text = status.message(), "the controller does not take the order to break the glass");
            false
        }
    }
}
