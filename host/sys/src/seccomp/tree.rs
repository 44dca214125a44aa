//! The program that the kernel runs at each system call: a balanced tree of comparisons with the call's number.
//!
//! A list, compared one after the other, would be simpler. But the kernel asks a filter about every number when it is
//! loaded (`seccomp_cache_prepare`), and that is for each server process of mode `handoff`: with a list of a thousand instructions it
//! takes a millisecond, with a tree a tenth of it.

use std::collections::BTreeMap;

use libc::sock_filter;

/// What the kernel is to do, as it says so itself (`SECCOMP_RET_…`).
pub(super) type Answer = u32;

/// Conditions that must all hold.
pub(super) type Alternative = Vec<Condition>;

/// What a filter says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallRule {
    /// The same, whatever its arguments are.
    Always(Answer),
    /// Allowed where one of these holds; this happens else, or what does where nothing is listed.
    When(Vec<Alternative>, Option<Answer>),
}

/// A condition on an argument, 0 to 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub argument: u8,
    pub is: Is,
}

/// What is asked of an argument's low 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Equal(u32),
    Other(u32),
    /// Under the mask of the first, equal to the second.
    Masked(u32, u32),
    /// All 64 bits are zero.
    Null,
}

/// What a kernel takes: `BPF_MAXINSNS`.
const MOST: usize = 4_096;

// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The program of a filter: what happens to calls that no rule is for, and the rule of each call by its number. A call of another
/// architecture's table kills.
///
/// # Errors
/// There is no number for this architecture, or more than a kernel takes.
pub(super) fn program(default: Answer, rules: &BTreeMap<u32, CallRule>) -> Result<Vec<sock_filter>, String> {
    let mut all = vec![
        load(ARCHITECTURE),
        compare(libc::BPF_JEQ, architecture()?, 1, 0),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    all.extend(tree(default, &ranges(default, rules))?);
    if all.len() > MOST { Err(format!("{} instructions are too many", all.len())) } else { Ok(all) }
}

/// The architecture that the kernel says a call is of (`AUDIT_ARCH_…`).
fn architecture() -> Result<u32, String> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(0xc000_003e),
        "aarch64" => Ok(0xc000_00b7),
        "riscv64" => Ok(0xc000_00f3),
        other => Err(format!("no filters can be made for {other}")),
    }
}

/// All numbers from 0 on in ranges of one rule each, by where they begin.
fn ranges(default: Answer, rules: &BTreeMap<u32, CallRule>) -> Vec<(u32, CallRule)> {
    let mut ranges = vec![(0, CallRule::Always(default))];
    for (number, rule) in rules {
        if ranges.last().is_some_and(|(from, _)| from == number) {
            ranges.pop();
        }
        ranges.push((*number, rule.clone()));
        ranges.push((number + 1, CallRule::Always(default)));
    }
    ranges.dedup_by(|later, earlier| later.1 == earlier.1);
    ranges
}

/// What finds the range of the number that is loaded, and answers.
fn tree(default: Answer, ranges: &[(u32, CallRule)]) -> Result<Vec<sock_filter>, String> {
    let (from, below, above) = match ranges {
        [(_, CallRule::Always(what))] => return Ok(vec![answer(*what)]),
        [(_, CallRule::When(alternatives, otherwise))] => {
            return when(otherwise.unwrap_or(default), alternatives);
        }
        _ => match ranges.split_at(ranges.len() / 2) {
            (below, above @ [(from, _), ..]) => (*from, tree(default, below)?, tree(default, above)?),
            _ => return Err("no number has a rule".into()),
        },
    };
    let mut all = match u8::try_from(below.len()) {
        Ok(far) => vec![compare(libc::BPF_JGE, from, far, 0)],
        Err(_) => vec![compare(libc::BPF_JGE, from, 0, 1), jump(below.len())?],
    };
    all.extend(below);
    all.extend(above);
    Ok(all)
}

/// What answers by the arguments.
fn when(otherwise: Answer, alternatives: &[Alternative]) -> Result<Vec<sock_filter>, String> {
    let mut all = Vec::new();
    for alternative in alternatives {
        let tests: Vec<_> = alternative.iter().flat_map(test).collect();
        let end = tests.len();
        for (at, step) in tests.into_iter().enumerate() {
            // From behind this one to behind the answer.
            let next = u8::try_from(end - at).map_err(|_| "an alternative is too long")?;
            all.push(match step {
                Step::Load(offset) => load(offset),
                Step::Mask(mask) => instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask),
                Step::Equal(value) => compare(libc::BPF_JEQ, value, 0, next),
                Step::Other(value) => compare(libc::BPF_JEQ, value, next, 0),
            });
        }
        all.push(answer(libc::SECCOMP_RET_ALLOW));
    }
    all.push(answer(otherwise));
    Ok(all)
}

/// An instruction of a condition; the comparisons go on to the next alternative where they do not hold.
enum Step {
    Load(u32),
    Mask(u32),
    Equal(u32),
    Other(u32),
}

fn test(condition: &Condition) -> Vec<Step> {
    let argument = ARGUMENTS + 8 * u32::from(condition.argument);
    let (low, high) =
        if cfg!(target_endian = "big") { (argument + 4, argument) } else { (argument, argument + 4) };
    match condition.is {
        Is::Equal(value) => vec![Step::Load(low), Step::Equal(value)],
        Is::Other(value) => vec![Step::Load(low), Step::Other(value)],
        Is::Masked(mask, value) => vec![Step::Load(low), Step::Mask(mask), Step::Equal(value)],
        Is::Null => vec![Step::Load(low), Step::Equal(0), Step::Load(high), Step::Equal(0)],
    }
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn answer(what: Answer) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, what)
}

fn jump(over: usize) -> Result<sock_filter, String> {
    let over = u32::try_from(over).map_err(|_| "too far to jump")?;
    Ok(instruction(libc::BPF_JMP | libc::BPF_JA, over))
}

/// Compares what is loaded, and jumps over so many if it holds, or if it does not.
fn compare(how: u32, with: u32, holds: u8, not: u8) -> sock_filter {
    sock_filter { jt: holds, jf: not, ..instruction(libc::BPF_JMP | how | libc::BPF_K, with) }
}

fn instruction(code: u32, k: u32) -> sock_filter {
    // The codes are 16 bits in the kernel's struct, and libc's constants wider.
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
