//! What the warden is told when it is started. `levee up` fills it in; nothing else is read from outside.

use crate::placed::Places;
use std::path::PathBuf;

/// What a warden is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A server.
    Server,
    /// A workstation.
    Workstation,
    /// A host in front of a server, at which the second tunnel ends.
    Gateway,
}

/// How one warden runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose it is.
    pub of: Of,
    /// Server: the site file. Others: the directory that `levee enrol` made.
    pub config: PathBuf,
    /// Keys, credentials, sessions, audit log, stores: what outlives a run.
    pub state: PathBuf,
    /// Sockets and the lock: what does not.
    pub run: PathBuf,
    /// Where levee's programs are.
    pub programs: PathBuf,
    /// The private keys are encrypted, and the passphrase is all of standard input.
    pub passphrase: bool,
    /// Server: SHA-256 of the site file, and of what the state directory was, that `levee up` has held to each other, in hexadecimal digits. Others are not used.
    pub checked: Option<String>,
    /// Who started it goes away once it is ready: nothing is written to standard error from then on.
    pub background: bool,
    /// Server: on which processors what it starts runs, once the site file has been read.
    pub places: Places,
}

/// How the warden is called.
pub const USAGE: &str = "usage: levee-warden (--server SITE-FILE | --workstation BUNDLE | --gateway BUNDLE) --state DIR --run DIR \
                         --programs DIR [--passphrase] [--checked SHA256] [--background]\n(started by `levee up`)";

impl Options {
    /// Reads the command line, the program's name left out.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter();
        let (mut of, mut state, mut run, mut programs) = (None, None, None, None);
        let (mut passphrase, mut background, mut checked) = (false, false, None);
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"));
            match flag.as_str() {
                "--server" => of = Some((Of::Server, PathBuf::from(value()?))),
                "--workstation" => of = Some((Of::Workstation, PathBuf::from(value()?))),
                "--gateway" => of = Some((Of::Gateway, PathBuf::from(value()?))),
                "--state" => state = Some(PathBuf::from(value()?)),
                "--run" => run = Some(PathBuf::from(value()?)),
                "--programs" => programs = Some(PathBuf::from(value()?)),
                "--passphrase" => passphrase = true,
                "--checked" => checked = Some(value()?),
                "--background" => background = true,
                _ => return Err(format!("unknown argument {flag}\n{USAGE}")),
            }
        }
        let missing = |what: &str| format!("{what} is missing\n{USAGE}");
        let (of, config) = of.ok_or_else(|| missing("--server, --workstation or --gateway"))?;
        Ok(Self {
            of,
            config,
            state: state.ok_or_else(|| missing("--state"))?,
            run: run.ok_or_else(|| missing("--run"))?,
            programs: programs.ok_or_else(|| missing("--programs"))?,
            passphrase,
            checked,
            background,
            places: Places::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_whole_command_line_is_read() {
        let options = parse("--server /s/site.toml --state /var/s --run /run/s --programs /p").unwrap();
        assert_eq!(options.of, Of::Server);
        assert_eq!(options.config, PathBuf::from("/s/site.toml"));
        assert!(!options.passphrase && !options.background && options.checked.is_none());
    }

    #[test]
    fn what_is_missing_or_unknown_is_said() {
        assert!(parse("--server /s --run /r --programs /p").unwrap_err().starts_with("--state is missing"));
        assert!(parse("--server").unwrap_err().starts_with("--server needs a value"));
        assert!(parse("--verbose").unwrap_err().starts_with("unknown argument --verbose"));
    }
}
