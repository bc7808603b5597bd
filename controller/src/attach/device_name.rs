//! Device names and EBS cards, which an attach names to EC2.
//!
//! EC2 wants a name that no other attachment of the instance has, but does not show all names that
//! are taken: an AMI may claim names that DescribeInstances leaves out. So three kinds of names are
//! avoided: a name that EC2 refused, for an hour; a name that another attach of this process is
//! about to use; and a name that was just sent to EC2, until reads are sure to show it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebs_csi_wire::{DeviceName, InstanceId, VolumeId};
use tokio::time::Instant;

/// How long a name that EC2 refused is avoided.
const REFUSED_NAME_TTL: Duration = Duration::from_secs(3600);

/// How long after an attach reads may still miss the attachment.
const SENT_NAME_TTL: Duration = Duration::from_secs(60);

/// A device of the instance, as DescribeInstances shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The name that EC2 was given at attach or launch.
    pub device: String,
    /// The volume, when the device is an EBS volume.
    pub volume: Option<VolumeId>,
    /// The EBS card of the attachment, where EC2 reports one.
    pub card: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameAndCard {
    pub device: DeviceName,
    /// The EBS card; only on instances with several.
    pub card: Option<u32>,
}

/// Returns every usable name in order of preference. The double letters come first, because a Xen
/// guest takes `sdb` and `xvdb` for the same device.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let letters = |from: char, to: char| from..=to;
    letters('a', 'z')
        .map(|c| format!("/dev/xvda{c}"))
        .chain(letters('a', 'z').map(|c| format!("/dev/xvdb{c}")))
        .chain(letters('a', 'x').map(|c| format!("/dev/xvdd{c}")))
        .chain(letters('b', 'z').map(|c| format!("/dev/xvd{c}")))
        .chain(letters('b', 'z').map(|c| format!("/dev/sd{c}")))
        .chain(["/dev/sda2".to_owned()])
}

/// Returns whether instances boot from this name (EC2 user guide, "Device names for volumes"). No
/// such name is one of [`names`].
pub(crate) fn is_boot_device(device: &str) -> bool {
    matches!(device, "/dev/xvda" | "/dev/xvda1" | "/dev/sda" | "/dev/sda1")
}

/// Returns the part that `sdX` and `xvdX` have in common: EC2 may take the two for the same device.
fn alias(device: &str) -> &str {
    ["/dev/xvd", "/dev/sd"].iter().find_map(|prefix| device.strip_prefix(prefix)).unwrap_or(device)
}

/// The names that this process is using or that EC2 refused, by instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceNames {
    nodes: Arc<Mutex<HashMap<InstanceId, Node>>>,
}

#[derive(Debug, Default)]
struct Node {
    in_flight: HashMap<VolumeId, NameAndCard>,
    refused: HashMap<String, Instant>,
    /// Names that were sent to EC2, until reads are sure to show them.
    sent: HashMap<String, Instant>,
}

impl Node {
    fn is_idle(&self, now: Instant) -> bool {
        let mut avoided = self.refused.values().chain(self.sent.values());
        self.in_flight.is_empty() && avoided.all(|until| *until <= now)
    }
}

/// A name and card that are kept for one attach. Drop it once EC2 shows the attachment or never
/// will; that releases the name.
#[derive(Debug)]
pub(crate) struct Reservation {
    names: DeviceNames,
    node: InstanceId,
    volume: VolumeId,
    name_and_card: NameAndCard,
    is_sent: bool,
}

impl Reservation {
    pub(crate) fn note_sent(&mut self) {
        self.is_sent = true;
    }

    pub(crate) fn name_and_card(&self) -> &NameAndCard {
        &self.name_and_card
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut nodes = self.names.lock();
        if let Some(node) = nodes.get_mut(&self.node) {
            node.in_flight.remove(&self.volume);
            if self.is_sent {
                let device = self.name_and_card.device.as_str().to_owned();
                node.sent.insert(device, Instant::now() + SENT_NAME_TTL);
            }
            if node.is_idle(Instant::now()) {
                nodes.remove(&self.node);
            }
        }
    }
}

impl DeviceNames {
    fn lock(&self) -> MutexGuard<'_, HashMap<InstanceId, Node>> {
        // Every statement under the lock leaves the map consistent, so a panic elsewhere does not
        // invalidate it.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a name and card on `node` for `volume`; returns `None` when all 127 names are
    /// taken. `mapped` is what DescribeInstances shows, `cards` the number of EBS cards of the
    /// instance type.
    ///
    /// The choice depends only on the arguments and on the names that this process remembers. Names
    /// that EC2 recently refused come last.
    pub(crate) fn reserve(
        &self,
        node: &InstanceId,
        volume: &VolumeId,
        mapped: &[Mapped],
        cards: u32,
    ) -> Option<Reservation> {
        let now = Instant::now();
        let mut nodes = self.lock();
        // A terminated node never asks again, so its entry would stay for ever.
        nodes.retain(|_, state| !state.is_idle(now));
        let state = nodes.entry(node.clone()).or_default();
        state.refused.retain(|_, until| *until > now);
        state.sent.retain(|_, until| *until > now);
        let others = || state.in_flight.iter().filter(|(of, _)| *of != volume);
        let taken: Vec<&str> = mapped
            .iter()
            .map(|m| m.device.as_str())
            .chain(others().map(|(_, place)| place.device.as_str()))
            .collect();
        let chosen = choose(&taken, &state.refused, &state.sent)?;
        let device = DeviceName::parse(&chosen).ok()?;
        let card = (cards > 1).then(|| {
            let load = |card: u32| {
                let shown = mapped.iter().filter(|m| m.card == Some(card)).count();
                let reserved = others()
                    .filter(|(of, place)| {
                        place.card == Some(card)
                            && !mapped.iter().any(|m| m.volume.as_ref() == Some(*of))
                    })
                    .count();
                shown + reserved
            };
            (0..cards).min_by_key(|card| load(*card)).unwrap_or(0)
        });
        let place = NameAndCard { device, card };
        state.in_flight.insert(volume.clone(), place.clone());
        Some(Reservation {
            names: self.clone(),
            node: node.clone(),
            volume: volume.clone(),
            name_and_card: place,
            is_sent: false,
        })
    }

    /// Notes that EC2 reported the name as in use without showing it; the name is avoided for an
    /// hour.
    pub(crate) fn note_refused(&self, node: &InstanceId, device: &DeviceName) {
        self.lock()
            .entry(node.clone())
            .or_default()
            .refused
            .insert(device.as_str().to_owned(), Instant::now() + REFUSED_NAME_TTL);
    }

    /// Notes that EC2 attached something under the name, so the name is usable again.
    pub(crate) fn note_accepted(&self, node: &InstanceId, device: &DeviceName) {
        if let Some(state) = self.lock().get_mut(node) {
            state.refused.remove(device.as_str());
        }
    }
}

/// Returns the best free name. Among names that must be reused early, prefers the one that was sent
/// to EC2 longest ago.
fn choose(
    taken: &[&str],
    refused: &HashMap<String, Instant>,
    sent: &HashMap<String, Instant>,
) -> Option<String> {
    let is_free = |name: &str| !taken.contains(&name);
    let has_free_alias = |name: &str| !taken.iter().any(|t| alias(t) == alias(name));
    names().filter(|name| is_free(name)).min_by_key(|name| {
        (refused.contains_key(name), sent.get(name).copied(), !has_free_alias(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node() -> InstanceId {
        InstanceId::parse("i-0aaaaaaaaaaaaaaa1").unwrap()
    }

    fn volume(n: usize) -> VolumeId {
        VolumeId::parse(&format!("vol-{n:017x}")).unwrap()
    }

    fn mapped(device: &str) -> Mapped {
        Mapped { device: device.to_owned(), volume: None, card: None }
    }

    fn device(reservation: &Reservation) -> &str {
        reservation.name_and_card().device.as_str()
    }

    #[test]
    fn device_names_and_order_match_go_driver() {
        let all: Vec<_> = names().collect();
        assert_eq!(all.len(), 127);
        for (index, name) in [
            (0, "/dev/xvdaa"),
            (25, "/dev/xvdaz"),
            (26, "/dev/xvdba"),
            (52, "/dev/xvdda"),
            (75, "/dev/xvddx"),
            (76, "/dev/xvdb"),
            (101, "/dev/sdb"),
            (126, "/dev/sda2"),
        ] {
            assert_eq!(all[index], name);
        }
        assert!(all.iter().all(|name| DeviceName::parse(name).is_ok()));
        assert!(!all.iter().any(|name| is_boot_device(name)));
        let boot = ["/dev/xvda", "/dev/xvda1", "/dev/sda", "/dev/sda1"];
        assert!(boot.into_iter().all(is_boot_device));
        let unique: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }

    #[test]
    fn first_free_name_is_reserved_and_released() {
        let names = DeviceNames::default();
        let shown = [mapped("/dev/xvda"), mapped("/dev/xvdaa")];
        let first = names.reserve(&node(), &volume(1), &shown, 1).unwrap();
        let second = names.reserve(&node(), &volume(2), &shown, 1).unwrap();
        assert_eq!((device(&first), device(&second)), ("/dev/xvdab", "/dev/xvdac"));
        assert_eq!(first.name_and_card().card, None);
        drop(first);
        let third = names.reserve(&node(), &volume(3), &shown, 1).unwrap();
        assert_eq!(device(&third), "/dev/xvdab");
        drop((second, third));
        assert!(names.lock().is_empty());
    }

    /// An accepted attach with the name ends the avoidance at once.
    #[tokio::test(start_paused = true)]
    async fn refused_name_is_avoided_1_hour_unless_last() {
        let names = DeviceNames::default();
        let bad = DeviceName::parse("/dev/xvdaa").unwrap();
        names.note_refused(&node(), &bad);
        let pick = |shown: &[Mapped]| {
            device(&names.reserve(&node(), &volume(1), shown, 1).unwrap()).to_owned()
        };
        assert_eq!(pick(&[]), "/dev/xvdab");
        let all_but_bad: Vec<_> =
            super::names().filter(|name| name != bad.as_str()).map(|name| mapped(&name)).collect();
        assert_eq!(pick(&all_but_bad), "/dev/xvdaa");
        // A long attach keeps the node's other names remembered.
        let long_attach = names.reserve(&node(), &volume(2), &[], 1).unwrap();
        tokio::time::advance(REFUSED_NAME_TTL).await;
        assert_eq!(pick(&[]), "/dev/xvdaa");
        drop(long_attach);
        names.note_refused(&node(), &bad);
        names.note_accepted(&node(), &bad);
        assert_eq!(pick(&[]), "/dev/xvdaa");
    }

    /// Reads may not show an attachment yet, so its device name waits 60 seconds while others are
    /// free.
    #[tokio::test(start_paused = true)]
    async fn recently_sent_device_name_is_reused_last() {
        let names = DeviceNames::default();
        let pick = || {
            let mut reservation = names.reserve(&node(), &volume(1), &[], 1).unwrap();
            reservation.note_sent();
            device(&reservation).to_owned()
        };
        assert_eq!((pick(), pick()), ("/dev/xvdaa".into(), "/dev/xvdab".into()));
        for _ in 2..127 {
            tokio::time::advance(Duration::from_millis(1)).await;
            pick();
        }
        // When all names were sent recently, the one that was sent longest ago comes first.
        assert_eq!(pick(), "/dev/xvdaa");
        let _long_attach = names.reserve(&node(), &volume(2), &[], 1).unwrap();
        tokio::time::advance(SENT_NAME_TTL).await;
        assert_eq!(pick(), "/dev/xvdaa");
    }

    #[test]
    fn exactly_127_names_can_be_reserved() {
        let names = DeviceNames::default();
        let reservation: Vec<_> =
            (0..127).map(|n| names.reserve(&node(), &volume(n), &[], 1).unwrap()).collect();
        assert!(names.reserve(&node(), &volume(127), &[], 1).is_none());
        drop(reservation);
    }

    #[test]
    fn name_with_taken_alias_comes_after_others() {
        let taken: Vec<String> = names().take(76).chain(["/dev/sdb".to_owned()]).collect();
        let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
        assert_eq!(choose(&taken, &HashMap::new(), &HashMap::new()).unwrap(), "/dev/xvdc");
    }

    #[test]
    fn emptier_card_is_chosen_lower_one_on_tie() {
        let names = DeviceNames::default();
        let on = |device: &str, card| Mapped { card: Some(card), ..mapped(device) };
        let reserve = |n, shown: &[Mapped], card| {
            let reservation = names.reserve(&node(), &volume(n), shown, 2).unwrap();
            assert_eq!(reservation.name_and_card().card, Some(card), "{n}");
            reservation
        };
        let _first = reserve(1, &[], 0);
        let second = reserve(2, &[], 1);
        let _third = reserve(3, &[on("/dev/xvdba", 1), on("/dev/xvdbb", 1)], 0);
        // Two are coming to card 0, and EC2 shows another volume on card 1.
        drop(second);
        reserve(4, &[Mapped { volume: Some(volume(9)), ..on("/dev/xvdba", 1) }], 1);
    }

    proptest! {
        #[test]
        fn attaches_of_instance_never_share_device_name(taken in proptest::collection::vec(0usize..127, 0..60), count in 1usize..60) {
            let all: Vec<_> = names().collect();
            let shown: Vec<_> = taken.iter().map(|i| mapped(&all[*i])).collect();
            let names = DeviceNames::default();
            let reservations: Vec<_> = (0..count).map(|n| names.reserve(&node(), &volume(n), &shown, 1).unwrap()).collect();
            let mut used: Vec<_> = reservations.iter().map(|r| r.name_and_card().device.as_str()).collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), count);
            prop_assert!(used.iter().all(|name| shown.iter().all(|m| m.device != *name)));
        }
    }
}
