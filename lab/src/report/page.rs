//! The page itself.

use super::Run;
use super::answer;
use super::appendix;
use super::csv::download;
use super::draw::human;
use super::figures;
use super::glance;
use super::plots;
use super::read;
use super::tables;
use super::threats;
use crate::design::Layout;
use crate::paper::Paper;
use crate::workload::Kind;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// Which colour is which arm's.
fn key(run: &Run) -> Markup {
    html! {
        p.key {
            @for (i, arm) in read::arms(run).iter().enumerate() {
                span style={ "--k:var(--c" (i % super::draw::SERIES) ")" } { (read::in_words(run, arm)) } " "
            }
        }
    }
}

fn environment(run: &Run) -> Markup {
    let m = &run.manifest;
    let c = &m.common;
    let settings = [
        ("laboratory", m.version.clone()),
        ("seed of every order and bootstrap", m.seed.to_string()),
        ("congestion control, both ends, read back", c.congestion.clone()),
        ("bytes per write of a stream", human(c.write_size as f64)),
        ("payload of a datagram", human(c.datagram as f64)),
        ("bytes of a TCP_FETCH answer", human(f64::from(c.fetch))),
        ("measured time of a trial", format!("{} s after {} s of warm-up", m.form.seconds, m.form.warmup)),
    ];
    html! {
        table { tbody {
            @for (i, e) in run.env.iter().enumerate() {
                tr.first { td { @if i == 0 { "begun" } @else { "resumed" } } td { (e.at) } }
                @for (k, v) in &e.facts { tr { td { (k) } td.wrap { (v) } } }
            }
            @for (k, v) in settings { tr { td { (k) } td { (v) } } }
        } }
    }
}

/// A part of the page.
struct Section {
    /// What the list at the page's head links to.
    id: String,
    title: String,
    /// Closed until somebody wants it, and not printed.
    folded: bool,
    body: Markup,
}

impl Section {
    fn open(id: &str, title: &str, body: Markup) -> Section {
        Section { id: id.to_owned(), title: title.to_owned(), folded: false, body }
    }

    fn folded(id: &str, title: &str, body: Markup) -> Section {
        Section { folded: true, ..Section::open(id, title, body) }
    }

    fn whole(&self) -> Markup {
        html! {
            section id=(self.id) class=[self.folded.then_some("folded")] {
                h2 { (self.title) }
                @if self.folded { details { summary { "Show" } (self.body) } } @else { (self.body) }
            }
        }
    }
}

/// What the run answers, before everything else.
fn answered(run: &Run) -> Markup {
    let sentences = answer::sentences(run);
    html! {
        p.lead { strong { @if let Some(first) = sentences.first() { (first) } } }
        ul.headline { @for sentence in sentences.iter().skip(1) { li { (sentence) } } }
    }
}

/// The page, whole.
pub fn page(run: &Run) -> String {
    let m = &run.manifest;
    let sections = sections(run);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width";
            title { (m.experiment.title) " — levee's laboratory" }
            style { (PreEscaped(STYLE)) }
            main {
                h1 { (m.experiment.title) }
                (answered(run))
                p.quiet {
                    (m.experiment.question) " (" (m.form_name) " form, " (m.begun) ". Beside this page: manifest.json, \
                    env.json, samples.ndjson, samples.csv, summary.json.)"
                }
                nav {
                    @for (i, section) in sections.iter().enumerate() {
                        @if i > 0 { " · " }
                        a href={ "#" (section.id) } { (section.title) }
                    }
                }
                @for section in &sections { (section.whole()) }
            }
        }
    };
    page.into_string() + "\n"
}

fn sections(run: &Run) -> Vec<Section> {
    let (m, s) = (&run.manifest, &run.summary);
    let units = m.experiment.units(Some(&m.form));
    let paper = m.experiment.paper.as_deref().and_then(|p| Paper::named(p).ok());
    let first_layout = m.form.layouts.first().copied().unwrap_or(Layout::Apart);
    let any_cost = s.effects.iter().any(|e| e.cost.is_some());
    let at_a_glance = html! {
        (glance::glance(run))
        @if any_cost {
            @for (i, (f, layout)) in figures::forests(run).iter().zip(&m.form.layouts).enumerate() {
                (glance::beside_the_first(i, *layout, &html! { (f) }))
            }
        }
    };
    let mut all = vec![
        Section::open("glance", "At a glance", at_a_glance),
        Section::open("set-up", "The set-up", set_up(run)),
        Section::folded("effects", "Every effect", effects(run)),
    ];
    if m.before.is_some() {
        let earlier = tables::earlier(run, first_layout);
        all.push(Section::open("earlier", "Beside the earlier programs", earlier));
    }
    if let Some(p) = &paper {
        let beside = beside(run, p, first_layout);
        all.push(Section::folded("paper", "The paper's tables beside ours", beside));
        let figures = appendix::figures_of_the_paper(run, p, first_layout);
        all.push(Section::folded("paper-figures", "The paper's figures beside ours", figures));
    }
    if units.iter().any(|u| u.kind == Kind::UdpStream) {
        all.push(Section::folded("udp", "Where every datagram went", appendix::udp(run, paper.as_ref())));
    }
    for u in units.iter().filter(|u| figures::shown(u)) {
        let of = |layout| (figures::of_workload(run, u, layout), figures::interactions(run, u, layout));
        let body = html! {
            (key(run))
            @for (layout, (own, interactions)) in m.form.layouts.iter().map(|l| (l, of(*l))) {
                @if m.form.layouts.len() > 1 && !own.is_empty() { h3 { "Client and server " (layout.name()) } }
                @for f in own.iter().chain(&interactions) { (f) }
            }
        };
        all.push(Section::folded(&u.id, &u.id, body));
    }
    let loads = figures::loads(run);
    if !loads.is_empty() {
        let body = html! { (key(run)) @for f in &loads { (f) } };
        all.push(Section::folded("load", "Latency against load", body));
    }
    if !m.experiment.factors.is_empty() {
        all.extend(factors(run));
    }
    if !run.endings.is_empty() {
        all.push(Section::open("endings", "The end of a session", tables::endings(run)));
    }
    all.extend([
        Section::folded("cells", "Values and processor time", tables::cells(run)),
        Section::folded("rejects", "Attempts flagged", tables::rejects(run)),
        Section::open("threats", "Threats to validity", threats::threats(run)),
        Section::folded("environment", "Environment", environment(run)),
    ]);
    all
}

/// What a factorial design says besides.
fn factors(run: &Run) -> [Section; 2] {
    let rows: Vec<_> = run.summary.attribution.iter().collect();
    let attribution = html! {
        (tables::attribution(run))
        @if !rows.is_empty() { (download("attribution", &plots::attribution_csv(&rows))) }
    };
    let calculator = html! {
        p {
            "The calculator adds what a connection (TCP_CC), a request (TCP_RR), a byte (stream) and a packet (UDP_STREAM, \
             less its bytes) cost in an arm. It has not seen the workloads in the second table. What remains: the ends overlap \
             their work, and a new connection's first bytes find a small window and cold buffers."
        }
        (tables::calculator(run))
    };
    [
        Section::folded("attribution", "What each factor adds, and what they add together", attribution),
        Section::folded("calculator", "The cost calculator, checked", calculator),
    ]
}

/// What was compared, and how.
fn set_up(run: &Run) -> Markup {
    let (m, s) = (&run.manifest, &run.summary);
    let units = m.experiment.units(Some(&m.form));
    let mut kinds: Vec<Kind> = units.iter().map(|u| u.kind).collect();
    kinds.dedup();
    html! {
        (glance::set_up(run))
        @if !m.experiment.factors.is_empty() {
            table {
                thead { tr { th { "factor" } th { "low" } th { "high" } } }
                tbody {
                    @for f in &m.experiment.factors {
                        tr { td { (f.name) } td { (f.low) ": " (f.low_is) } td { (f.high) ": " (f.high_is) } }
                    }
                }
            }
        }
        p {
            "Randomised complete blocks: " (m.form.blocks) " blocks; in each, every workload and layout in random order, and \
             within it every arm in random order, the baseline twice. " (s.attempts) " attempts, " (s.accepted) " trials \
             analysed."
        }
        table {
            thead { tr { th { "workload" } th { "what it does" } th { "metric" } } }
            tbody { @for k in kinds { tr { td { (k.to_string()) } td { (k.what()) } td { (k.unit()) } } } }
        }
    }
}

fn effects(run: &Run) -> Markup {
    let (m, s) = (&run.manifest, &run.summary);
    let interval =
        if m.form.blocks < levee_stats::interval::BOOTSTRAP_FROM { "Yuen's t" } else { "BCa bootstrap" };
    html! {
        @for l in &m.form.layouts { h3 { "Client and server " (l.name()) } (tables::effects(run, *l)) }
        p {
            "A cost is stated only if Holm's adjusted p is below 5 % over all " (s.effects.len()) " effects, the 95 % interval \
             (" (interval) ") of the trimmed mean of per-block log ratios excludes 1, and the effect is beyond the floor. The \
             paper's measure: decrease of a stream's rate, or increase of the latency that a rate of transactions implies; \
             base: the baseline's median. " (download("cells", &plots::cells_csv(&s.cells)))
        }
    }
}

/// A paper's tables beside ours, and what was wrong there.
fn beside(run: &Run, p: &Paper, first_layout: Layout) -> Markup {
    html! {
        p {
            a href=(p.url) { (p.cite) }
            ". This is a replication of its design on other mechanisms and other machines, not of its numbers. Our changes \
             carry their intervals alone; which of them are beyond this machine's noise, adjusted for their number, is under \
             “Every effect”."
        }
        (tables::paper(run, p, first_layout))
        @for l in run.manifest.form.layouts.iter().filter(|l| **l != first_layout) {
            details.printed {
                summary { "The same tables, client and server " (l.name()) }
                (tables::paper(run, p, *l))
            }
        }
        h3 { "What was wrong in the paper, and is not repeated" }
        ul { @for f in &p.faults { li { (f) } } }
    }
}
