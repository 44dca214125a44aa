//! What a run of the meter leaves: a line a channel while it runs, a table at the end, the samples.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use super::channels::Channel;
use super::{Finding, Run};
use levee_stats::capacity::Windows;

/// Three digits, and no more.
fn figure(n: f64) -> String {
    match n {
        0.0 => "0".into(),
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n if n >= 0.1 => format!("{n:.2}"),
        n => format!("{n:.3}"),
    }
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "never".into(),
        Some(s) if s < 1.0 => format!("{} ms", figure(s * 1e3)),
        Some(s) if s < 600.0 => format!("{} s", figure(s)),
        Some(s) => format!("{} h", figure(s / 3600.0)),
    }
}

/// One finding on one line.
pub(super) fn line(f: &Finding) -> String {
    let name = &f.channel.name;
    match &f.carried {
        Ok(c) => format!(
            "{name:<28} {:>9} bit/s ({} to {}), nothing shows up to {}; 128 bits: {}",
            figure(c.rate),
            figure(c.interval[0]),
            figure(c.interval[1]),
            figure(c.zero),
            time(c.seconds_of_128_bits)
        ),
        Err(why) => format!("{name:<28}    cannot be used: {why}"),
    }
}

/// What a channel carried before, and by how much that was more than it does now.
fn factor(before: Option<&Finding>, now: &Finding) -> String {
    let carried = |f: &Finding| f.carried.as_ref().ok().filter(|c| c.found()).map(|c| c.rate);
    match (before.map(|f| (carried(f), carried(now))), &now.carried) {
        (None, _) => "not tried |".into(),
        (Some((None, None)), _) => "0 |".into(),
        (Some((None, Some(_))), _) => "0 | found now".into(),
        (Some((Some(was), Some(is))), _) => format!("{} | {}", figure(was), figure(was / is)),
        (Some((Some(was), None)), Ok(c)) if c.zero > 0.0 => {
            format!("{} | more than {}", figure(was), figure(was / c.zero))
        }
        (Some((Some(was), None)), _) => format!("{} | closed", figure(was)),
    }
}

/// The report; beside an earlier run, where there is one.
pub(super) fn markdown(run: &Run, before: Option<&Run>) -> String {
    let fact = |name: &str| run.host.get(name).map_or("not known", String::as_str);
    let mut out = format!(
        "# What the channels between two labels carry\n\n{}, {} form, {}; {}{}{}, one-way channels at {} octets a second; groups of system calls granted to both: {}. Linux {}, {} processors ({}), load average before: {}.\n\n\
         Each pair has only the clock in common; windows that one end overslept are counted. The interval is of 95 %; nothing shows: what 95 of\n\
         100 silent senders stay below. Beyond: the interval lies above what is allowed.\n\n\
         | channel | through | class | window, ms | symbols | overslept above and below | bit/s | interval | nothing shows | 128 bits | allowed, bit/s | |{}\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|{}\n",
        run.at,
        if run.quick { "quick" } else { "full" },
        if run.loaded { "with work on every processor besides" } else { "nothing else started" },
        if run.machine {
            "the label above has a kernel of its own, on an emulated processor"
        } else {
            "both labels are compartments of one kernel"
        },
        if run.apart {
            ", with processors of its own for each"
        } else if run.processors {
            ", the label above with a processor that the site gives it alone"
        } else {
            ""
        },
        run.frames.map_or_else(String::new, |ms| format!(", with a slot of {ms} ms for each in turn")),
        run.one_way_rate,
        if run.granted.is_empty() { "none".into() } else { run.granted.join(", ") },
        fact("kernel"),
        fact("processors"),
        fact("processor"),
        fact("load average"),
        if before.is_some() { " bit/s before | factor |" } else { "" },
        if before.is_some() { "---|---|" } else { "" },
    );
    for f in &run.findings {
        let (c, class) = (&f.channel, f.channel.class.word());
        let _ = match &f.carried {
            Ok(m) => write!(
                out,
                "| {} | {} | {class} | {} | {} | {} and {} of {} | {} | {}–{} | {} | {} | {} | {} |",
                c.name,
                c.through,
                figure(m.window * 1e3),
                m.symbols,
                m.overslept[0],
                m.overslept[1],
                m.windows,
                figure(m.rate),
                figure(m.interval[0]),
                figure(m.interval[1]),
                figure(m.zero),
                time(m.seconds_of_128_bits),
                figure(c.allowed),
                if f.beyond() { "**beyond**" } else { "" }
            ),
            Err(why) => write!(
                out,
                "| {} | {} | {class} | | | | none | | | never | {} | {why} |",
                c.name,
                c.through,
                figure(c.allowed)
            ),
        };
        if let Some(before) = before {
            let earlier = before.findings.iter().find(|b| b.channel.name == c.name);
            let _ = write!(out, " {} |", factor(earlier, f));
        }
        out.push('\n');
    }
    out
}

/// What was sent and seen in each window, one file a channel.
pub(super) fn samples(dir: &Path, channel: &Channel, windows: &Windows) -> io::Result<()> {
    let name: String =
        channel.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let mut csv = String::from("window,sent,seen\n");
    for (i, (sent, seen)) in windows.sent.iter().zip(&windows.seen).enumerate() {
        let _ = writeln!(csv, "{i},{sent},{}", seen.map_or(String::new(), |v| v.to_string()));
    }
    fs::write(dir.join(format!("{name}.csv")), csv)
}
