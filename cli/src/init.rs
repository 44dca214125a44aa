//! `levee init`: a site file from a few questions, its keys, and what to do next.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use levee_policy::{DomainName, HostName, Site, SiteName, UserName, Vocabulary, VocabularyError};

use crate::enrolment;
use crate::output;
use crate::site as files;

/// Write a site file from a few questions, make its keys, and say what to do next
///
/// What is not given is asked for on a terminal; elsewhere what stands in brackets is taken. Whether to make the keys is asked where something
/// else is; where everything is given, --enrol says so.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// Where to write it; what is there already is left alone
    #[arg(value_name = "SITE", default_value = "/etc/levee/site.toml")]
    file: PathBuf,
    /// The site's name: a lower-case letter, then up to 11 of a-z, 0-9 and '-' [harbour]
    #[arg(long)]
    name: Option<String>,
    /// The server's DNS name [server.NAME.example]
    #[arg(long)]
    server: Option<String>,
    /// The address at which workstations reach this host
    #[arg(long)]
    address: Option<IpAddr>,
    /// The levels, lowest first [UNCLASSIFIED,SECRET]
    #[arg(long, value_delimiter = ',')]
    levels: Vec<String>,
    /// What is kept apart within a level, such as MED,NATO; `none` for nothing [none]
    #[arg(long, value_delimiter = ',')]
    categories: Vec<String>,
    /// The people, each cleared for all levels until you narrow it
    #[arg(long, value_delimiter = ',')]
    people: Vec<String>,
    /// The workstations, each accredited for all levels until you narrow it [ws1]
    #[arg(long, value_delimiter = ',')]
    workstations: Vec<String>,
    /// Make the keys too, as `levee enrol all` does
    #[arg(long)]
    enrol: bool,
    /// Where keys and certificates are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// What was answered.
struct Answers {
    name: String,
    server: String,
    address: IpAddr,
    levels: Vec<String>,
    categories: Vec<String>,
    people: Vec<String>,
    workstations: Vec<String>,
}

impl Init {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(self.write().map(|()| ExitCode::SUCCESS))
    }

    /// Whether something is left to be asked, and somebody is there to answer.
    fn asks(&self) -> bool {
        let lists = [&self.levels, &self.people, &self.workstations];
        let given = self.name.is_some() && self.server.is_some() && self.address.is_some();
        !(given && lists.iter().all(|list| !list.is_empty())) && io::stdin().is_terminal()
    }

    fn write(self) -> Result<(), String> {
        let (file, enrol, state, asks) = (self.file.clone(), self.enrol, self.state.clone(), self.asks());
        if file.exists() {
            return Err(format!(
                "{} is there already; name another place, or edit it and run `levee check`",
                file.display()
            ));
        }
        let answers = self.answers(asks)?;
        let enrol = enrol || (asks && agreed()?);
        let text = answers.site();
        // Whatever was answered: no file is written that is not sound.
        if let Err(problems) = Site::parse(&text) {
            let told = problems.iter().map(|problem| {
                format!("\n  {}: {}", output::shown(&problem.what), output::shown(&problem.remedy))
            });
            return Err(format!("these answers make no sound site:{}", told.collect::<String>()));
        }
        let fault = |e: io::Error| format!("{}: {e}", file.display());
        if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(fault)?;
        }
        let mut out = OpenOptions::new().write(true).create_new(true).open(&file).map_err(fault)?;
        out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(fault)?;
        if enrol {
            enrolment::all(&file, state.as_deref())
                .map_err(|why| format!("{} is written, and its keys are not made: {why}", file.display()))?;
        }
        let state = state.unwrap_or_else(|| files::state_of(&answers.name));
        output::said(&answers.next_steps(&file, &state, enrol))
    }

    fn answers(self, asks: bool) -> Result<Answers, String> {
        let name = asked(self.name, "The site's name", Some("harbour"), fits::<SiteName>)?;
        let usual = format!("server.{name}.example");
        let server = asked(self.server, "The server's DNS name", Some(&usual), dns_name)?;
        let question = "The address at which workstations reach this host";
        let given = self.address.map(|address| address.to_string());
        let address = asked(given, question, None, reached)?;
        let levels = "The levels, lowest first";
        let levels = listed(self.levels, levels, "UNCLASSIFIED,SECRET", |levels| vocabulary(levels, &[]))?;
        let categories = "Categories, such as MED,NATO";
        // They are not asked for where everything else is given.
        let given = if asks || !self.categories.is_empty() { self.categories } else { vec![NONE.to_owned()] };
        let fit = |said: &[String]| match said.iter().find(|one| levels.contains(one)) {
            Some(level) => Err(format!("`{}` is a level; name the category otherwise", output::shown(level))),
            None => vocabulary(&levels, &some(said.to_vec())),
        };
        let categories = listed(given, categories, NONE, fit)?;
        Ok(Answers {
            categories: some(categories),
            levels,
            people: listed(self.people, "The people", "ada", each::<UserName>)?,
            workstations: listed(self.workstations, "The workstations", "ws1", each::<HostName>)?,
            name,
            server,
            address,
        })
    }
}

/// A DNS name. An address would be found wrong only where a workstation looks at the server's certificate.
fn dns_name(said: &str) -> Result<String, String> {
    if said.parse::<IpAddr>().is_ok() {
        return Err(format!(
            "`{said}` is an address, and a DNS name is asked for, such as server.harbour.example: it stands in the server's certificate \
             and need not be in the DNS, since workstations find the server by its address"
        ));
    }
    fits::<DomainName>(said)
}

/// An address at which others reach a host.
fn reached(said: &str) -> Result<IpAddr, String> {
    let address: IpAddr =
        said.parse().map_err(|_| format!("`{}` is no IPv4 or IPv6 address", output::shown(said)))?;
    let kind = match address {
        _ if address.is_loopback() => "reaches this host from itself alone",
        _ if address.is_unspecified() => "is the address of no host",
        _ if address.is_multicast() => "is a multicast address, and of no one host",
        IpAddr::V4(four) if four.is_broadcast() => "is a broadcast address, and of no one host",
        IpAddr::V4(four) if four.is_link_local() => {
            "is a link-local address, which means something on one link alone"
        }
        IpAddr::V6(six) if six.is_unicast_link_local() => {
            "is a link-local address, which means something on one link alone"
        }
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            "is an IPv4 address in IPv6's form: write it as IPv4 has it"
        }
        _ => return Ok(address),
    };
    Err(format!(
        "`{address}` {kind}; give the address at which workstations reach this host, such as 192.0.2.1 (`ip address` shows which it has)"
    ))
}

/// Whether the keys are to be made at once.
fn agreed() -> Result<bool, String> {
    let question =
        "Make the keys now (no: first narrow accreditations in the file, which the keys then have)";
    asked(None, question, Some("yes"), |said| match said.to_lowercase().as_str() {
        "yes" | "y" => Ok(true),
        "no" | "n" => Ok(false),
        _ => Err(format!("`{}` is neither yes nor no", output::shown(said))),
    })
}

/// Of a list that has nothing in it.
const NONE: &str = "none";

/// What a list has in it.
fn some(mut items: Vec<String>) -> Vec<String> {
    items.retain(|one| one != NONE);
    items
}

/// Levels and categories of which labels can be made.
fn vocabulary(levels: &[String], categories: &[String]) -> Result<(), String> {
    let made = Vocabulary::new(levels.to_vec(), categories.to_vec(), Vec::new(), Vec::new());
    let told = |wrong: Vec<VocabularyError>| {
        wrong.iter().map(|one| output::shown(&one.to_string()).to_string()).collect::<Vec<_>>()
    };
    made.map(drop).map_err(|wrong| told(wrong).join("\n"))
}

/// Names that are such.
fn each<T: FromStr<Err: Display>>(said: &[String]) -> Result<(), String> {
    said.iter().try_for_each(|one| fits::<T>(one).map(drop))
}

/// A name that is one.
fn fits<T: FromStr<Err: Display>>(said: &str) -> Result<String, String> {
    let wrong = |why| format!("`{}`: {why}", output::shown(said));
    said.parse::<T>().map_err(wrong).map(|_| said.to_owned())
}

/// What was given, or is answered now. An answer that cannot be is asked for again; what was answered before is not lost.
fn asked<T>(
    given: Option<String>,
    question: &str,
    default: Option<&str>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, String> {
    if let Some(given) = given {
        return read(&given);
    }
    loop {
        match read(&answer(question, default)?) {
            Err(why) if io::stdin().is_terminal() => eprintln!("{why}"),
            result => return result,
        }
    }
}

fn answer(question: &str, default: Option<&str>) -> Result<String, String> {
    if !io::stdin().is_terminal() {
        return default
            .map(str::to_owned)
            .ok_or_else(|| format!("{question}: not given; see `levee init --help`"));
    }
    let brackets = default.map_or_else(String::new, |default| format!(" [{default}]"));
    eprint!("{question}{brackets}: ");
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).map_err(|e| format!("standard input: {e}"))?;
    match (line.trim(), default) {
        (_, _) if read == 0 => Err("no answer: nothing is written".to_owned()),
        ("", Some(default)) => Ok(default.to_owned()),
        ("", None) => answer(question, default),
        (line, _) => Ok(line.to_owned()),
    }
}

/// A list, its items apart by commas.
fn listed(
    given: Vec<String>,
    question: &str,
    default: &str,
    fit: impl Fn(&[String]) -> Result<(), String>,
) -> Result<Vec<String>, String> {
    let given = if given.is_empty() { None } else { Some(given.join(",")) };
    asked(given, question, Some(default), |said| {
        let items: Vec<String> = said.split(',').map(|item| item.trim().to_owned()).collect();
        if items.iter().any(String::is_empty) {
            return Err(format!("`{}` has nothing before or behind a comma", output::shown(said)));
        }
        fit(&items).map(|()| items)
    })
}

/// A string as TOML has it; what could end it or the line is left to the parser to refuse.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl Answers {
    /// The highest level, with every category.
    fn highest(&self) -> Option<String> {
        let level = self.levels.last()?;
        Some(match self.categories.is_empty() {
            true => level.clone(),
            false => format!("{level}//{}", self.categories.join(",")),
        })
    }

    fn site(&self) -> String {
        let list = |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
        let first = self.levels.first().map_or("", String::as_str);
        let range = match self.highest() {
            Some(last) if last != first => format!("{first}..{last}"),
            _ => first.to_owned(),
        };
        let range = quoted(&range);
        let highest = self.levels.last().map_or("", String::as_str);
        // Inner networks must not be the outer one.
        let inner = match self.address {
            IpAddr::V4(address) if address.octets().starts_with(&[10, 80]) => "10.90",
            _ => "10.80",
        };
        let people: String = (self.people.iter())
            .map(|name| {
                format!(
                    "\n[[user]]\nname = {}\nclearance = {range} # at which labels this person may work\n",
                    quoted(name)
                )
            })
            .collect();
        let hosts: String = (self.workstations.iter())
            .map(|name| format!("\n[[host]]\nname = {}\naccreditation = {range} # at which labels there may be sessions on it\n", quoted(name)))
            .collect();
        format!(
            "# A levee site. `levee check` says whether it is sound, `levee check --explain KEY` what a key means.\n\
             # What is read at the start counts until the next: after a change, `levee down` and `levee up`.\n\n\
             [site]\nname = {name}\n\n\
             [labels]\nlevels = [{levels}] # lowest first\ncategories = [{categories}] # what is kept apart within a level, such as \"MED\": a label is then {highest}//MED\n\n\
             [server]\nname = {server} # in its certificate\naddresses = [{address}] # where workstations find it\n\
             inner-address = \"{inner}.0.1\" # at every label, the services of that label answer here\n\
             inner-pool = \"{inner}.1.0/24\" # sessions' own addresses\n\
             grace = \"30s\" # a session outlives its trusted path by this\n\
             # The host's firewall must let in 7443/tcp (sign-on), 500/udp and 4500/udp (the tunnel).\n\n\
             [limits] # of each label\nmemory = \"512M\"\nstore = \"64M\"\n{people}{hosts}\n\
             # A web server at every level: what people put at http://{bare}/own/ is read there, and, as copies, at every higher level.\n\
             [[service]]\nname = \"web\"\nport = 80\nprotocol = \"tcp\"\nrange = {range}\nmode = \"direct\" # or \"relay\": each connection is decided and recorded\n\
             program = \"nginx\"\nuploads = true\n",
            name = quoted(&self.name),
            levels = list(&self.levels),
            categories = list(&self.categories),
            server = quoted(&self.server),
            bare = self.server,
            address = quoted(&self.address.to_string()),
        )
    }

    fn next_steps(&self, file: &Path, state: &Path, enrolled: bool) -> String {
        let path = file.display();
        let user = self.people.first().map_or("NAME", String::as_str);
        let host = self.workstations.first().map_or("HOST", String::as_str);
        let level = self.levels.last().map_or("LEVEL", String::as_str);
        let elsewhere = if *state == files::state_of(&self.name) {
            String::new()
        } else {
            format!(" --state {}", state.display())
        };
        let (narrow, keys) = if enrolled {
            let again = format!("levee enrol host {path} {host}{elsewhere} --force");
            (
                format!("clearances ({host}'s accreditation is in its keys: where you change it, {again})"),
                None,
            )
        } else {
            ("clearances and accreditations".to_owned(), Some(format!("levee enrol all {path}{elsewhere}")))
        };
        let here = [
            keys,
            Some(format!("levee user add {path} {user}{elsewhere}          (and each other person)")),
            Some(format!(
                "copy {} to {host}, as /etc/levee/workstation (there: mkdir -p /etc/levee){}; move {} off this host",
                state.join("hosts").join(host).display(),
                if self.workstations.len() > 1 { ", and each other workstation's there" } else { "" },
                state.join("auditor/auditor.key").display()
            )),
            Some(format!(
                "levee up {path}{elsewhere}                 (let 7443/tcp, 500/udp and 4500/udp in)"
            )),
        ];
        let there = [
            "levee up --workstation /etc/levee/workstation".to_owned(),
            format!(
                "levee-tpe login {user}; levee-tpe level {level}; levee-tpe run -- curl http://{}/",
                self.server
            ),
        ];
        let here: Vec<String> = here.into_iter().flatten().collect();
        let numbered = |from: usize, steps: &[String]| -> String {
            (from..).zip(steps).map(|(number, step)| format!("  {number}. {step}\n")).collect()
        };
        format!(
            "{path} is written: read it, and narrow {narrow}. Then, here:\n{}on {host}, with levee installed:\n{}",
            numbered(1, &here),
            numbered(1 + here.len(), &there),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Answers {
        Answers {
            name: "quay".into(),
            server: "mls.quay.example".into(),
            address: "10.80.3.1".parse().unwrap(),
            levels: vec!["LOW".into(), "MID".into(), "HIGH".into()],
            categories: Vec::new(),
            people: vec!["ada".into(), "mia".into()],
            workstations: vec!["ws1".into()],
        }
    }

    #[test]
    fn the_site_that_is_written_is_sound_and_has_what_was_answered() {
        let site = Site::parse(&answers().site()).unwrap();
        assert_eq!((site.users().len(), site.hosts().len(), site.vocabulary().levels().len()), (2, 1, 3));
        let (ada, ws1) = ("ada".parse().unwrap(), "ws1".parse().unwrap());
        assert_eq!(site.session_labels(&ada, &ws1, 10).unwrap().len(), 3);
        let one = Answers { levels: vec!["ONE".into()], ..answers() };
        assert!(Site::parse(&one.site()).is_ok());
        let apart = Answers { categories: vec!["MED".into(), "NATO".into()], ..answers() };
        let site = Site::parse(&apart.site()).unwrap();
        assert_eq!(
            site.session_labels(&ada, &ws1, 100).unwrap().len(),
            12,
            "each level with any of two categories"
        );
        assert!(
            Site::parse(&Answers { address: "2001:db8::1".parse().unwrap(), ..answers() }.site()).is_ok()
        );
    }

    #[test]
    fn an_address_that_no_workstation_reaches_and_an_address_for_a_name_are_refused_when_answered() {
        for wrong in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "169.254.1.1",
            "fe80::1",
            "::ffff:192.0.2.1",
            "x",
        ] {
            let said = reached(wrong).unwrap_err();
            assert!(
                wrong == "x" || said.contains("at which workstations reach this host"),
                "{wrong}: {said}"
            );
        }
        for right in ["192.0.2.1", "10.0.0.9", "2001:db8::1", "fd00::1"] {
            assert_eq!(reached(right), Ok(right.parse().unwrap()));
        }
        for wrong in ["192.0.2.1", "2001:db8::1"] {
            assert!(dns_name(wrong).unwrap_err().contains("such as server.harbour.example"), "{wrong}");
        }
        assert_eq!(dns_name("mls.quay.example"), Ok("mls.quay.example".to_owned()));
        let init = Init {
            file: "/nonexistent/site.toml".into(),
            name: Some("quay".into()),
            server: Some("192.0.2.1".into()),
            address: Some("192.0.2.1".parse().unwrap()),
            levels: vec!["LOW".into()],
            categories: Vec::new(),
            people: vec!["ada".into()],
            workstations: vec!["ws1".into()],
            enrol: false,
            state: None,
        };
        assert!(init.write().unwrap_err().contains("a DNS name is asked for"));
    }

    #[test]
    fn a_list_with_nothing_between_two_commas_and_a_category_that_is_a_level_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("site.toml");
        let list = |items: &str| items.split(',').map(str::to_owned).collect::<Vec<_>>();
        let init = |levels: &str, categories: &str| {
            let all = Init {
                file: file.clone(),
                name: Some("quay".into()),
                server: Some("mls.quay.example".into()),
                address: Some("192.0.2.1".parse().unwrap()),
                levels: list(levels),
                categories: list(categories),
                people: vec!["ada".into()],
                workstations: vec!["ws1".into()],
                enrol: false,
                state: None,
            };
            all.write()
        };
        for levels in ["LOW,,HIGH", "LOW,HIGH,", ",LOW", "LOW, ,HIGH"] {
            assert!(init(levels, "none").unwrap_err().contains("before or behind a comma"), "{levels}");
        }
        assert!(init("LOW,HIGH", "MED,HIGH").unwrap_err().starts_with("`HIGH` is a level"));
        init("LOW, HIGH", "MED").unwrap();
    }

    #[test]
    fn answers_cannot_write_more_than_their_own_value() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("site.toml");
        let init = |name: &str| Init {
            file: file.clone(),
            name: Some("quay".into()),
            server: Some("mls.quay.example".into()),
            address: Some("192.0.2.1".parse().unwrap()),
            levels: vec!["LOW".into()],
            categories: Vec::new(),
            people: vec![name.into()],
            workstations: vec!["ws1".into()],
            enrol: false,
            state: None,
        };
        assert!(init("x\"\nclearance = \"LOW\"\n[[user]]\nname = \"y").write().is_err());
        assert!(!file.exists(), "nothing is written that is not sound");
        init("ada").write().unwrap();
        let before = std::fs::read(&file).unwrap();
        assert!(init("eve").write().unwrap_err().contains("there already"));
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }
}
