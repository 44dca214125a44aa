//! System-call filters: commented data in `conf/seccomp/`, compiled into each program, made BPF at start. Each program has its own
//! text; here is only what all have in common.
//!
//! ```toml
//! default = "kill"             # what happens to a call that is not listed: "kill", or an errno's name
//!
//! [allow]
//! read = "why it is needed"
//! mmap = { why = "memory, never executable", when = ["arg2 & 4 == 0"] }
//!
//! [refuse]                     # listed here, a call fails with that errno instead of the default
//! clone3 = { errno = "ENOSYS", why = "its flags are out of sight; libc falls back to clone" }
//! ```
//!
//! `[seldom]` is as `[allow]`, for calls that an ordinary day does not make: what is in `[allow]`, a test sees made. With `runtime = true`
//! what `runtime.toml` allows is allowed, too.
//!
//! `[group.NAME]` has an `[group.NAME.allow]` of its own, which counts where the group is asked for, and says `why` there is such a
//! group and what it `leaks`. A call may be in `allow` and in groups: any of the alternatives is enough.
//!
//! `when` lists alternatives; in each, conditions joined by `and` must all hold. A condition compares the low
//! 32 bits of an argument: `argN == V`, `argN != V`, `argN & MASK == V`; numbers are decimal or `0x…`. `argN is null` compares all
//! of it, for a pointer.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use rustix::io::Errno;
use seccompiler::{BpfProgram, TargetArch, sock_filter};
use serde::Deserialize;

use crate::{Error, Result};

/// What the runtime of each of levee's own processes does.
const RUNTIME: &str = include_str!("../../../conf/seccomp/runtime.toml");

/// A compiled filter.
#[derive(Debug, Clone)]
pub struct Filter {
    program: BpfProgram,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    default: String,
    #[serde(default)]
    runtime: bool,
    allow: BTreeMap<String, Allow>,
    #[serde(default)]
    seldom: BTreeMap<String, Allow>,
    #[serde(default)]
    refuse: BTreeMap<String, Refuse>,
    #[serde(default)]
    group: BTreeMap<String, Group>,
}

/// `runtime.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runtime {
    allow: BTreeMap<String, Allow>,
    seldom: BTreeMap<String, Allow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    why: String,
    leaks: String,
    allow: BTreeMap<String, Allow>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Allow {
    Always(String),
    When(When),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    why: String,
    when: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refuse {
    errno: String,
    why: String,
}

impl Filter {
    /// Compiles the text of a filter for the machine's architecture.
    ///
    /// # Errors
    /// Says what is wrong where: not TOML, an unknown key, call, errno or condition, or an empty reason.
    pub fn compile(text: &str) -> Result<Self> {
        Self::compile_with(text, &[])
    }

    /// Compiles the text of a filter with these groups.
    ///
    /// # Errors
    /// As for [`Filter::compile`], and a group that is not there.
    pub fn compile_with(text: &str, groups: &[&str]) -> Result<Self> {
        Self::compiled(text, groups).map_err(|why| Error::invalid("compile a system-call filter", why))
    }

    fn compiled(text: &str, groups: &[&str]) -> std::result::Result<Self, String> {
        let source: Source = toml::from_str(text).map_err(|e| e.to_string())?;
        let runtime: Runtime = toml::from_str(RUNTIME).map_err(|e| e.to_string())?;
        let rules = source.rules(source.runtime.then_some(&runtime), groups)?;
        let default = match source.default.as_str() {
            "kill" => "\"kill_process\"".to_owned(),
            name => format!("{{\"errno\":{}}}", errno(name).ok_or_else(|| format!("no errno {name}"))?),
        };
        // Refusals go in front: they decide before the list does.
        let mut program = source.refusals()?;
        program.extend(bpf(&default, "\"allow\"", &rules)?);
        Ok(Self { program })
    }

    /// The names of the groups of a filter's text.
    ///
    /// # Errors
    /// The text is not a filter's.
    pub fn groups(text: &str) -> Result<Vec<String>> {
        let source: Source = toml::from_str(text)
            .map_err(|e| Error::invalid("read the groups of a system-call filter", e.to_string()))?;
        Ok(source.group.into_keys().collect())
    }

    /// Puts every thread of the process under the filter, for good and for whatever it executes.
    /// Wants `no_new_privs` set or `CAP_SYS_ADMIN`.
    pub fn apply(&self) -> Result<()> {
        seccompiler::apply_filter_all_threads(&self.program)
            .map_err(|e| Error::invalid("install the system-call filter", e.to_string()))
    }
}

impl Source {
    /// What is allowed, as the compiler's JSON.
    fn rules(&self, runtime: Option<&Runtime>, groups: &[&str]) -> std::result::Result<Vec<String>, String> {
        if let Some((name, _)) = self.group.iter().find(|(_, group)| group.is_unsaid()) {
            return Err(format!("the group {name} does not say why it is there and what it leaks"));
        }
        let mut allowed: Vec<_> = self.allow.iter().chain(&self.seldom).collect();
        allowed.extend(runtime.iter().flat_map(|runtime| runtime.allow.iter().chain(&runtime.seldom)));
        for name in groups {
            let group = self.group.get(*name).ok_or_else(|| format!("no group {name}"))?;
            allowed.extend(&group.allow);
        }
        // Where a call is always allowed, conditions elsewhere would be beside the point.
        let is_always = |allow: &Allow| matches!(allow, Allow::Always(_));
        let always: HashSet<&String> =
            allowed.iter().filter(|(_, allow)| is_always(allow)).map(|(call, _)| *call).collect();
        allowed.retain(|(call, allow)| is_always(allow) || !always.contains(call));
        let rules =
            allowed.into_iter().map(|(call, allow)| allow.rules(call).map_err(|e| format!("{call}{e}")));
        Ok(rules.collect::<std::result::Result<Vec<_>, _>>()?.concat())
    }

    /// What decides before the list. The number of each call is taken from the compiler's own table, by compiling a filter for that
    /// call alone.
    fn refusals(&self) -> std::result::Result<BpfProgram, String> {
        let mut program = Vec::new();
        let mut seen = HashSet::new();
        for (call, refuse) in &self.refuse {
            if refuse.why.trim().is_empty() {
                return Err(format!("{call} is refused without a reason"));
            }
            let groups = self.group.values().any(|group| group.allow.contains_key(call));
            if groups || self.allow.contains_key(call) || self.seldom.contains_key(call) {
                return Err(format!("{call} is both allowed and refused"));
            }
            let code = errno(&refuse.errno).ok_or_else(|| format!("no errno {}", refuse.errno))?;
            let alone = bpf("\"allow\"", "\"kill_process\"", &[format!("{{\"syscall\":{call:?}}}")])?;
            let compared = alone.iter().filter(|i| i.code == JUMP_IF_EQUAL).nth(1);
            let number = compared.map(|i| i.k).ok_or_else(|| format!("no number for {call}"))?;
            if seen.insert(number) {
                if program.is_empty() {
                    program.push(sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: OFFSET_OF_NUMBER });
                }
                program.push(sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: number });
                program.push(sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | code });
            }
        }
        Ok(program)
    }
}

/// The compiler's work, for the machine's architecture.
fn bpf(mismatch: &str, matched: &str, rules: &[String]) -> std::result::Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| e.to_string())?;
    let json = format!(
        "{{\"filter\":{{\"mismatch_action\":{mismatch},\"match_action\":{matched},\"filter\":[{}]}}}}",
        rules.join(",")
    );
    seccompiler::compile_from_json(json.as_bytes(), arch)
        .map_err(|e| e.to_string())?
        .remove("filter")
        .ok_or_else(|| "no program came out".into())
}

impl Allow {
    /// One rule for each alternative. What is wrong goes on after the call's name.
    fn rules(&self, call: &str) -> std::result::Result<Vec<String>, String> {
        let (Self::Always(why) | Self::When(When { why, .. })) = self;
        if why.trim().is_empty() {
            return Err(" is allowed without a reason".into());
        }
        let Self::When(When { when, .. }) = self else {
            return Ok(vec![format!("{{\"syscall\":{call:?}}}")]);
        };
        if when.is_empty() {
            return Err(": `when` is empty".into());
        }
        let rule = |alternative: &String| {
            let args = conditions(alternative).map_err(|why| format!(": {why}"))?;
            Ok(format!("{{\"syscall\":{call:?},\"args\":[{args}]}}"))
        };
        when.iter().map(rule).collect()
    }
}

impl Group {
    fn is_unsaid(&self) -> bool {
        self.why.trim().is_empty() || self.leaks.trim().is_empty()
    }
}

impl Filter {
    /// Puts the calling thread under the filter, by one system call that takes no memory: for a child between its clone
    /// and its exec. By prctl(2), which filters let through that refuse seccomp(2). Wants `no_new_privs` set.
    pub(crate) fn load(&self) -> std::result::Result<(), Errno> {
        // Compiled filters are a few thousand instructions at most (BPF_MAXINSNS is 4,096).
        let len = u16::try_from(self.program.len()).map_err(|_| Errno::INVAL)?;
        let program = libc::sock_fprog { len, filter: self.program.as_ptr().cast_mut().cast() };
        // SAFETY: `program` names `len` instructions that live as long as the call, which copies them and does not write
        // to them; seccompiler's `sock_filter` has the layout of the kernel's (both are repr(C)).
        let done =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
        if done == 0 {
            return Ok(());
        }
        // SAFETY: errno's address is valid for the calling thread, also in a cloned child.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    }
}

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// `offsetof(struct seccomp_data, nr)`.
const OFFSET_OF_NUMBER: u32 = 0;

/// One alternative of `when`, as the compiler's JSON.
fn conditions(text: &str) -> std::result::Result<String, String> {
    let mut json = String::new();
    for condition in text.split(" and ") {
        let words: Vec<&str> = condition.split_whitespace().collect();
        let (argument, op, value, length) = match words.as_slice() {
            [argument, "==", value] => (argument, "\"eq\"".to_owned(), *value, "dword"),
            [argument, "!=", value] => (argument, "\"ne\"".to_owned(), *value, "dword"),
            [argument, "&", mask, "==", value] => {
                (argument, format!("{{\"masked_eq\":{}}}", number(mask)?), *value, "dword")
            }
            [argument, "is", "null"] => (argument, "\"eq\"".to_owned(), "0", "qword"),
            _ => return Err(format!("not a condition: {condition:?}")),
        };
        let index = argument
            .strip_prefix("arg")
            .and_then(|n| n.parse::<u8>().ok())
            .filter(|n| *n < 6)
            .ok_or_else(|| format!("not an argument: {argument:?}"))?;
        let comma = if json.is_empty() { "" } else { "," };
        let value = number(value)?;
        write!(json, "{comma}{{\"index\":{index},\"type\":\"{length}\",\"op\":{op},\"val\":{value}}}")
            .map_err(|e| e.to_string())?;
    }
    Ok(json)
}

fn number(text: &str) -> std::result::Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|e| format!("{text:?}: {e}"))
}

fn errno(name: &str) -> Option<u32> {
    let code = match name {
        "EPERM" => libc::EPERM,
        "EACCES" => libc::EACCES,
        "ENOENT" => libc::ENOENT,
        "ENOSYS" => libc::ENOSYS,
        "EINVAL" => libc::EINVAL,
        "EAFNOSUPPORT" => libc::EAFNOSUPPORT,
        _ => return None,
    };
    u32::try_from(code).ok()
}
