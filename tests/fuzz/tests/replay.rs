//! Every fuzz target with an ordinary compiler: over its saved corpus, and then for `LEVEE_FUZZ_SECONDS` (3) over random changes of
//! it. The changes are blind: nothing here measures coverage as libFuzzer does in `make fuzz`.
//!
//! `LEVEE_CORPUS=DIR` replays another directory's files, each by every target; `LEVEE_FUZZ_SEED=n` repeats a run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

type Target = fn(&[u8]);

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.is_file())
        .map(|p| (p.clone(), std::fs::read(&p).expect("a readable file")))
        .collect();
    all.sort();
    all
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let all = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name));
    assert!(!all.is_empty(), "{name} has no corpus");
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn survives(name: &str, target: Target, input: &[u8], whence: &str) {
    if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
        panic!("{name} failed on {whence}; the input in hexadecimal:\n{}", hex(input));
    }
}

fn replay(name: &str, target: Target) {
    for (path, input) in corpus(name) {
        survives(name, target, &input, &path.display().to_string());
    }
    if let Some(dir) = std::env::var_os("LEVEE_CORPUS") {
        for (path, input) in files(Path::new(&dir)) {
            survives(name, target, &input, &path.display().to_string());
            // Others' files are bare datagrams: give them the framing that the IKE targets want.
            let n = u16::try_from(input.len()).unwrap_or(u16::MAX).to_be_bytes();
            for framed in [[&[0], &n[..], &input].concat(), [&[1], &n[..], &input].concat()] {
                survives(name, target, &framed, &path.display().to_string());
            }
            survives(name, target, &[&[0, 8], &n[..], &input].concat(), &path.display().to_string());
        }
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.bits() % u64::try_from(n.max(1)).expect("64 bits")).expect("below n")
    }
}

/// Changes an input in one to eight places.
fn mutate(input: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    const WORTH_TRYING: [u8; 12] = [0, 1, 2, 3, 4, 7, 8, 16, 32, 127, 128, 255];
    for _ in 0..=dice.below(8) {
        let (at, n) = (dice.below(input.len()), 1 + dice.below(16));
        let end = (at + n).min(input.len());
        match dice.below(8) {
            0 if at < input.len() => input[at] ^= 1 << dice.below(8),
            1 if at < input.len() => input[at] = WORTH_TRYING[dice.below(WORTH_TRYING.len())],
            2 if at < input.len() => input[at] = dice.bits() as u8,
            3 => drop(input.drain(at..end)),
            4 => {
                let new: Vec<u8> = (0..n).map(|_| dice.bits() as u8).collect();
                input.splice(at..at, new);
            }
            5 => {
                let copy = input[at..end].to_vec();
                let to = dice.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            6 if !other.is_empty() => {
                let from = dice.below(other.len());
                let to = (from + dice.below(200)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => input.truncate(at.max(1)),
        }
    }
    input.truncate(8_192);
}

fn change(name: &str, target: Target) {
    let variable = |n: &str| std::env::var(n).ok().map(|v| v.parse::<u64>().expect("a number"));
    let seconds = variable("LEVEE_FUZZ_SECONDS").unwrap_or(3);
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos();
    let seed = variable("LEVEE_FUZZ_SEED").unwrap_or_else(|| clock() as u64);
    let corpus: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, input)| input).collect();
    let (mut dice, mut runs) = (Dice(seed), 0u64);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let mut input = corpus[dice.below(corpus.len())].clone();
        let other = corpus[dice.below(corpus.len())].clone();
        mutate(&mut input, &other, &mut dice);
        survives(name, target, &input, &format!("change {runs} with LEVEE_FUZZ_SEED={seed}"));
        runs += 1;
    }
    println!("{name}: {runs} changed inputs, seed {seed}");
    assert!(runs > 0 || seconds == 0, "not one input in {seconds} s");
}

macro_rules! targets {
    ($($name:ident: $target:expr;)*) => {
        $(mod $name {
            #[test]
            fn survives_its_saved_corpus() {
                super::replay(stringify!($name), $target);
            }

            #[test]
            fn survives_random_changes_of_its_corpus() {
                super::change(stringify!($name), $target);
            }
        })*

        #[test]
        fn every_target_of_the_fuzzer_is_replayed_here() {
            let manifest = include_str!("../../../fuzz/Cargo.toml");
            let there: Vec<&str> =
                manifest.lines().filter_map(|l| l.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\"")).collect();
            let mut here = vec![$(stringify!($name)),*];
            here.sort_unstable();
            let mut there = there;
            there.sort_unstable();
            assert_eq!(here, there);
        }
    };
}

targets! {
    audit_log: levee_fuzz_targets::audit_log::run;
    certificate: levee_fuzz_targets::certificate::run;
    esp_aggfrag: levee_fuzz_targets::esp_aggfrag::run;
    esp_coalesce: levee_fuzz_targets::esp_coalesce::run;
    esp_open: levee_fuzz_targets::esp_open::run;
    esp_send: levee_fuzz_targets::esp_send::run;
    etcd: levee_fuzz_targets::etcd::run;
    federation: levee_fuzz_targets::federation::run;
    guard: levee_fuzz_targets::guard::run;
    ike_initiator: levee_fuzz_targets::ike_exchange::initiator;
    ike_parse: levee_fuzz_targets::ike_parse::run;
    ike_responder: levee_fuzz_targets::ike_exchange::responder;
    kernel: levee_fuzz_targets::kernel::run;
    labelled: levee_fuzz_targets::labelled::run;
    layer: levee_fuzz_targets::layer::run;
    oneway: levee_fuzz_targets::oneway::run;
    ipc_frame: levee_fuzz_targets::ipc_frame::run;
    ipc_message: levee_fuzz_targets::ipc_message::run;
    logger_lines: levee_fuzz_targets::logger_lines::run;
    prices: levee_fuzz_targets::prices::run;
    site_file: levee_fuzz_targets::site_file::run;
    statement: levee_fuzz_targets::statement::run;
    terminal: levee_fuzz_targets::terminal::run;
    upflow_receive: levee_fuzz_targets::upflow_receive::run;
}

#[test]
fn the_saved_exchanges_reach_children_and_rekeyings() {
    let made = |target: &str, name: &str| {
        let input = corpus(target).into_iter().find(|(p, _)| p.ends_with(name)).expect("a seed").1;
        levee_fuzz_targets::ike_exchange::run(&input, target == "ike_initiator")
    };
    for (target, name, children, rekeyed) in [
        ("ike_initiator", "child", 1, 0),
        ("ike_initiator", "child-in-auth", 1, 0),
        ("ike_initiator", "child-rekeyed", 2, 0),
        ("ike_initiator", "rekeyed-by-peer", 2, 0),
        ("ike_initiator", "ike-rekeyed", 1, 1),
        ("ike_responder", "child", 1, 0),
        ("ike_responder", "child-in-auth", 1, 0),
        ("ike_responder", "child-rekeyed", 2, 0),
        ("ike_responder", "ike-rekeyed", 2, 1),
        ("ike_responder", "fragments", 1, 0),
        ("ike_responder", "child-refused", 0, 0),
    ] {
        assert_eq!(made(target, name), (children, rekeyed), "{target}/{name}");
    }
}

#[test]
fn the_saved_file_of_prices_has_three() {
    let input = corpus("prices").into_iter().find(|(p, _)| p.ends_with("whole")).expect("a seed").1;
    assert_eq!(levee_fuzz_targets::prices::told(&input), 3);
}

#[test]
fn another_servers_saved_words_let_its_session_be_used() {
    let input = corpus("federation").into_iter().find(|(p, _)| p.ends_with("session-comes-and-goes"));
    assert_eq!(levee_fuzz_targets::federation::appeared(&input.expect("a seed").1), 1);
}

#[test]
fn a_guards_saved_messages_reach_its_reader() {
    let passed = |name: &str| {
        let input = corpus("guard").into_iter().find(|(p, _)| p.ends_with(name)).expect("a seed").1;
        levee_fuzz_targets::guard::passed(&input)
    };
    assert_eq!(["plain", "people", "schema", "numbers", "quota"].map(passed), [2, 2, 2, 3, 4]);
}

#[test]
fn of_each_type_of_message_one_is_saved() {
    use levee_fuzz_targets::ipc_message::{message, names};
    let saved: Vec<&str> = corpus("ipc_message").iter().filter_map(|(_, input)| message(input)).collect();
    let without: Vec<&str> = names().filter(|name| !saved.contains(name)).collect();
    assert!(without.is_empty(), "{without:?}");
}
