//! Each filter as it is shipped, beside what another compiler makes of the same text: a list, by seccompiler.

use std::collections::{BTreeMap, BTreeSet};

use libc::sock_filter;
use seccompiler::TargetArch;

use super::{Allow, Filter, RUNTIME, Runtime, Source, When};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// What the kernel gives a filter.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.architecture,
            16..64 => {
                let argument = self.arguments[(offset as usize - 16) / 8].to_ne_bytes();
                let half = offset as usize % 8;
                u32::from_ne_bytes(argument[half..half + 4].try_into().unwrap())
            }
            other => panic!("nothing of ours reads {other}"),
        }
    }
}

/// The instructions that filters have, as the kernel's documentation says what they do.
fn run(program: &[(u16, u8, u8, u32)], call: &Call) -> u32 {
    let (mut at, mut loaded) = (0, 0);
    loop {
        let (code, yes, no, k) = program[at];
        at += 1;
        let class = u32::from(code) & 7;
        let op = u32::from(code) & 0xf0;
        match class {
            libc::BPF_LD => loaded = call.word(k),
            libc::BPF_RET => return k,
            libc::BPF_ALU if op == libc::BPF_AND => loaded &= k,
            libc::BPF_JMP if op == libc::BPF_JA => at += k as usize,
            libc::BPF_JMP => {
                let holds = match op {
                    libc::BPF_JEQ => loaded == k,
                    libc::BPF_JGE => loaded >= k,
                    libc::BPF_JGT => loaded > k,
                    libc::BPF_JSET => loaded & k != 0,
                    other => panic!("jump {other:#x}"),
                };
                at += usize::from(if holds { yes } else { no });
            }
            other => panic!("class {other}"),
        }
    }
}

fn plain(program: &[sock_filter]) -> Vec<(u16, u8, u8, u32)> {
    program.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect()
}

/// What seccompiler makes of it, and the values that conditions name, by argument, of each call.
struct Reference {
    program: Vec<(u16, u8, u8, u32)>,
    named: BTreeMap<String, BTreeSet<(usize, u32)>>,
}

fn compiled(json: &str) -> Vec<(u16, u8, u8, u32)> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let program = seccompiler::compile_from_json(json.as_bytes(), arch).unwrap().remove("one").unwrap();
    program.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect()
}

fn number(text: &str) -> u32 {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    }
}

fn reference(source: &Source, groups: &[&str]) -> Reference {
    let runtime: Runtime = toml::from_str(RUNTIME).unwrap();
    let mut allowed: Vec<(&String, &Allow)> = source.allow.iter().chain(&source.seldom).collect();
    if source.runtime {
        allowed.extend(runtime.allow.iter().chain(&runtime.seldom));
    }
    groups.iter().for_each(|group| allowed.extend(&source.group[*group].allow));
    let always: BTreeSet<&String> = allowed
        .iter()
        .filter(|(_, allow)| matches!(allow, Allow::Always(_)))
        .map(|(call, _)| *call)
        .collect();
    let mut rules: Vec<String> = always.iter().map(|call| format!("{{\"syscall\":{call:?}}}")).collect();
    let mut named = BTreeMap::<String, BTreeSet<_>>::new();
    for (call, allow) in allowed {
        let Allow::When(When { when, .. }) = allow else { continue };
        if always.contains(call) {
            continue;
        }
        for alternative in when {
            let mut args = Vec::new();
            for condition in alternative.split(" and ") {
                let words: Vec<&str> = condition.split_whitespace().collect();
                let index: usize = words[0].strip_prefix("arg").unwrap().parse().unwrap();
                let (op, value, of) = match words.as_slice() {
                    [_, "==", value] => ("\"eq\"".to_owned(), number(value), "dword"),
                    [_, "!=", value] => ("\"ne\"".to_owned(), number(value), "dword"),
                    [_, "&", mask, "==", value] => {
                        named.entry(call.clone()).or_default().insert((index, number(mask)));
                        (format!("{{\"masked_eq\":{}}}", number(mask)), number(value), "dword")
                    }
                    _ => ("\"eq\"".to_owned(), 0, "qword"),
                };
                named.entry(call.clone()).or_default().insert((index, value));
                args.push(format!("{{\"index\":{index},\"type\":\"{of}\",\"op\":{op},\"val\":{value}}}"));
            }
            rules.push(format!("{{\"syscall\":{call:?},\"args\":[{}]}}", args.join(",")));
        }
    }
    let default = match source.default.as_str() {
        "kill" => "\"kill_process\"".to_owned(),
        "EPERM" => format!("{{\"errno\":{}}}", libc::EPERM),
        other => panic!("{other}"),
    };
    let json = |mismatch: &str, rules: &[String]| {
        format!(
            "{{\"one\":{{\"mismatch_action\":{mismatch},\"match_action\":\"allow\",\"filter\":[{}]}}}}",
            rules.join(",")
        )
    };
    Reference { program: compiled(&json(&default, &rules)), named }
}

/// Values of an argument at which a comparison could be wrong.
fn near(values: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut near = BTreeSet::from([0, 1, 1 << 32, u64::MAX]);
    for value in values.map(u64::from) {
        near.extend([
            value,
            value.wrapping_add(1),
            value.wrapping_sub(1),
            value | 1 << 32,
            !value,
            value << 1,
        ]);
        near.extend((0..32).map(|bit| value ^ 1 << bit));
    }
    near.into_iter().collect()
}

/// A generator of numbers, always the same ones.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

fn agree(name: &str, text: &str, groups: &[&str]) {
    let source: Source = toml::from_str(text).unwrap();
    let ours = plain(&Filter::compile_with(text, groups).unwrap().program);
    let Reference { program: theirs, named } = reference(&source, groups);
    let refused: BTreeMap<u32, u32> = source
        .refuse
        .iter()
        .map(|(call, refuse)| (super::number_of(call).unwrap(), super::refusal(&refuse.errno).unwrap()))
        .collect();
    // As seccompiler asks first.
    let architecture = theirs.iter().find(|i| u32::from(i.0) & 7 == libc::BPF_JMP).unwrap().3;
    let same = |call: &Call| {
        let theirs = run(&theirs, call);
        let said = refused.get(&call.number).filter(|_| call.architecture == architecture && theirs != ALLOW);
        let theirs = said.copied().unwrap_or(theirs);
        let ours = run(&ours, call);
        assert_eq!(ours, theirs, "{name} with {groups:?}: {call:?}");
        ours
    };
    let mut answers = BTreeMap::new();
    for number in (0..600).chain((0..600).map(|n| n | 0x4000_0000)).chain([u32::MAX, u32::MAX - 1, 1 << 31]) {
        for arguments in [[0; 6], [u64::MAX; 6], [0x0123_4567_89ab_cdef; 6]] {
            *answers.entry(same(&Call { number, architecture, arguments })).or_insert(0) += 1;
        }
        let other = Call { number, architecture: architecture ^ 1, arguments: [0; 6] };
        assert_eq!((run(&ours, &other), run(&theirs, &other)), (KILL, KILL));
    }
    let mut state = 1;
    for (call, values) in &named {
        let number = super::number_of(call).unwrap();
        let candidates: Vec<Vec<u64>> = (0..6)
            .map(|index| near(values.iter().filter(|(of, _)| *of == index).map(|(_, value)| *value)))
            .collect();
        // What conditions name, all of it exactly, is where `and` and the next alternative begin to count.
        let exact: Vec<Vec<u64>> = (0..6)
            .map(|index| {
                let exact = values.iter().filter(|(of, _)| *of == index).map(|(_, value)| u64::from(*value));
                exact.chain([0]).collect()
            })
            .collect();
        for _ in 0..2_000 {
            let mut arguments = [0; 6];
            for ((argument, near), exact) in arguments.iter_mut().zip(&candidates).zip(&exact) {
                let from = if next(&mut state).is_multiple_of(4) { near } else { exact };
                *argument = from[next(&mut state) % from.len()];
            }
            *answers.entry(same(&Call { number, architecture, arguments })).or_insert(0) += 1;
        }
    }
    assert!(answers[&ALLOW] > 20 && answers.len() > 1, "{name}: {answers:?}");
}

#[test]
fn every_filter_answers_every_call_as_another_compiler_has_it() {
    let mut filters = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../conf/seccomp")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name == "runtime" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        agree(name, &text, &[]);
        let groups = Filter::groups(&text).unwrap();
        let all: Vec<&str> = groups.iter().map(String::as_str).collect();
        all.iter().for_each(|group| agree(name, &text, &[*group]));
        agree(name, &text, &all);
        filters += 1;
    }
    assert!(filters > 15, "{filters}");
}

#[test]
fn no_call_takes_many_comparisons_to_find() {
    let text = include_str!("../../../../conf/seccomp/service.toml");
    let program = plain(&Filter::compile(text).unwrap().program);
    assert!(program.len() < 1_000, "{} instructions", program.len());
    // The longest way through the comparisons with the number alone.
    let mut longest = vec![0; program.len()];
    for (at, (code, yes, no, k)) in program.iter().enumerate().rev() {
        let after = |over: usize| longest.get(at + 1 + over).copied().unwrap_or(0);
        longest[at] = match u32::from(*code) & 7 {
            libc::BPF_JMP if u32::from(*code) & 0xf0 == libc::BPF_JGE => {
                1 + after(usize::from(*yes)).max(after(usize::from(*no)))
            }
            libc::BPF_JMP if u32::from(*code) & 0xf0 == libc::BPF_JA => after(*k as usize),
            libc::BPF_RET => 0,
            libc::BPF_JMP => after(usize::from(*yes)).max(after(usize::from(*no))),
            _ => after(0),
        };
    }
    assert!(longest[0] <= 9, "{} comparisons", longest[0]);
}
