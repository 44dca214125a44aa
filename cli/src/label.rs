//! `levee label`: labels in others' words and numbers, and ranges of them in SELinux's.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use levee_labelled::{calipso, cipso};
use levee_policy::audit::{Hex, hex};
use levee_policy::setrans::{self, Translations};
use levee_policy::{Domain, Label, LabelName, Range, Site, selinux};
use serde::Serialize;

use crate::output::count;
use crate::output::{self, shown};
use crate::site;

/// Translate labels to and from CIPSO, CALIPSO, SELinux and IKE
#[derive(Debug, clap::Args)]
pub struct LabelCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Translate(Translate),
    Check(Check),
}

/// Translate one label by a domain of the site file, or a range of labels
///
/// A range (LOW..HIGH, in SELinux s1-s5:c0) is said in SELinux alone. Exit status 0: it can be said in every form. 1: in some form it would be lost. 2: it could not be read.
#[derive(Debug, clap::Args)]
struct Translate {
    /// The site file
    site: PathBuf,
    /// The domain's DOI
    doi: u32,
    /// The label: the site's name, `s5:c0,c7`, octets in hexadecimal, or a name of a translation file; or a range
    label: String,
    /// What the label is written in
    #[arg(long, value_enum, default_value = "site")]
    from: Form,
    /// The label is a name of this translation file of SELinux's (setrans.conf); - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    setrans: Option<PathBuf>,
    /// Print a translation file of SELinux's with the label, or with each one of a range (LOW..HIGH)
    #[arg(long, conflicts_with_all = ["from", "setrans", "json"])]
    to_setrans: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Labels that one translation file has at most.
const MOST_LABELS: u64 = 4_096;

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    /// The site's own name
    Site,
    /// An SELinux level
    Selinux,
    /// A CIPSO option
    Cipso,
    /// A CALIPSO option
    Calipso,
    /// The label of a traffic selector of IKE (TS_SECLABEL, RFC 9478), which is the site's own name in every domain
    TsSeclabel,
}

/// The label in every form; `None` where it would be lost, and then why. A range has one form.
#[derive(Serialize)]
struct Translation {
    label: String,
    doi: u32,
    selinux: Option<String>,
    cipso: Option<String>,
    calipso: Option<String>,
    ts_seclabel: Option<String>,
    refused: Vec<String>,
}

impl LabelCommand {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(match self.action {
            Action::Translate(command) => command.answer(),
            Action::Check(command) => command.answer(),
        })
    }
}

/// Check a list of labels against the site and its domains
///
/// Before hosts or networks that write labels are joined: which of them would lose a label. Exit status 0: each label can be said in
/// every form of every domain. 1: one would be lost, or is none of the site's. 2: it could not be checked.
#[derive(Debug, clap::Args)]
struct Check {
    /// The site file
    site: PathBuf,
    /// A label a line, as the site file names it; empty lines and those that begin with # are skipped; - is standard input
    file: PathBuf,
    /// This domain alone
    #[arg(long)]
    doi: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Octets of a list of labels, at most.
const MOST_OCTETS: u64 = 1 << 20;

/// What was found of one line.
#[derive(Serialize)]
struct Line {
    line: usize,
    text: String,
    /// `None`: it is no label of the site.
    label: Option<LabelName>,
    /// Why it is none, or in which forms of which domains it would be lost.
    refused: Vec<String>,
}

impl Check {
    fn answer(&self) -> Result<ExitCode, String> {
        let site = site::read(&self.site)?;
        let domains: Vec<&Domain> = match self.doi {
            Some(doi) => vec![domain(&site, doi)?],
            None => site.domains().iter().collect(),
        };
        let list = text_of(&self.file)?;
        let labels = list.lines().zip(1..).map(|(text, line)| (text.trim(), line));
        let labels = labels.filter(|(text, _)| !text.is_empty() && !text.starts_with('#'));
        let lines: Vec<Line> = labels.map(|(text, line)| Line::of(&site, &domains, text, line)).collect();
        let lost = lines.iter().filter(|line| !line.refused.is_empty()).count();
        if self.json {
            output::json(&lines)?;
        } else {
            let refused = lines.iter().flat_map(|line| line.refused.iter().map(move |why| (line.line, why)));
            let mut text: String = refused.map(|(line, why)| format!("line {line}: {why}\n")).collect();
            let (labels, domains) =
                (count(lines.len(), "label", "labels"), count(domains.len(), "domain", "domains"));
            text.push_str(&format!("{labels} in {domains}: {lost} refused\n"));
            output::print(&text)?;
        }
        Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A file of text, or standard input.
fn text_of(file: &Path) -> Result<String, String> {
    let name = file.display();
    let fault = |e: std::io::Error| format!("{name}: {e}");
    let source: Box<dyn Read> = match file.as_os_str().as_encoded_bytes() {
        b"-" => Box::new(std::io::stdin().lock()),
        _ => Box::new(File::open(file).map_err(fault)?),
    };
    let mut list = Vec::new();
    source.take(MOST_OCTETS + 1).read_to_end(&mut list).map_err(fault)?;
    if u64::try_from(list.len()).is_ok_and(|octets| octets > MOST_OCTETS) {
        return Err(format!("{name}: more than {MOST_OCTETS} octets; check it in parts"));
    }
    String::from_utf8(list).map_err(|_| format!("{name}: this is not UTF-8"))
}

impl Line {
    fn of(site: &Site, domains: &[&Domain], text: &str, line: usize) -> Self {
        let (label, refused) = match site.vocabulary().parse_typed(text) {
            Err(e) => (None, vec![shown(&format!("{}: {}", e.what, e.remedy))]),
            Ok(label) => {
                let said = domains.iter().map(|domain| Translation::of(site, domain, &label));
                let lost = said.flatten().flat_map(|said| said.refused_in_domain()).collect();
                (site.label_name(&label), lost)
            }
        };
        Self { line, text: shown(text), label, refused }
    }
}

/// The site's domain with this DOI.
fn domain(site: &Site, doi: u32) -> Result<&Domain, String> {
    site.domain(doi).ok_or_else(|| {
        let known: Vec<String> = site.domains().iter().map(|domain| domain.doi().to_string()).collect();
        match known.as_slice() {
            [] => "the site has no [[domain]]".to_owned(),
            known => format!("the site has no domain {doi}; it has {}", known.join(", ")),
        }
    })
}

impl Translate {
    fn answer(&self) -> Result<ExitCode, String> {
        let site = site::read(&self.site)?;
        let domain = domain(&site, self.doi)?;
        if self.to_setrans {
            return self.file(&site, domain);
        }
        let translation = match self.range(&site, domain)? {
            Some(range) => Translation::of_range(&site, domain, &range),
            None => Translation::of(&site, domain, &self.read(&site, domain)?),
        };
        let translation =
            translation.ok_or_else(|| format!("{}: its name is too long", shown(&self.label)))?;
        if self.json {
            output::json(&translation)?;
        } else {
            output::print(&translation.text())?;
        }
        Ok(if translation.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Prints the translation file; what would be lost in it is told, and the rest not printed.
    fn file(&self, site: &Site, domain: &Domain) -> Result<ExitCode, String> {
        let words = site.vocabulary();
        let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", shown(&self.label));
        let range = words.parse_typed_range(&self.label);
        let range = range.map_err(|e| shown(&format!("{}: {}", e.what, e.remedy)))?;
        let labels = range.labels(MOST_LABELS);
        let labels =
            labels.ok_or_else(|| fault(&format!("more than {MOST_LABELS} labels; narrow the range")))?;
        let (mut text, mut lost) =
            (format!("# Of the site {}, domain {}.\n", site.name(), domain.doi()), false);
        for label in labels {
            let name = words.text(&label).unwrap_or_default();
            let class = domain.foreign(&label).ok();
            match class.and_then(|class| setrans::line(&class, &name)) {
                Some(line) => text.push_str(&format!("{line}\n")),
                None => {
                    lost = true;
                    eprintln!("{} would be lost in a translation file", shown(&name));
                }
            }
        }
        if lost {
            return Ok(ExitCode::FAILURE);
        }
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The range, where it is one and not a label.
    fn range(&self, site: &Site, domain: &Domain) -> Result<Option<Range>, String> {
        let text = self.label.as_str();
        let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", shown(text));
        match self.from {
            _ if self.setrans.is_some() => Ok(None),
            Form::Site if text.contains("..") => site
                .vocabulary()
                .parse_typed_range(text)
                .map(Some)
                .map_err(|e| shown(&format!("{}: {}", e.what, e.remedy))),
            Form::Selinux if text.contains('-') => {
                let ends = selinux::parse_classes(text).map_err(|e| fault(&e))?;
                domain.range(&ends).map_err(|e| fault(&e))
            }
            _ => Ok(None),
        }
    }

    fn read(&self, site: &Site, domain: &Domain) -> Result<Label, String> {
        let text = self.label.as_str();
        let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", shown(text));
        let octets = || match Hex::try_from(text.to_owned()) {
            Ok(octets) => Ok(octets.0),
            Err(_) => Err(fault(&"these are not octets in hexadecimal")),
        };
        if let Some(file) = &self.setrans {
            let names =
                Translations::parse(&text_of(file)?).map_err(|e| format!("{}: {e}", file.display()))?;
            let class =
                names.class(text).ok_or_else(|| fault(&format!("{} has no such name", file.display())))?;
            return domain.label(class).map_err(|e| fault(&e));
        }
        match self.from {
            Form::Site => {
                site.vocabulary().parse_typed(text).map_err(|e| shown(&format!("{}: {}", e.what, e.remedy)))
            }
            Form::Selinux => {
                let class = selinux::parse_class(text).map_err(|e| fault(&e))?;
                domain.label(&class).map_err(|e| fault(&e))
            }
            Form::Cipso => cipso::decode(domain, &octets()?).map_err(|e| fault(&e)),
            Form::Calipso => calipso::decode(domain, &octets()?).map_err(|e| fault(&e)),
            Form::TsSeclabel => {
                let octets = octets()?;
                // One octet of 0 may end it (RFC 9478 2.1).
                let name = octets.strip_suffix(b"\0").unwrap_or(&octets);
                let name = std::str::from_utf8(name).ok().and_then(|name| LabelName::new(name).ok());
                let label = name.and_then(|name| site.vocabulary().parse_name(&name));
                label.ok_or_else(|| fault(&"this is no label of the site, as the site spells it"))
            }
        }
    }
}

impl Translation {
    fn of(site: &Site, domain: &Domain, label: &Label) -> Option<Self> {
        let mut refused = Vec::new();
        let name = site.label_name(label)?;
        let mut said = |form: &str, said: Option<String>| {
            if said.is_none() {
                refused.push(format!("{name} would be lost in {form}"));
            }
            said
        };
        let selinux = domain.foreign(label).ok().map(|class| selinux::print_class(&class));
        let cipso = cipso::encode(domain, label).ok().map(|option| hex(&option));
        let calipso = calipso::encode(domain, label).ok().map(|option| hex(&option));
        let selinux = said("SELinux", selinux);
        let cipso = said("CIPSO", cipso);
        let calipso = said("CALIPSO", calipso);
        let ts_seclabel = Some(hex(name.as_str().as_bytes()));
        let label = name.as_str().to_owned();
        Some(Self { label, doi: domain.doi(), selinux, cipso, calipso, ts_seclabel, refused })
    }

    fn of_range(site: &Site, domain: &Domain, range: &Range) -> Option<Self> {
        let label = site.vocabulary().print_range(range)?;
        let (selinux, refused) = match domain.foreign_range(range) {
            Ok(ends) => (Some(selinux::print_classes(&ends)), Vec::new()),
            Err(_) => (None, vec![format!("labels of {label} would be lost in SELinux")]),
        };
        Some(Self {
            label,
            doi: domain.doi(),
            selinux,
            cipso: None,
            calipso: None,
            ts_seclabel: None,
            refused,
        })
    }

    /// In which forms the label would be lost, with the domain.
    fn refused_in_domain(self) -> impl Iterator<Item = String> {
        self.refused.into_iter().map(move |why| format!("{why} of domain {}", self.doi))
    }

    fn text(&self) -> String {
        let forms = [
            ("selinux", &self.selinux),
            ("cipso", &self.cipso),
            ("calipso", &self.calipso),
            ("ts-seclabel", &self.ts_seclabel),
        ];
        let said = forms.into_iter().filter_map(|(form, said)| Some((form, said.as_ref()?)));
        let refused = self.refused.iter().map(|why| ("refused", why));
        let mut text = String::new();
        for (what, said) in [("label", &self.label)].into_iter().chain(said).chain(refused) {
            text.push_str(&format!("{what:<12}{said}\n"));
        }
        text
    }
}
