//! `levee why` and `levee matrix`: what the site file lets whom do; the first also says what a running server does not let them.

use std::path::PathBuf;
use std::process::ExitCode;

use levee_ipc::operator::ServerStatus;
use levee_policy::site::Reach;
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
    /// Every label of it at which something can be reached; `None` where there are too many to list.
    labels: Option<Vec<LabelName>>,
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
        let which = Which { run: None };
        if self.site.is_none() && rustix::process::geteuid().is_root() && which.runs() {
            let revoked = which.state().is_some_and(|state| keys::is_revoked(&state, &verdict.host));
            verdict.hold(&site, &label, &which.status()?, revoked);
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
        let rows = rows(&site, user.as_ref(), host.as_ref());
        if self.json {
            output::json(&rows)?;
        } else {
            output::print(&table(&rows))?;
            output::said("by the site file alone: `levee why` asks the server that runs here, too\n")?;
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
    fn hold(&mut self, site: &Site, label: &Label, status: &ServerStatus, revoked: bool) {
        self.running = true;
        let Self { user, host, label: name, .. } = &*self;
        let posture = site.posture_at(label, status.postures.iter().map(|one| &one.what));
        let refused = posture.filter(|posture| !posture.admits(user, host));
        let refused = refused
            .map(|posture| format!("posture `{}` {}", posture.name(), posture.refusal(user, host, name)));
        let is_disabled = status.disabled.contains(user);
        let all = [
            (!is_disabled, format!("{user} is enabled"), format!("an operator has disabled {user}")),
            (
                !revoked,
                format!("{host} has certificates that are believed"),
                format!("{host}'s certificates are revoked"),
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

fn rows(site: &Site, user: Option<&UserName>, host: Option<&HostName>) -> Vec<Row> {
    let users = site.users().map(|one| one.name()).filter(|name| user.is_none_or(|user| user == *name));
    let pairs = users.flat_map(|user| {
        let hosts = site.hosts().map(|one| one.name()).filter(|name| host.is_none_or(|host| host == *name));
        hosts.map(move |host| (user.clone(), host.clone()))
    });
    let row = |(user, host)| {
        let range = site.session_range(&user, &host).and_then(|range| site.vocabulary().print_range(&range));
        let labels = site.session_labels(&user, &host, MOST);
        Row { user, host, range, labels }
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
            (Some(labels), _) if labels.is_empty() => "none (nothing can be reached)".to_owned(),
            (Some(labels), Some(range)) if labels.len() > NAMED => {
                format!("{range} ({} labels)", labels.len())
            }
            (Some(labels), _) => labels.iter().map(LabelName::as_str).collect::<Vec<_>>().join("  "),
        };
        [row.user.to_string(), row.host.to_string(), labels]
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
        let asked = |status: &ServerStatus, revoked| {
            let (ada, ws1) = (UserName::new("ada").unwrap(), HostName::new("ws1").unwrap());
            let mut verdict = verdict(&site, ada, ws1, &label).unwrap();
            verdict.hold(&site, &label, status, revoked);
            verdict
        };
        let mut status = crate::status::tests::status();
        assert!(asked(&status, false).granted);
        let revoked = asked(&status, true);
        assert_eq!((revoked.granted, revoked.reason.as_str()), (false, "ws1's certificates are revoked"));
        status.postures = vec![levee_ipc::operator::InForce {
            what: levee_policy::site::Placed::everywhere("siege".parse().unwrap()),
            left_ms: None,
        }];
        let barred = asked(&status, false);
        assert!(
            !barred.granted && barred.reason.starts_with("posture `siege` does not let `ada`"),
            "{}",
            barred.reason
        );
        assert!(barred.reach.is_empty() && !barred.text().contains("site file alone"), "{}", barred.text());
        status.disabled = vec!["ada".parse().unwrap()];
        let disabled = asked(&status, false);
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
