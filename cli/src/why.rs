//! `levee why` and `levee matrix`: what the site file lets whom do, and what of it a running server does not let them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use levee_ipc::operator::ServerStatus;
use levee_policy::site::{Posture, Reach};
use levee_policy::{HostName, Label, LabelName, Site, UserName, nearest};
use serde::Serialize;

use crate::operator::Which;
use crate::output::{self, shown};
use crate::{keys, site};

/// Labels of one person at one workstation that are listed at most; a range with many categories has more.
const MOST: u64 = 4_096;

/// Say whether a person may have a session at a label on a workstation, and why
///
/// By the site file; without --site, and asked by root, also by the server that runs here: whom an operator has disabled, whose
/// certificates are revoked, and what a posture lets nobody do.
///
/// Exit status 0: they may. 1: they may not. 2: it could not be found out.
#[derive(Debug, clap::Args)]
pub struct Why {
    /// The person
    user: String,
    /// The workstation
    host: String,
    /// The label, in any case and order of categories
    label: String,
    /// The site file [default: that of the server that runs here, or else /etc/levee/site.toml]
    #[arg(long, env = "LEVEE_SITE", value_name = "FILE")]
    site: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Print who may have sessions where, and at which labels
///
/// By the site file; without SITE, and asked by root, also by the server that runs here: whom an operator has disabled, whose
/// certificates are revoked, and what a posture lets nobody do.
#[derive(Debug, clap::Args)]
pub struct Matrix {
    /// The site file [default: that of the server that runs here, or else /etc/levee/site.toml]
    site: Option<PathBuf>,
    /// One person alone
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// One workstation alone
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One condition of a session.
#[derive(Serialize)]
struct Condition {
    holds: bool,
    what: String,
}

#[derive(Serialize)]
struct Verdict {
    user: UserName,
    host: HostName,
    label: LabelName,
    granted: bool,
    /// The policy's own words.
    reason: String,
    conditions: Vec<Condition>,
    /// What the session could reach: `web, tcp 10.80.0.1 port 80`.
    reach: Vec<String>,
    /// Whether a running server was asked, too.
    running: bool,
}

#[derive(Serialize)]
struct Row {
    user: UserName,
    host: HostName,
    /// Clearance and accreditation together; `None` where they share no label.
    range: Option<String>,
    /// Every label of it at which something can be reached, and which a running server lets them have; `None` where there are too many to list.
    labels: Option<Vec<LabelName>>,
    /// What of it a running server does not let them have, and why.
    held: Vec<String>,
}

/// What a running server goes by beside its site file.
struct Server {
    status: ServerStatus,
    /// Workstations whose certificates are revoked.
    revoked: Vec<HostName>,
}

impl Server {
    /// The one that runs here, where nobody has named a site file and root asks.
    fn asked(named: Option<&PathBuf>, site: &Site) -> Result<Option<Self>, String> {
        let which = Which { run: None };
        if named.is_some() || !rustix::process::geteuid().is_root() || !which.runs() {
            return Ok(None);
        }
        let state = which.state();
        let is_revoked = |host: &&HostName| state.as_ref().is_some_and(|state| keys::is_revoked(state, host));
        let revoked = site.hosts().map(|host| host.name()).filter(is_revoked).cloned().collect();
        Ok(Some(Self { status: which.status()?, revoked }))
    }

    /// The posture in force at this label, where it does not let them have a session.
    fn refusing<'s>(
        &self,
        site: &'s Site,
        label: &Label,
        user: &UserName,
        host: &HostName,
    ) -> Option<&'s Posture> {
        let posture = site.posture_at(label, self.status.postures.iter().map(|one| &one.what))?;
        (!posture.admits(user, host)).then_some(posture)
    }
}

impl Why {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(self.answer())
    }

    fn answer(&self) -> Result<ExitCode, String> {
        let site = site::read(&self.site.clone().unwrap_or_else(crate::words::usual))?;
        let user = named(&self.user, "user", UserName::new, site.users().map(|user| user.name().as_str()))?;
        let host = named(&self.host, "host", HostName::new, site.hosts().map(|host| host.name().as_str()))?;
        let label =
            site.vocabulary().parse_typed(&self.label).map_err(|e| format!("{}: {}", e.what, e.remedy))?;
        let mut verdict = verdict(&site, user, host, &label)
            .ok_or_else(|| format!("{}: its name is too long", shown(&self.label)))?;
        if let Some(server) = Server::asked(self.site.as_ref(), &site)? {
            verdict.hold(&site, &label, &server);
        }
        if self.json {
            output::json(&verdict)?;
        } else {
            output::print(&verdict.text())?;
        }
        Ok(if verdict.granted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Matrix {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(self.answer())
    }

    fn answer(&self) -> Result<ExitCode, String> {
        let site = site::read(&self.site.clone().unwrap_or_else(crate::words::usual))?;
        let users = site.users().map(|user| user.name().as_str());
        let user = self.user.as_deref().map(|name| named(name, "user", UserName::new, users)).transpose()?;
        let hosts = site.hosts().map(|host| host.name().as_str());
        let host = self.host.as_deref().map(|name| named(name, "host", HostName::new, hosts)).transpose()?;
        let mut rows = rows(&site, user.as_ref(), host.as_ref());
        let server = Server::asked(self.site.as_ref(), &site)?;
        if let Some(server) = &server {
            rows.iter_mut().for_each(|row| row.hold(&site, server));
        }
        if self.json {
            output::json(&rows)?;
        } else {
            output::print(&table(&rows))?;
            output::said(match server {
                Some(_) => "by the site file and the server that runs here\n",
                None => "by the site file alone: no running server was asked\n",
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A name that the site has, or what was probably meant.
fn named<'a, T: std::fmt::Display, E: std::fmt::Display>(
    text: &str,
    what: &str,
    read: impl Fn(&str) -> Result<T, E>,
    known: impl Iterator<Item = &'a str>,
) -> Result<T, String> {
    let known: Vec<&str> = known.collect();
    let name = read(text).map_err(|e| format!("{}: {e}", shown(text)))?;
    if known.contains(&name.to_string().as_str()) {
        return Ok(name);
    }
    let near =
        nearest(text, known.into_iter()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Err(format!("the site has no {what} `{}`{near}", shown(text)))
}

/// The policy's decision, and each of its conditions by itself. `None` if the label's name is too long to be one.
fn verdict(site: &Site, user: UserName, host: HostName, label: &Label) -> Option<Verdict> {
    let name = site.label_name(label)?;
    let words = |range| site.vocabulary().print_range(range).unwrap_or_default();
    let mut conditions = Vec::new();
    if let Some(found) = site.user(&user) {
        let clearance = found.clearance();
        conditions.push(Condition {
            holds: clearance.contains(label),
            what: format!("{user} is cleared for {}", words(clearance)),
        });
    }
    if let Some(found) = site.host(&host) {
        let accreditation = found.accreditation();
        let what = format!("{host} is accredited for {}", words(accreditation));
        conditions.push(Condition { holds: accreditation.contains(label), what });
    }
    let reach = site.reachable_by(&user, label);
    let number = crate::output::count(reach.len(), "service", "services");
    conditions
        .push(Condition { holds: !reach.is_empty(), what: format!("{number} can be reached at {name}") });
    let (granted, reason) = match site.decide_session(&user, &host, &name) {
        Ok(grant) => (true, grant.audit().reason.clone()),
        Err(denial) => (false, denial.reason().to_owned()),
    };
    let reach = match granted {
        true => reach.iter().map(|one| reached(site, &user, one)).collect(),
        false => Vec::new(),
    };
    Some(Verdict { user, host, label: name, granted, reason, conditions, reach, running: false })
}

/// What is reached, and whether that needs an owner's word, which the site file does not have.
fn reached(site: &Site, user: &UserName, reach: &Reach) -> String {
    use levee_policy::site::Destination;
    let name = match &reach.destination {
        Destination::Service(service) => service.to_string(),
        Destination::Network(interface) => format!("a host at {interface}"),
    };
    let waits = match &reach.destination {
        Destination::Service(name) => site.service(name).is_some_and(|one| !one.access().admits(user, None)),
        Destination::Network(_) => false,
    };
    let waits = if waits { ", once an owner lets them" } else { "" };
    format!("{name}, {} {} port {}{waits}", reach.protocol.as_str(), reach.address, reach.port)
}

impl Verdict {
    /// Holds it against what a running server goes by beside its site file.
    fn hold(&mut self, site: &Site, label: &Label, server: &Server) {
        self.running = true;
        let Self { user, host, label: name, .. } = &*self;
        let refused = server.refusing(site, label, user, host);
        let refused = refused
            .map(|posture| format!("posture `{}` {}", posture.name(), posture.refusal(user, host, name)));
        let is_disabled = server.status.disabled.contains(user);
        let all = [
            (!is_disabled, format!("{user} is enabled"), disabled(user)),
            (
                !server.revoked.contains(host),
                format!("{host} has certificates that are believed"),
                revoked(host),
            ),
            (refused.is_none(), "the posture in force lets them".to_owned(), refused.unwrap_or_default()),
        ];
        for (holds, what, why) in all {
            if !holds && self.granted {
                (self.granted, self.reason) = (false, why);
                self.reach.clear();
            }
            self.conditions.push(Condition { holds, what });
        }
    }

    fn text(&self) -> String {
        let word = if self.granted { "granted" } else { "denied" };
        let mut text = format!("{word}: {} at {} on {}: {}\n", self.user, self.label, self.host, self.reason);
        for Condition { holds, what } in &self.conditions {
            text.push_str(&format!("  {}  {what}\n", if *holds { "yes" } else { "no " }));
        }
        for reach in &self.reach {
            text.push_str(&format!("  may reach {reach}\n"));
        }
        if !self.running {
            text.push_str("by the site file alone: no running server was asked\n");
        }
        text
    }
}

fn disabled(user: &UserName) -> String {
    format!("an operator has disabled {user}")
}

fn revoked(host: &HostName) -> String {
    format!("{host}'s certificates are revoked")
}

impl Row {
    /// Holds it against what a running server goes by beside its site file.
    fn hold(&mut self, site: &Site, server: &Server) {
        let Self { user, host, labels, held, .. } = self;
        if server.status.disabled.contains(user) {
            held.push(disabled(user));
        }
        if server.revoked.contains(host) {
            held.push(revoked(host));
        }
        if !held.is_empty() {
            *labels = Some(Vec::new());
            return;
        }
        let Some(labels) = labels else {
            held.extend(
                server.status.postures.iter().map(|one| format!("posture `{}` is in force", one.what.name())),
            );
            return;
        };
        let refusing = |name: &LabelName| server.refusing(site, &site.label(name)?, user, host);
        let names: BTreeSet<&str> =
            labels.iter().filter_map(refusing).map(|one| one.name().as_str()).collect();
        held.extend(names.into_iter().map(|name| format!("posture `{name}` is in force")));
        labels.retain(|name| refusing(name).is_none());
    }
}

fn rows(site: &Site, user: Option<&UserName>, host: Option<&HostName>) -> Vec<Row> {
    let users = site.users().map(|one| one.name()).filter(|name| user.is_none_or(|user| user == *name));
    let pairs = users.flat_map(|user| {
        let hosts = site.hosts().map(|one| one.name()).filter(|name| host.is_none_or(|host| host == *name));
        hosts.map(move |host| (user.clone(), host.clone()))
    });
    let row = |(user, host)| {
        let range = site.session_range(&user, &host).and_then(|range| site.vocabulary().print_range(&range));
        let labels = site.session_labels(&user, &host, MOST);
        Row { user, host, range, labels, held: Vec::new() }
    };
    pairs.map(row).collect()
}

/// Labels that a line of the table names at most.
const NAMED: usize = 8;

fn table(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        let labels = match (&row.labels, &row.range) {
            (_, None) => "none".to_owned(),
            (None, Some(range)) => format!("{range} (more than {MOST} labels)"),
            (Some(labels), _) if labels.is_empty() && !row.held.is_empty() => "none".to_owned(),
            (Some(labels), _) if labels.is_empty() => "none (nothing can be reached)".to_owned(),
            (Some(labels), Some(range)) if labels.len() > NAMED => {
                format!("{range} ({} labels)", labels.len())
            }
            (Some(labels), _) => labels.iter().map(LabelName::as_str).collect::<Vec<_>>().join("  "),
        };
        let held = if row.held.is_empty() { String::new() } else { format!(" ({})", row.held.join("; ")) };
        [row.user.to_string(), row.host.to_string(), labels + &held]
    });
    let cells: Vec<[String; 3]> =
        std::iter::once(["USER", "HOST", "LABELS"].map(str::to_owned)).chain(cells).collect();
    let width = |column: usize| {
        cells.iter().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0)
    };
    let (first, second) = (width(0), width(1));
    cells.iter().map(|[user, host, labels]| format!("{user:first$}  {host:second$}  {labels}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harbour() -> Site {
        Site::parse(include_str!("../../conf/small/site.toml")).unwrap()
    }

    fn asked(user: &str, host: &str, label: &str) -> Verdict {
        let site = harbour();
        let label = site.vocabulary().parse_typed(label).unwrap();
        verdict(&site, UserName::new(user).unwrap(), HostName::new(host).unwrap(), &label).unwrap()
    }

    #[test]
    fn a_verdict_says_each_condition_and_what_could_be_reached() {
        let granted = asked("ada", "ws1", "secret//med,nato");
        assert!(granted.granted && granted.conditions.iter().all(|condition| condition.holds));
        assert_eq!(granted.label.as_str(), "SECRET//NATO,MED");
        assert_eq!(granted.reach, ["web, tcp 10.80.0.1 port 80"]);
        let denied = asked("mia", "ws2", "SECRET");
        assert!(!denied.granted && denied.reach.is_empty());
        let holds: Vec<bool> = denied.conditions.iter().map(|condition| condition.holds).collect();
        assert_eq!(holds, [false, false, true], "neither of the two is left out: {}", denied.text());
    }

    #[test]
    fn a_running_server_grants_less_than_its_site_file_and_says_why() {
        let site = Site::parse(&format!(
            "{}\n[[posture]]\nname = \"siege\"\npeople = [\"mia\"]\n",
            include_str!("../../conf/small/site.toml")
        ))
        .unwrap();
        let label = site.vocabulary().parse_typed("SECRET").unwrap();
        let (ada, ws1) = (UserName::new("ada").unwrap(), HostName::new("ws1").unwrap());
        let asked = |server: &Server| {
            let mut verdict = verdict(&site, ada.clone(), ws1.clone(), &label).unwrap();
            verdict.hold(&site, &label, server);
            verdict
        };
        let listed = |server: &Server| {
            let mut row = rows(&site, Some(&ada), Some(&ws1)).remove(0);
            row.hold(&site, server);
            (row.labels.clone().unwrap().len(), table(&[row]).lines().nth(1).unwrap().to_owned())
        };
        let mut server = Server { status: crate::status::tests::status(), revoked: Vec::new() };
        assert!(asked(&server).granted);
        assert_eq!(listed(&server).0, 12, "{:?}", listed(&server));
        server.revoked = vec![ws1.clone()];
        let revoked = asked(&server);
        assert_eq!((revoked.granted, revoked.reason.as_str()), (false, "ws1's certificates are revoked"));
        assert_eq!(listed(&server), (0, "ada   ws1   none (ws1's certificates are revoked)".to_owned()));
        server.revoked.clear();
        server.status.postures = vec![levee_ipc::operator::InForce {
            what: levee_policy::site::Placed::everywhere("siege".parse().unwrap()),
            left_ms: None,
        }];
        let barred = asked(&server);
        assert_eq!(listed(&server), (0, "ada   ws1   none (posture `siege` is in force)".to_owned()));
        assert!(
            !barred.granted && barred.reason.starts_with("posture `siege` does not let `ada`"),
            "{}",
            barred.reason
        );
        assert!(barred.reach.is_empty() && !barred.text().contains("site file alone"), "{}", barred.text());
        server.status.disabled = vec!["ada".parse().unwrap()];
        let disabled = asked(&server);
        assert_eq!(listed(&server), (0, "ada   ws1   none (an operator has disabled ada)".to_owned()));
        assert_eq!((disabled.granted, disabled.reason.as_str()), (false, "an operator has disabled ada"));
        assert!(disabled.text().contains("  no   ada is enabled\n"), "{}", disabled.text());
    }

    #[test]
    fn the_matrix_has_everybody_at_every_workstation_and_agrees_with_the_verdicts() {
        let site = harbour();
        let rows = rows(&site, None, None);
        assert_eq!(rows.len(), site.users().len() * site.hosts().len());
        for row in &rows {
            for label in row.labels.as_deref().unwrap() {
                assert!(asked(row.user.as_str(), row.host.as_str(), label.as_str()).granted);
            }
        }
        let table = table(&rows);
        assert!(table.contains("ugo   ws1   UNCLASSIFIED\n"), "{table}");
    }

    #[test]
    fn a_name_that_the_site_does_not_have_is_guessed() {
        let said = named("adda", "user", UserName::new, ["ada", "mia"].into_iter()).unwrap_err();
        assert_eq!(said, "the site has no user `adda`; did you mean `ada`?");
    }
}
