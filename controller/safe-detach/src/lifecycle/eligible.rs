//! Which pods may be force-deleted once their volumes are proved free.

/// An object as it was read. An act names exactly this object, and fails on a newer version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The object's namespace; empty for a kind without namespaces.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's uid.
    pub uid: String,
    /// The version that was read.
    pub version: String,
}

/// A pod that uses a volume of this driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The object.
    pub object: ObjectVersion,
    /// Whether the pod's deletion is requested (Kubernetes has evicted it, or somebody deleted it).
    pub deleting: bool,
    /// Whether the pod has ended by itself: Succeeded or Failed.
    pub ended: bool,
    /// What the pod's claims are bound to.
    pub claims: Vec<Claim>,
    /// The pod's tolerations without a time limit: one with a limit does not keep a pod.
    pub tolerations: Vec<Toleration>,
    /// Whether a DaemonSet owns the pod.
    pub of_daemon_set: bool,
    /// Whether the pod is a static pod's mirror.
    pub mirror: bool,
    /// Whether a person has opted the pod out of failover.
    pub opted_out: bool,
}

/// What one claim of a pod is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A volume of this driver.
    Ours {
        /// The volume.
        volume: String,
        /// Whether several nodes may use the volume at once.
        shared: bool,
    },
    /// A volume of another driver, or of none.
    Foreign,
    /// The claim is unbound, or bound to an object that was not read.
    Unknown,
}

/// A toleration of the API. A missing text is empty, which matches everything for `key` and
/// `effect`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The taint's key.
    pub key: String,
    /// The taint's effect.
    pub effect: String,
}

/// The reason why a pod is left to Kubernetes and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ineligible {
    /// The pod uses no volume of this driver.
    NoVolume,
    /// One of the pod's volumes is not this driver's.
    ForeignVolume,
    /// It is unknown what one of the pod's claims is bound to.
    UnknownVolume,
    /// Several nodes at once may use one of the pod's volumes.
    SharedVolume,
    /// A DaemonSet owns the pod, which cannot run elsewhere.
    DaemonSet,
    /// The pod is a static pod's mirror: only its kubelet ends it.
    Mirror,
    /// The pod tolerates that its node is gone.
    Tolerates,
    /// A person has opted the pod out of failover.
    OptedOut,
}

impl Pod {
    /// Returns the driver's volumes that the pod uses.
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().filter_map(|claim| match claim {
            Claim::Ours { volume, .. } => Some(volume.as_str()),
            Claim::Foreign | Claim::Unknown => None,
        })
    }
}

impl Toleration {
    fn keeps_pod_on_node(&self) -> bool {
        self.covers("node.kubernetes.io/unreachable") || self.covers_out_of_service()
    }

    /// Returns whether Kubernetes leaves the pod on a node with this driver's taint.
    pub(super) fn covers_out_of_service(&self) -> bool {
        self.covers("node.kubernetes.io/out-of-service")
    }

    fn covers(&self, key: &str) -> bool {
        ["", key].contains(&self.key.as_str()) && matches!(self.effect.as_str(), "" | "NoExecute")
    }
}

/// Checks whether the pod may be force-deleted, as far as the pod itself is concerned.
///
/// # Errors
/// [`Ineligible`]: the first reason against it.
pub fn eligible(pod: &Pod) -> Result<(), Ineligible> {
    let reasons = [
        (pod.opted_out, Ineligible::OptedOut),
        (pod.mirror, Ineligible::Mirror),
        (pod.of_daemon_set, Ineligible::DaemonSet),
        (pod.volumes().next().is_none(), Ineligible::NoVolume),
        (pod.claims.contains(&Claim::Unknown), Ineligible::UnknownVolume),
        (pod.claims.contains(&Claim::Foreign), Ineligible::ForeignVolume),
        (
            pod.claims.iter().any(|claim| matches!(claim, Claim::Ours { shared: true, .. })),
            Ineligible::SharedVolume,
        ),
        (pod.tolerations.iter().any(Toleration::keeps_pod_on_node), Ineligible::Tolerates),
    ];
    reasons.into_iter().find(|(applies, _)| *applies).map_or(Ok(()), |(_, why)| Err(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(shared: bool) -> Claim {
        let volume = "vol-1".to_owned();
        Claim::Ours { volume, shared }
    }

    fn tolerate(pod: &mut Pod, key: &str, effect: &str) {
        let (key, effect) = (key.to_owned(), effect.to_owned());
        pod.tolerations.push(Toleration { key, effect });
    }

    #[test]
    fn ineligible_pod_is_rejected_with_specific_reason() {
        const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
        const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
        type Change = fn(&mut Pod);
        let rows: [(Change, Result<(), Ineligible>); 16] = [
            (|_| (), Ok(())),
            (|p| p.deleting = true, Ok(())),
            (|p| p.claims.push(ours(false)), Ok(())),
            (|p| p.claims.clear(), Err(Ineligible::NoVolume)),
            (|p| p.claims = vec![Claim::Foreign], Err(Ineligible::NoVolume)),
            (|p| p.claims.push(Claim::Foreign), Err(Ineligible::ForeignVolume)),
            (|p| p.claims.push(Claim::Unknown), Err(Ineligible::UnknownVolume)),
            (|p| p.claims = vec![ours(true)], Err(Ineligible::SharedVolume)),
            (|p| p.of_daemon_set = true, Err(Ineligible::DaemonSet)),
            (|p| p.mirror = true, Err(Ineligible::Mirror)),
            (|p| p.opted_out = true, Err(Ineligible::OptedOut)),
            (|p| tolerate(p, UNREACHABLE, "NoExecute"), Err(Ineligible::Tolerates)),
            (|p| tolerate(p, "", ""), Err(Ineligible::Tolerates)),
            (|p| tolerate(p, OUT_OF_SERVICE, ""), Err(Ineligible::Tolerates)),
            (|p| tolerate(p, "", "NoSchedule"), Ok(())),
            (|p| tolerate(p, "dedicated", ""), Ok(())),
        ];
        for (number, (change, want)) in rows.into_iter().enumerate() {
            let mut pod = Pod { claims: vec![ours(false)], ..Pod::default() };
            change(&mut pod);
            assert_eq!(eligible(&pod), want, "row {number}");
        }
    }
}
