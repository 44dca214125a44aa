//! A site of levee's in namespaces of the laboratory, brought up by levee's own programs as an operator and a person would use them
//! (`levee enrol`, `levee up`, `levee-tpe login`, `levee-tpe level`), with a person signed on at one level.

use crate::badlink::{Asked, BadLink};
use crate::federation::Second;
use crate::netns::{Namespace, tool};
use crate::processes::{descendants, name, processes};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, process};

/// Who signs on: every site of the laboratory's has this user.
pub(crate) const USER: &str = "lab";
/// Of a user that exists for the length of one run.
const PASSWORD: &str = "measured only in the laboratory";
/// How long each step may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The link between workstation and server.
pub(crate) const OUTER: &str = "outer";
/// The server's outer address, which its site names, and the workstation's.
pub(crate) const OUTSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 11)];

/// A directory removed when dropped.
#[derive(Debug)]
pub(crate) struct Removed(pub(crate) PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let gone = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        if let Err(e) = gone {
            eprintln!("levee-lab: {}: {e}", self.0.display());
        }
    }
}

/// A part that `levee up` started: stopped by `levee down` when dropped.
#[derive(Debug)]
pub(crate) struct Up {
    pub(crate) levee: PathBuf,
    pub(crate) run: PathBuf,
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Err(e) = tool(&text(&self.levee), &["down", "--run", &text(&self.run)]) {
            eprintln!("levee-lab: {e}");
        }
    }
}

impl Up {
    /// Runs `levee up` with these arguments in a namespace. Its run directory has this name below `directory`, where its log is, too.
    ///
    /// # Errors
    /// What it says.
    pub(crate) fn start(
        levee: PathBuf,
        namespace: &Namespace,
        directory: &Path,
        run: &str,
        args: &[&str],
    ) -> io::Result<Up> {
        let run = directory.join(run);
        let (program, run_, net) =
            (text(&levee), text(&run), format!("--net={}", namespace.path().display()));
        let all = [&[net.as_str(), &program, "up"], args, &["--run", &run_]].concat();
        quiet("nsenter", &all, &directory.join("log"))?;
        Ok(Up { levee, run })
    }

    /// What `levee status` says of it.
    ///
    /// # Errors
    /// When it says nothing.
    pub(crate) fn status(&self) -> io::Result<serde_json::Value> {
        let said = tool(&text(&self.levee), &["status", "--json", "--run", &text(&self.run)])?;
        Ok(serde_json::from_str(&said)?)
    }

    /// Process 1 of a label's compartment, once it runs.
    ///
    /// # Errors
    /// When it does not in time.
    pub(crate) fn compartment(&self, label: &str) -> io::Result<u32> {
        compartment(&self.levee, &text(&self.run), label)
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Where levee's programs are: beside this one.
pub(crate) fn programs() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().unwrap_or(Path::new("/")).to_path_buf();
    for p in [
        "levee",
        "levee-warden",
        "levee-sessiond",
        "levee-keyer",
        "levee-vault",
        "levee-mediator",
        "levee-tps",
        "levee-tpe",
    ] {
        if !dir.join(p).exists() {
            return Err(io::Error::other(format!("{p} is not beside levee-lab")));
        }
    }
    Ok(dir)
}

/// What a site has beside a server and a workstation on a plain link.
#[derive(Default)]
struct Beside<'a> {
    /// What the link can be.
    links: Option<&'a [Asked]>,
    /// A second server's namespace and site file.
    second: Option<(Namespace, &'a str)>,
    /// Another program in the place of levee-vault.
    vault: Option<&'a str>,
}

/// The same programs in a directory of their own, but with another one in the vault's place.
fn programs_with(vault: &str, directory: PathBuf) -> io::Result<PathBuf> {
    let from = programs()?;
    fs::create_dir(&directory)?;
    for entry in fs::read_dir(&from)? {
        let entry = entry?;
        let name = entry.file_name();
        // What a manifest says of the directory does not hold here.
        if !name.to_string_lossy().starts_with("levee") || !entry.file_type()?.is_file() {
            continue;
        }
        let source = if name == "levee-vault" { from.join(vault) } else { entry.path() };
        let to = directory.join(&name);
        fs::hard_link(&source, &to).or_else(|_| fs::copy(&source, &to).map(drop))?;
    }
    Ok(directory)
}

/// This program where a compartment can see it: below /usr. A copy, removed at the end, if it is elsewhere; one for each who asks.
pub(crate) fn visible() -> io::Result<(PathBuf, Option<Removed>)> {
    let exe = std::env::current_exe()?;
    if exe.starts_with("/usr") {
        return Ok((exe, None));
    }
    static COPIES: AtomicUsize = AtomicUsize::new(0);
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let copy = PathBuf::from(format!("/usr/local/bin/levlab{}-{number}", process::id()));
    let guard = Removed(copy.clone());
    fs::copy(exe, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok((copy, Some(guard)))
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(t) = look() {
            return Ok(t);
        }
        if Instant::now() > end {
            return Err(io::Error::other(format!("not within {} s: {what}", PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program with a line on its standard input.
pub(crate) fn told(program: &Path, args: &[&str], socket: &Path, line: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(args)
        .env("LEVEE_TPE_SOCKET", socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(line.as_bytes())?;
    }
    let out = child.wait_with_output()?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Err(io::Error::other(format!("{} {}: {said}", program.display(), args.join(" "))))
}

/// Runs a program that may leave another running: its output goes to a file, since a pipe would stay open.
pub(crate) fn quiet(program: &str, args: &[&str], log: &Path) -> io::Result<()> {
    let file = fs::File::options().create(true).append(true).open(log)?;
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0)
        .status()
        .map_err(|e| io::Error::new(e.kind(), format!("{program}: {e}")))?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(log).unwrap_or_default();
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    Err(io::Error::other(format!("{program} {}: {}", args.join(" "), last.join("; "))))
}

/// Process 1 of a label's compartment, once it runs.
pub(crate) fn compartment(levee: &Path, run: &str, label: &str) -> io::Result<u32> {
    wait_for("the label's compartment", || {
        let said = tool(&text(levee), &["status", "--json", "--run", run]).ok()?;
        let said: serde_json::Value = serde_json::from_str(&said).ok()?;
        let all = said.get("compartments")?.as_array()?;
        let init = all.iter().find(|c| c.get("label").and_then(|l| l.as_str()) == Some(label))?;
        u32::try_from(init.get("init")?.as_u64()?).ok().filter(|p| *p > 0)
    })
}

/// Signs the person on at the workstation of the site in this directory, at a label; process 1 of the session's compartment there.
fn sign_on(directory: &Path, label: &str) -> io::Result<u32> {
    let (tpe, socket) = (programs()?.join("levee-tpe"), directory.join("ws1").join("tpe.sock"));
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

    /// The same with another program as every vault.
    ///
    /// # Errors
    /// As for [`Signed::start`], or there is no such program.
    pub(crate) fn start_with_vault(
        part: &str,
        server: Namespace,
        site: &str,
        label: &str,
        vault: &str,
    ) -> io::Result<Signed> {
        Signed::bring_up(part, (server, site), label, Beside { vault: Some(vault), ..Beside::default() })
    }

    /// The same with a second server of the site, which the workstation reaches over a link of its own. The person signs on at the first.
    ///
    /// # Errors
    /// As for [`Signed::start`].
    pub(crate) fn start_federated(
        part: &str,
        first: (Namespace, &str),
        second: (Namespace, &str),
        label: &str,
    ) -> io::Result<Signed> {
        Signed::bring_up(part, first, label, Beside { second: Some(second), ..Beside::default() })
    }

    fn bring_up(
        part: &str,
        (server, site): (Namespace, &str),
        label: &str,
        Beside { links, second, vault }: Beside<'_>,
    ) -> io::Result<Signed> {
        let directory = Removed(std::env::temp_dir().join(format!("levlab{}{part}", process::id())));
        fs::create_dir(&directory.0)?;
        let path = |name: &str| directory.0.join(name);
        let workstation = Namespace::new(&format!("{part}w"))?;
        let link = BadLink::or_plain(&server, &workstation, OUTSIDE, OUTER, links)?;
        fs::write(path("site.toml"), site)?;
        let programs = vault.map_or_else(programs, |vault| programs_with(vault, path("programs")))?;
        let (levee, state) = (programs.join("levee"), text(&path("state")));
        let file = text(&path("site.toml"));
        tool(&text(&levee), &["enrol", "all", &file, "--state", &state])?;
        told(&levee, &["user", "add", "--state", &state, &file, USER], &path("none"), PASSWORD)?;
        let start = |(space, site)| Second::start(part, space, site, [&server, &workstation], &directory.0);
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
        let session = sign_on(&directory.0, label)?;
        Ok(Signed {
            _workstation: workstation_up,
            server: server_up,
            second,
            link,
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
        let (tpe, socket) = (programs()?.join("levee-tpe"), self.directory.0.join("ws1").join("tpe.sock"));
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
        self.session = sign_on(&self.directory.0, label)?;
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
