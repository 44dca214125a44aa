//! What the warden itself says: to standard error while somebody is there, and to its log.

use levee_ipc::Rate;
use std::fmt;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Instant;

/// Writes a line to the warden's log.
macro_rules! log {
    ($($arg:tt)*) => {
        $crate::voice::say(format_args!($($arg)*))
    };
}
pub(crate) use log;

/// What the warden itself says.
#[derive(Debug)]
struct Voice {
    /// To levee's own logger, once there is one.
    pipe: Option<OwnedFd>,
    /// Standard error is nobody's any more.
    quiet: bool,
    rate: Option<Rate>,
    since: Option<Instant>,
    left_out: u64,
}

static OWN: Mutex<Voice> =
    Mutex::new(Voice { pipe: None, quiet: false, rate: None, since: None, left_out: 0 });

/// From now on what is said goes here, too.
pub fn also_to(log: OwnedFd) {
    if let Ok(mut own) = OWN.lock() {
        own.pipe = Some(log);
    }
}

/// From now on nothing is written to standard error: who started the warden has gone.
pub fn leave_standard_error() {
    if let Ok(mut own) = OWN.lock() {
        own.quiet = true;
    }
}

/// Writes a line to the warden's log, unless there are too many: those are counted.
pub fn say(text: fmt::Arguments<'_>) {
    let Ok(mut own) = OWN.lock() else { return };
    let since = *own.since.get_or_insert_with(Instant::now);
    let now = since.elapsed();
    if !own.rate.get_or_insert_with(|| Rate::new(400, 20, now)).take(now) {
        own.left_out = own.left_out.saturating_add(1);
        return;
    }
    let left_out = std::mem::take(&mut own.left_out);
    let before = if left_out > 0 { format!("[{left_out} lines left out] ") } else { String::new() };
    // A log that cannot be written is no reason to stop serving; what must not be lost is in the audit log.
    if !own.quiet {
        let _ = writeln!(std::io::stderr(), "levee-warden: {before}{text}");
    }
    if let Some(pipe) = &own.pipe {
        let _ = rustix::io::write(pipe, format!("{before}{text}\n").as_bytes());
    }
}
