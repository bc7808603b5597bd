//! What the kernel does with filters. The auditor's tests have this file, too.

use ebs_csi_policy::Value;
use ebs_csi_policy::profile::Condition;

/// The process that the filters are compiled for.
pub(crate) const OWN: i32 = 4242;
/// linux/audit.h: the kind of this machine's calls, and of another's.
#[cfg(target_arch = "x86_64")]
pub(crate) const MACHINES: [u32; 2] = [0xc000_003e, 0x4000_0003];
#[cfg(target_arch = "aarch64")]
pub(crate) const MACHINES: [u32; 2] = [0xc000_00b7, 0x4000_0028];

/// What the kernel does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Kill,
    Errno(i32),
    Allow,
}

/// Runs one filter on `struct seccomp_data`, with the instructions that the compiler makes.
fn run(program: &[u8], data: &[u32; 16]) -> u32 {
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let instruction: [u8; 8] = program[8 * at..][..8].try_into().unwrap();
        let [code0, code1, jt, jf, k @ ..] = instruction;
        let (code, k) = (u16::from_ne_bytes([code0, code1]), u32::from_ne_bytes(k));
        let jump = |condition: bool| usize::from(if condition { jt } else { jf });
        at += 1 + match code {
            0x05 => usize::try_from(k).unwrap(),
            0x06 => return k,
            0x15 => jump(accumulator == k),
            0x25 => jump(accumulator > k),
            0x35 => jump(accumulator >= k),
            0x20 | 0x54 => {
                let loaded = || data[usize::try_from(k / 4).unwrap()];
                accumulator = if code == 0x20 { loaded() } else { accumulator & k };
                0
            }
            other => panic!("instruction {other:#x}"),
        };
    }
}

/// Returns the answer to a call as the kernel combines those of all filters: the strictest one.
pub(crate) fn answer(
    filters: &[Vec<u8>],
    machine: u32,
    number: u32,
    arguments: [u64; 6],
) -> Answer {
    let mut data = [0; 16];
    (data[0], data[1]) = (number, machine);
    for (at, argument) in arguments.into_iter().enumerate() {
        (data[4 + 2 * at], data[5 + 2 * at]) = (argument as u32, (argument >> 32) as u32);
    }
    let answers = filters.iter().map(|filter| match run(filter, &data) {
        libc::SECCOMP_RET_KILL_PROCESS => Answer::Kill,
        libc::SECCOMP_RET_ALLOW => Answer::Allow,
        errno => Answer::Errno(i32::try_from(errno ^ libc::SECCOMP_RET_ERRNO).unwrap()),
    });
    answers.min().unwrap()
}

/// Returns the values that a condition names, each with its argument. An argument comes first with
/// a value for which the condition may hold.
pub(crate) fn named(condition: Condition) -> Vec<(u8, u64)> {
    let all = |argument: u8, mask: u64, values: &[Value]| {
        let values = values.iter().map(|value| value.number).chain([mask]);
        values.map(|value| (argument, value)).collect::<Vec<_>>()
    };
    match condition {
        Condition::Always => Vec::new(),
        Condition::OneOf { argument, mask, values, and } => {
            let other = and.map(|(argument, mask, values)| all(argument, mask, values));
            [all(argument, mask, values), other.unwrap_or_default()].concat()
        }
        Condition::NoneOf { argument, mask, values } => all(argument, mask, values),
        Condition::HasBits { argument, bits } => vec![(argument, bits.number)],
        Condition::LacksBits(all) => {
            all.iter().flat_map(|(at, bits)| [(*at, 0), (*at, bits.number)]).collect()
        }
        Condition::Itself { argument } => vec![(argument, u64::from(OWN.unsigned_abs()))],
        Condition::Below { argument, limit } | Condition::NotBelow { argument, limit } => {
            vec![(argument, limit.into())]
        }
    }
}
