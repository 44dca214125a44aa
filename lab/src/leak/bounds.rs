//! What channels may carry, made from what they carried.

use super::Finding;
use super::channels::Class;

/// Twice what was measured at most, in two digits, rounded up; not below the 1 bit/s that closed channels may carry.
fn bound(most: f64) -> f64 {
    let twice = 2.0 * most;
    if !twice.is_finite() || twice <= 1.0 {
        return 1.0;
    }
    let digit = 10_f64.powf(twice.log10().floor() - 1.0);
    (twice / digit - 1e-9).ceil() * digit
}

/// The most that any of these runs shows of a channel: the upper end of the interval where something was found, else what a silent
/// sender stays below. Nothing where it could not be used in any.
fn most(findings: &[&Finding]) -> Option<f64> {
    let carried = findings.iter().filter_map(|f| f.carried.as_ref().ok());
    carried.map(|c| if c.found() { c.interval[1] } else { c.zero }).reduce(f64::max)
}

/// The table with bounds of the open channels that these runs measured, all else as it was. `machine`: those of labels with a
/// kernel of their own.
pub(super) fn written(table: &str, findings: &[Finding], machine: bool) -> String {
    let key = if machine { "machine" } else { "allowed" };
    let mut blocks = table.split("[[channel]]\n");
    let mut out = blocks.next().unwrap_or_default().to_owned();
    for block in blocks {
        let name = block.lines().find_map(|l| l.strip_prefix("name = \"")?.strip_suffix('"'));
        let of: Vec<&Finding> = findings.iter().filter(|f| Some(f.channel.name.as_str()) == name).collect();
        // What a kernel of its own closes has no bound of its own in the table.
        let there = !machine || block.lines().any(|l| l.starts_with("machine = "));
        let open = there && of.first().is_some_and(|f| f.channel.class == Class::Open);
        out.push_str("[[channel]]\n");
        match most(&of).filter(|_| open) {
            None => out.push_str(block),
            Some(most) => out.push_str(&with(block, key, bound(most))),
        }
    }
    out
}

/// A block with this value: in place of the one that is there, else behind what is allowed.
fn with(block: &str, key: &str, value: f64) -> String {
    let digits = usize::from(value < 10.0);
    let (line, start) = (format!("{key} = {value:.digits$}\n"), format!("{key} = "));
    let there = block.lines().any(|l| l.starts_with(&start));
    let mut out = String::new();
    for old in block.split_inclusive('\n') {
        if old.starts_with(&start) {
            out.push_str(&line);
            continue;
        }
        out.push_str(old);
        if !there && old.starts_with("allowed = ") {
            out.push_str(&line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leak::Carried;
    use crate::leak::channels::Channel;

    fn finding(channel: &Channel, rate: f64, found: bool) -> Finding {
        let seconds_of_128_bits = found.then(|| 128.0 / rate);
        let carried = Carried {
            window: 1e-3,
            symbols: 2,
            windows: 100,
            overslept: [0, 0],
            rate,
            interval: [rate * 0.9, rate * 1.1],
            zero: 0.7,
            seconds_of_128_bits,
        };
        Finding { channel: channel.clone(), carried: Ok(carried) }
    }

    #[test]
    fn bounds_are_twice_what_was_measured_and_closed_channels_keep_theirs() {
        let text = include_str!("../../leak/channels.toml");
        let all = Channel::parse(text).expect("the table");
        let of = |name: &str| all.iter().find(|c| c.name == name).expect("a channel");
        let (open, silent, closed) = (of("processor time"), of("last cache"), of("locks on eventfds"));
        let mut findings = vec![
            finding(open, 100.0, true),
            finding(open, 124.0, true),
            finding(silent, 0.1, false),
            finding(closed, 5_000.0, true),
            finding(of("the floor of timestamps"), 20.0, true),
        ];
        findings.push(Finding { channel: of("fork").clone(), carried: Err("refused".into()) });
        let new = Channel::parse(&written(text, &findings, false)).expect("the new table");
        for (old, new) in all.iter().zip(&new) {
            let allowed = match old.name.as_str() {
                "processor time" => 280.0,
                "last cache" => 1.4,
                "the floor of timestamps" => 44.0,
                _ => old.allowed,
            };
            let wanted = Channel { allowed, ..old.clone() };
            assert!((new.allowed - allowed).abs() < 1e-6, "{} {}", new.name, new.allowed);
            assert_eq!(Channel { allowed, ..new.clone() }, wanted);
        }
        let machine = Channel::parse(&written(text, &findings, true)).expect("the new table");
        for (old, new) in all.iter().zip(&machine) {
            let most = match old.name.as_str() {
                "processor time" => 280.0,
                "last cache" => 1.4,
                _ => old.machine,
            };
            assert!((new.machine - most).abs() < 1e-6 && new.allowed == old.allowed, "{}", new.name);
        }
        assert_eq!([bound(0.0), bound(0.4), bound(5.0), bound(61.0)], [1.0, 1.0, 10.0, 130.0]);
    }
}
