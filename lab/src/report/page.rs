//! The page itself.

use super::Run;
use super::draw::{human, nanos};
use super::figures;
use super::plots::{self, Figure};
use super::tables;
use crate::analysis::Verdict;
use crate::design::Layout;
use crate::experiment::{Mediation, Path, Session};
use crate::paper::Paper;
use crate::stats::{mean, quantile};
use crate::workload::{Closer, Kind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");

/// Text as HTML.
pub fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn download(name: &str, csv: &str) -> String {
    format!(
        "<a class=csv download=\"{0}.csv\" href=\"data:text/csv;base64,{1}\">{0}.csv</a>",
        escape(name),
        STANDARD.encode(csv)
    )
}

fn figure(f: &Figure) -> String {
    format!(
        "<figure>{}<figcaption>{} {}</figcaption></figure>",
        f.svg,
        escape(&f.caption),
        download(&f.name, &f.csv)
    )
}

fn key(run: &Run) -> String {
    let mut out = String::from("<p class=key>");
    for (i, arm) in figures::arms(run).iter().enumerate() {
        let _ =
            write!(out, "<span style=\"--k:var(--c{})\">{}</span> ", i % super::draw::SERIES, escape(arm));
    }
    out.push_str("</p>");
    out
}

/// The set-up, drawn: client, what lies between, server.
fn set_up(run: &Run) -> String {
    let drives: Vec<_> =
        run.manifest.experiment.arms_of(&run.manifest.form).iter().map(|a| a.drive).collect();
    let elsewhere = drives.iter().any(|d| d.session == Session::Elsewhere);
    let tunnel = drives.iter().any(|d| d.path == Path::Tunnel);
    let mediated = drives.iter().any(|d| d.mediation != Mediation::None);
    let mut out =
        String::from("<figure><svg viewBox=\"0 0 900 250\" style=\"width:100%;max-width:900px\" role=img>");
    let mut place = |x: i32, y: i32, w: i32, h: i32, head: &str, lines: &[&str]| {
        let _ = write!(out, "<rect x={x} y={y} width={w} height={h} rx=6 class=place />");
        let _ = write!(out, "<text x={} y={} class=head>{head}</text>", x + 12, y + 22);
        for (i, l) in lines.iter().enumerate() {
            let _ = write!(out, "<text x={} y={} class=small>{l}</text>", x + 12, y + 42 + 18 * i as i32);
        }
    };
    place(
        10,
        20,
        250,
        130,
        "client's namespace",
        &["levee-lab client", "one process per trial", "processor 0"],
    );
    place(
        600,
        20,
        290,
        if elsewhere { 96 } else { 130 },
        "server's namespace",
        &[
            "levee-lab serve, processor 1 (apart) or 0 (together)",
            if mediated {
                "M: in a compartment, behind levee; M-: bare"
            } else {
                "bare: a daemon of its own"
            },
        ],
    );
    if elsewhere {
        place(600, 140, 290, 80, "another server's namespace (F)", &["levee-lab serve, as above"]);
    }
    let wire = |out: &mut String, y: i32, label: &str, dashed: bool| {
        let dash = if dashed { " stroke-dasharray=\"7 5\"" } else { "" };
        let _ = write!(out, "<line x1=260 y1={y} x2=600 y2={y} class=wire{dash} />");
        let _ = write!(out, "<text x=430 y={} class=small text-anchor=middle>{label}</text>", y - 7);
    };
    wire(&mut out, 55, "I-: a veth pair, MTU 1500", false);
    if tunnel {
        wire(&mut out, 100, "I: ESP in UDP through the vaults, over that pair", true);
    }
    if elsewhere {
        out.push_str("<path d=\"M 260 130 C 430 130, 430 180, 600 180\" class=wire fill=none />");
        out.push_str("<text x=430 y=200 class=small text-anchor=middle>a veth pair of its own</text>");
    }
    out.push_str("</svg><figcaption>The set-up: namespaces of this host, made for the run and removed after it. Only \
                  namespaces differ between arms; client, server program, processors and kernel settings do not.\
                  </figcaption></figure>");
    out
}

fn headline(run: &Run) -> String {
    let s = &run.summary;
    let mut out = String::from("<ul class=headline>");
    let costs: Vec<_> =
        s.effects.iter().filter(|e| matches!(e.verdict, Verdict::Cost | Verdict::Gain)).collect();
    if costs.is_empty() {
        out.push_str(
            "<li>No arm of this run differs from the baseline by more than this machine differs from itself.",
        );
    }
    for e in costs {
        let _ = write!(
            out,
            "<li><b>{}</b> on {} ({}): {} time per unit of work over the baseline",
            escape(&e.arm),
            e.workload,
            e.layout.name(),
            tables::verdict(e)
        );
    }
    let floors: Vec<f64> =
        s.floors.iter().map(|f| f.floor.exp_m1() * 100.0).filter(|f| f.is_finite()).collect();
    if let (Some(a), Some(b)) = (quantile(&floors, 0.0), quantile(&floors, 1.0)) {
        let _ = write!(out, "<li>Noise floors of this run: {a:.1} to {b:.1} % over its workloads.");
    }
    if !run.manifest.absent.is_empty() {
        let _ = write!(
            out,
            "<li>{} arms of the design are absent, and shown so; none is filled in.",
            run.manifest.absent.len()
        );
    }
    out.push_str("</ul>");
    out
}

/// A list of threats, each with a measured size where one can be had.
fn threats(run: &Run) -> String {
    let s = &run.summary;
    let mut out =
        String::from("<table><thead><tr><th>threat<th>what is done<th>its size here</tr></thead><tbody>");
    let mut row = |threat: &str, done: &str, size: &str| {
        let _ = write!(out, "<tr><td>{threat}<td>{done}<td>{}</tr>", escape(size));
    };
    let lag: Vec<f64> = s.cells.iter().filter_map(|c| c.lag1).collect();
    let steps: usize = s.cells.iter().map(|c| c.change_points.len()).sum();
    row(
        "The machine changes over time",
        "Blocks hold every arm once, close together, in random order; effects are ratios within blocks",
        &format!(
            "lag-1 autocorrelation median {:+.2}, highest {:+.2}; {steps} steps of level in {} series",
            quantile(&lag, 0.5).unwrap_or(0.0),
            quantile(&lag, 1.0).unwrap_or(0.0),
            s.cells.len()
        ),
    );
    let background: Vec<f64> =
        run.samples.iter().map(|x| 100.0 * x.load.background / x.load.wall.max(1e-9)).collect();
    let contended = s.flags.get("contended").copied().unwrap_or(0);
    row(
        "Other programs on the host",
        &format!(
            "A trial is made again, at most {} times, if others used over {:.0} % of a processor or the client waited over {:.0} % of the time for its own",
            run.manifest.rules.reruns,
            100.0 * run.manifest.rules.background,
            100.0 * run.manifest.rules.waited
        ),
        &format!(
            "background median {:.1} %, 95th percentile {:.1} % of a processor; {contended} of {} attempts contended",
            quantile(&background, 0.5).unwrap_or(0.0),
            quantile(&background, 0.95).unwrap_or(0.0),
            s.attempts
        ),
    );
    let steal: Vec<f64> = run.samples.iter().map(|x| 100.0 * x.load.steal / x.load.wall.max(1e-9)).collect();
    row(
        "A hypervisor beneath",
        &format!("Rerun above {:.0} % of steal", 100.0 * run.manifest.rules.steal),
        &format!(
            "steal mean {:.2} %, highest {:.1} %",
            mean(&steal).unwrap_or(0.0),
            quantile(&steal, 1.0).unwrap_or(0.0)
        ),
    );
    let both = |w: &str| {
        let m = |l: Layout| {
            s.cells.iter().find(|c| c.workload == w && c.layout == l && c.copy == 0).map(|c| c.percentiles[2])
        };
        m(Layout::Together).zip(m(Layout::Apart)).map(|(a, b)| a / b)
    };
    row(
        "Where the processes run decides the figure",
        "Both layouts are reported where the form has both; nothing is averaged over them",
        &both("TCP_RR").map_or("only one layout in this form".into(), |r| {
            format!("TCP_RR of the baseline: together is ×{r:.2} of apart")
        }),
    );
    let tw = s.flags.get("time-wait").copied().unwrap_or(0);
    row(
        "TIME_WAIT (the MYSEA study, 4.5)",
        match run.manifest.common.closer {
            Closer::Server => {
                "The server closes first; the client's TIME_WAIT counters must stand still in every trial"
            }
            Closer::Client => {
                "As in the paper: the client closes first, and two minutes pass before each trial"
            }
        },
        &format!("{tw} attempts rejected"),
    );
    let bad = s.flags.get("ledger").copied().unwrap_or(0);
    row(
        "Datagrams lost unseen (the MYSEA study, appendix G)",
        &format!(
            "{} bytes of payload, within the path MTU; sent, on the wire, dropped and read must balance",
            run.manifest.common.datagram
        ),
        &format!("{bad} attempts rejected"),
    );
    row(
        "No wire",
        "Client and server are namespaces of one host: no card, no cable; a gigabit link would hide differences that show here",
        "not measured; figures per byte are those of memory and processor, and an upper bound of relative cost",
    );
    let missing = s.missing;
    row(
        "Trials that never came good",
        "They stay missing, and their blocks drop out of the comparison",
        &format!("{missing} of the plan"),
    );
    let latencies = s.cells.iter().filter_map(|c| c.latency.map(|l| l[0]));
    row(
        "The instrument",
        "HDR histograms with three significant digits; one clock reading per transaction",
        &latencies.min().map_or("no latencies".into(), |l| {
            format!(
                "shortest median latency {}: a clock reading of about 30 ns is under {:.1} % of it",
                nanos(l as f64),
                3000.0 / l as f64 + 0.05
            )
        }),
    );
    out.push_str("</tbody></table>");
    out
}

fn environment(run: &Run) -> String {
    let mut out = String::from("<table><tbody>");
    for (i, e) in run.env.iter().enumerate() {
        let when = if i == 0 { "begun" } else { "resumed" };
        let _ = write!(out, "<tr class=first><td>{when}<td>{}</tr>", escape(&e.at));
        for (k, v) in &e.facts {
            let _ = write!(out, "<tr><td>{}<td class=wrap>{}</tr>", escape(k), escape(v));
        }
    }
    let m = &run.manifest;
    let c = &m.common;
    for (k, v) in [
        ("laboratory", m.version.clone()),
        ("seed of every order and bootstrap", m.seed.to_string()),
        ("congestion control, both ends, read back", c.congestion.clone()),
        ("bytes per write of a stream", human(c.write_size as f64)),
        ("payload of a datagram", human(c.datagram as f64)),
        ("bytes of a TCP_FETCH answer", human(f64::from(c.fetch))),
        ("measured time of a trial", format!("{} s after {} s of warm-up", m.form.seconds, m.form.warmup)),
    ] {
        let _ = write!(out, "<tr><td>{k}<td>{}</tr>", escape(&v));
    }
    out.push_str("</tbody></table>");
    out
}

fn section(out: &mut String, id: &str, title: &str, body: &str) {
    let _ = write!(out, "<section id={id}><h2>{}</h2>{body}</section>", escape(title));
}

/// The page, whole.
pub fn page(run: &Run) -> String {
    let (m, s) = (&run.manifest, &run.summary);
    let title = format!("{} — levee's laboratory", m.experiment.title);
    let units = m.experiment.units(Some(&m.form));
    let paper = m.experiment.paper.as_deref().and_then(|p| Paper::named(p).ok());
    let first_layout = m.form.layouts.first().copied().unwrap_or(Layout::Apart);
    let mut body = String::new();

    let mut glance = headline(run);
    for f in figures::forests(run) {
        glance.push_str(&figure(&f));
    }
    section(&mut body, "glance", "At a glance", &glance);

    let mut setup = set_up(run);
    setup.push_str("<table><thead><tr><th>factor<th>low<th>high</tr></thead><tbody>");
    for f in &m.experiment.factors {
        let _ = write!(
            setup,
            "<tr><td>{}<td>{}: {}<td>{}: {}</tr>",
            f.name,
            f.low,
            escape(&f.low_is),
            f.high,
            escape(&f.high_is)
        );
    }
    setup.push_str("</tbody></table>");
    let _ = write!(
        setup,
        "<p>Randomised complete blocks: {} blocks; in each, every workload and layout in random order, and within it \
         every arm in random order, the baseline twice. {} attempts, {} trials analysed.</p><table><thead><tr>\
         <th>workload<th>what it does<th>metric</tr></thead><tbody>",
        m.form.blocks, s.attempts, s.accepted
    );
    let mut kinds: Vec<Kind> = units.iter().map(|u| u.kind).collect();
    kinds.dedup();
    for k in kinds {
        let _ = write!(setup, "<tr><td>{k}<td>{}<td>{}</tr>", k.what(), k.unit());
    }
    setup.push_str("</tbody></table>");
    section(&mut body, "set-up", "The set-up", &setup);

    let mut effects = String::new();
    for l in &m.form.layouts {
        let _ = write!(effects, "<h3>Client and server {}</h3>{}", l.name(), tables::effects(run, *l));
    }
    let _ = write!(
        effects,
        "<p>A cost is stated only if Holm's adjusted p is below 5 % over all {} effects, the 95 % interval ({}) of the \
         trimmed mean of per-block log ratios excludes 1, and the effect is beyond the floor. The paper's measure: \
         decrease of a stream's rate, or increase of the latency that a rate of transactions implies; base: the \
         baseline's median. {}</p>",
        s.effects.len(),
        if m.form.blocks < crate::stats::interval::BOOTSTRAP_FROM { "Yuen's t" } else { "BCa bootstrap" },
        download("cells", &plots::cells_csv(&s.cells))
    );
    section(&mut body, "effects", "Every effect", &effects);

    if let Some(p) = &paper {
        let mut text = format!(
            "<p><a href=\"{}\">{}</a>. This is a replication of its design on other mechanisms and other machines, not of its \
             numbers.</p>{}",
            escape(&p.url),
            escape(&p.cite),
            tables::paper(run, p, first_layout)
        );
        text.push_str("<h3>What was wrong in the paper, and is not repeated</h3><ul>");
        for f in &p.faults {
            let _ = write!(text, "<li>{}", escape(f));
        }
        text.push_str("</ul>");
        section(&mut body, "paper", "The paper's tables beside ours", &text);
    }
    if units.iter().any(|u| u.kind == Kind::UdpStream) {
        section(&mut body, "udp", "Where every datagram went", &tables::udp(run, paper.as_ref()));
    }
    for u in units.iter().filter(|u| figures::shown(u)) {
        let mut text = key(run);
        for l in &m.form.layouts {
            let figs = figures::of_workload(run, u, *l);
            if m.form.layouts.len() > 1 && !figs.is_empty() {
                let _ = write!(text, "<h3>Client and server {}</h3>", l.name());
            }
            for f in figs.iter().chain(&figures::interactions(run, u, *l)) {
                text.push_str(&figure(f));
            }
        }
        section(&mut body, &u.id, &u.id, &text);
    }
    let loads = figures::loads(run);
    if !loads.is_empty() {
        let text: String = loads.iter().map(figure).collect();
        section(&mut body, "load", "Latency against load", &(key(run) + &text));
    }
    let rows: Vec<_> = s.attribution.iter().collect();
    let mut text = tables::attribution(run);
    if !rows.is_empty() {
        text.push_str(&download("attribution", &plots::attribution_csv(&rows)));
    }
    section(&mut body, "attribution", "What each factor adds, and what they add together", &text);
    let intro = "<p>The calculator adds what a connection (TCP_CC), a request (TCP_RR) and a byte (stream) cost in an arm. It has \
                 not seen the workloads below. What remains: the ends overlap their work, and a new connection's first bytes find \
                 a small window and cold buffers.</p>";
    section(
        &mut body,
        "calculator",
        "The cost calculator, checked",
        &(intro.to_owned() + &tables::calculator(run)),
    );
    section(&mut body, "cells", "Values, processor time, memory", &tables::cells(run));
    section(&mut body, "rejects", "Attempts flagged", &tables::rejects(run));
    section(&mut body, "threats", "Threats to validity", &threats(run));
    section(&mut body, "environment", "Environment", &environment(run));

    let mut nav = String::new();
    for (i, part) in body.split("<section id=").skip(1).enumerate() {
        let (id, rest) = part.split_once('>').unwrap_or(("", part));
        let name = rest.strip_prefix("<h2>").and_then(|r| r.split_once("</h2>")).map_or("", |(n, _)| n);
        let _ = write!(nav, "{}<a href=\"#{id}\">{name}</a>", if i == 0 { "" } else { " · " });
    }
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}</style><main><h1>{}</h1><p class=lead>{}</p><p class=quiet>{} form, {}. Beside \
         this page: manifest.json, env.json, samples.ndjson, samples.csv, summary.json.</p><nav>{nav}</nav>{body}</main></html>\n",
        escape(&title),
        escape(&m.experiment.title),
        escape(&m.experiment.question),
        m.form_name,
        escape(&m.begun)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a b=\"&\">"), "&lt;a b=&quot;&amp;&quot;&gt;");
    }
}
