//! `levee check`: every problem of a site file, where it is and what to do about it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use levee_policy::layers::Line;
use levee_policy::site::{Network, Program};
use levee_policy::{Problem, Site};
use serde::Serialize;

use crate::beside;
use crate::explain;
use crate::guards;
use crate::keys::{self, Findings, Unfit};
use crate::layers::{self, Shown};
use crate::output::{self, Paint, count, shown};
use crate::pin::{self, Pin};
use crate::roots;
use crate::site;

/// Say whether a site file is sound, and if not, every problem with its place and remedy; and whether the keys that there are fit it
///
/// Exit status 0: sound. 1: it has problems, keys do not fit, or it claims two layers that share what makes them one. 2: it could not be read.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The site file; `-` for standard input [default: that of the server that runs here, or else /etc/levee/site.toml]
    site: Option<PathBuf>,
    /// Say instead what a table or key of site files means: `server`, `grace`, `user.clearance`; or `all`
    #[arg(long, value_name = "KEY", conflicts_with_all = ["site", "state"])]
    explain: Option<String>,
    /// With `--explain all`: as the page of docs
    #[arg(long, hide = true, requires = "explain")]
    markdown: bool,
    /// Where keys and certificates are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The site file of another host to or from which a one-way channel leads: the two ends of each are held against each other, and the flow
    /// through all of these hosts against the lattice
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    beside: Vec<PathBuf>,
    /// Where levee's programs are, whose libraries count where a site has two layers [default: where this one is]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a sound site has.
#[derive(Serialize)]
struct Summary {
    name: String,
    levels: usize,
    categories: usize,
    users: usize,
    hosts: usize,
    services: usize,
    networks: usize,
    other_servers: usize,
    partitions: usize,
    channels: usize,
    links: usize,
    /// What each label at which there are services is made of.
    forms: Forms,
}

/// Labels by what their compartments are made of, and so by what holds between them.
#[derive(Serialize)]
struct Forms {
    /// With a kernel of their own.
    machine: Vec<String>,
    /// On the host's kernel.
    compartment: Vec<String>,
    /// There are more labels than are named here.
    more: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    file: String,
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<Summary>,
    problems: &'a [Problem],
    /// What `levee enrol` has made and does not fit.
    #[serde(skip_serializing_if = "<[Unfit]>::is_empty")]
    unfit: &'a [Unfit],
    /// Of a site with two layers: whether they are two, by each requirement.
    #[serde(skip_serializing_if = "<[Shown]>::is_empty")]
    layers: &'a [Shown],
    /// What the site lets pass that the lattice forbids, each with its bounds.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    exceptions: &'a [String],
    /// Where the private key of the site's authority is.
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<&'a str>,
    /// Which certificate ends first, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificates: Option<&'a str>,
    /// What is sound, and not as it should be on this host, or less than the site says that it wants.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

impl Check {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        if let Some(name) = &self.explain {
            let said = match (self.markdown, self.json) {
                (true, _) => output::print(&explain::markdown()),
                (false, true) => explain::explained(name).and_then(|all| output::json(&all)),
                (false, false) => explain::explain(name).and_then(|text| output::print(&text)),
            };
            return output::exit(said.map(|()| ExitCode::SUCCESS));
        }
        output::exit(self.answer(&self.site.clone().unwrap_or_else(crate::words::usual)))
    }

    fn layers(&self, site: &Site) -> Vec<Line> {
        let own = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
        let programs = self.programs.clone().or(own).unwrap_or_default();
        layers::lines(site, &site::state(self.state.as_deref(), site.name()), &programs)
    }

    /// What of the state is another site's, or not there, or another's; and what is to be said of it besides.
    fn not_there(&self, site: &Site, path: &Path) -> (Vec<Unfit>, Vec<String>) {
        let state = site::state(self.state.as_deref(), site.name());
        let (mut unfit, unknown) = misplaced(site, path, &state);
        let mut warnings: Vec<String> = unknown.into_iter().collect();
        let (lost, told) = keys::whole(site, &state);
        unfit.extend(lost);
        warnings.extend(told);
        // Where only root may look, nobody else is told.
        let lacks = |file: &str| matches!(state.join(file).try_exists(), Ok(false));
        // A site file that lies elsewhere, and of which nothing has been made, is looked at and not run.
        let is_meant = self.state.is_some() || path.starts_with("/etc/levee") || state.is_dir();
        if is_meant && lacks("authority/ca.pem") && lacks("server/chain.pem") {
            warnings.push(keys::none_yet(path, &state, self.state.is_some()));
        }
        (unfit, warnings)
    }

    fn answer(&self, path: &Path) -> Result<ExitCode, String> {
        let text = site::text(path)?;
        let file = path.display().to_string();
        let parsed = Site::parse(&text);
        let sound = parsed.is_ok();
        let found = parsed.as_ref().ok().map(|site| {
            let state = site::state(self.state.as_deref(), site.name());
            let found = keys::findings(site, &state);
            (found.ends(&state), found)
        });
        let (ends, Findings { mut unfit, mut warnings, authority, .. }) = found.unwrap_or_default();
        if let Ok(site) = &parsed {
            let (lost, told) = self.not_there(site, path);
            unfit.extend(lost);
            warnings.extend(told);
            unfit.extend(guards::unfit(site, path));
            unfit.extend(roots::unfit(site));
        }
        let exceptions = parsed.as_ref().map(guards::exceptions).unwrap_or_default();
        let layers = parsed.as_ref().map(|site| self.layers(site)).unwrap_or_default();
        let are_two = !layers.iter().any(Line::refuses);
        let (site, problems) = match &parsed {
            Ok(site) => (Some(summary(site)), [].as_slice()),
            Err(problems) => (None, problems.as_slice()),
        };
        if let Ok(site) = &parsed {
            let (told, alone) = beside::findings(site, path, &self.beside)?;
            unfit.extend(told);
            warnings.extend(alone);
        }
        for one in unfit.iter_mut().map(|unfit| &mut unfit.remedy).chain(&mut warnings) {
            *one = site::named(one, path);
        }
        warnings.extend(parsed.iter().flat_map(missing_programs));
        warnings.extend(parsed.as_ref().ok().and_then(shared_kernel));
        warnings.extend(parsed.iter().flat_map(crowded));
        if self.json {
            let layers = &layers::shown_lines(&layers);
            let (unfit, warnings, exceptions) = (&unfit[..], &warnings[..], &exceptions[..]);
            let (authority, certificates) = (authority.as_deref(), ends.as_deref());
            output::json(&Answer {
                file,
                sound,
                site,
                problems,
                unfit,
                layers,
                exceptions,
                authority,
                certificates,
                warnings,
            })?;
        } else {
            let said = render(&file, &text, site.as_ref(), problems, Paint::stdout());
            let warned: String =
                warnings.iter().map(|warning| format!("warning: {}\n", shown(warning))).collect();
            let forms = site.as_ref().map(|site| site.forms.render()).unwrap_or_default();
            let layers = layers::render(&layers, Paint::stdout());
            let excepted: String = exceptions.iter().map(|line| format!("{}\n", shown(line))).collect();
            let about = [("authority", authority), ("certificates", ends)];
            let about: String = about
                .into_iter()
                .filter_map(|(what, is)| Some(format!("{what}: {}\n", shown(&is?))))
                .collect();
            let unfit = misfits(&unfit, Paint::stdout());
            output::print(&(said + &excepted + &forms + &layers + &about + &unfit + &warned))?;
        }
        Ok(if sound && unfit.is_empty() && are_two { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What the state directory says that it belongs to, where that is not this site; and what whoever asks may not look at.
fn misplaced(site: &Site, path: &Path, state: &Path) -> (Vec<Unfit>, Option<String>) {
    let file = pin::path(state);
    let unfit = |(what, remedy): (String, String)| Unfit {
        file: file.clone(),
        what,
        remedy: site::named(&remedy, path),
    };
    let is_hidden = || File::open(&file).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
    match Pin::read(state) {
        Ok(pin) => (pin.iter().flat_map(|pin| pin.misfits(site)).map(unfit).collect(), None),
        // Root's own affairs are no fault of the site file's.
        Err(_) if is_hidden() => {
            let what = format!(
                "root alone may look into {}: ask as root whether keys and state fit the site file",
                state.display()
            );
            (Vec::new(), Some(what))
        }
        Err(what) => (vec![unfit((what, "let root read it".to_owned()))], None),
    }
}

fn summary(site: &Site) -> Summary {
    Summary {
        name: site.name().to_string(),
        levels: site.vocabulary().levels().len(),
        categories: site.vocabulary().categories().len(),
        users: site.users().len(),
        hosts: site.hosts().len(),
        services: site.services().len(),
        networks: site.networks().len(),
        other_servers: site.federation().map_or(0, |federation| federation.peers().len()),
        partitions: site.partitions().len(),
        channels: site.channels().len(),
        links: site.links().len(),
        forms: Forms::of(site),
    }
}

/// So many labels of a service's range are named.
const NAMED: u64 = 64;

impl Forms {
    fn of(site: &Site) -> Self {
        let mut forms = Self { machine: Vec::new(), compartment: Vec::new(), more: false };
        for service in site.services() {
            let range = service.range();
            let ends = || vec![range.low().clone(), range.high().clone()];
            let labels = range.labels(NAMED).map(|labels| labels.collect::<Vec<_>>());
            forms.more |= labels.is_none();
            for label in labels.unwrap_or_else(ends) {
                let Some(name) = site.label_name(&label).map(|name| name.to_string()) else { continue };
                let of = if site.isolation().has_own_kernel(&label) {
                    &mut forms.machine
                } else {
                    &mut forms.compartment
                };
                if !of.contains(&name) {
                    of.push(name);
                }
            }
        }
        forms
    }

    /// In words, where there are both.
    fn render(&self) -> String {
        if self.machine.is_empty() {
            return String::new();
        }
        let of = |names: &[String]| match names {
            [] => "no label".to_owned(),
            names if self.more => format!("{}, and others", names.join(", ")),
            names => names.join(", "),
        };
        format!(
            "  a kernel of its own (form machine): {}\n  the host's kernel (form compartment): {}\n",
            of(&self.machine),
            of(&self.compartment)
        )
    }
}

/// Services whose program is not on this host, which need not be the server.
pub fn missing_programs(site: &Site) -> Vec<String> {
    let path = |program: &Program| match program {
        Program::Nginx => "/usr/sbin/nginx".to_owned(),
        Program::Command(words) => words.first().cloned().unwrap_or_default(),
    };
    (site.services().map(|service| (service.name(), path(service.program()))))
        .filter(|(_, path)| !Path::new(path).exists())
        .map(|(name, path)| {
            let remedy = match path.contains(char::is_whitespace) {
                true => "each argument is a string of its own in `command`",
                false => "install it on the server",
            };
            format!("the service `{name}` runs {path}, which is not on this host: {remedy}")
        })
        .collect()
}

/// Networks that may have more hosts than are known at once, where the site does not say that they may not.
fn crowded(site: &Site) -> Vec<String> {
    let large = |network: &Network, most: u16| {
        let mut prefixes = network.addresses().iter().filter(|net| net.addr().is_ipv4());
        prefixes.any(|net| net.prefix_len() < 32 && 1_u64 << (32 - net.prefix_len()) > u64::from(most) + 2)
    };
    (site.networks().iter())
        .filter(|network| network.neighbours().is_none())
        .map(|network| (network, site.neighbours_of_each(network)))
        .filter(|(network, most)| large(network, *most))
        .map(|(network, most)| {
            let name = network.interface();
            format!(
                "the network at {name} may have more hosts than the {most} that are heard within five minutes: write `neighbours` for it, and \
                 raise net.ipv4.neigh.default.gc_thresh3 on the server with it"
            )
        })
        .collect()
}

/// That labels share a kernel where the site wants high assurance.
fn shared_kernel(site: &Site) -> Option<String> {
    let (low, high) = site.widest_with_one_kernel()?;
    let name = |label: &_| site.label_name(label).map(|name| name.to_string());
    let (low, high) = (name(&low)?, name(&high)?);
    Some(format!(
        "the site wants high assurance, and {high} and {low} share a kernel: a service that is taken over above can tell one below more than \
         a little. Name a range with one of them in `own-kernel` of [isolation]"
    ))
}

/// What does not fit, a file a paragraph.
fn misfits(unfit: &[Unfit], paint: Paint) -> String {
    let one = |Unfit { file, what, remedy }: &Unfit| {
        let error = paint.error("error[unfit]");
        let file = shown(&file.display().to_string());
        format!("{error}: {file}: {what}\n  {}: {remedy}\n", paint.bold("help"))
    };
    unfit.iter().map(one).collect()
}

/// The answer as rustc would lay it out.
fn render(file: &str, text: &str, site: Option<&Summary>, problems: &[Problem], paint: Paint) -> String {
    let file = shown(file);
    if let Some(site) = site {
        let more = [
            (site.other_servers, "other server", "other servers"),
            (site.partitions, "partition", "partitions"),
            (site.channels, "channel", "channels"),
            (site.links, "link", "links"),
        ];
        let some = more.into_iter().filter(|(number, ..)| *number > 0);
        let others: String =
            some.map(|(number, one, many)| format!(", {}", count(number, one, many))).collect();
        return format!(
            "{}: site `{}` is sound: {}, {}, {}, {}, {}, {}{others}\n",
            file,
            site.name,
            count(site.levels, "level", "levels"),
            count(site.categories, "category", "categories"),
            count(site.users, "user", "users"),
            count(site.hosts, "host", "hosts"),
            count(site.services, "service", "services"),
            count(site.networks, "single-level network", "single-level networks"),
        );
    }
    let mut out = String::new();
    for problem in problems {
        let number = problem.line.to_string();
        let gutter = " ".repeat(number.len());
        let line = shown(text.lines().nth(problem.line.saturating_sub(1)).unwrap_or(""));
        let (line, column, length) = clipped(&line, problem.column, problem.length);
        let bar = paint.guide("|");
        let indent = " ".repeat(column.saturating_sub(1));
        let carets = paint.error(&"^".repeat(length));
        let kind = serde_json::to_value(problem.kind).ok();
        let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("problem");
        out.push_str(&format!(
            "{}{}\n{gutter}{} {file}:{}:{}\n{gutter} {bar}\n{} {bar} {line}\n{gutter} {bar} {indent}{carets}\n\
             {gutter} {} {}\n\n",
            paint.error(&format!("error[{kind}]")),
            paint.bold(&format!(": {}", shown(&problem.what))),
            paint.guide("-->"),
            problem.line,
            problem.column,
            paint.guide(&number),
            paint.guide("="),
            format_args!("{}: {}", paint.bold("help"), shown(&problem.remedy)),
        ));
    }
    out.push_str(&format!("{file}: {}\n", count(problems.len(), "problem", "problems")));
    out
}

/// The part of a line that has the fault, no wider than a wide terminal; the column and length of the fault in it.
fn clipped(line: &str, column: usize, length: usize) -> (String, usize, usize) {
    const WIDEST: usize = 160;
    const BEFORE: usize = 40;
    if line.chars().count() <= WIDEST {
        return (line.to_owned(), column, length);
    }
    let skipped = column.saturating_sub(1 + BEFORE);
    let column = column - skipped;
    let shown: String = line.chars().skip(skipped).take(WIDEST).collect();
    (shown, column, length.min((WIDEST + 1).saturating_sub(column).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_root_alone_may_look_into_is_no_fault_of_the_site_file() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (state, path) = (tempfile::tempdir().unwrap(), Path::new("/etc/levee/site.toml"));
        let site = Site::parse(include_str!("../../conf/small/site.toml")).unwrap();
        Pin { site: "clinic".to_owned(), ..Pin::of(&site) }.write(state.path()).unwrap();
        let (unfit, unknown) = misplaced(&site, path, state.path());
        assert_eq!((unfit.len(), unknown), (1, None));
        assert!(
            unfit[0].remedy.contains("levee state migrate /etc/levee/site.toml --site-was"),
            "{}",
            unfit[0].remedy
        );
        // A thread that is nobody; others go on as root.
        let nobody = std::thread::scope(|scope| {
            let asks = scope.spawn(|| {
                rustix::thread::set_thread_res_uid(
                    rustix::thread::Uid::from_raw(65_534),
                    rustix::thread::Uid::from_raw(65_534),
                    rustix::thread::Uid::from_raw(65_534),
                )
                .unwrap();
                misplaced(&site, path, state.path())
            });
            asks.join().unwrap()
        });
        assert!(nobody.0.is_empty() && nobody.1.is_some_and(|said| said.contains("ask as root")));
    }

    #[test]
    fn a_problem_is_shown_with_its_line_a_caret_under_it_and_the_remedy() {
        let text = "[site]\nname = \"harbour\"\n[labels]\nlevls = [\"A\"]\n";
        let problems = Site::parse(text).unwrap_err();
        let shown = render("site.toml", text, None, &problems, Paint::plain());
        assert!(
            shown.contains(
                "error[unknown-key]: unknown key `levls` in [labels]\n --> site.toml:4:1\n  |\n\
                 4 | levls = [\"A\"]\n  | ^^^^^\n  = help: did you mean `levels`?\n"
            ),
            "{shown}"
        );
        assert!(shown.ends_with(&format!("site.toml: {} problems\n", problems.len())));
    }

    #[test]
    fn a_sound_site_is_summed_up_in_a_line() {
        let text = include_str!("../../conf/small/site.toml");
        let site = Site::parse(text).unwrap();
        assert_eq!(
            render("site.toml", text, Some(&summary(&site)), &[], Paint::plain()),
            "site.toml: site `harbour` is sound: 3 levels, 2 categories, 3 users, 2 hosts, 1 service, \
             0 single-level networks\n"
        );
    }
}
