//! `levee posture plan`: what a posture would change, before it does.

use std::collections::BTreeSet;
use std::process::ExitCode;

use levee_ipc::operator::{InForce, Priced, ServerStatus, SessionStatus};
use levee_policy::LabelName;
use levee_policy::site::{self, Cipher, Exchanges, Keying, Placed, Site, VaultKind};
use levee_prices::Carried;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::what::What;
use crate::operator::Which;
use crate::output::table;
use crate::output::{self, some_milliseconds};
use crate::running::Running;

/// Show which sessions a posture would end or give new keys, and by which ciphers; nothing is changed
#[derive(Debug, clap::Args)]
pub struct PosturePlan {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    which: Which,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What would change.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Planned {
    #[serde(flatten, serialize_with = "placed")]
    what: Placed,
    /// Whether another change is under way: until it is over the server takes none.
    moving: bool,
    /// How long workstations would have to follow, in milliseconds.
    follow_ms: u64,
    labels: Vec<LabelPlan>,
    sessions: Vec<SessionPlan>,
    /// Sessions that the server did not list.
    more: u64,
}

/// The posture's name, or `default`, and at which labels; none: at all that it is for.
fn placed<S: Serializer>(what: &Placed, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(Some(2))?;
    fields.serialize_entry("posture", what.name())?;
    fields.serialize_entry("ranges", &what.labels)?;
    fields.end()
}

/// A label that runs.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct LabelPlan {
    label: String,
    /// The posture that would count, or `default`.
    under: String,
    /// The preferred first.
    now: Vec<Cipher>,
    then: Vec<Cipher>,
    /// What keys would be agreed by.
    exchanges: Exchanges,
    /// Whether that is what they are agreed by now.
    exchanges_stay: bool,
    /// Whether tunnels have to have new keys.
    changes: bool,
    /// How old keys may become; none: as long as without a posture.
    key_life_ms: Option<u64>,
    /// From one packet of a session to the next, where all leave at a constant rate.
    #[serde(rename = "interval_ms", serialize_with = "some_milliseconds")]
    interval_us: Option<u64>,
    /// Whether packets go in AGGFRAG payloads as they come, where the client takes them.
    aggfrag: bool,
    /// Whether two stacks would have to agree about every packet.
    agree: bool,
    /// How many processes its vault would be.
    workers: u16,
    /// Whether the vault stays, or the stacks do: else its packets of that moment are lost.
    vault_stays: bool,
    /// Services that would be off.
    off: Vec<String>,
    /// Whether every program at the label would end, and those of services that are on start again: a service that is on is turned off.
    restarts: bool,
}

/// What becomes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// Its label's ciphers and rate stay, and its keys with them.
    Stays,
    /// It has to agree on new keys, by a cipher that it has had all along.
    NewKeys,
    /// It has to agree on new keys by another cipher. A workstation of levee's has every cipher; what another client has, it shows by then.
    NewCipher,
    /// It ends: what was asked of its tunnel cannot be had then.
    Ends,
    /// It ends: its person or its workstation may have no session at its label then.
    NotAllowed,
    /// It has no keys here now, and agrees on what is in force then.
    NoKeys,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct SessionPlan {
    id: String,
    user: String,
    host: String,
    label: String,
    /// By what its tunnels are sealed now.
    now: Vec<Cipher>,
    outcome: Outcome,
    /// Microseconds of the label's vault for a gigabyte in a stream, by the laboratory's prices; none: not measured.
    #[serde(rename = "gigabyte_ms", serialize_with = "some_milliseconds")]
    gigabyte_us: Option<u64>,
    /// The same of the preferred cipher then.
    #[serde(rename = "gigabyte_then_ms", serialize_with = "some_milliseconds")]
    gigabyte_us_then: Option<u64>,
}

impl PosturePlan {
    /// Runs the command.
    pub fn run(&self) -> Result<ExitCode, String> {
        let file = Running::of(&self.which.run()?)?.config;
        let site = crate::site::read(&file)?;
        let status = self.which.status()?;
        if status.site != *site.name() {
            let file = file.display();
            return Err(format!("{file} is of site {}, and the server of {}", site.name(), status.site));
        }
        let planned = plan(&site, &status, &self.which.prices()?, &self.what.placed(Some(&site))?)?;
        if self.json {
            output::json(&planned)?;
        } else {
            output::print(&planned.render())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What a site says while these postures are in force, the last over those before it; with what is left of each.
struct Under<'a> {
    site: &'a Site,
    in_force: Vec<InForce>,
}

impl Under<'_> {
    fn posture(&self, label: &LabelName) -> Option<&site::Posture> {
        self.site.posture_at(&self.site.label(label)?, self.in_force.iter().map(|one| &one.what))
    }

    fn ciphers(&self, label: &LabelName) -> Vec<Cipher> {
        let known = self.site.label(label).is_some();
        if known { self.site.ciphers_under(self.posture(label)).to_vec() } else { Vec::new() }
    }

    /// What tunnels must have for which this was asked.
    fn tunnel(&self, label: &LabelName, asked: &site::Protected) -> site::Protected {
        let known = self.site.label(label);
        let tunnel = known.map(|known| self.site.protected_under(&known, asked, self.posture(label)));
        tunnel.unwrap_or_default()
    }

    /// And those for which nothing was.
    fn plain(&self, label: &LabelName) -> site::Protected {
        self.tunnel(label, &site::Protected::default())
    }

    /// How its keys are agreed.
    fn keying(&self, label: &LabelName) -> Keying {
        self.site.keying_under(self.posture(label))
    }

    /// What stands at its tunnel.
    fn vault(&self, label: &LabelName) -> VaultKind {
        let known = self.site.label(label);
        known.map(|known| self.site.vault_under(&known, self.posture(label))).unwrap_or_default()
    }

    /// The names of services that are off.
    fn off(&self, label: &LabelName) -> Vec<String> {
        let (Some(known), Some(posture)) = (self.site.label(label), self.posture(label)) else {
            return Vec::new();
        };
        let services = self.site.services_at(&known).filter(|one| !posture.offers(one.name()));
        services.map(|service| service.name().to_string()).collect()
    }

    /// Whether all keys are replaced where this is in force after `before`: they may live less long or were agreed by what would not count
    /// any more, packets go otherwise, or another vault begins.
    fn replaces(&self, before: &Self, label: &LabelName) -> bool {
        self.keying(label).is_narrower_than(&before.keying(label))
            || before.plain(label) != self.plain(label)
            || before.vault(label) != self.vault(label)
    }
}

/// What it costs now and then.
fn costs(
    (before, then): (&Under<'_>, &Under<'_>),
    priced: &Priced,
    session: &SessionStatus,
    (now, may, outcome): (&[Cipher], &[Cipher], Outcome),
) -> (Option<u64>, Option<u64>) {
    let label = then.site.label(&session.label);
    let asked = label.and_then(|label| then.site.protected_by(&label, session.protections.iter(), may).ok());
    let protected = || asked.as_ref()?.among(may).first().copied();
    // A tunnel that is measured now is of a kind that would be then, but for how its packets go.
    let carried = priced.sessions.iter().find(|(id, _)| *id == session.id).and_then(|(_, carried)| *carried);
    let moved = || {
        let tunnel = then.tunnel(&session.label, asked.as_ref()?);
        let same = then.vault(&session.label) == before.vault(&session.label) && !tunnel.aggfrag;
        same.then(|| Carried::at(tunnel.interval))
    };
    let gigabyte = |cipher: Option<Cipher>, carried: Option<Carried>| {
        Some(priced.prices.as_ref().ok()?.of(cipher?, carried?)?.gigabyte?.middle())
    };
    let only = now.first().filter(|_| now.len() == 1).copied();
    let cipher = match outcome {
        // What keeps its keys keeps their cipher.
        Outcome::Stays => only,
        Outcome::Ends | Outcome::NotAllowed => None,
        Outcome::NewKeys | Outcome::NewCipher | Outcome::NoKeys => protected(),
    };
    (gigabyte(only, carried), gigabyte(cipher, carried.and_then(|_| moved())))
}

fn plan(site: &Site, status: &ServerStatus, priced: &Priced, what: &Placed) -> Result<Planned, String> {
    // As the server does it. Nobody says here for how long.
    let what = site.place(what)?;
    let new = InForce { what: what.clone(), left_ms: None };
    let after = site.with(status.postures.clone(), new, |one| &one.what);
    let (now, then) = (Under { site, in_force: status.postures.clone() }, Under { site, in_force: after });
    let posture = what.posture.as_ref().and_then(|name| site.posture(name));
    let follow = posture.map_or(site::Posture::FOLLOW, site::Posture::follow);
    let compartments = status.compartments.iter().map(|compartment| &compartment.label);
    let labels: BTreeSet<&LabelName> =
        compartments.chain(status.sessions.iter().map(|session| &session.label)).collect();
    let sessions = status.sessions.iter().map(|session| planned(&now, &then, status, priced, session));
    let sessions: Vec<SessionPlan> = sessions.collect();
    let labels = labels.into_iter().map(|label| {
        let (ciphers, ciphers_then) = (now.ciphers(label), then.ciphers(label));
        let (before, off) = (now.off(label), then.off(label));
        let (keying, plain) = (then.keying(label), then.plain(label));
        LabelPlan {
            label: label.to_string(),
            under: then.posture(label).map_or(site::Posture::DEFAULT, |one| one.name().as_str()).to_owned(),
            changes: ciphers != ciphers_then || then.replaces(&now, label),
            now: ciphers,
            then: ciphers_then,
            exchanges_stay: keying.exchanges == now.keying(label).exchanges,
            exchanges: keying.exchanges,
            key_life_ms: keying.key_life.and_then(|life| u64::try_from(life.as_millis()).ok()),
            interval_us: plain.interval.and_then(|time| u64::try_from(time.as_micros()).ok()),
            aggfrag: plain.aggfrag,
            agree: then.vault(label) == VaultKind::Agreeing,
            workers: then.vault(label).workers(),
            vault_stays: then.vault(label) == now.vault(label),
            restarts: off.iter().any(|name| !before.contains(name)),
            off,
        }
    });
    Ok(Planned {
        what,
        moving: status.moving,
        follow_ms: u64::try_from(follow.as_millis()).unwrap_or(u64::MAX),
        more: status.session_count.saturating_sub(sessions.len() as u64),
        labels: labels.collect(),
        sessions,
    })
}

/// What becomes of one session.
fn planned(
    now: &Under<'_>,
    then: &Under<'_>,
    status: &ServerStatus,
    priced: &Priced,
    session: &SessionStatus,
) -> SessionPlan {
    let label = &session.label;
    let sas = status.vaults.iter().filter(|(of, _)| of == label);
    let sas = sas.flat_map(|(_, report)| &report.sas).filter(|sa| sa.session.to_string() == session.id);
    let mut suites: Vec<Cipher> = sas.map(|sa| sa.cipher).collect();
    suites.sort_unstable();
    suites.dedup();
    let may = then.ciphers(label);
    let protected = then.site.label(label).is_none_or(|label| {
        session.protections.is_empty()
            || then.site.protected_by(&label, session.protections.iter(), &may).is_ok()
    });
    let allowed = then.posture(label).is_none_or(|posture| posture.admits(&session.user, &session.host));
    let outcome = match () {
        () if !allowed => Outcome::NotAllowed,
        () if !protected => Outcome::Ends,
        () if now.ciphers(label) == may && !then.replaces(now, label) => Outcome::Stays,
        () => follows(&suites, &may, !session.protections.is_empty()),
    };
    let (gigabyte_us, gigabyte_us_then) = costs((now, then), priced, session, (&suites, &may, outcome));
    SessionPlan {
        gigabyte_us,
        gigabyte_us_then,
        id: session.id.clone(),
        user: session.user.to_string(),
        host: session.host.to_string(),
        label: label.to_string(),
        now: suites,
        outcome,
    }
}

/// What a session has to do whose tunnels have these suites now and may have those ciphers then, the preferred first.
fn follows(now: &[Cipher], then: &[Cipher], protected: bool) -> Outcome {
    let first = now.iter().all(|suite| then.first() == Some(suite));
    match now {
        [] => Outcome::NoKeys,
        _ if first || (protected && now.iter().all(|suite| then.contains(suite))) => Outcome::NewKeys,
        _ => Outcome::NewCipher,
    }
}

fn seconds(microseconds: Option<u64>) -> String {
    let shown = |us: u64| format!("{}.{:03}", us / 1_000_000, us / 1_000 % 1_000);
    microseconds.map_or_else(|| "-".to_owned(), shown)
}

/// Ciphers, the preferred first.
fn words(ciphers: &[Cipher]) -> String {
    match ciphers {
        [] => "-".to_owned(),
        some => some.iter().map(|cipher| cipher.as_str()).collect::<Vec<_>>().join(" "),
    }
}

impl LabelPlan {
    fn row(&self) -> Vec<String> {
        let then = if self.now != self.then { words(&self.then) } else { "the same".to_owned() };
        let off = match self.off.as_slice() {
            [] => "-".to_owned(),
            off if self.restarts => format!("{} (every program at the label ends for it)", off.join(" ")),
            off => off.join(" "),
        };
        let life = self.key_life_ms.map_or_else(|| "-".to_owned(), |life| format!("{} s", life / 1_000));
        let rate = match self.interval_us {
            Some(us) => format!("one in {us} us"),
            None if self.aggfrag => "in AGGFRAG".to_owned(),
            None => "-".to_owned(),
        };
        let exchanges = if self.exchanges_stay { "as now".to_owned() } else { self.exchanges.to_string() };
        let vault = match (self.vault_stays, self.agree) {
            (true, _) => "as now".to_owned(),
            (false, true) => "two stacks instead".to_owned(),
            (false, false) if self.workers > 1 => format!("another, of {} workers", self.workers),
            (false, false) => "another".to_owned(),
        };
        vec![
            self.label.clone(),
            self.under.clone(),
            words(&self.now),
            then,
            exchanges,
            life,
            rate,
            vault,
            off,
        ]
    }
}

impl Planned {
    fn render(&self) -> String {
        let labels = self.labels.iter().map(LabelPlan::row);
        let sessions = self.sessions.iter().map(|row| {
            let outcome = match row.outcome {
                Outcome::Stays => "stays as it is",
                Outcome::NewKeys => "new keys",
                Outcome::NewCipher => "new keys by another cipher",
                Outcome::Ends => "ends: its protection cannot be had then",
                Outcome::NotAllowed => "ends: its person or host may have none there then",
                Outcome::NoKeys => "has no keys now",
            };
            vec![
                row.id.clone(),
                row.user.clone(),
                row.host.clone(),
                row.label.clone(),
                words(&row.now),
                outcome.to_owned(),
                match (row.gigabyte_us, row.gigabyte_us_then) {
                    (None, None) => "-".to_owned(),
                    costs => format!("{} / {}", seconds(costs.0), seconds(costs.1)),
                },
            ]
        });
        let heading = ["SESSION", "USER", "HOST", "LABEL", "NOW", "THEN", "SECONDS A GB NOW/THEN"];
        let mut out = format!(
            "posture {}: what has to follow has {}.{} s, and ends where it does not\n\nlabels\n{}\nsessions\n{}",
            self.what,
            self.follow_ms / 1_000,
            self.follow_ms % 1_000 / 100,
            table(
                &[
                    "LABEL",
                    "UNDER",
                    "NOW",
                    "THEN",
                    "AGREED BY",
                    "KEYS LIVE",
                    "PACKETS",
                    "VAULT",
                    "SERVICES OFF THEN"
                ],
                labels.collect()
            ),
            table(&heading, sessions.collect()),
        );
        if self.more > 0 {
            out.push_str(&format!("  and {} more\n", self.more));
        }
        if self.moving {
            out.push_str("\nanother change is under way: the server takes none until it is over\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = concat!(
        include_str!("../../../conf/small/site.toml"),
        r#"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
[[posture]]
name = "alert"
labels = ["UNCLASSIFIED"]
ciphers = ["aes-128-gcm"]
follow = "2s"
[[posture]]
name = "same"
ciphers = ["aes-256-gcm"]
[[posture]]
name = "few"
people = ["mia"]
[[posture]]
name = "quiet"
services = []
[[posture]]
name = "brief"
key-life = "5m"
[[posture]]
name = "even"
constant-rate = true
[[posture]]
name = "two"
agree = true
"#
    );

    fn status() -> ServerStatus {
        let mut status = crate::status::tests::status();
        // One of the small site's labels.
        let label: LabelName = "SECRET//NATO,MED".parse().unwrap();
        status.compartments[0].label = label.clone();
        status.sessions[0].label = label.clone();
        status.vaults[0].0 = label;
        status.sessions[0].id = status.vaults[0].1.sas[0].session.to_string();
        status
    }

    /// With prices of AES-256-GCM and ChaCha20-Poly1305.
    fn of(status: &ServerStatus, what: &str) -> Result<Planned, String> {
        let priced = crate::cost::tests::priced(status, Some(Carried::Each));
        plan(&Site::parse(SITE).unwrap(), status, &priced, &placed(what))
    }

    /// A posture, or one `at` ranges.
    fn placed(what: &str) -> Placed {
        let (posture, ranges) = what.split_once(" at ").map_or((what, None), |(name, at)| (name, Some(at)));
        let ranges = ranges.iter().flat_map(|ranges| ranges.split(" and "));
        let labels: Vec<_> = ranges.map(|range| range.parse().unwrap()).collect();
        What { posture: posture.to_owned(), labels }.placed(Some(&Site::parse(SITE).unwrap())).unwrap()
    }

    fn set(all: &[&str]) -> Vec<InForce> {
        all.iter().map(|what| InForce { what: placed(what), left_ms: None }).collect()
    }

    fn outcome(status: &ServerStatus, name: &str) -> Outcome {
        of(status, name).unwrap().sessions[0].outcome
    }

    #[test]
    fn what_a_posture_would_change_is_said_for_each_session_and_label() {
        let mut status = status();
        assert_eq!(outcome(&status, "siege"), Outcome::NewCipher);
        let costs = |name: &str| {
            let row = of(&status, name).unwrap().sessions.swap_remove(0);
            (row.gigabyte_us, row.gigabyte_us_then)
        };
        let (aes, chacha) = (Some(40_000_000), Some(60_000_000));
        assert_eq!(costs("siege"), (aes, chacha));
        assert_eq!((costs("same"), costs("alert"), costs("few")), ((aes, aes), (aes, aes), (aes, None)));
        let shown = of(&status, "siege").unwrap().render();
        assert!(shown.contains("40.000 / 60.000"), "{shown}");
        // It does not name the label.
        assert_eq!(outcome(&status, "alert"), Outcome::Stays);
        assert_eq!(outcome(&status, "default"), Outcome::Stays);
        // The server changes the keys wherever the list is another.
        assert_eq!(outcome(&status, "same"), Outcome::NewKeys);
        assert_eq!(outcome(&status, "brief"), Outcome::NewKeys);
        assert_eq!(outcome(&status, "even"), Outcome::NewKeys);
        assert!(of(&status, "even").unwrap().render().contains("one in 4000 us"));
        // The prices have none of a constant rate.
        assert_eq!(costs("even"), (aes, None));
        // Another vault begins, with other keys, and nobody has measured what two stacks cost.
        let two = of(&status, "two").unwrap();
        assert!(two.labels[0].changes && two.labels[0].agree && !two.labels[0].vault_stays);
        let even = of(&status, "even").unwrap();
        assert!(!even.labels[0].agree && even.labels[0].vault_stays);
        assert_eq!((outcome(&status, "two"), costs("two")), (Outcome::NewKeys, (aes, None)));
        assert!(two.render().contains("two stacks instead"), "{}", two.render());
        status.postures = set(&["siege"]);
        assert_eq!(outcome(&status, "siege"), Outcome::Stays);
        assert_eq!(outcome(&status, "default"), Outcome::NewKeys);
        status.vaults[0].1.sas.clear();
        assert_eq!(outcome(&status, "default"), Outcome::NoKeys);
        let planned = of(&status, "alert").unwrap();
        assert_eq!((planned.follow_ms, planned.more), (2_000, 2));
        assert!(planned.render().contains("2.0 s"), "{}", planned.render());
        let error = of(&status, "seige").unwrap_err();
        assert!(error.contains("siege alert same few quiet brief even two default"), "{error}");
        status.postures.clear();
        assert_eq!(outcome(&status, "brief"), Outcome::NoKeys);
        let quiet = |status: &ServerStatus| {
            let mut planned = of(status, "quiet").unwrap();
            let row = planned.labels.swap_remove(0);
            (row.off, row.restarts, row.changes, planned.sessions[0].outcome)
        };
        assert_eq!(quiet(&status), (vec!["web".to_owned()], true, false, Outcome::Stays));
        status.postures = set(&["quiet"]);
        assert_eq!(quiet(&status), (vec!["web".to_owned()], false, false, Outcome::Stays));
        for (user, expected) in [("ada", Outcome::NotAllowed), ("mia", Outcome::Stays)] {
            status.sessions[0].user = user.parse().unwrap();
            status.postures.clear();
            assert_eq!(outcome(&status, "few"), expected, "{user}");
        }
    }

    #[test]
    fn a_posture_that_is_planned_for_some_labels_changes_sessions_there_alone() {
        let mut status = status();
        const ALL: &str = "CONFIDENTIAL..SECRET//NATO,MED";
        for (in_force, what, expected) in [
            (&[][..], "siege at SECRET//NATO,MED", Outcome::NewCipher),
            (&[], &format!("siege at UNCLASSIFIED and {ALL}"), Outcome::NewCipher),
            (&[], "siege at unclassified", Outcome::Stays),
            (&[], "siege at secret//med,nato", Outcome::NewCipher),
            (&[], "siege at Confidential..secret//nato,med", Outcome::NewCipher),
            (&[], "few at SECRET//NATO,MED", Outcome::NotAllowed),
            (&[], "few at SECRET", Outcome::Stays),
            (&["siege"], "default at SECRET", Outcome::Stays),
            (&["siege"], &format!("default at {ALL}"), Outcome::NewKeys),
            (&["siege", &format!("default at {ALL}")], "siege", Outcome::NewCipher),
            (&["siege", &format!("default at {ALL}")], "siege at SECRET", Outcome::Stays),
            (&["siege at SECRET"], "default", Outcome::Stays),
        ] {
            status.postures = set(in_force);
            assert_eq!(outcome(&status, what), expected, "{in_force:?} {what}");
        }
        status.postures.clear();
        // Another label's services stay on.
        let off = |what: &str| of(&status, what).unwrap().labels.swap_remove(0).off;
        assert_eq!(
            (off(&format!("quiet at {ALL}")), off("quiet at SECRET")),
            (vec!["web".to_owned()], vec![])
        );
        // Its words are in what is printed, either way.
        let planned = of(&status, &format!("siege at UNCLASSIFIED and {ALL}")).unwrap();
        let head = format!("posture siege at UNCLASSIFIED and {ALL}: what has to follow");
        assert!(planned.render().starts_with(&head), "{}", planned.render());
        let json = serde_json::to_value(&planned).unwrap();
        assert_eq!(
            (&json["posture"], &json["ranges"]),
            (&"siege".into(), &serde_json::json!(["UNCLASSIFIED", ALL]))
        );
        let json = serde_json::to_value(of(&status, "default").unwrap()).unwrap();
        assert_eq!((&json["posture"], &json["ranges"]), (&"default".into(), &serde_json::Value::Null));
        for (wrong, why) in [
            ("siege at SECERT", "did you mean `SECRET`"),
            ("siege at SECRET..CONFIDENTIAL", "`CONFIDENTIAL..SECRET`"),
            ("alert at SECRET", "posture `alert` is for no label of `SECRET`: its own are UNCLASSIFIED"),
        ] {
            let error = of(&status, wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    /// What nobody can know where it counts denies; so does the plan say.
    #[test]
    fn where_a_range_that_was_set_is_none_of_the_site_files_any_more_a_plan_says_who_has_no_session_until_it_is_set_anew()
     {
        let mut status = status();
        status.postures = set(&["siege at GONE"]);
        assert_eq!(outcome(&status, "alert"), Outcome::NotAllowed);
        // Until then none has keys that would be others after it.
        assert_eq!(outcome(&status, "default"), Outcome::Stays);
        assert_eq!(outcome(&status, "same"), Outcome::NewKeys);
    }
}
