//! Every shipped filter lets a process run out of memory and give it back: what the C library's allocator calls then kills nobody.
//!
//! A process is under each filter in turn, with a limit on its memory set before. It takes blocks of many sizes until there are no more,
//! and frees them, from its first thread and, where its filter is for threads, from others. The allocator has heaps of another kind for those:
//! to give much of one back it asks a file of /proc. It knows a process's first thread, so nothing here runs in a test's own thread.

use levee_sys::pidfd::{self, Child, Exit};
use levee_sys::sandbox::Sandbox;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Limits, in MiB.
const LIMITS: [(Limit, u64); 2] = [(Limit::Addresses, 24), (Limit::Data, 24)];

const RUNTIME: &str = include_str!("../../../conf/seccomp/runtime.toml");

/// The daemons' filters, and those of a service and of a virtual machine.
fn filters() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/seccomp");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<(String, String)> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
        })
        // What is common to others is none by itself.
        .filter(|(name, _)| name != "runtime")
        .collect();
    all.sort();
    assert!(all.len() > 20, "{} filters", all.len());
    all
}

/// Whether those who are under this filter have threads, and not processes alone.
fn has_threads(text: &str) -> bool {
    let text: toml::Table = toml::from_str(text).unwrap();
    text["allow"].get("clone").is_some_and(|why| why.to_string().contains("thread"))
}

/// Runs `child` in a fork of this process, which ends with the status that it returns.
fn fork(child: impl FnOnce() -> i32) -> Exit {
    // SAFETY: the child never returns into the caller's frames, and glibc's fork keeps its own locks consistent in the child.
    let child = match unsafe { libc::fork() } {
        0 => {
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
            // SAFETY: ends the child without running the parent's exit handlers a second time.
            unsafe { libc::_exit(status) }
        }
        pid => {
            let pid = rustix::process::Pid::from_raw(pid).expect("a child");
            Child { pid, pidfd: pidfd::open(pid).unwrap() }
        }
    };
    child.wait(Duration::from_secs(60)).unwrap().expect("the child ends")
}

/// What a limit is of.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// Addresses: also those that are only kept free.
    Addresses,
    /// Pages that can be written.
    Data,
}

/// Limits what this process may have beyond what it has, in MiB.
fn limit(what: Limit, more: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let (row, resource) = match what {
        Limit::Addresses => ("VmSize:", Resource::As),
        Limit::Data => ("VmData:", Resource::Data),
    };
    let line = status.lines().find_map(|line| line.strip_prefix(row)).unwrap();
    let now: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    let most = Some((now << 10) + (more << 20));
    setrlimit(resource, Rlimit { current: most, maximum: most }).unwrap();
}

/// A block, in which the address of the one before is.
struct Blocks(*mut libc::c_void);

/// Takes blocks of this size until there are no more. Nothing but these is allocated meanwhile. How many there were.
fn take(blocks: &mut Blocks, size: usize) -> usize {
    for number in 0.. {
        // SAFETY: asks for a block, which is used for one address below, for which it has room.
        let block = unsafe { if number % 3 == 0 { libc::calloc(1, size) } else { libc::malloc(size) } };
        if block.is_null() {
            return number;
        }
        // SAFETY: the block is this function's own, aligned for any type and as long as an address.
        unsafe { block.cast::<*mut libc::c_void>().write(blocks.0) };
        blocks.0 = block;
    }
    unreachable!("there is always one more")
}

/// Gives all of them back, the last first.
fn give_back(blocks: &mut Blocks) {
    while !blocks.0.is_null() {
        // SAFETY: each was taken by `take`, has the address of the one before in it, and is given back once.
        unsafe {
            let before = blocks.0.cast::<*mut libc::c_void>().read();
            libc::free(blocks.0);
            blocks.0 = before;
        }
    }
}

/// Has one block grow until there is no more.
fn grow() -> usize {
    let (mut size, mut block) = (64 << 10, std::ptr::null_mut());
    loop {
        // SAFETY: the block is none, or this function's own, which is not used again where it was moved.
        let larger = unsafe { libc::realloc(block, size) };
        if larger.is_null() {
            // SAFETY: realloc(3) has left it as it was.
            unsafe { libc::free(block) };
            return usize::from(!block.is_null());
        }
        (block, size) = (larger, size + size / 4);
    }
}

/// Runs out of memory in many ways, and gives it back each time. How many blocks there were.
fn run_out() -> usize {
    // In heaps, small and large; beyond them; and what has a mapping of its own.
    const SIZES: [usize; 6] = [1_000, 20_000, 100_000, 131_000, 1 << 20, 8 << 20];
    let mut all = grow();
    for size in SIZES {
        let (mut blocks, mut rest) = (Blocks(std::ptr::null_mut()), Blocks(std::ptr::null_mut()));
        all += take(&mut blocks, size);
        // Nothing is left but holes, for smaller ones.
        for size in [100_000, 1_000, 100] {
            all += take(&mut rest, size);
        }
        give_back(&mut blocks);
        all += take(&mut blocks, 100_000);
        give_back(&mut rest);
        give_back(&mut blocks);
    }
    all
}

/// How a process under this filter ends that runs out of memory, by itself or with two threads besides.
fn ends(text: &str, what: Limit, more: u64, threads: usize) -> Exit {
    // Only then is the child's thread the allocator's first.
    assert!(rustix::process::getpid() == rustix::thread::gettid(), "this is no process's first thread");
    fork(|| {
        limit(what, more);
        if let Err(why) = Sandbox::new(text).enter() {
            eprintln!("{why}");
            return 99;
        }
        // One after the other: what threads themselves need is there meanwhile.
        let (turn, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let in_turn = &|own: usize| {
            while turn.load(Ordering::SeqCst) != own {
                std::thread::yield_now();
            }
            done.fetch_add(usize::from(run_out() > 0), Ordering::SeqCst);
            turn.fetch_add(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            for number in 1..=threads {
                let made = std::thread::Builder::new().stack_size(256 << 10);
                made.spawn_scoped(scope, move || in_turn(number)).expect("a thread");
            }
            in_turn(0);
        });
        i32::from(done.load(Ordering::SeqCst) != threads + 1)
    })
}

fn under_every_filter_a_process_runs_out_of_memory_and_goes_on() {
    let (mut problems, mut threaded) = (Vec::new(), 0);
    for (name, text) in filters() {
        let threads: &[usize] = if has_threads(&text) { &[0, 2] } else { &[0] };
        threaded += threads.len() - 1;
        for (what, more) in LIMITS {
            for threads in threads {
                let exit = ends(&text, what, more, *threads);
                if exit != Exit::Status(0) {
                    problems.push(format!("{name}, {more} MiB of {what:?}, {threads} threads: {exit:?}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(threaded >= 4, "fsd, sessiond, services and virtual machines have threads");
}

/// A filter without one call, which its text allows, or refuses with a word.
fn without(text: &str, call: &str) -> String {
    let mut text: toml::Table = toml::from_str(text).unwrap();
    let common: toml::Table = toml::from_str(RUNTIME).unwrap();
    assert!(text.remove("runtime").is_some());
    for part in ["allow", "seldom"] {
        let own = text.entry(part).or_insert_with(|| toml::Table::new().into()).as_table_mut().unwrap();
        for (call, why) in common[part].as_table().unwrap() {
            own.entry(call).or_insert_with(|| why.clone());
        }
    }
    let parts = ["allow", "seldom", "refuse"];
    let removed = parts.map(|part| text.get_mut(part).and_then(|part| part.as_table_mut()?.remove(call)));
    assert!(removed.iter().any(Option::is_some), "{call} is not there");
    toml::to_string(&text).unwrap()
}

/// What is tried above makes each of these calls: without it the process is killed.
fn without_a_call_that_the_allocator_makes_it_is_killed() {
    let all: std::collections::BTreeMap<String, String> = filters().into_iter().collect();
    for (name, calls, threads) in [
        ("keyer", &["brk", "mmap", "munmap", "mremap"][..], 0),
        ("fsd", &["openat", "mprotect"], 2),
        ("sessiond", &["openat", "mprotect"], 2),
    ] {
        for call in calls {
            let exit = ends(&without(&all[name], call), Limit::Data, 24, threads);
            assert_eq!(exit, Exit::Signal(libc::SIGSYS), "{name} without {call}");
        }
    }
}

/// By itself: a test of the harness has a thread, and what is tried here is a process's first one.
fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let all: [(&str, fn()); 2] = [
        (
            "under_every_filter_a_process_runs_out_of_memory_and_goes_on",
            under_every_filter_a_process_runs_out_of_memory_and_goes_on,
        ),
        (
            "without_a_call_that_the_allocator_makes_it_is_killed",
            without_a_call_that_the_allocator_makes_it_is_killed,
        ),
    ];
    for (name, test) in all {
        test();
        println!("test {name} ... ok");
    }
}
