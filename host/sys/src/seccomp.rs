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

mod tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use libc::sock_filter;
use rustix::io::Errno;
use serde::Deserialize;
use syscalls::Sysno;

use self::tree::{Alternative, Answer, CallRule, Condition, Is};
use crate::error::Step as _;
use crate::{Error, Result};

/// What the runtime of each of levee's own processes does.
const RUNTIME: &str = include_str!("../../../conf/seccomp/runtime.toml");

/// A compiled filter.
#[derive(Debug, Clone)]
pub struct Filter {
    program: Vec<sock_filter>,
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
        let default = match source.default.as_str() {
            "kill" => libc::SECCOMP_RET_KILL_PROCESS,
            name => refusal(name)?,
        };
        let rules = source.rules(source.runtime.then_some(&runtime), groups)?;
        Ok(Self { program: tree::program(default, &rules)? })
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

    /// Puts every thread of the process under the filter, for good and for whatever it executes, and sets `no_new_privs`.
    ///
    /// # Errors
    /// The kernel's, or a thread has another filter; then none is under this one.
    pub fn apply(&self) -> Result<()> {
        let what = || "install the system-call filter".to_owned();
        rustix::thread::set_no_new_privs(true).step(what)?;
        let (mode, together) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        let program = self.as_the_kernel_takes_it().step(what)?;
        // SAFETY: `program` names instructions that live as long as the call, which copies them.
        match unsafe { libc::syscall(libc::SYS_seccomp, mode, together, &raw const program) } {
            0 => Ok(()),
            -1 => Err(std::io::Error::last_os_error()).step(what),
            thread => Err(Error::invalid(what(), format!("thread {thread} has another filter"))),
        }
    }

    /// Borrowed from the filter, which must live as long.
    fn as_the_kernel_takes_it(&self) -> std::result::Result<libc::sock_fprog, Errno> {
        let len = u16::try_from(self.program.len()).map_err(|_| Errno::INVAL)?;
        Ok(libc::sock_fprog { len, filter: self.program.as_ptr().cast_mut() })
    }
}

impl Source {
    /// What becomes of each call that is named, by its number.
    fn rules(
        &self,
        runtime: Option<&Runtime>,
        groups: &[&str],
    ) -> std::result::Result<BTreeMap<u32, CallRule>, String> {
        if let Some((name, _)) = self.group.iter().find(|(_, group)| group.is_unsaid()) {
            return Err(format!("the group {name} does not say why it is there and what it leaks"));
        }
        let mut allowed: Vec<_> = self.allow.iter().chain(&self.seldom).collect();
        allowed.extend(runtime.iter().flat_map(|runtime| runtime.allow.iter().chain(&runtime.seldom)));
        for name in groups {
            let group = self.group.get(*name).ok_or_else(|| format!("no group {name}"))?;
            allowed.extend(&group.allow);
        }
        let mut rules = BTreeMap::new();
        for (call, allow) in allowed {
            let more = allow.rule().map_err(|e| format!("{call}{e}"))?;
            match (rules.get_mut(&number_of(call)?), more) {
                // Where a call is always allowed, conditions elsewhere are beside the point.
                (Some(CallRule::Always(_)), _) => {}
                (Some(CallRule::When(known, _)), CallRule::When(more, _)) => known.extend(more),
                (_, more) => drop(rules.insert(number_of(call)?, more)),
            }
        }
        let others: Vec<u32> = self
            .group
            .values()
            .flat_map(|group| group.allow.keys())
            .flat_map(|call| number_of(call))
            .collect();
        for (call, refuse) in &self.refuse {
            if refuse.why.trim().is_empty() {
                return Err(format!("{call} is refused without a reason"));
            }
            let number = number_of(call)?;
            let refused = refusal(&refuse.errno)?;
            match rules.get_mut(&number) {
                // Where none of its conditions holds.
                Some(CallRule::When(_, otherwise)) if !others.contains(&number) => *otherwise = Some(refused),
                None if !others.contains(&number) => drop(rules.insert(number, CallRule::Always(refused))),
                _ => return Err(format!("{call} is both allowed and refused")),
            }
        }
        Ok(rules)
    }
}

/// The call's number in the machine's own table.
fn number_of(call: &str) -> std::result::Result<u32, String> {
    let number = call.parse::<Sysno>().map_err(|()| format!("there is no system call {call}"))?;
    u32::try_from(number.id()).map_err(|_| format!("no number for {call}"))
}

impl Allow {
    /// What is wrong goes on after the call's name.
    fn rule(&self) -> std::result::Result<CallRule, String> {
        let (Self::Always(why) | Self::When(When { why, .. })) = self;
        if why.trim().is_empty() {
            return Err(" is allowed without a reason".into());
        }
        match self {
            Self::Always(_) => Ok(CallRule::Always(libc::SECCOMP_RET_ALLOW)),
            Self::When(When { when, .. }) if when.is_empty() => Err(": `when` is empty".into()),
            Self::When(When { when, .. }) => {
                let alternatives = when.iter().map(|text| alternative(text));
                let alternatives = alternatives.collect::<std::result::Result<_, _>>();
                alternatives.map(|all| CallRule::When(all, None)).map_err(|why| format!(": {why}"))
            }
        }
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
        let program = self.as_the_kernel_takes_it()?;
        // SAFETY: `program` names instructions that live as long as the call, which copies them and does not write to them.
        let done =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
        if done == 0 {
            return Ok(());
        }
        // SAFETY: errno's address is valid for the calling thread, also in a cloned child.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    }
}

/// One alternative of `when`.
fn alternative(text: &str) -> std::result::Result<Alternative, String> {
    text.split(" and ").map(condition).collect()
}

fn condition(text: &str) -> std::result::Result<Condition, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (argument, is) = match words.as_slice() {
        [argument, "==", value] => (argument, Is::Equal(number(value)?)),
        [argument, "!=", value] => (argument, Is::Other(number(value)?)),
        [argument, "&", mask, "==", value] => {
            let (mask, value) = (number(mask)?, number(value)?);
            if value & !mask != 0 {
                return Err(format!("it can never hold: {text:?}"));
            }
            (argument, Is::Masked(mask, value))
        }
        [argument, "is", "null"] => (argument, Is::Null),
        _ => return Err(format!("not a condition: {text:?}")),
    };
    let index = argument.strip_prefix("arg").and_then(|n| n.parse::<u8>().ok()).filter(|n| *n < 6);
    Ok(Condition { argument: index.ok_or_else(|| format!("not an argument: {argument:?}"))?, is })
}

fn number(text: &str) -> std::result::Result<u32, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|e| format!("{text:?}: {e}"))
}

/// What the kernel answers with this errno.
fn refusal(name: &str) -> std::result::Result<Answer, String> {
    let code = match name {
        "EPERM" => libc::EPERM,
        "EACCES" => libc::EACCES,
        "ENOENT" => libc::ENOENT,
        "ENOSYS" => libc::ENOSYS,
        "EINVAL" => libc::EINVAL,
        "EAFNOSUPPORT" => libc::EAFNOSUPPORT,
        _ => return Err(format!("no errno {name}")),
    };
    Ok(libc::SECCOMP_RET_ERRNO | code.unsigned_abs())
}
