//! Man pages and shell completions, from the definitions of the commands themselves.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::Resettable;

use crate::{explain, manual, output, words};

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
    /// Runs the command, for the whole program that is given.
    pub fn run(self, mut whole: clap::Command) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut whole, "levee", &mut text);
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
    /// Runs the command, for the whole program that is given.
    pub fn run(self, whole: clap::Command) -> ExitCode {
        output::exit(self.write(whole).map(|()| ExitCode::SUCCESS))
    }

    fn write(&self, whole: clap::Command) -> Result<(), String> {
        std::fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(whole.after_help(Resettable::Reset), &self.directory))
            .and_then(|()| std::fs::write(self.directory.join("site.toml.5"), explain::man_page()))
            .and_then(|()| std::fs::write(self.directory.join("levee-audit.5"), manual::audit()))
            .and_then(|()| manual::complete(&self.directory))
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
                let names = format!(
                    ":{{compadd -M \"m\\:{{a-zA-Z}}={{A-Za-z}}\" -- ${{(f)\"$(levee words {kind}{site} --start \"$PREFIX\" 2>/dev/null)\"}}}}'"
                );
                line.replace(":_default'", &names)
            }
            None => line.to_owned(),
        };
        // Positional arguments of one command follow each other.
        if described.starts_with("site -- ") {
            site = " --site ${(Q)line[1]}";
        } else if !line.starts_with("':") {
            site = "";
        }
        whole + "\n"
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

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
        Man { directory: directory.path().to_owned() }.write(Cli::command()).unwrap();
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

    /// The order that levee(1) promises. What has the same number may stand in any order.
    const ORDER: [(&str, u8); 21] = [
        ("SITE", 0),
        ("WHAT", 1),
        ("USER", 2),
        ("HOST", 3),
        // Of `enrol rotate`, whose WHAT says which.
        ("HOST|CHANNEL", 3),
        ("SERVICE", 4),
        ("CHANNEL", 4),
        ("PARTITION", 4),
        ("POSTURE", 4),
        ("SESSION", 4),
        ("DOI", 4),
        ("LABEL", 5),
        ("FILE", 6),
        ("PATH", 6),
        ("REQUEST", 6),
        ("DIRECTORY", 6),
        ("PROGRAM", 6),
        ("SHELL", 6),
        ("KIND", 6),
        ("ARGUMENTS", 6),
        // Of clap's own `help`.
        ("COMMAND", 6),
    ];

    /// What of this command and those below it is not in that order, or called otherwise.
    fn disorder(command: &clap::Command, found: &mut Vec<String>) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let mut last = ("nothing".to_owned(), 0);
        for argument in command.get_positionals().filter(|argument| !argument.is_hide_set()) {
            let word = argument.get_value_names().map_or(String::new(), |names| names.join(" "));
            match ORDER.iter().find(|(known, _)| *known == word) {
                None => found.push(format!("{name}: {word} has no place in the order")),
                Some((_, place)) if *place < last.1 => {
                    found.push(format!("{name}: {word} behind {}", last.0))
                }
                Some((_, place)) => last = (word, *place),
            }
        }
        // (`words` is what shells call, with names of any kind; `why` asks of what runs.)
        let has_option = command.get_arguments().any(|argument| argument.get_long() == Some("site"));
        if has_option && !["words", "why"].contains(&command.get_name()) {
            found.push(format!("{name}: --site, where others have SITE as their first argument"));
        }
        command.get_subcommands().for_each(|command| disorder(command, found));
    }

    #[test]
    fn every_command_has_its_arguments_in_the_order_that_the_manual_says() {
        let of = |mut command: clap::Command| {
            let mut found = Vec::new();
            command.build();
            disorder(&command, &mut found);
            found
        };
        assert_eq!(of(Cli::command()), [""; 0]);
        // It finds what is not so.
        let argument = |name: &'static str| clap::Arg::new(name).value_name(name).required(true);
        let late = clap::Command::new("late").arg(argument("LABEL")).arg(argument("USER"));
        let option = clap::Command::new("option").arg(clap::Arg::new("site").long("site"));
        let strange = clap::Command::new("strange").arg(argument("THING"));
        assert_eq!(of(clap::Command::new("levee").subcommands([late, option, strange])).len(), 3);
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
