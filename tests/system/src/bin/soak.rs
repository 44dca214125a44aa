//! `soak [SECONDS]` (1,800), as root, beside levee's programs: a server under attack (`levee_system::soak`). Ends with 1 if anybody at
//! another label lost anything, or a process grew by more than 8 MiB, and with 2 where it is called wrongly.
#![forbid(unsafe_code)]

use levee_system::soak;
use std::process::ExitCode;
use std::time::Duration;

/// KiB by which no process may grow.
const MOST: u64 = 8 * 1024;

fn main() -> ExitCode {
    levee_system::ends_what_it_started();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = match &words[..] {
        [] => 1_800,
        [seconds] if seconds.parse::<u64>().is_ok_and(|seconds| seconds > 0) => {
            seconds.parse().unwrap_or(1_800)
        }
        _ => {
            eprintln!("usage: soak [SECONDS]   how long the attack lasts: 1,800 unless it is said");
            return ExitCode::from(2);
        }
    };
    let found = soak::run(Duration::from_secs(seconds));
    println!(
        "attack: {:.0} s, {} ends of hostile processes, {} datagrams and connections of strangers",
        found.lasted.as_secs_f64(),
        found.ends,
        found.strangers
    );
    println!("pages: {:?}", found.pages);
    println!("lost: {}", found.lost.len());
    found.lost.iter().take(20).for_each(|lost| println!("  {lost}"));
    let (before, during, count) = found.sign_on;
    println!(
        "sign-on: {before:.3} s before, {during:.3} s during ({count}): {:.2} times as long",
        found.ratio()
    );
    println!("largest file of the hostile label's log: {} octets", found.largest_log);
    println!("alarms: {:?}", found.alarms);
    println!("\n| process | KiB after a quarter | most in the last quarter |\n|---|---|---|");
    found.memory.iter().for_each(|one| println!("| {} | {} | {} |", one.process, one.early, one.late));
    let grown = found.grown(MOST);
    grown.iter().for_each(|one| println!("it grew: {}", one.process));
    if found.lost.is_empty() && grown.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
