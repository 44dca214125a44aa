//! Man pages and shell completions, from the definitions of the commands themselves.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::{Cli, explain, manual, output, words};

/// Print completions for a shell
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

/// Write man pages of every command into a directory
#[derive(Debug, clap::Args)]
pub struct Man {
    /// The directory; it is made if it is not there
    directory: PathBuf,
}

impl Completions {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "levee", &mut text);
        let text = String::from_utf8_lossy(&text);
        let text = match self.shell {
            clap_complete::Shell::Bash => format!("{text}{}", words::BASH),
            clap_complete::Shell::Fish => format!("{text}{}", words::FISH),
            clap_complete::Shell::Zsh => asking(&text),
            _ => text.into_owned(),
        };
        output::exit(output::raw(&text).map(|()| ExitCode::SUCCESS))
    }
}

impl Man {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(self.write().map(|()| ExitCode::SUCCESS))
    }

    fn write(&self) -> Result<(), String> {
        std::fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &self.directory))
            .and_then(|()| std::fs::write(self.directory.join("site.toml.5"), explain::man_page()))
            .and_then(|()| std::fs::write(self.directory.join("levee-audit.5"), manual::audit()))
            .and_then(|()| manual::complete(&self.directory.join("levee.1")))
            .map_err(|e| format!("{}: {e}", self.directory.display()))
    }
}

/// Lines of zsh's completions, which ask for names where they would offer files: the site's whose file is named before, if one is.
fn asking(text: &str) -> String {
    let mut site = "";
    let lines = text.lines().map(|line| {
        let described = line.trim_start().trim_start_matches([':', '\'']);
        let asked = words::ZSH.iter().find(|(argument, _)| described.starts_with(argument));
        let whole = match asked {
            Some((_, kind)) => {
                let names = format!(":{{compadd -- ${{(f)\"$(levee words {kind}{site} 2>/dev/null)\"}}}}'");
                line.replace(":_default'", &names)
            }
            None => line.to_owned(),
        };
        site = if described.starts_with("site -- ") { " --site ${(Q)line[1]}" } else { "" };
        whole + "\n"
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_defined_without_contradiction_and_says_what_it_does() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        fn described(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} says nothing of itself", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {argument} says nothing", command.get_name());
            }
            command.get_subcommands().for_each(described);
        }
        described(&command);
    }

    #[test]
    fn each_command_has_a_man_page() {
        let directory = tempfile::tempdir().unwrap();
        Man { directory: directory.path().to_owned() }.write().unwrap();
        let page = std::fs::read_to_string(directory.path().join("levee-check.1")).unwrap();
        assert!(page.contains("every problem with its place and remedy"), "{page}");
        assert!(directory.path().join("levee-user-add.1").exists());
        assert!(directory.path().join("site.toml.5").exists());
        let page = std::fs::read_to_string(directory.path().join("levee.1")).unwrap();
        for said in
            ["EXIT STATUS", "OUTPUT", "ENVIRONMENT", "FILES", "EXAMPLES", "NO_COLOR", "levee\\-tpe(1)"]
        {
            assert!(page.contains(said), "{said} is not in levee(1)");
        }
        let page = std::fs::read_to_string(directory.path().join("levee-audit.5")).unwrap();
        let schema = include_str!("../../docs/schemas/levee-audit-show.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        for form in schema["oneOf"].as_array().unwrap() {
            for (key, field) in form["properties"].as_object().unwrap() {
                assert!(
                    page.contains(&format!("\\fB{key}\\fR")),
                    "levee-audit(5) does not say what {key} is"
                );
                for key in field["properties"].as_object().into_iter().flat_map(|inner| inner.keys()) {
                    assert!(
                        page.contains(&format!("\\fB{key}\\fR")),
                        "levee-audit(5) does not say what {key} is"
                    );
                }
            }
        }
    }

    #[test]
    fn every_command_can_be_asked_for_json_and_to_say_less_or_more() {
        let mut command = Cli::command();
        command.build();
        fn takes(command: &clap::Command) {
            for flag in ["json", "quiet", "verbose"] {
                let there = command.get_arguments().any(|argument| argument.get_long() == Some(flag));
                // The laboratory has arguments of its own, clap's `help` none.
                assert!(there || command.get_name() == "help", "{} has no --{flag}", command.get_name());
            }
            command.get_subcommands().filter(|command| command.get_name() != "help").for_each(takes);
        }
        takes(&command);
    }
}
