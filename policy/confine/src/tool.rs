//! Confinement of a tool, between the fork and the exec.
//!
//! The child is in the runner's domain and has the runner's filter already. It calls [`restrict`], hands out the
//! listener of its opens, and calls [`filter`] last.

use std::path::Path;

use ebs_csi_policy::profile;
use ebs_csi_policy::tool::{Tool, ToolId};

use crate::files::open_path;
use crate::{Fault, LandlockState, Places, answer, files, limits};

/// Resource limits and Landlock of a tool. The rule for the tool's program is added here; a rule for the device only when
/// `places` has one named `device`.
///
/// # Errors
/// [`Fault`]: the child must end.
pub fn restrict(
    id: ToolId,
    places: Places,
    allow_missing_landlock: bool,
) -> Result<LandlockState, Fault> {
    let (profile, tool) = found(id)?;
    let program = open_path(Path::new(tool.path)).map_err(|source| Fault::Place {
        place: tool.path.to_owned(),
        source,
    })?;
    let places = places.with_descriptor("tool", program);
    limits::apply(profile.limits)?;
    limits::set(rustix::process::Resource::As, "as", tool.address_space)?;
    limits::set(rustix::process::Resource::Data, "data", tool.data)?;
    files::restrict(&profile.landlock, &places, allow_missing_landlock)
}

/// The system call filter of a tool: first the commands that it is told have worked, then the list.
///
/// # Errors
/// [`Fault`]: the child must end.
pub fn filter(id: ToolId) -> Result<(), Fault> {
    let (profile, tool) = found(id)?;
    let mut programs = Vec::new();
    if !tool.pretended.is_empty() {
        programs.push(answer::pretended(tool.pretended)?);
    }
    programs.extend(answer::programs(profile.calls)?);
    answer::apply(&programs, answer::Threads::This)
}

fn found(id: ToolId) -> Result<(&'static profile::Profile, &'static Tool), Fault> {
    profile::tool(id)
        .map(|found| (found.profile, found.tool))
        .ok_or(Fault::UnknownTool(id.key()))
}

/// The programs of the policy that are there, under the name that the supervisor's rules use.
///
/// # Errors
/// [`Fault::Place`] when a program is there and cannot be opened.
pub fn programs(mut places: Places) -> Result<Places, Fault> {
    for id in ToolId::ALL {
        let (_, tool) = found(id)?;
        if Path::new(tool.path).exists() {
            places = places.with("tools", tool.path)?;
        }
    }
    Ok(places)
}
