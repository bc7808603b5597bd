//! The system call filter: which calls the kernel answers, and how.
//!
//! A seccomp filter has one answer for everything that it matches, so a list of calls with errors
//! becomes several filters: the list itself, which kills every other call, and one filter for each
//! error. The kernel runs all filters and takes the strictest answer. The list must not kill a call
//! that another filter answers with an error, so the list allows the call.

use std::collections::BTreeMap;

use ebs_csi_policy::Value;
use ebs_csi_policy::profile::{CallAnswer, CallRule, Choice, Condition, Profile};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use rustix::process::Pid;

use crate::{Fault, call_number};

/// The threads that a filter binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The calling thread, and all threads that it starts.
    This,
    /// All threads of the process.
    All,
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns all filters of a process with this profile, in the order in which they are installed.
pub(crate) fn of_profile(
    profile: &Profile,
    choice: Option<&Choice>,
    process: Pid,
) -> Result<Vec<BpfProgram>, Fault> {
    let mut all = Vec::from_iter(itself(profile.calls, process)?);
    all.extend(match choice {
        None => programs(profile.calls)?,
        Some(choice) => programs(&[profile.calls, choice.calls].concat())?,
    });
    Ok(all)
}

/// Returns a filter's instructions as they stand in memory (`struct sock_filter`).
pub(crate) fn bytes(program: &[sock_filter]) -> Vec<u8> {
    let instructions = program.iter().flat_map(|one| {
        let [code0, code1] = one.code.to_ne_bytes();
        let [k0, k1, k2, k3] = one.k.to_ne_bytes();
        [code0, code1, one.jt, one.jf, k0, k1, k2, k3]
    });
    instructions.collect()
}

/// Returns the filters of a list of calls, in the order in which they are installed. The list comes
/// last, because it forbids the installation of another filter.
pub(crate) fn programs(calls: &[CallRule]) -> Result<Vec<BpfProgram>, Fault> {
    let mut allowed = Rules::new();
    let mut errors: BTreeMap<i32, Rules> = BTreeMap::new();
    for rule in calls {
        let Some(number) = number(rule)? else {
            continue;
        };
        add(&mut allowed, number, rule.condition)?;
        if let CallAnswer::Errno(Value { number: errno, .. }) = rule.answer {
            add(errors.entry(errno).or_default(), number, rule.condition)?;
        }
    }
    let errors = errors.into_iter().map(|(errno, rules)| error_filter(rules, errno));
    let mut programs = errors.collect::<Result<Vec<_>, _>>()?;
    programs.push(compile(allowed, SeccompAction::KillProcess, SeccompAction::Allow)?);
    Ok(programs)
}

/// Returns a filter that ends the process when a call names another process where a rule permits
/// only the caller; `None` without such a rule. The list allows these calls for every process id,
/// because it is compiled before the process exists.
pub(crate) fn itself(calls: &[CallRule], process: Pid) -> Result<Option<BpfProgram>, Fault> {
    let process = u64::try_from(process.as_raw_nonzero().get()).unwrap_or_default();
    let mut rules = Rules::new();
    for rule in calls {
        if let (Condition::Itself { argument }, Some(number)) = (rule.condition, number(rule)?) {
            let other = compare(argument, INT, SeccompCmpOp::Ne, process)?;
            rules.entry(number).or_default().push(other);
        }
    }
    if rules.is_empty() {
        return Ok(None);
    }
    compile(rules, SeccompAction::Allow, SeccompAction::KillProcess).map(Some)
}

/// Returns a filter that answers these commands of ioctl(2) with success without executing them.
pub(crate) fn pretended(commands: &[Value]) -> Result<BpfProgram, Fault> {
    let mut rules = Rules::new();
    for command in commands {
        let condition = compare(1, INT, SeccompCmpOp::Eq, command.number)?;
        rules.entry(libc::SYS_ioctl).or_default().push(condition);
    }
    error_filter(rules, 0)
}

/// Installs filters, and sets `no_new_privs`.
pub(crate) fn apply(programs: &[BpfProgram], threads: Threads) -> Result<(), Fault> {
    for program in programs {
        match threads {
            Threads::This => seccompiler::apply_filter(program),
            Threads::All => seccompiler::apply_filter_all_threads(program),
        }
        .map_err(|error| Fault::Filter(error.to_string()))?;
    }
    Ok(())
}

/// Returns the call's number on this machine; `None` for a call that the machine does not have.
fn number(rule: &CallRule) -> Result<Option<i64>, Fault> {
    if rule.only_x86_64 && !cfg!(target_arch = "x86_64") {
        return Ok(None);
    }
    call_number::of(rule.call).map(Some).ok_or(Fault::UnknownCall(rule.call))
}

fn add(rules: &mut Rules, number: i64, condition: Condition) -> Result<(), Fault> {
    let more = match condition {
        Condition::Always | Condition::Itself { .. } => {
            // An empty list of rules matches every argument.
            rules.insert(number, Vec::new());
            return Ok(());
        }
        Condition::OneOf { argument, mask, values, and } => {
            let one = |argument, mask, value: &Value| {
                comparison(argument, mask, SeccompCmpOp::MaskedEq(mask), value.number)
            };
            let mut rules = Vec::new();
            for value in values {
                let Some((other, other_mask, others)) = and else {
                    rules.push(rule(vec![one(argument, mask, value)?])?);
                    continue;
                };
                for beside in others {
                    let both = vec![one(argument, mask, value)?, one(other, other_mask, beside)?];
                    rules.push(rule(both)?);
                }
            }
            rules
        }
        Condition::NoneOf { argument, mask, values } => {
            // All conditions of one rule must hold.
            let conditions = values
                .iter()
                .map(|value| comparison(argument, mask, SeccompCmpOp::Ne, value.number))
                .collect::<Result<Vec<_>, _>>()?;
            vec![rule(conditions)?]
        }
        Condition::HasBits { argument, bits: Value { number: bits, .. } } => {
            vec![compare(argument, bits, SeccompCmpOp::MaskedEq(bits), bits)?]
        }
        Condition::LacksBits(bits) => {
            let conditions = bits
                .iter()
                .map(|(argument, Value { number: bits, .. })| {
                    comparison(*argument, *bits, SeccompCmpOp::MaskedEq(*bits), 0)
                })
                .collect::<Result<Vec<_>, _>>()?;
            vec![rule(conditions)?]
        }
        Condition::Below { argument, limit } => {
            vec![compare(argument, INT, SeccompCmpOp::Lt, limit.into())?]
        }
        Condition::NotBelow { argument, limit } => {
            vec![compare(argument, INT, SeccompCmpOp::Ge, limit.into())?]
        }
    };
    match rules.get_mut(&number) {
        // The call is already allowed with any argument.
        Some(present) if present.is_empty() => {}
        Some(present) => present.extend(more),
        None => {
            rules.insert(number, more);
        }
    }
    Ok(())
}

/// The lower half of an argument.
const INT: u64 = u32::MAX as u64;

/// Compares the half or the whole of an argument in which these bits are.
fn comparison(
    argument: u8,
    bits: u64,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, Fault> {
    let length = if bits > INT { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
    SeccompCondition::new(argument, length, operator, value)
        .map_err(|error| Fault::Filter(error.to_string()))
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Fault> {
    SeccompRule::new(conditions).map_err(|error| Fault::Filter(error.to_string()))
}

fn compare(
    argument: u8,
    bits: u64,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, Fault> {
    rule(vec![comparison(argument, bits, operator, value)?])
}

fn error_filter(rules: Rules, errno: i32) -> Result<BpfProgram, Fault> {
    let errno = u32::try_from(errno).unwrap_or_default();
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(errno))
}

fn compile(
    rules: Rules,
    other: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, Fault> {
    let machine: TargetArch = std::env::consts::ARCH
        .try_into()
        .map_err(|error: seccompiler::BackendError| Fault::Filter(error.to_string()))?;
    SeccompFilter::new(rules, other, matched, machine)
        .and_then(TryInto::try_into)
        .map_err(|error: seccompiler::BackendError| Fault::Filter(error.to_string()))
}

#[cfg(test)]
mod tests;
