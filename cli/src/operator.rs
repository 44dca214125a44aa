//! Asks a running server, on the socket that only root can open.

use std::path::{Path, PathBuf};
use std::time::Duration;

use levee_ipc::operator::{Answer, Command, Entering, Priced, ServerStatus};
use levee_ipc::{Channel, RecvError};
use levee_policy::{LabelName, Site};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::running::Running;

/// Longer than a server takes to end a session whose label's vault must be killed for it.
const PATIENCE: Duration = Duration::from_secs(15);

/// A label's first start makes its store, and a kernel of its own may have to boot.
const TRIAL: Duration = Duration::from_secs(120);

/// The longest that a posture gives workstations to follow, and then some.
const MOVING: Duration = Duration::from_secs(120);

/// The longest that a program of an operator's may run.
const EXECUTION: Duration = Duration::from_secs(600);

/// The operators' socket, in a server's run directory.
pub const CONTROL: &str = "control";

/// Which running server.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Its run directory [default: the only one below /run/levee]
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
}

impl Which {
    /// Its run directory.
    pub fn run(&self) -> Result<PathBuf, String> {
        // A workstation's part has no such socket.
        self.run
            .clone()
            .map_or_else(|| crate::running::only_server(Path::new(crate::site::RUNS), CONTROL), Ok)
    }

    /// Its state directory, where one server runs, for root, who alone may look into it.
    pub fn state(&self) -> Option<PathBuf> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        Running::of(&self.run().ok()?).ok()?.state().map(Path::to_owned)
    }

    /// The server's site, as its file is now.
    pub fn site(&self) -> Result<Site, String> {
        crate::site::read(&Running::of(&self.run()?)?.config)
    }

    /// The label that a person means by what they typed, at the server's site as its file is now.
    ///
    /// # Errors
    /// It is none, and what was probably meant.
    pub fn typed(&self, label: LabelName) -> Result<LabelName, String> {
        // Where there is nothing to go by, the server says what is wrong.
        let Ok(site) = self.site() else { return Ok(label) };
        let meant = site.vocabulary().parse_typed(label.as_str());
        meant.map(|_| site.typed_name(label)).map_err(|e| format!("{}: {}", e.what, e.remedy))
    }

    /// Whether a server answers there.
    pub fn runs(&self) -> bool {
        // A socket may be left of one that was killed.
        self.run().is_ok_and(|run| run.join(CONTROL).exists() && Running::of(&run).is_ok())
    }

    /// Sends one command and waits for its answer.
    pub fn ask(&self, command: &Command) -> Result<Answer, String> {
        self.begin(command)?.next()
    }

    /// Sends one command, whose answers are waited for one by one. What was begun ends where this is dropped.
    pub fn begin(&self, command: &Command) -> Result<Asked, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can ask a server; run this with sudo".to_owned());
        }
        let patience = match command {
            Command::Posture(_) => MOVING,
            // The label may have to be started, and a program may take its time.
            Command::Enter(_, Entering::Put { .. }) => TRIAL,
            Command::Enter(_, Entering::Execute(_)) => TRIAL + EXECUTION,
            _ => PATIENCE,
        };
        Asked::begin(&self.run()?.join(CONTROL), command, patience)
    }

    /// Everything that runs.
    pub fn status(&self) -> Result<ServerStatus, String> {
        match self.ask(&Command::Status)? {
            Answer::Status(status) => Ok(*status),
            Answer::Failed(reason) => Err(reason),
            _ => Err("the server answered another question".to_owned()),
        }
    }

    /// What tunnels cost there.
    pub fn prices(&self) -> Result<Priced, String> {
        match self.ask(&Command::Prices)? {
            Answer::Prices(priced) => Ok(*priced),
            Answer::Failed(reason) => Err(reason),
            _ => Err("the server answered another question".to_owned()),
        }
    }
}

/// Whether a label starts at the server that runs here.
///
/// # Errors
/// It does not, and why; or nobody says so in time.
pub fn try_label(run: &Path, label: &LabelName) -> Result<(), String> {
    match Asked::begin(&run.join(CONTROL), &Command::Try(label.clone()), TRIAL)?.next()? {
        Answer::Ended => Ok(()),
        Answer::Failed(reason) => Err(reason),
        _ => Err("the server answered another question".to_owned()),
    }
}

/// A command that a server has been sent.
pub struct Asked {
    channel: Channel,
    socket: PathBuf,
    patience: Duration,
}

impl Asked {
    fn begin(socket: &Path, command: &Command, patience: Duration) -> Result<Self, String> {
        let fault = |what: &dyn std::fmt::Display| format!("{}: {what}", socket.display());
        crate::output::detail(&format_args!("asks {}", socket.display()));
        let at = |e: rustix::io::Errno| match e {
            rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED => {
                let instead = socket.parent().and_then(crate::running::no_server);
                instead.unwrap_or_else(|| fault(&"no server runs there; `levee up` starts one"))
            }
            e => fault(&e),
        };
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(at)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(patience)).map_err(at)?;
        set_socket_timeout(&fd, Timeout::Send, Some(patience)).map_err(at)?;
        connect(&fd, &SocketAddrUnix::new(socket).map_err(at)?).map_err(at)?;
        let channel = Channel::from_fd(fd);
        channel.send(command).map_err(|e| fault(&e))?;
        Ok(Self { channel, socket: socket.to_owned(), patience })
    }

    /// The next answer.
    pub fn next(&self) -> Result<Answer, String> {
        match self.channel.recv() {
            Ok(received) => Ok(received.message),
            // With a time limit, that is what "no message yet" means.
            Err(RecvError::Empty) => {
                Err(format!("{}: no answer within {:?}", self.socket.display(), self.patience))
            }
            Err(e) => Err(format!("{}: {e}", self.socket.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{accept, bind, listen};

    #[test]
    fn a_command_is_sent_and_its_answer_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&fd, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&fd, 1).unwrap();
        let server = std::thread::spawn(move || {
            let channel = Channel::from_fd(accept(&fd).unwrap());
            let asked = channel.recv::<Command>().unwrap().message;
            channel.send(&Answer::Failed("no such session".into())).unwrap();
            asked
        });
        let asked = Asked::begin(&path, &Command::End("0123456789ab".into()), PATIENCE).unwrap();
        let answer = asked.next().unwrap();
        assert!(matches!(answer, Answer::Failed(reason) if reason == "no such session"));
        assert!(matches!(server.join().unwrap(), Command::End(id) if id == "0123456789ab"));
    }

    #[test]
    fn that_no_server_runs_is_said_with_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let asked = Asked::begin(&directory.path().join("control"), &Command::Status, PATIENCE);
        let error = asked.err().unwrap();
        assert!(error.ends_with("no server runs there; `levee up` starts one"), "{error}");
    }
}
