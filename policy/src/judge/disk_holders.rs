//! Whether something other than the helper uses a disk. The disk is judged as a whole: a user of
//! one part blocks the use of every other part.

/// What is known about a disk, or about a partition of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartFacts {
    /// A file system of the part is mounted where volumes are mounted.
    pub mounted: bool,
    /// A file system of the part is mounted where no volume belongs.
    pub mounted_elsewhere: bool,
    /// The part's device node is shown to a pod, which may use the part in any way.
    pub shown: bool,
    /// The helper has mounted the part before: the remaining holder may be a copy of that mount.
    pub was_mounted: bool,
    /// Another block device is built on the part.
    pub layered: bool,
    /// A holder has claimed the part exclusively. The kernel also shows a disk as claimed while one
    /// of its partitions is claimed, and a partition while its disk is claimed.
    pub claimed: bool,
    /// The operation claims the part itself next, and the result of that claim is more reliable
    /// than any check before it.
    pub claimed_next: bool,
}

/// Somebody else uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A part is mounted where no volume belongs; the value is the part's index, 0 for the whole
    /// disk.
    Mounted(usize),
    /// Another block device is built on this part.
    Layered(usize),
    /// A loop device is built on a part.
    BeneathLoop,
    /// An unknown holder has claimed this part. The claim may end at any moment.
    Claimed(usize),
}

/// Checks that only the helper, and pods to which the helper shows the disk, use the disk. `parts`
/// are the whole disk and then its partitions.
pub fn judge(parts: &[PartFacts], beneath_loop: bool) -> Result<(), Holder> {
    let Some((whole, partitions)) = parts.split_first() else {
        return Ok(());
    };
    let first = |wanted: &dyn Fn(&PartFacts) -> bool| parts.iter().position(wanted);
    if let Some(part) = first(&|part| part.mounted_elsewhere) {
        return Err(Holder::Mounted(part));
    }
    if let Some(part) = first(&|part| part.layered && !part.shown && !whole.shown) {
        return Err(Holder::Layered(part));
    }
    // A pod may build a loop device on a disk that is shown to it.
    if beneath_loop && !parts.iter().any(|part| part.shown) {
        return Err(Holder::BeneathLoop);
    }
    let is_accounted_for = |part: &PartFacts| {
        part.claimed_next || part.mounted || part.shown || part.was_mounted || whole.shown
    };
    if !whole.claimed || whole.claimed_next || is_accounted_for(whole) {
        return Ok(());
    }
    let is_unknown_claim = |part: &PartFacts| part.claimed && !is_accounted_for(part);
    match partitions.iter().position(is_unknown_claim) {
        Some(partition) => Err(Holder::Claimed(partition + 1)),
        // The claim of the disk follows from the claims of its partitions.
        None if partitions.iter().any(|part| part.claimed) => Ok(()),
        None => Err(Holder::Claimed(0)),
    }
}
