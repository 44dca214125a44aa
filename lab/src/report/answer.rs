//! The answer to an experiment's question, in words: what a reader takes away who reads nothing else.

use super::Run;
use super::read;
use super::told::{self, Told};
use crate::design::Layout;
use crate::experiment::{Arm, Mediation, Path};
use crate::place::Home;
use crate::workload::Kind;

/// A run whose baseline differs from itself by more than so much is not to be cited.
const NOISY: f64 = 0.2;

/// An arm in words.
pub fn words(arm: &Arm) -> String {
    let path = match arm.drive.path {
        Path::Link => "on a link",
        Path::Tunnel => "through the tunnel",
    };
    let mediated = match arm.drive.mediation {
        Mediation::None => String::new(),
        how => format!(", {}", mode(how)),
    };
    let elsewhere = match (arm.drive.session, arm.drive.path) {
        (Home::Here, _) => "",
        // A plain link has no session that anybody could hold.
        (Home::Elsewhere, Path::Link) => " to a second server",
        (Home::Elsewhere, Path::Tunnel) => " to a second server, the session held by the first",
    };
    let tool = arm.tool.map(|tool| format!(", by {}", tool.version().0)).unwrap_or_default();
    format!("{path}{elsewhere}{mediated}{tool}")
}

fn mode(how: Mediation) -> &'static str {
    match how {
        Mediation::None => "not mediated",
        Mediation::Direct => "decided by selectors (direct)",
        Mediation::Handoff => "mediated by handoff",
        Mediation::HandoffWritten => "mediated by handoff, its record synced after it is written",
        Mediation::Relay => "mediated by relay",
        Mediation::RelayWritten => "mediated by relay, its record synced after it is written",
        Mediation::Inetd => "a process for each connection (inetd)",
        Mediation::Proxy => "behind a proxy that copies",
        Mediation::SpawnCopy => "mediated as in the paper",
    }
}

/// What takes its time, for each kind of work; `None` for what is only a check of another.
fn thing(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::TcpCc => "a connection",
        Kind::TcpRr => "a request",
        Kind::TcpStream => "a byte of a stream",
        Kind::UdpStream => "a datagram of a stream",
        Kind::UdpRr => "a datagram and its answer",
        _ => return None,
    })
}

/// How much longer, in words.
fn longer(ratio: f64) -> String {
    match ratio {
        r if r >= 9.95 => format!("{r:.0} times as long"),
        r if r >= 1.5 => format!("{r:.1} times as long"),
        r if r >= 1.0 => format!("{:.0} % longer", (r - 1.0) * 100.0),
        r => format!("{:.0} % less", (1.0 - r) * 100.0),
    }
}

/// `a, b and c`.
fn list(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// What is told of several kinds of work, as one clause; `None` where nothing was measured.
fn clause(told: &[(&'static str, Told)]) -> Option<String> {
    let mut parts = Vec::new();
    for (thing, told) in told {
        if let Told::Differs(interval) = told {
            parts.push(format!("{thing} takes {}", longer(interval.estimate.exp())));
        }
    }
    let same: Vec<String> = told
        .iter()
        .filter(|(_, told)| matches!(told, Told::Same(_)))
        .map(|(thing, _)| (*thing).to_owned())
        .collect();
    if !same.is_empty() {
        let take = if same.len() == 1 { "takes" } else { "take" };
        parts.push(format!("{} {take} no longer that this machine can tell", list(&same)));
    }
    (!parts.is_empty()).then(|| list(&parts))
}

/// What the run answers, a sentence each, for its first layout; first, where it is so, that it is too noisy to cite.
pub fn sentences(run: &Run) -> Vec<String> {
    let layout = run.manifest.form.layouts.first().copied().unwrap_or(Layout::Apart);
    let units: Vec<(String, &'static str)> =
        told::units(run).into_iter().filter_map(|unit| Some((unit.id.clone(), thing(unit.kind)?))).collect();
    let mut out = Vec::new();
    let floors = run.summary.floors.iter().map(|f| f.floor.exp_m1()).filter(|f| f.is_finite());
    let worst = floors.fold(0.0, f64::max);
    if worst > NOISY {
        out.push(format!(
            "This run is too noisy to cite: on some work the baseline differs from itself by up to {:.0} %.",
            worst * 100.0
        ));
    }
    let ran = read::arms(run);
    // What earlier programs did is set beside the present ones in a table of its own.
    let all = run.manifest.experiment.arms.iter().filter(|arm| !arm.drive.before);
    let arms = || all.clone().filter(|arm| ran.contains(&arm.name));
    // The tunnel first, which is what most readers came for.
    let mut plain: Vec<&Arm> = arms().filter(|arm| !arm.baseline && is_plain(arm)).collect();
    plain.sort_by_key(|arm| (arm.drive.path != Path::Tunnel, arm.drive.session != Home::Here));
    for arm in plain {
        let told: Vec<_> = units
            .iter()
            .map(|(id, thing)| (*thing, told::over_baseline(run, layout, &arm.name, id)))
            .collect();
        out.extend(clause(&told).map(|clause| sentence(&format!("{}, {clause}.", words(arm)))));
    }
    let adds = |base: &Arm, arm: &Arm, start: &str| {
        let told: Vec<_> = units
            .iter()
            .map(|(id, thing)| (*thing, told::added(run, layout, (&base.name, &arm.name), id)))
            .collect();
        let measured = told.iter().any(|(_, told)| !matches!(told, Told::Nothing));
        if measured && !told.iter().any(|(_, told)| matches!(told, Told::Differs(_))) {
            return Some(sentence(&format!("{start}: that adds nothing that this machine can tell.")));
        }
        clause(&told).map(|clause| sentence(&format!("{start}: {clause}.")))
    };
    let here = |(arm, _): &(&Arm, &Arm)| arm.drive.session == Home::Here && !arm.drive.before;
    for (arm, base) in told::mediated(run).into_iter().filter(here) {
        let path = if arm.drive.path == Path::Tunnel { "behind the tunnel" } else { "on a link" };
        out.extend(adds(base, arm, &format!("{path}, {}", mode(arm.drive.mediation))));
    }
    for (arm, base) in told::elsewhere(run).into_iter().filter(|(arm, _)| !arm.drive.before) {
        out.extend(adds(base, arm, &format!("{}, beside the first server's own", words(arm))));
    }
    if out.is_empty() {
        out.push(
            "No arm of this run differs from the baseline by more than this machine differs from itself."
                .into(),
        );
    }
    out
}

/// An arm that differs from the baseline by path, tool or session alone.
fn is_plain(arm: &Arm) -> bool {
    arm.drive.mediation == Mediation::None
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_stats::Interval;

    #[test]
    fn what_differs_is_said_by_how_much_and_what_does_not_as_such() {
        let interval = |ratio: f64| Interval { estimate: ratio.ln(), lo: ratio.ln(), hi: ratio.ln(), n: 12 };
        let told = [
            ("a connection", Told::Differs(interval(2.51))),
            ("a request", Told::Same(interval(1.01))),
            ("a byte of a stream", Told::Same(interval(0.99))),
            ("a datagram of a stream", Told::Nothing),
        ];
        assert_eq!(
            clause(&told).unwrap(),
            "a connection takes 2.5 times as long and a request and a byte of a stream take no longer that this machine can tell"
        );
        assert_eq!(clause(&[("a request", Told::Nothing)]), None);
        assert_eq!(
            [longer(41.9), longer(1.27), longer(0.9)],
            ["42 times as long", "27 % longer", "10 % less"]
        );
        assert_eq!(sentence("on a link."), "On a link.");
    }
}
