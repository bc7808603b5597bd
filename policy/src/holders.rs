//! Whether anybody but the helper uses a disk. The disk counts as a whole: whoever has one part of
//! it is in the way of every other.

/// What is known of a disk, or of a partition of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartFacts {
    /// A file system of it is mounted where volumes are.
    pub mounted: bool,
    /// One is mounted where no volume belongs.
    pub mounted_elsewhere: bool,
    /// Its node is shown to a pod, which may do with it what it wants.
    pub shown: bool,
    /// The helper has had it mounted: what keeps it may be a copy of that mount.
    pub was_mounted: bool,
    /// Another block device is made of it.
    pub layered: bool,
    /// Somebody has claimed it exclusively. So is a disk while a partition of it is claimed, and a
    /// partition while its disk is.
    pub claimed: bool,
    /// The operation claims it next for itself, which tells more than any look.
    pub claimed_next: bool,
}

/// Somebody else uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It is mounted where no volume belongs; which part, 0 for the disk itself.
    Mounted(usize),
    /// Another block device is made of this part.
    Layered(usize),
    /// A loop device lies over a part.
    BeneathLoop,
    /// Somebody who is not known has claimed this part. He may be gone at once.
    Claimed(usize),
}

/// Nobody but the helper, and the pods that it shows the disk to, uses the disk. `parts` are the
/// whole disk and then its partitions.
///
/// # Errors
/// [`Held`] says by what.
pub fn judge(parts: &[PartFacts], beneath_loop: bool) -> Result<(), Held> {
    let Some((whole, partitions)) = parts.split_first() else {
        return Ok(());
    };
    let first = |wanted: &dyn Fn(&PartFacts) -> bool| parts.iter().position(wanted);
    if let Some(part) = first(&|part| part.mounted_elsewhere) {
        return Err(Held::Mounted(part));
    }
    if let Some(part) = first(&|part| part.layered && !part.shown && !whole.shown) {
        return Err(Held::Layered(part));
    }
    // A pod may lay one over what it was given.
    if beneath_loop && !parts.iter().any(|part| part.shown) {
        return Err(Held::BeneathLoop);
    }
    let accounted = |part: &PartFacts| {
        part.claimed_next || part.mounted || part.shown || part.was_mounted || whole.shown
    };
    if !whole.claimed || whole.claimed_next || accounted(whole) {
        return Ok(());
    }
    let stranger = |part: &PartFacts| part.claimed && !accounted(part);
    match partitions.iter().position(stranger) {
        Some(partition) => Err(Held::Claimed(partition + 1)),
        // The disk is claimed by way of its partitions.
        None if partitions.iter().any(|part| part.claimed) => Ok(()),
        None => Err(Held::Claimed(0)),
    }
}
