//! `levee label translate`: a label in others' words and numbers.

use std::path::PathBuf;
use std::process::ExitCode;

use levee_labelled::{calipso, cipso};
use levee_policy::audit::{Hex, hex};
use levee_policy::{Domain, Label, LabelName, Site, selinux};
use serde::Serialize;

use crate::output::{self, shown};
use crate::site;

/// Translate labels to and from CIPSO, CALIPSO and SELinux
#[derive(Debug, clap::Args)]
pub struct LabelCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Translate(Translate),
}

/// Translate one label by a domain of the site file
///
/// Exit code 0: it can be said in every form. 1: in some form it would be lost. 2: it could not be read.
#[derive(Debug, clap::Args)]
struct Translate {
    /// The domain's DOI
    doi: u32,
    /// The label: the site's name, `s5:c0,c7`, or an option's octets in hexadecimal
    label: String,
    /// What the label is written in
    #[arg(long, value_enum, default_value = "site")]
    from: Form,
    /// The site file
    #[arg(long, env = "LEVEE_SITE", value_name = "FILE", default_value = "/etc/levee/site.toml")]
    site: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

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
}

/// The label in every form; `None` where it would be lost, and then why.
#[derive(Serialize)]
struct Translation {
    label: LabelName,
    doi: u32,
    selinux: Option<String>,
    cipso: Option<String>,
    calipso: Option<String>,
    refused: Vec<String>,
}

impl LabelCommand {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let Action::Translate(command) = self.action;
        output::exit(command.answer())
    }
}

impl Translate {
    fn answer(&self) -> Result<ExitCode, String> {
        let site = site::read(&self.site)?;
        let domain = site.domain(self.doi).ok_or_else(|| {
            let known: Vec<String> = site.domains().iter().map(|domain| domain.doi().to_string()).collect();
            match known.as_slice() {
                [] => "the site has no [[domain]]".to_owned(),
                known => format!("the site has no domain {}; it has {}", self.doi, known.join(", ")),
            }
        })?;
        let label = self.read(&site, domain)?;
        let translation = Translation::of(&site, domain, &label)
            .ok_or_else(|| format!("{}: its name is too long", shown(&self.label)))?;
        if self.json {
            output::json(&translation)?;
        } else {
            output::print(&translation.text())?;
        }
        Ok(if translation.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn read(&self, site: &Site, domain: &Domain) -> Result<Label, String> {
        let text = self.label.as_str();
        let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", shown(text));
        let octets = || match Hex::try_from(text.to_owned()) {
            Ok(octets) => Ok(octets.0),
            Err(_) => Err(fault(&"these are not octets in hexadecimal")),
        };
        match self.from {
            Form::Site => {
                site.vocabulary().parse_typed(text).map_err(|e| format!("{}: {}", e.what, e.remedy))
            }
            Form::Selinux => {
                let class = selinux::parse_class(text).map_err(|e| fault(&e))?;
                domain.label(&class).map_err(|e| fault(&e))
            }
            Form::Cipso => cipso::decode(domain, &octets()?).map_err(|e| fault(&e)),
            Form::Calipso => calipso::decode(domain, &octets()?).map_err(|e| fault(&e)),
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
        Some(Self { label: name, doi: domain.doi(), selinux, cipso, calipso, refused })
    }

    fn text(&self) -> String {
        let mut text = format!("{:<9}{}\n", "label", self.label.as_str());
        for (form, said) in [("selinux", &self.selinux), ("cipso", &self.cipso), ("calipso", &self.calipso)] {
            if let Some(said) = said {
                text.push_str(&format!("{form:<9}{said}\n"));
            }
        }
        for why in &self.refused {
            text.push_str(&format!("{:<9}{why}\n", "refused"));
        }
        text
    }
}
