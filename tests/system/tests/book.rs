//! A newcomer, who has two hosts and the book: each command of its chapters is run as it stands there, on a terminal, and must say what the
//! book shows. The two hosts are namespaces with `/etc/levee` (which is not there at first), `/var/lib/levee` and `/run` of their own, over this machine's other files: packages are
//! unpacked for them, not installed.
//!
//! The programs are those of this build; or where `LEVEE_INSTALLED` names a directory, what was installed below its `server` and `ws1`, as
//! `usr` of either host (`make packages-test` does that with the packages, and with `make install`).

use levee_system::{PASSWORD, programs};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The chapters with commands, in the order in which a newcomer would need them.
const CHAPTERS: [(&str, &str); 5] = [
    ("first-site", include_str!("../../../docs/book/src/first-site.md")),
    ("people", include_str!("../../../docs/book/src/people.md")),
    ("keys", include_str!("../../../docs/book/src/keys.md")),
    ("audit", include_str!("../../../docs/book/src/audit.md")),
    ("incidents", include_str!("../../../docs/book/src/incidents.md")),
];

/// Steps in bold, from an empty host to the first page.
const STEPS: usize = 7;

/// A command of the book, and what it shows of the output.
#[derive(Debug)]
struct Shown {
    chapter: &'static str,
    host: String,
    command: String,
    output: Vec<String>,
}

/// What stands in blocks of `console`: `HOST# COMMAND`, then output until the next.
fn commands(chapter: &'static str, text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        for line in block.lines() {
            match (line.split_once("# "), found.last_mut()) {
                (Some((host, command)), _) if ["server", "ws1"].contains(&host) => {
                    let (host, command) = (host.to_owned(), command.to_owned());
                    found.push(Shown { chapter, host, command, output: Vec::new() });
                }
                (_, Some(last)) => last.output.push(line.trim().to_owned()),
                (_, None) => panic!("{chapter}: a block that begins without a command: {line}"),
            }
        }
    }
    found
}

/// Whether the output has what the book shows, in its order; `…` stands for anything.
fn fits(output: &str, shown: &[String]) -> Result<(), String> {
    let mut rest = output;
    for piece in
        shown.iter().flat_map(|line| line.split('…')).map(str::trim).filter(|piece| !piece.is_empty())
    {
        let at = rest.find(piece).ok_or_else(|| piece.to_owned())?;
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    Ok(())
}

/// Where levee was installed for either host, if the programs are not those of this build.
fn installed() -> Option<PathBuf> {
    std::env::var_os("LEVEE_INSTALLED").map(PathBuf::from)
}

/// A host: a process that keeps its namespaces.
struct Host {
    keeper: Child,
    /// What its `/etc`, `/var/lib/levee` really are.
    place: PathBuf,
}

impl Host {
    fn new(place: PathBuf) -> Self {
        let usr = installed().map_or(String::new(), |all| {
            let own = all.join(place.file_name().expect("its name")).join("usr");
            assert!(own.is_dir(), "{}: nothing is installed", own.display());
            format!("mount -t overlay -o lowerdir={}:/usr overlay /usr && ", own.display())
        });
        for directory in ["etc", "etc-work", "lib", "lib-work", "state", "uids"] {
            fs::create_dir_all(place.join(directory)).expect("a directory");
        }
        let at = place.display();
        // Uids and control groups are the kernel's: who has which is said where every levee on this machine looks.
        let script = format!(
            "mount --make-rprivate / && {usr}mount -t overlay -o lowerdir=/etc,upperdir={at}/etc,workdir={at}/etc-work overlay /etc && \
             mount -t overlay -o lowerdir=/var/lib,upperdir={at}/lib,workdir={at}/lib-work overlay /var/lib && \
             rm -rf /etc/levee && mkdir -p /var/lib/levee && mount --bind {at}/state /var/lib/levee && \
             mkdir -p /run/levee/uids && mount --bind /run/levee/uids {at}/uids && mount -t tmpfs none /run && \
             mkdir -p /run/levee/uids && mount --bind {at}/uids /run/levee/uids && mkdir -p /run/media/auditor && \
             ip link set lo up && touch {at}/ready && exec sleep 600"
        );
        let mut keeper = Command::new("unshare")
            .args(["--mount", "--net", "sh", "-c", &script])
            .spawn()
            .expect("start unshare");
        let until = Instant::now() + Duration::from_secs(20);
        while !place.join("ready").exists() {
            assert!(keeper.try_wait().expect("look").is_none(), "the host's namespaces cannot be made");
            assert!(Instant::now() < until, "no namespaces within 20 s");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { keeper, place }
    }

    fn pid(&self) -> String {
        self.keeper.id().to_string()
    }

    /// Runs a command on a terminal; answers questions for a password.
    fn run(&self, command: &str) -> (i32, String) {
        let path = match installed() {
            Some(_) => "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            None => format!("{}:{}", programs().display(), std::env::var("PATH").unwrap_or_default()),
        };
        let mut child = Command::new("nsenter")
            .args(["--target", &self.pid(), "--mount", "--net", "env", "LC_ALL=C.UTF-8", "script", "-qefc"])
            .arg(format!("stty cols 200 rows 50; {command}"))
            .arg("/dev/null")
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("start nsenter");
        let (said, saying) = mpsc::channel();
        let (mut out, mut keys) = (child.stdout.take().expect("its output"), child.stdin.take());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = out.read(&mut buffer) {
                if said.send(String::from_utf8_lossy(&buffer[..read]).into_owned()).is_err() {
                    break;
                }
            }
        });
        let (mut text, mut answered) = (String::new(), 0);
        let until = Instant::now() + Duration::from_secs(90);
        loop {
            match saying.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(more) => text += &more,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let _ = child.kill();
                    panic!("{command}: not done within 90 s; so far:\n{text}");
                }
            }
            let asked =
                |text: &str| text.matches("Password").count() + text.matches("The same again").count();
            if asked(&text) > answered && text.trim_end().ends_with(':') {
                answered = asked(&text);
                let keys = keys.as_mut().expect("its input");
                // The question is there before the echo is off.
                std::thread::sleep(Duration::from_millis(300));
                keys.write_all(format!("{PASSWORD}\n").as_bytes()).expect("type");
            }
        }
        let status = child.wait().expect("its end");
        (status.code().unwrap_or(-1), text)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Runs a command of the test's own.
fn tool(words: &[&str]) {
    let done = Command::new(words[0]).args(&words[1..]).status().expect("start it");
    assert!(done.success(), "{words:?}");
}

/// A wire from one host to the other.
fn connect(server: &Host, ws1: &Host) {
    let (one, other) = (server.pid(), ws1.pid());
    tool(&[
        "nsenter", "--target", &one, "--net", "ip", "link", "add", "outer", "type", "veth", "peer", "name",
        "outer", "netns", &other,
    ]);
    for (pid, address) in [(&one, "192.0.2.1/24"), (&other, "192.0.2.11/24")] {
        tool(&["nsenter", "--target", pid, "--net", "ip", "address", "add", address, "dev", "outer"]);
        tool(&["nsenter", "--target", pid, "--net", "ip", "link", "set", "outer", "up"]);
    }
}

/// What `scp` does where there is a network of the hosts' own: `scp FLAGS FILES… HOST:PLACE`.
fn copy(from: &Host, hosts: &[(&str, &Host)], command: &str, scratch: &Path) {
    let mut words = command.split(' ').skip(1).filter(|word| !word.starts_with('-')).collect::<Vec<_>>();
    let (to, place) = words.pop().and_then(|last| last.split_once(':')).expect("a host and a place");
    let to = hosts.iter().find(|(name, _)| *name == to).expect("a host of the book").1;
    for file in words {
        let between = scratch.join("between");
        let between = between.to_str().expect("text");
        tool(&["nsenter", "--target", &from.pid(), "--mount", "cp", "-a", file, between]);
        // A file that goes into a directory keeps its name.
        let (pid, name) = (to.pid(), file.rsplit('/').next().expect("a name"));
        let script =
            format!("if [ -d {place} ]; then mv {between} {place}/{name}; else mv {between} {place}; fi");
        tool(&["nsenter", "--target", &pid, "--mount", "sh", "-c", &script]);
    }
}

#[test]
fn a_newcomer_comes_by_the_books_own_commands_from_nothing_to_the_first_page_and_on() {
    let steps = CHAPTERS[0]
        .1
        .lines()
        .filter(|line| line.starts_with("**") && line.as_bytes()[2].is_ascii_digit())
        .count();
    assert_eq!(steps, STEPS);
    let directory = tempfile::tempdir().expect("a directory");
    let (server, ws1) = (Host::new(directory.path().join("server")), Host::new(directory.path().join("ws1")));
    connect(&server, &ws1);
    let hosts = [("server", &server), ("ws1", &ws1)];
    let all: Vec<Shown> = CHAPTERS.iter().flat_map(|(chapter, text)| commands(chapter, text)).collect();
    assert!(all.len() >= 20, "the book has {} commands", all.len());
    let mut problems = Vec::new();
    for Shown { chapter, host, command, output } in &all {
        let at = hosts.iter().find(|(name, _)| name == host).expect("a host of the book").1;
        if command.starts_with("scp ") {
            copy(at, &hosts, command, directory.path());
            continue;
        }
        let (status, said) = at.run(command);
        // `levee why` answers no with 1.
        let expected = i32::from(output.first().is_some_and(|line| line.starts_with("denied:")));
        if status != expected {
            problems.push(format!("{chapter}: {command}: status {status}:\n{said}"));
        }
        if let Err(missing) = fits(&said, output) {
            problems.push(format!("{chapter}: {command}: `{missing}` is not in:\n{said}"));
        }
    }
    for (host, name) in [(&ws1, "workstation"), (&server, "server")] {
        let (status, said) = host.run("levee down");
        if status != 0 {
            problems.push(format!("the {name} does not stop: {said}"));
        }
    }
    // Read only where something went wrong.
    let logs = || fs::read_to_string(server.place.join("state/quay/logs/levee/0.log")).unwrap_or_default();
    assert!(problems.is_empty(), "{}\n--- the server's log\n{}", problems.join("\n"), logs());
    let log = server.place.join("state/quay/sessiond/audit.jsonl");
    assert!(Path::new(&log).exists());
}
