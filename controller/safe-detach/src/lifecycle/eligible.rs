//! Which pods may be force-deleted once their volumes are proved free.

use std::fmt;

/// A pod that uses a volume of this driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid: an act names exactly this object.
    pub uid: String,
    /// The version that was read: an act on a newer one fails.
    pub version: String,
    /// Whether Kubernetes has asked the pod to end (its tolerations have run out, or somebody
    /// deleted it).
    pub deleting: bool,
    /// Whether the pod has ended by itself: Succeeded or Failed.
    pub ended: bool,
    /// What the pod's claims are bound to.
    pub claims: Vec<Claim>,
    /// The pod's tolerations.
    pub tolerations: Vec<Toleration>,
    /// Whether a DaemonSet owns the pod.
    pub of_daemon_set: bool,
    /// Whether the pod is a static pod's mirror.
    pub mirror: bool,
    /// Whether a person has asked that this driver leaves the pod alone.
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
    /// Whether the toleration ends after a time.
    pub bounded: bool,
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
    /// A person has asked that this driver leaves the pod alone.
    OptedOut,
}

impl Ineligible {
    /// Returns the stable token of events and metrics.
    pub const fn token(self) -> &'static str {
        match self {
            Self::NoVolume => "no-volume",
            Self::ForeignVolume => "foreign-volume",
            Self::UnknownVolume => "unknown-volume",
            Self::SharedVolume => "shared-volume",
            Self::DaemonSet => "daemon-set",
            Self::Mirror => "mirror",
            Self::Tolerates => "tolerates",
            Self::OptedOut => "opted-out",
        }
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
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
        let key = matches!(
            self.key.as_str(),
            "" | "node.kubernetes.io/out-of-service" | "node.kubernetes.io/unreachable"
        );
        key && matches!(self.effect.as_str(), "" | "NoExecute") && !self.bounded
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
    match reasons.into_iter().find(|(applies, _)| *applies) {
        Some((_, why)) => Err(why),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(shared: bool) -> Claim {
        let volume = "vol-1".to_owned();
        Claim::Ours { volume, shared }
    }

    fn pod() -> Pod {
        Pod {
            namespace: "default".to_owned(),
            name: "db-0".to_owned(),
            uid: "u".to_owned(),
            version: "7".to_owned(),
            deleting: false,
            ended: false,
            claims: vec![ours(false)],
            tolerations: Vec::new(),
            of_daemon_set: false,
            mirror: false,
            opted_out: false,
        }
    }

    #[test]
    fn ineligible_pod_is_rejected_with_specific_reason() {
        let toleration = |key: &str, effect: &str, bounded| Toleration {
            key: key.to_owned(),
            effect: effect.to_owned(),
            bounded,
        };
        let unreachable = "node.kubernetes.io/unreachable";
        type Change = Box<dyn Fn(&mut Pod)>;
        let tolerating =
            |t: Toleration| -> Change { Box::new(move |p| p.tolerations.push(t.clone())) };
        let rows: Vec<(Change, Result<(), Ineligible>)> = vec![
            (Box::new(|_| ()), Ok(())),
            (Box::new(|p| p.deleting = true), Ok(())),
            (Box::new(|p| p.claims.push(ours(false))), Ok(())),
            (Box::new(|p| p.claims.clear()), Err(Ineligible::NoVolume)),
            (Box::new(|p| p.claims = vec![Claim::Foreign]), Err(Ineligible::NoVolume)),
            (Box::new(|p| p.claims.push(Claim::Foreign)), Err(Ineligible::ForeignVolume)),
            (Box::new(|p| p.claims.push(Claim::Unknown)), Err(Ineligible::UnknownVolume)),
            (Box::new(|p| p.claims = vec![ours(true)]), Err(Ineligible::SharedVolume)),
            (Box::new(|p| p.of_daemon_set = true), Err(Ineligible::DaemonSet)),
            (Box::new(|p| p.mirror = true), Err(Ineligible::Mirror)),
            (Box::new(|p| p.opted_out = true), Err(Ineligible::OptedOut)),
            (tolerating(toleration(unreachable, "NoExecute", true)), Ok(())),
            (tolerating(toleration(unreachable, "NoExecute", false)), Err(Ineligible::Tolerates)),
            (tolerating(toleration("", "", false)), Err(Ineligible::Tolerates)),
            (
                tolerating(toleration("node.kubernetes.io/out-of-service", "", false)),
                Err(Ineligible::Tolerates),
            ),
            (tolerating(toleration("", "NoSchedule", false)), Ok(())),
            (tolerating(toleration("dedicated", "", false)), Ok(())),
        ];
        for (number, (change, want)) in rows.into_iter().enumerate() {
            let mut pod = pod();
            change(&mut pod);
            assert_eq!(eligible(&pod), want, "row {number}");
        }
    }
}
