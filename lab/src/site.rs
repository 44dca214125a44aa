//! A site of levee's in namespaces of the laboratory, brought up by levee's own programs as an operator and a person would use them
//! (`levee enrol`, `levee up`, `levee-tpe login`, `levee-tpe level`), with a person signed on at one level.

use crate::badlink::{Asked, BadLink};
use crate::federation::{OUTER, OUTSIDE, Second};
use crate::netns::{Namespace, tool};
use crate::operate::{Removed, Up, programs, programs_in, programs_with, text, told, wait_for};
use crate::processes::{descendants, name, processes};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, process};

/// Who signs on: every site of the laboratory's has this user.
pub(crate) const USER: &str = "lab";
/// Of a user that exists for the length of one run.
const PASSWORD: &str = "measured only in the laboratory";

/// What a site has beside a server and a workstation on a plain link.
#[derive(Default)]
pub(crate) struct Beside<'a> {
    /// What the link can be.
    pub(crate) links: Option<&'a [Asked]>,
    /// A second server's namespace and site file: the workstation reaches it over a link of its own. The person signs on at the first.
    pub(crate) second: Option<(Namespace, &'a str)>,
    /// Another program in the place of levee-vault.
    pub(crate) vault: Option<&'a str>,
    /// Where levee's programs are, if not beside this one.
    pub(crate) programs: Option<&'a Path>,
}

/// Signs the person on at the workstation of the site in this directory, at a label; process 1 of the session's compartment there.
fn sign_on(programs: &Path, directory: &Path, label: &str) -> io::Result<u32> {
    let (tpe, socket) = (programs.join("levee-tpe"), directory.join("ws1").join("tpe.sock"));
    told(&tpe, &["login", USER, "--password-stdin"], &socket, PASSWORD)?;
    told(&tpe, &["level", label], &socket, "")?;
    wait_for("the session's compartment", || {
        let below = descendants(&processes(), &text(&directory.join("ws1")));
        below.into_iter().find(|p| name(*p).as_deref() == Some("levee-init"))
    })
}

/// A running site with a person signed on. Fields drop in order.
#[derive(Debug)]
pub(crate) struct Signed {
    _workstation: Up,
    /// What the server runs as.
    pub(crate) server: Up,
    /// The other server of its federation, where it has one.
    pub(crate) second: Option<Second>,
    /// What lies between them, where it is no plain link.
    pub(crate) link: Option<BadLink>,
    /// Where the programs are that it runs as.
    programs: PathBuf,
    /// The workstation's and the server's.
    pub(crate) namespaces: [Namespace; 2],
    /// Everything that the run leaves on the disk, and part of the command line of each of its processes.
    pub(crate) directory: Removed,
    /// Process 1 of the session's compartment at the workstation.
    pub(crate) session: u32,
}

impl Signed {
    /// Brings a site up whose server is in this namespace, with a workstation `ws1` of its own, and signs `lab` on at a label. `part`
    /// tells this site from another of the same run.
    ///
    /// # Errors
    /// The step that failed, in words; what was made until then is removed.
    pub(crate) fn start(part: &str, server: Namespace, site: &str, label: &str) -> io::Result<Signed> {
        Signed::bring_up(part, (server, site), label, Beside::default())
    }

    /// The same over a link that can be any of these.
    ///
    /// # Errors
    /// As for [`Signed::start`].
    pub(crate) fn start_over(
        part: &str,
        server: Namespace,
        site: &str,
        label: &str,
        links: Option<&[Asked]>,
    ) -> io::Result<Signed> {
        Signed::bring_up(part, (server, site), label, Beside { links, ..Beside::default() })
    }

    /// The same with what is asked for besides.
    ///
    /// # Errors
    /// As for [`Signed::start`], or there is no such program.
    pub(crate) fn bring_up(
        part: &str,
        (server, site): (Namespace, &str),
        label: &str,
        Beside { links, second, vault, programs: from }: Beside<'_>,
    ) -> io::Result<Signed> {
        let directory = Removed(std::env::temp_dir().join(format!("levlab{}{part}", process::id())));
        fs::create_dir(&directory.0)?;
        let path = |name: &str| directory.0.join(name);
        let workstation = Namespace::new(&format!("{part}w"))?;
        let link = BadLink::or_plain(&server, &workstation, OUTSIDE, OUTER, links)?;
        fs::write(path("site.toml"), site)?;
        let programs = match (vault, from) {
            (Some(vault), _) => programs_with(vault, path("programs"))?,
            (None, Some(from)) => programs_in(from)?,
            (None, None) => programs()?,
        };
        let (levee, state) = (programs.join("levee"), text(&path("state")));
        let file = text(&path("site.toml"));
        tool(&text(&levee), &["enrol", "all", &file, "--state", &state])?;
        told(&levee, &["user", "add", "--state", &state, &file, USER], &path("none"), PASSWORD)?;
        let start =
            |(space, site)| Second::start(part, space, (&levee, site), [&server, &workstation], &directory.0);
        let second = second.map(start).transpose()?;
        let server_up =
            Up::start(levee.clone(), &server, &directory.0, "server", &[&file, "--state", &state])?;
        if let Some(second) = &second {
            second.joined(&server_up)?;
        }
        let bundle = text(&path("state").join("hosts").join("ws1"));
        let own_state = text(&path("ws1-state"));
        let workstation_args = ["--workstation", &bundle, "--state", &own_state];
        let workstation_up = Up::start(levee, &workstation, &directory.0, "ws1", &workstation_args)?;
        let session = sign_on(&programs, &directory.0, label)?;
        Ok(Signed {
            _workstation: workstation_up,
            server: server_up,
            second,
            link,
            programs,
            namespaces: [workstation, server],
            directory,
            session,
        })
    }

    /// Ends the session as its person does; seconds until that is acknowledged.
    ///
    /// # Errors
    /// When levee refuses.
    pub(crate) fn sign_off(&self) -> io::Result<f64> {
        let (tpe, socket) = (self.programs.join("levee-tpe"), self.directory.0.join("ws1").join("tpe.sock"));
        let since = Instant::now();
        told(&tpe, &["logout"], &socket, "")?;
        Ok(since.elapsed().as_secs_f64())
    }

    /// Signs the person on again, once nothing is left of the session before.
    ///
    /// # Errors
    /// The step that failed, in words.
    pub(crate) fn sign_on_again(&mut self, label: &str) -> io::Result<()> {
        let before = PathBuf::from(format!("/proc/{}", self.session));
        wait_for("the session's compartment to end", || (!before.exists()).then_some(()))?;
        self.session = sign_on(&self.programs, &self.directory.0, label)?;
        Ok(())
    }

    /// The session's network.
    pub(crate) fn client(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.session))
    }

    /// Process 1 of a label's compartment at the first server, once it runs.
    ///
    /// # Errors
    /// When it does not in time.
    pub(crate) fn compartment(&self, label: &str) -> io::Result<u32> {
        self.server.compartment(label)
    }
}
