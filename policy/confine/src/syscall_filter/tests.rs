//! The compiled filters, run on every system call, give the answers of the policy's rows.

mod kernel;

use super::*;
use ebs_csi_policy::profile::{self, SUPERVISOR, TOOL};
use ebs_csi_policy::tool::ToolId;
use kernel::{Answer, MACHINES, OWN, answer, named};

/// The most instructions that the kernel takes.
const LONGEST: usize = 4096;
/// The calls of x86-64 with pointers of 32 bits: asm/unistd.h.
const X32: u32 = 0x4000_0000;

fn holds(condition: Condition, arguments: [u64; 6]) -> bool {
    let of = |argument: u8| arguments[usize::from(argument)];
    match condition {
        Condition::Always => true,
        Condition::OneOf { argument, mask, values, and } => {
            let is_one = |argument, mask, values: &[Value]| {
                values.iter().any(|value| of(argument) & mask == value.number)
            };
            is_one(argument, mask, values)
                && and.is_none_or(|(argument, mask, values)| is_one(argument, mask, values))
        }
        Condition::NoneOf { argument, mask, values } => {
            values.iter().all(|value| of(argument) & mask != value.number)
        }
        Condition::HasBits { argument, bits } => of(argument) & bits.number == bits.number,
        Condition::LacksBits(all) => all.iter().all(|(at, bits)| of(*at) & bits.number == 0),
        Condition::Itself { argument } => of(argument) & INT == u64::try_from(OWN).unwrap(),
        Condition::Below { argument, limit } => of(argument) & INT < limit.into(),
        Condition::NotBelow { argument, limit } => of(argument) & INT >= limit.into(),
    }
}

/// Returns what the rows say about a call with these arguments.
fn expected(rows: &[CallRule], arguments: [u64; 6]) -> Answer {
    let holding = rows.iter().filter(|row| holds(row.condition, arguments));
    let answers = holding.map(|row| match row.answer {
        CallAnswer::Allow => Answer::Allow,
        CallAnswer::Errno(errno) => Answer::Errno(errno.number),
    });
    answers.min().unwrap_or(Answer::Kill)
}

/// Returns arguments of the values that a condition names, and of their neighbours: one more, one
/// less, one bit changed.
fn around(condition: Condition) -> Vec<[u64; 6]> {
    let named = named(condition);
    // Each argument is changed while the others have a value that is named.
    let mut usual = [0; 6];
    for (argument, value) in named.iter().rev() {
        usual[usize::from(*argument)] = *value;
    }
    let arguments = named.into_iter().flat_map(|(argument, value)| {
        let bits = (0..u64::BITS).map(move |bit| value ^ (1 << bit));
        let all = bits.chain([value, value.wrapping_add(1), value.wrapping_sub(1)]);
        all.map(move |value| {
            let mut arguments = usual;
            arguments[usize::from(argument)] = value;
            arguments
        })
    });
    arguments.collect()
}

/// Returns the filters of a process and the rows that they are made of, for each of its choices.
fn filters(profile: &'static Profile) -> Vec<(Vec<Vec<u8>>, Vec<CallRule>)> {
    let choices = [None].into_iter().chain(profile.choices.iter().map(Some));
    let own = Pid::from_raw(OWN).unwrap();
    let filters = choices.map(|choice| {
        let mut programs = of_profile(profile, choice, own).unwrap();
        if profile.name == TOOL.name {
            // The tool runs under the runner's filter, which must leave it all that is its own.
            programs.extend(of_profile(SUPERVISOR, None, own).unwrap());
        }
        let chosen = choice.map_or(&[][..], |choice| choice.calls);
        let programs = programs.iter().map(|program| bytes(program)).collect();
        (programs, [profile.calls, chosen].concat())
    });
    filters.collect()
}

#[test]
fn every_call_gets_its_rows_answer() {
    let all = profile::ALL.into_iter().flat_map(|profile| {
        filters(profile).into_iter().map(move |(programs, rows)| (profile.name, programs, rows))
    });
    for (name, programs, rows) in all {
        assert!(programs.iter().all(|program| program.len() <= 8 * LONGEST), "{name}");
        for call in 0..=500 {
            let is_its = |row: &&CallRule| number(row).unwrap() == Some(i64::from(call));
            let rows: Vec<CallRule> = rows.iter().filter(is_its).copied().collect();
            let near = rows.iter().flat_map(|row| around(row.condition));
            for arguments in near.chain([[0; 6], [u64::MAX; 6]]) {
                let found = answer(&programs, MACHINES[0], call, arguments);
                let wanted = expected(&rows, arguments);
                assert_eq!(found, wanted, "call {call} of {name} with {arguments:x?}");
                for (machine, call) in [(MACHINES[1], call), (MACHINES[0], X32 | call)] {
                    let found = answer(&programs, machine, call, arguments);
                    assert_eq!(found, Answer::Kill, "call {call:#x} of {name}, {machine:#x}");
                }
            }
        }
    }
}

/// The test above compares both sides of each condition.
#[test]
fn neighbours_of_each_condition_include_refused_ones() {
    for (profile, row) in rules().filter(|(_, row)| !matches!(row.condition, Condition::Always)) {
        let [mut held, mut others] = [false; 2];
        for arguments in around(row.condition) {
            let holds = holds(row.condition, arguments);
            (held, others) = (held | holds, others | !holds);
        }
        assert!(held && others, "{row:?} of {profile}");
    }
}

#[test]
fn only_pretended_commands_are_answered_with_success() {
    for tool in ToolId::ALL.iter().filter_map(|id| id.tool()) {
        let programs = [bytes(&pretended(tool.pretended).unwrap())];
        let ioctl = u32::try_from(libc::SYS_ioctl).unwrap();
        let condition =
            Condition::OneOf { argument: 1, mask: INT, values: tool.pretended, and: None };
        for arguments in around(condition).into_iter().chain([[0; 6]]) {
            let is_pretended = holds(condition, arguments);
            let wanted = if is_pretended { Answer::Errno(0) } else { Answer::Allow };
            let found = answer(&programs, MACHINES[0], ioctl, arguments);
            assert_eq!(found, wanted, "{} with {arguments:x?}", tool.key);
        }
    }
}

fn rules() -> impl Iterator<Item = (&'static str, &'static CallRule)> {
    profile::ALL.into_iter().flat_map(|profile| {
        let chosen = profile.choices.iter().flat_map(|choice| choice.calls);
        let all = profile.calls.iter().chain(chosen);
        all.map(|rule| (profile.name, rule))
    })
}

#[test]
fn only_other_machine_lacks_number_of_call() {
    for profile in profile::ALL {
        for rule in profile.calls {
            let known = call_number::of(rule.call);
            match number(rule) {
                Ok(Some(number)) => assert_eq!(Some(number), known, "{}", rule.call),
                Ok(None) => {
                    assert!(rule.only_x86_64 && !cfg!(target_arch = "x86_64"));
                }
                Err(fault) => panic!("{}: {fault}", profile.name),
            }
        }
    }
}

/// Without `only`, a call has to be in the table of other machines, too.
#[test]
fn calls_of_one_machine_alone_are_marked() {
    for (profile, rule) in rules() {
        let everywhere = call_number::everywhere().any(|name| name == rule.call);
        assert!(everywhere || rule.only_x86_64, "{} of {profile}", rule.call);
        let known = call_number::of(rule.call).is_some();
        assert!(known || rule.only_x86_64, "{} of {profile}", rule.call);
    }
}

/// On a machine without the older call, libc makes the newer one.
#[test]
fn older_calls_have_their_newer_form_beside_them() {
    let newer = |call| match call {
        "access" => "faccessat",
        "chmod" => "fchmodat",
        "dup2" => "dup3",
        "epoll_wait" => "epoll_pwait",
        "fork" | "vfork" => "clone",
        "link" => "linkat",
        "stat" => "newfstatat",
        "mkdir" => "mkdirat",
        "open" => "openat",
        "poll" => "ppoll",
        "readlink" => "readlinkat",
        "rename" => "renameat",
        "unlink" => "unlinkat",
        // The thread pointer is set by an instruction elsewhere.
        "arch_prctl" => "set_tid_address",
        other => panic!("{other} has no newer form here"),
    };
    for (profile, rule) in rules().filter(|(_, rule)| rule.only_x86_64) {
        let newer = newer(rule.call);
        let has = rules().any(|(of, other)| of == profile && other.call == newer);
        assert!(has, "{profile} has {} without {newer}", rule.call);
    }
}

/// No rule stands for every argument.
#[test]
fn call_without_condition_outweighs_its_conditions() {
    const BIT: Value = Value { name: "BIT", number: 4 };
    let with = Condition::HasBits { argument: 0, bits: BIT };
    let without = Condition::LacksBits(&[(1, BIT)]);
    for (conditions, expected) in [
        (&[with][..], 1),
        (&[with, without], 2),
        (&[Condition::Always], 0),
        (&[Condition::Always, with], 0),
        (&[with, Condition::Always], 0),
    ] {
        let mut rules = Rules::new();
        for condition in conditions {
            add(&mut rules, 7, *condition).unwrap();
        }
        let found: Vec<_> = rules.into_iter().map(|(at, all)| (at, all.len())).collect();
        assert_eq!(found, [(7, expected)], "{conditions:?}");
    }
}

#[test]
fn every_known_system_call_is_in_some_profile() {
    for name in call_number::names() {
        let named =
            profile::ALL.iter().any(|profile| profile.calls.iter().any(|rule| rule.call == name));
        assert!(named, "{name}");
    }
}
