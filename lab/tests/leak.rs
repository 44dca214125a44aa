//! The leak meter on channels of known rates, with the attacker's real programs as plain processes.

use levee_lab::leak::attacker::{End, place};
use levee_lab::leak::channels::Channel;
use levee_lab::leak::meter::Meter;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

/// The attacker, written before any test starts a process: one that inherited the descriptor would keep it from being executed ("text
/// file busy").
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attacker");
    if program.exists() {
        std::fs::remove_file(&program).expect("one of an earlier run");
    }
    place(&program).expect("the attacker");
    program
});

/// Processes that end with their jobs.
struct Programs<'a>(&'a Path, Vec<Child>);

impl Programs<'_> {
    fn end(&mut self) -> io::Result<End> {
        let mut child =
            Command::new(self.0).arg("job").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        self.1.push(child);
        Ok(End { to: Box::new(to), from: BufReader::new(Box::new(from)), behind: 0 })
    }
}

impl Drop for Programs<'_> {
    fn drop(&mut self) {
        for child in &mut self.1 {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
    }
}

/// What the meter says of a byte of a file, in which `thousandths` of the symbols are wrong.
fn artificial(thousandths: u32) -> levee_lab::leak::Carried {
    let directory = tempfile::tempdir().expect("a directory");
    let program = PROGRAM.as_path();
    let file = directory.path().join("byte").display().to_string();
    let table = format!(
        "[[channel]]\nname = \"artificial\"\nprogram = \"artificial\"\nargument = \"{file}:{thousandths}\"\nthrough = \"a file\"\n\
         processors = \"apart\"\nwindows = [8000]\nclass = \"open\"\nallowed = 1\n"
    );
    let channel = &Channel::parse(&table).expect("a sound table")[0];
    let mut programs = Programs(program, Vec::new());
    let meter = Meter::new(program, 3, None).expect("it says what it knows");
    let measured = meter.measure(&mut |_| programs.end(), channel, 8.0).expect("both ends end in good order");
    measured.expect("nothing refuses it").0
}

#[test]
fn a_channel_of_a_known_rate_is_found_within_five_percent() {
    let h = |p: f64| -p * p.log2() - (1.0 - p) * (1.0 - p).log2();
    let carried = artificial(50);
    // What a busy host made the receiver oversleep carries nothing; where the sender was late, half of the symbols are wrong.
    let [late, overslept] = carried.overslept.map(|n| n as f64 / carried.windows as f64);
    let wrong = 0.05 * (1.0 - late) + late / 2.0;
    let known = (1.0 - h(wrong)) * (1.0 - overslept) / carried.window;
    assert!((carried.rate / known - 1.0).abs() < 0.05, "known {known}: {carried:?}");
    assert!(carried.interval[0] < known && known < carried.interval[1], "known {known}: {carried:?}");
    let seconds = carried.seconds_of_128_bits.expect("it was found");
    assert!((seconds * carried.rate - 128.0).abs() < 1e-6);
}

/// 1000: the sender goes through the same motions, and writes the same byte whatever its symbol is.
#[test]
fn a_sender_that_says_nothing_is_not_found() {
    let carried = artificial(1000);
    assert!(!carried.found() && carried.rate < 0.02 / carried.window, "{carried:?}");
}
