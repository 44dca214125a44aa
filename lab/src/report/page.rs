//! The page itself.

use super::Run;
use super::answer;
use super::appendix;
use super::draw::human;
use super::figures;
use super::glance;
use super::plots::{self, Figure};
use super::tables;
use super::threats;
use crate::design::Layout;
use crate::paper::Paper;
use crate::workload::Kind;
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

pub fn figure(f: &Figure) -> String {
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
/// A section that is closed until somebody wants it, and not printed.
fn folded(out: &mut String, id: &str, title: &str, body: &str) {
    let body = format!("<details><summary>Show</summary>{body}</details>");
    section(out, id, title, &body);
}

/// What the run answers, before everything else.
fn answered(run: &Run) -> String {
    let sentences = answer::sentences(run);
    let rest: String = sentences.iter().skip(1).map(|sentence| format!("<li>{}", escape(sentence))).collect();
    let first = sentences.first().map(|sentence| escape(sentence)).unwrap_or_default();
    format!("<p class=lead><strong>{first}</strong></p><ul class=headline>{rest}</ul>")
}

pub fn page(run: &Run) -> String {
    let (m, s) = (&run.manifest, &run.summary);
    let title = format!("{} — levee's laboratory", m.experiment.title);
    let units = m.experiment.units(Some(&m.form));
    let paper = m.experiment.paper.as_deref().and_then(|p| Paper::named(p).ok());
    let first_layout = m.form.layouts.first().copied().unwrap_or(Layout::Apart);
    let mut body = String::new();

    let mut glance = glance::glance(run);
    for f in figures::forests(run).iter().filter(|_| s.effects.iter().any(|e| e.cost.is_some())) {
        glance.push_str(&figure(f));
    }
    section(&mut body, "glance", "At a glance", &glance);

    section(&mut body, "set-up", "The set-up", &set_up(run));

    folded(&mut body, "effects", "Every effect", &effects(run));

    if let Some(p) = &paper {
        folded(&mut body, "paper", "The paper's tables beside ours", &beside(run, p, first_layout));
        let figures = appendix::figures_of_the_paper(run, p, first_layout);
        folded(&mut body, "paper-figures", "The paper's figures beside ours", &figures);
    }
    if units.iter().any(|u| u.kind == Kind::UdpStream) {
        folded(&mut body, "udp", "Where every datagram went", &appendix::udp(run, paper.as_ref()));
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
        folded(&mut body, &u.id, &u.id, &text);
    }
    let loads = figures::loads(run);
    if !loads.is_empty() {
        let text: String = loads.iter().map(figure).collect();
        folded(&mut body, "load", "Latency against load", &(key(run) + &text));
    }
    if !m.experiment.factors.is_empty() {
        let rows: Vec<_> = s.attribution.iter().collect();
        let mut text = tables::attribution(run);
        if !rows.is_empty() {
            text.push_str(&download("attribution", &plots::attribution_csv(&rows)));
        }
        folded(&mut body, "attribution", "What each factor adds, and what they add together", &text);
        let intro = "<p>The calculator adds what a connection (TCP_CC), a request (TCP_RR), a byte (stream) and a packet (UDP_STREAM, less \
                 its bytes) cost in an arm. It has not seen the workloads in the second table. What remains: the ends overlap their work, and a new connection's first bytes find \
                 a small window and cold buffers.</p>";
        folded(
            &mut body,
            "calculator",
            "The cost calculator, checked",
            &(intro.to_owned() + &tables::calculator(run)),
        );
    }
    folded(&mut body, "cells", "Values and processor time", &tables::cells(run));
    folded(&mut body, "rejects", "Attempts flagged", &tables::rejects(run));
    section(&mut body, "threats", "Threats to validity", &threats::threats(run));
    folded(&mut body, "environment", "Environment", &environment(run));

    let nav = nav(&body);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}</style><main><h1>{}</h1>{}<p class=quiet>{} ({} form, {}. Beside \
         this page: manifest.json, env.json, samples.ndjson, samples.csv, summary.json.)</p><nav>{nav}</nav>{body}</main></html>\n",
        escape(&title),
        escape(&m.experiment.title),
        answered(run),
        escape(&m.experiment.question),
        m.form_name,
        escape(&m.begun)
    )
}

/// What was compared, and how.
fn set_up(run: &Run) -> String {
    let (m, s) = (&run.manifest, &run.summary);
    let units = m.experiment.units(Some(&m.form));
    let mut setup = glance::set_up(run);
    if !m.experiment.factors.is_empty() {
        setup.push_str("<table><thead><tr><th>factor<th>low<th>high</tr></thead><tbody>");
        for f in &m.experiment.factors {
            let _ = write!(
                setup,
                "<tr><td>{}<td>{}: {}<td>{}: {}</tr>",
                escape(&f.name),
                escape(&f.low),
                escape(&f.low_is),
                escape(&f.high),
                escape(&f.high_is)
            );
        }
        setup.push_str("</tbody></table>");
    }
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
    setup
}

fn effects(run: &Run) -> String {
    let (m, s) = (&run.manifest, &run.summary);
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
    effects
}

/// A paper's tables beside ours, and what was wrong there.
fn beside(run: &Run, p: &Paper, first_layout: Layout) -> String {
    let m = &run.manifest;
    let mut text = format!(
        "<p><a href=\"{}\">{}</a>. This is a replication of its design on other mechanisms and other machines, not of its \
         numbers. Our changes carry their intervals alone; which of them are beyond this machine's noise, adjusted for their \
         number, is under “Every effect”.</p>{}",
        escape(&p.url),
        escape(&p.cite),
        tables::paper(run, p, first_layout)
    );
    for l in m.form.layouts.iter().filter(|l| **l != first_layout) {
        let _ = write!(
            text,
            "<details class=printed><summary>The same tables, client and server {}</summary>{}</details>",
            l.name(),
            tables::paper(run, p, *l)
        );
    }
    text.push_str("<h3>What was wrong in the paper, and is not repeated</h3><ul>");
    for f in &p.faults {
        let _ = write!(text, "<li>{}", escape(f));
    }
    text.push_str("</ul>");
    text
}

/// A link to each section of the page.
fn nav(body: &str) -> String {
    let mut nav = String::new();
    for (i, part) in body.split("<section id=").skip(1).enumerate() {
        let (id, rest) = part.split_once('>').unwrap_or(("", part));
        let name = rest.strip_prefix("<h2>").and_then(|r| r.split_once("</h2>")).map_or("", |(n, _)| n);
        let _ = write!(nav, "{}<a href=\"#{id}\">{name}</a>", if i == 0 { "" } else { " · " });
    }
    nav
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a b=\"&\">"), "&lt;a b=&quot;&amp;&quot;&gt;");
    }
}
