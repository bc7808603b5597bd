//! The resources that a tool uses while it runs.
use crate::rig::{Repeated, children, role, status};
use std::fmt;
use std::time::Duration;

/// The maximum of each resource over all tools that were seen. A tool that ended at once was not
/// seen.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Most {
    address_space: u64,
    data: u64,
    resident: u64,
    threads: u64,
}

impl Most {
    pub(super) fn join(&mut self, other: Self) {
        self.address_space = self.address_space.max(other.address_space);
        self.data = self.data.max(other.data);
        self.resident = self.resident.max(other.resident);
        self.threads = self.threads.max(other.threads);
    }

    fn of(pid: u32) -> Self {
        let number = |field: &str| {
            let text = status(pid, field);
            let first = text.split_whitespace().next().unwrap_or_default();
            first.parse().unwrap_or(0)
        };
        Self {
            address_space: number("VmPeak"),
            data: number("VmData"),
            resident: number("VmHWM"),
            threads: number("Threads"),
        }
    }
}

impl fmt::Display for Most {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |kib: u64| kib.div_ceil(1024);
        write!(
            f,
            "address space {} MiB, data {} MiB, resident {} MiB, threads {}",
            mib(self.address_space),
            mib(self.data),
            mib(self.resident),
            self.threads
        )
    }
}

/// Watches the tools of the runners of a supervisor.
pub(super) fn watch(supervisor: u32) -> Repeated<Most> {
    Repeated::start(Most::default(), Duration::from_millis(5), move |most| {
        let runners = children(supervisor).into_iter().filter(|pid| role(*pid) == "runner");
        runners.flat_map(children).for_each(|tool| most.join(Most::of(tool)));
    })
}
