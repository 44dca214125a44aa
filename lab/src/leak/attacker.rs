//! The attacker's program (`lab/attacker`), which this one carries, and jobs for it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::compartment::leave;
use crate::operate;
use levee_stats::capacity::Windows;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/attacker"));

/// Leaves the attacker's program at `path`, for everybody to run.
///
/// # Errors
/// When it cannot be written.
pub fn place(path: &Path) -> io::Result<()> {
    leave(path, PROGRAM)
}

/// Where a compartment sees it.
pub(crate) fn visible() -> PathBuf {
    operate::visible("attacker")
}

/// One end: what it is told and what it answers.
pub struct End {
    /// Jobs.
    pub to: Box<dyn Write + Send>,
    /// Answers.
    pub from: BufReader<Box<dyn Read + Send>>,
    /// By how many nanoseconds its clock is behind this host's.
    pub behind: i64,
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("End")
    }
}

/// What a pair is to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// The attacker's channel.
    pub program: String,
    /// What both open, or `-`.
    pub argument: String,
    /// Seconds.
    pub window: f64,
    /// Processors of above and below.
    pub processors: [usize; 2],
    /// Values that a window can have, of those that the attacker knows.
    pub symbols: usize,
    /// How many the attacker knows: 0 and the highest are farthest apart.
    pub range: usize,
    /// What to send.
    pub sent: Vec<usize>,
}

impl Job {
    fn line(&self, above: bool) -> String {
        let ns = (self.window * 1e9) as u64;
        let [sender, receiver] = self.processors;
        let side = usize::from(!above);
        let mut line = format!(
            "{} {} {} {ns} {} {} {}",
            if above { "send" } else { "observe" },
            self.program,
            self.argument,
            self.processors[side],
            u8::from(sender != receiver),
            self.sent.len()
        );
        if above {
            line.push(' ');
            let step = (self.range - 1) / (self.symbols - 1).max(1);
            for x in &self.sent {
                let x = u8::try_from(x * step).unwrap_or(u8::MAX);
                line.extend([char::from(b'a' + (x >> 4)), char::from(b'a' + (x & 15))]);
            }
        }
        line + "\n"
    }
}

fn line(end: &mut End) -> io::Result<String> {
    let mut text = String::new();
    end.from.read_line(&mut text)?;
    Ok(text.trim_end().to_owned())
}

/// Both ends at once. `Err` inside: an end was refused what it needs, and why.
///
/// # Errors
/// When an end does not answer as it should.
pub fn run(job: &Job, mut above: End, mut below: End) -> io::Result<Result<Windows, String>> {
    for (end, is_above) in [(&mut above, true), (&mut below, false)] {
        end.to.write_all(job.line(is_above).as_bytes())?;
        end.to.flush()?;
    }
    for (end, side) in [(&mut above, "above"), (&mut below, "below")] {
        let said = line(end)?;
        if let Some(why) = said.strip_prefix("refused: ") {
            return Ok(Err(format!("{side}: {why}")));
        }
        if said != "ready" {
            return Err(io::Error::other(format!("the attacker {side} said {said:?}")));
        }
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    let begin = i64::try_from((since + Duration::from_millis(50)).as_nanos()).map_err(io::Error::other)?;
    for end in [&mut above, &mut below] {
        end.to.write_all(format!("{}\n", begin - end.behind).as_bytes())?;
        end.to.flush()?;
    }
    let sender =
        thread::spawn(move || -> io::Result<(String, String)> { Ok((line(&mut above)?, line(&mut above)?)) });
    let mut seen = Vec::with_capacity(job.sent.len());
    for _ in 0..job.sent.len() {
        let said = line(&mut below)?;
        let value = said.split(' ').next().unwrap_or_default();
        seen.push(if value == "-" { None } else { Some(value.parse().map_err(io::Error::other)?) });
    }
    let (late, ended) = sender.join().map_err(|_| io::Error::other("the sender's thread failed"))??;
    if line(&mut below)? != "end" || ended != "end" {
        return Err(io::Error::other("an end of the pair did not end in good order"));
    }
    let late = late.strip_prefix("late ").and_then(|n| n.parse().ok());
    let late = late.ok_or_else(|| io::Error::other("the sender does not say how often it was late"))?;
    Ok(Ok(Windows { symbols: job.symbols, sent: job.sent.clone(), seen, late }))
}
