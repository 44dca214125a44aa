//! levee's programs, as an operator and a person run them, and what they leave: removed and stopped when dropped.

use crate::netns::{Namespace, tool};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// How long each step may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A directory removed when dropped.
#[derive(Debug)]
pub(crate) struct Removed(pub(crate) PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let gone = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        if let Err(e) = gone {
            crate::said::warning(&format!("{}: {e}", self.0.display()));
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
            crate::said::warning(&e);
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
    programs_in(exe.parent().unwrap_or(Path::new("/")))
}

/// The same, of a directory that should have them.
pub(crate) fn programs_in(dir: &Path) -> io::Result<PathBuf> {
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
            return Err(io::Error::other(format!("{p} is not in {}", dir.display())));
        }
    }
    dir.canonicalize()
}

/// The same programs in a directory of their own, but with another one in the vault's place.
pub(crate) fn programs_with(vault: &str, directory: PathBuf) -> io::Result<PathBuf> {
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

/// Where a compartment sees a program of this run's. Nobody looks there for programs by their names; and a directory with those has every
/// site's image of programs made anew once something comes or goes in it. An image that is kept is known by this name: no later process has it,
/// whatever its number.
pub(crate) fn visible(name: &str) -> PathBuf {
    static BEGUN: OnceLock<u128> = OnceLock::new();
    let begun = BEGUN.get_or_init(|| UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos());
    PathBuf::from(format!("/usr/local/share/levlab{}{name}-{begun:x}", std::process::id()))
}

/// This program where a compartment can see it: below /usr. A copy, removed at the end, if it is elsewhere; one for each who asks.
pub(crate) fn this_program() -> io::Result<(PathBuf, Option<Removed>)> {
    let exe = std::env::current_exe()?;
    if exe.starts_with("/usr") {
        return Ok((exe, None));
    }
    static COPIES: AtomicUsize = AtomicUsize::new(0);
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let copy = visible(&format!("-{number}"));
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
