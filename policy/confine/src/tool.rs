//! Confinement of a tool, between the fork and the exec.
//!
//! The child is already in the runner's domain and has the runner's filter. It calls [`restrict`],
//! passes on the listener of its opens, and calls [`Filters::install`] last.

use std::path::Path;

use ebs_csi_policy::profile;
use ebs_csi_policy::tool::{Tool, ToolId};
use rustix::process::Resource;
use seccompiler::BpfProgram;

use crate::identity::{set_limit, set_limits};
use crate::places::open_path;
use crate::{Fault, LandlockState, Places, files, syscall_filter};

/// Sets the resource limits of the runner, which inherits everything else from the supervisor.
pub fn limit_runner() -> Result<(), Fault> {
    set_limits(profile::RUNNER.limits)
}

/// Sets the resource limits and Landlock rules of a tool. Adds the rule for the tool's program
/// itself; adds a rule for the device only when `places` has one named `device`.
pub fn restrict(
    id: ToolId,
    places: Places,
    allow_missing_landlock: bool,
) -> Result<LandlockState, Fault> {
    let tool = row(id)?;
    let program = open_path(Path::new(tool.path))
        .map_err(|source| Fault::Place { place: tool.path.to_owned(), source })?;
    let places = places.with_descriptor("tool", program);
    set_limits(profile::TOOL.limits)?;
    set_limit(Resource::As, "as", tool.address_space)?;
    set_limit(Resource::Data, "data", tool.data)?;
    set_limit(Resource::Stack, "stack", tool.stack)?;
    files::restrict(&profile::TOOL.landlock, &places, allow_missing_landlock)
}

/// The system call filters of all tools, as programs for the kernel. The process that forks
/// compiles them once, and each child installs its own.
#[derive(Debug)]
pub struct Filters {
    /// The list, which is the same for all tools.
    list: Vec<BpfProgram>,
    /// The filters for the commands that are answered with success without being executed.
    pretended: Vec<(ToolId, BpfProgram)>,
}

impl Filters {
    /// Compiles the filters.
    pub fn compile() -> Result<Self, Fault> {
        let mut pretended = Vec::new();
        for id in ToolId::ALL.iter().copied() {
            let tool = row(id)?;
            if !tool.pretended.is_empty() {
                pretended.push((id, syscall_filter::pretended(tool.pretended)?));
            }
        }
        Ok(Self { list: syscall_filter::programs(profile::TOOL.calls)?, pretended })
    }

    /// Binds the calling process to the filters of a tool.
    pub fn install(&self, id: ToolId) -> Result<(), Fault> {
        // The filter that depends on the process and the filter of pretended commands come first.
        // The list comes last, because it forbids the installation of another filter.
        let itself = syscall_filter::itself(profile::TOOL.calls, rustix::process::getpid())?;
        syscall_filter::apply(itself.as_slice(), syscall_filter::Threads::This)?;
        let pretended = self.pretended.iter().filter(|(of, _)| *of == id);
        for (_, program) in pretended {
            syscall_filter::apply(std::slice::from_ref(program), syscall_filter::Threads::This)?;
        }
        syscall_filter::apply(&self.list, syscall_filter::Threads::This)
    }
}

fn row(id: ToolId) -> Result<&'static Tool, Fault> {
    id.tool().ok_or(Fault::UnknownTool(id.as_str()))
}

/// Adds the programs of the policy that exist, under the name that the supervisor's rules use.
/// Fails with [`Fault::Place`] when a program exists and cannot be opened.
pub fn programs(mut places: Places) -> Result<Places, Fault> {
    for id in ToolId::ALL {
        let tool = row(*id)?;
        if Path::new(tool.path).exists() {
            places = places.with("tools", tool.path)?;
        }
    }
    Ok(places)
}
