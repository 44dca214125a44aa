//! The trusted path extension: the workstation's agent, and the commands by which a person uses it.
//!
//! It may not decide what a person may have: the server does. Begin reading with `agent/mod.rs`, which holds the trusted path, then `command.rs` and `screen/mod.rs`.
#![forbid(unsafe_code)]

mod access;
mod agent;
mod command;
mod doctor;
mod pty;
mod reference;
mod release;
mod run;
mod screen;
mod services;

use clap::{Args, CommandFactory, Parser, Subcommand};
use command::{Agent, Fault, PasswordSource};
use levee_ipc::client::RefusalKind;
use levee_ipc::steers;
use levee_ipc::tpe::{Answer, Command, Status};
use levee_policy::site::Suites;
use levee_policy::{LabelName, ProtectionName, ServiceName, UserName};
use rustix::termios::isatty;
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status of a command that was refused or failed; `run` uses [`RUN_FAILED`].
const FAILED: u8 = 1;
/// Exit status of `run` when it failed itself: no common program ends with it.
const RUN_FAILED: u8 = 255;
/// Exit status where there is no answer: nobody could be asked, `doctor` has nothing to examine.
const UNREAD: u8 = 2;

/// Sign on at this workstation, choose a level, run programs at it
///
/// Without a command it takes the whole terminal: a banner with the session's level in its colour, a form to sign on, a
/// menu of levels, and a shell at the session's level. Ctrl-] leads back to the menu; a line at the bottom says the keys.
///
/// By commands: `login NAME`, then `level LABEL`, then `run -- COMMAND` as often as you like, and `logout`. If nothing is
/// reached, `doctor` says why.
#[derive(Parser)]
#[command(name = "levee-tpe", version, about, after_help = reference::EXIT)]
struct Arguments {
    /// The agent's socket [default: the only tpe.sock in a directory below /run/levee]
    #[arg(long, global = true, env = "LEVEE_TPE_SOCKET", value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Say everything as JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
    /// Say nothing that was not asked for: what was done is seen by the exit status; refusals are said
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Say on standard error which agent is asked
    #[arg(long, short, global = true)]
    verbose: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// The agent itself; the workstation's warden starts it.
    #[command(hide = true)]
    Agent {
        /// Another IPsec client of this host makes the tunnel.
        #[arg(long)]
        no_tunnel: bool,
        /// The seat of the host at which whoever may use levee-tpe sits.
        #[arg(long)]
        seat: Option<agent::Seat>,
        /// What the trusted path's TLS uses.
        #[arg(long, default_value_t)]
        suites: Suites,
    },
    /// Sign on
    Login {
        /// Who you are at this site
        user: UserName,
        #[command(flatten)]
        password: Password,
    },
    /// Open a session at a level, ending the one there is
    Level {
        /// The level, such as SECRET//NATO; `levee-tpe labels` lists yours
        label: LabelName,
        /// What the session's tunnel is to have beyond what every tunnel there has; refused where that cannot be had
        #[arg(long, value_name = "NAME")]
        protection: Option<ProtectionName>,
    },
    /// List the levels that you may choose here, one a line
    Labels,
    /// List what the session reaches, one service a line: its name, TCP or UDP, its port, and where it is
    Services,
    /// Run a program at the session's level
    ///
    /// Its files are gone when the session ends; the services of the level are its whole network. The exit status is the
    /// program's; 255 where it could not be run. At a terminal, what it writes is shown under the level's banner, and then as
    /// text. A file or a pipe has no level: what passes between it and the program does so whole, once the server has
    /// recorded its size and digest, and if the site lets you.
    Run {
        /// Carry what the program writes out of the session, when it has ended
        #[arg(long)]
        export: bool,
        /// Carry standard input into the session, before the program starts
        #[arg(long)]
        import: bool,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        argv: Vec<String>,
    },
    /// Say who is signed on, at which level, and whether the server is reached
    Status,
    /// Change your password
    Passwd {
        #[command(flatten)]
        password: Password,
    },
    /// See messages that wait at a guard for you and another person, and release or refuse them
    ///
    /// Without a number it lists them; with one it shows the message, on a terminal alone: each of its lines behind a bar, what does not
    /// fit into a row behind a colon in the next, under them its length and digest. It passes when two of the people whom the site names for
    /// the guard have released it, each at a workstation of their own, in a session at the label of what is released; one of
    /// them can refuse it. Each word is recorded with who said it.
    Release {
        /// Which message, by its number in the list
        #[arg(value_name = "NUMBER")]
        number: Option<u64>,
        /// Release it, if it is the message of this SHA-256, which was shown
        #[arg(long, value_name = "SHA256", requires = "number", conflicts_with = "refuse")]
        pass: Option<release::Digest>,
        /// Refuse it
        #[arg(long, value_name = "SHA256", requires = "number")]
        refuse: Option<release::Digest>,
    },
    /// See who reaches the level's services that are for some people alone, and say so of those that you own
    ///
    /// It counts at the level of your session and at no other, at once and until it is said otherwise. When this returns, no packet passes
    /// by what was so before. It is recorded first.
    Access {
        /// Which service; without it, all of the level are listed
        #[arg(value_name = "SERVICE")]
        service: Option<ServiceName>,
        /// Let this person reach it
        #[arg(long, value_name = "USER", requires = "service", conflicts_with = "deny")]
        allow: Option<UserName>,
        /// Let them reach it no more
        #[arg(long, value_name = "USER", requires = "service")]
        deny: Option<UserName>,
    },
    /// Lock the session: nothing of it passes, here or at the server, and nothing is started, until `unlock`
    Lock,
    /// Prove who you are, and use the locked session again
    Unlock {
        #[command(flatten)]
        password: Password,
    },
    /// End the session and sign off
    Logout,
    /// Say why the server is reached from here, or is not, each lack with its remedy
    ///
    /// Looks at name, TCP and UDP ports, certificates, clock and path MTU. Needs no agent and no key; the bundle's public files.
    #[command(
        after_help = "Exit status 0: a session can come about. 1: something is lacking. 2: the bundle cannot be read."
    )]
    Doctor {
        /// The bundle that `levee enrol` made for this host [default: that of the agent that runs, or else /etc/levee/workstation]
        #[arg(long, value_name = "DIR")]
        bundle: Option<PathBuf>,
    },
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages of every command into a directory
    #[command(hide = true)]
    Man {
        /// The directory; it must be there
        directory: PathBuf,
    },
}

/// Where passwords come from; without either, from the terminal.
#[derive(Args)]
struct Password {
    /// Read the password from this file's first line (`passwd`: the old, and the new from the second file; `login`, `unlock`: the code from the
    /// second, where the site asks for one)
    #[arg(long, value_name = "FILE", num_args = 1..=2, conflicts_with = "password_stdin")]
    password_file: Vec<PathBuf>,
    /// Read it from standard input, one line each
    #[arg(long)]
    password_stdin: bool,
}

impl Password {
    fn source(&self, index: usize) -> PasswordSource {
        match self.password_file.get(index) {
            Some(path) => PasswordSource::File(path.clone()),
            None if self.password_stdin => PasswordSource::Stdin,
            None => PasswordSource::Prompt,
        }
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(line) => line,
        Err(fault) => return misunderstood(&fault),
    };
    let Some(action) = &arguments.action else {
        let screen = || {
            let on_terminal = isatty(std::io::stdin()) && isatty(std::io::stdout());
            if !on_terminal || arguments.json {
                return Err(Fault::Local("without a command it takes a whole terminal: name one, such as `levee-tpe status`; `levee-tpe --help` lists them".into()));
            }
            screen::run(&command::socket(arguments.socket.clone(), command::RUNS.as_ref())?)
        };
        return match screen() {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => {
                if arguments.json {
                    say_json(&fault.json());
                } else {
                    complain(&fault);
                }
                ExitCode::from(UNREAD)
            }
        };
    };
    if let Action::Agent { no_tunnel, seat, suites } = action {
        return levee_daemon::run("levee-tpe", || agent::serve(*no_tunnel, seat.clone(), *suites));
    }
    if let Action::Doctor { bundle } = action {
        let running =
            || command::bundle(&command::socket(arguments.socket.clone(), command::RUNS.as_ref()).ok()?);
        let bundle = bundle.clone().or_else(running).unwrap_or_else(|| doctor::BUNDLE.into());
        return examine(&bundle, &arguments);
    }
    if let Some(done) = reference(action) {
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                ExitCode::from(UNREAD)
            }
        };
    }
    let running = matches!(action, Action::Run { .. });
    match carry_out(action, &arguments) {
        Ok(Answer::Exited(status)) if running => ExitCode::from(status),
        Ok(answer) => {
            let asked = match action {
                Action::Status | Action::Labels | Action::Services => true,
                Action::Release { pass, refuse, .. } => pass.is_none() && refuse.is_none(),
                Action::Access { allow, deny, .. } => allow.is_none() && deny.is_none(),
                _ => false,
            };
            if asked || !arguments.quiet {
                show(action, &answer, arguments.json);
            }
            ExitCode::SUCCESS
        }
        Err(fault) => {
            if arguments.json {
                say_json(&fault.json());
            } else {
                complain(&fault);
            }
            ExitCode::from(match fault {
                _ if running => RUN_FAILED,
                Fault::Refused(..) => FAILED,
                Fault::Local(_) => UNREAD,
            })
        }
    }
}

/// Prints an answer, in the form that its command has for it.
fn show(action: &Action, answer: &Answer, as_json: bool) {
    let (value, text): (Value, String) = match (action, answer) {
        (Action::Labels, Answer::Status(status)) => {
            (command::labels_json(status), command::labels_text(status))
        }
        (Action::Services, Answer::Status(Status { session: Some(session), .. })) => {
            (services::json(session), services::text(session))
        }
        _ => (command::to_json(answer), command::to_text(answer)),
    };
    if as_json { say_json(&value) } else { say(&text) }
}

/// What a terminal shows as text: most of it the server, or somebody behind it, has said.
fn text(said: &dyn std::fmt::Display) -> String {
    said.to_string().chars().map(|c| if c == '\n' || !steers(c) { c } else { ' ' }).collect()
}

/// Prints a line. What was done is done, whether or not anybody reads of it.
fn say(line: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{}", text(line));
}

/// What is said of a command line that is not understood, in the form that it asks for; help that it asks for is said as it is.
fn misunderstood(fault: &clap::Error) -> ExitCode {
    let mut words = std::env::args_os().take_while(|word| word != "--");
    if fault.use_stderr() && words.any(|word| word == "--json") {
        let why = fault.render().to_string();
        let why = why.strip_prefix("error: ").unwrap_or(&why).trim_end();
        say_json(&Fault::Local(why.to_owned()).json());
        return ExitCode::from(UNREAD);
    }
    let _ = fault.print();
    ExitCode::from(u8::try_from(fault.exit_code()).unwrap_or(UNREAD))
}

/// The same of JSON, in which nothing means something else by that: what is not shown stands in strings alone.
fn say_json(value: &serde_json::Value) {
    let mut line = String::new();
    for c in value.to_string().chars() {
        if steers(c) {
            line.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            line.push(c);
        }
    }
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Says why something was not done, or what it waits for.
fn complain(why: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "levee-tpe: {}", text(why));
}

/// What the doctor says; its exit status is 1 where something is lacking, 2 where it could not look.
fn examine(bundle: &std::path::Path, arguments: &Arguments) -> ExitCode {
    if arguments.verbose {
        complain(&format!("reads {}", bundle.display()));
    }
    match doctor::examine(bundle, arguments.socket.clone()) {
        Ok(found) => {
            let text = found.text(arguments.quiet);
            if arguments.json {
                say_json(&found.json());
            } else if !text.is_empty() {
                say(&text);
            }
            ExitCode::from(if found.is_fit() { 0 } else { FAILED })
        }
        Err(why) => {
            if arguments.json {
                say_json(&Fault::Local(why).json());
            } else {
                complain(&why);
            }
            ExitCode::from(UNREAD)
        }
    }
}

/// Man pages and completions, from the definitions of the commands themselves.
fn reference(action: &Action) -> Option<std::io::Result<()>> {
    match action {
        Action::Completions { shell } => {
            let text = reference::completions(*shell, &mut Arguments::command());
            Some(std::io::stdout().write_all(text.as_bytes()))
        }
        Action::Man { directory } => Some(reference::man(Arguments::command(), directory)),
        _ => None,
    }
}

fn carry_out(action: &Action, arguments: &Arguments) -> Result<Answer, Fault> {
    // Before anybody types a password in vain.
    let socket = command::socket(arguments.socket.clone(), command::RUNS.as_ref())?;
    if arguments.verbose {
        complain(&format!("asks {}", socket.display()));
    }
    let command = match action {
        Action::Agent { .. } | Action::Completions { .. } | Action::Man { .. } | Action::Doctor { .. } => {
            return Err(Fault::Local("this asks no agent".into()));
        }
        Action::Login { user, password } => {
            // Nobody types a password for nothing.
            if matches!(password.source(0), PasswordSource::Prompt)
                && let Ok(Answer::Status(Status { user: Some(there), notice, .. })) =
                    ask(&socket, arguments, &Command::Status)
            {
                let why = notice.map_or_else(String::new, |notice| format!("; {notice}"));
                let said = format!("{there} is signed on here{why}");
                return Err(Fault::Refused(RefusalKind::AlreadyLoggedIn, said));
            }
            let secret = password.source(0).read("Password")?;
            let login = |code| Command::Login { user: user.clone(), password: secret.clone(), code };
            return match ask(&socket, arguments, &login(None)) {
                Err(Fault::Refused(RefusalKind::Code, _)) => {
                    let code = password.source(1).read("Code (Enter if you have none)")?;
                    ask(&socket, arguments, &login(Some(code)))
                }
                answered => answered,
            };
        }
        Action::Release { number: Some(_), pass: None, refuse: None } if !run::is_shown(std::io::stdout()) => {
            return Err(Fault::Local(release::NO_TERMINAL.into()));
        }
        Action::Release { number, pass, refuse } => release::command(*number, *pass, *refuse),
        Action::Access { service, allow, deny } => {
            access::command(service.as_ref(), allow.as_ref(), deny.as_ref())
        }
        Action::Lock => Command::Lock,
        Action::Unlock { password } => {
            let secret = password.source(0).read("Password")?;
            let unlock = |code| Command::Unlock { password: secret.clone(), code };
            return match ask(&socket, arguments, &unlock(None)) {
                Err(Fault::Refused(RefusalKind::Code, _)) => {
                    let code = password.source(1).read("Code (Enter if you have none)")?;
                    ask(&socket, arguments, &unlock(Some(code)))
                }
                answered => answered,
            };
        }
        Action::Level { label, protection } => Command::Level(label.clone(), protection.clone()),
        Action::Run { argv, export, import } => {
            let carried = run::Carried { export: *export, import: *import };
            return run::run(&socket, argv.clone(), carried).map(Answer::Exited);
        }
        Action::Status | Action::Labels | Action::Services => Command::Status,
        Action::Passwd { password } => {
            let (old, new) =
                (password.source(0).read("Present password")?, password.source(1).read("New password")?);
            // Nobody sees what they type.
            if matches!(password.source(1), PasswordSource::Prompt)
                && password.source(1).read("The new one again")?.expose() != new.expose()
            {
                return Err(Fault::Local("the two are not the same; the password is as it was".into()));
            }
            Command::Passwd { old, new }
        }
        Action::Logout => Command::Logout,
    };
    let answer = ask(&socket, arguments, &command)?;
    match lacking(action, &answer) {
        Some((kind, why)) => Err(Fault::Refused(kind, why.into())),
        None => Ok(answer),
    }
}

/// Why there is nothing to list, if there is nothing.
fn lacking(action: &Action, answer: &Answer) -> Option<(RefusalKind, &'static str)> {
    let Answer::Status(status) = answer else { return None };
    match (action, &status.user, &status.session) {
        (Action::Labels | Action::Services, None, _) => {
            Some((RefusalKind::NotLoggedIn, "nobody is signed on here: levee-tpe login NAME"))
        }
        (Action::Services, Some(_), None) => {
            Some((RefusalKind::NoSession, "no session is open here: levee-tpe level LABEL"))
        }
        _ => None,
    }
}

/// Asks the agent, and says meanwhile what it waits for.
fn ask(socket: &Path, arguments: &Arguments, command: &Command) -> Result<Answer, Fault> {
    // Standard output is the answer's alone.
    Agent::connect(socket)?.ask(command, |why| {
        if !arguments.quiet {
            complain(&why);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_defined_without_contradiction_says_what_it_does_and_has_a_man_page() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        let place = tempfile::tempdir().unwrap();
        let man = Action::Man { directory: place.path().to_owned() };
        assert!(reference(&man).is_some_and(|done| done.is_ok()));
        let page = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
        for said in ["banner", "EXIT STATUS", "FILES", "EXAMPLES", "NO_COLOR", "levee\\-tpe doctor"] {
            assert!(page("levee-tpe.1").contains(said), "{said}");
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(sub.get_about().is_some(), "{} says nothing of itself", sub.get_name());
            if sub.get_name() != "help" {
                assert!(page(&format!("levee-tpe-{}.1", sub.get_name())).contains("SYNOPSIS"));
            }
        }
    }
}
