//! The root file system: the host's programs to read, little else, and nothing that is shared to write.
//!
//! At a label of a server, `/usr` is a file system of its own: a bind mount would share inodes with every other compartment, an
//! overlay the pages of files, by which futexes and reads tell others. A workstation's one session has the host's, through an
//! overlay.

use levee_policy::DomainName;
use levee_policy::site::Need;

use super::spec::{Files, PAGES, Programs, SERVICE_UID, Spec};
use super::step::Inside;

/// What is built on the root tmpfs itself: `/etc`, links, mount points.
const ROOT_BYTES: u64 = 4 << 20;

/// Directories of the host that are merged into `/usr` there, as symbolic links (`/bin` → `usr/bin`).
pub(crate) const MERGED: [(&str, &str); 4] =
    [("/bin", "usr/bin"), ("/sbin", "usr/sbin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64")];

/// Files of the host's `/etc` that programs need and that say nothing about the host's users or network.
pub(crate) const COPIED: [&str; 7] = [
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nginx/mime.types",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs/ca-certificates.crt",
];

/// Where Debian's names of programs that have alternatives lead, on hosts that have it.
const ALTERNATIVES: &str = "/etc/alternatives";

/// Where the image of a site's programs has them.
const ALTERNATIVES_INSIDE: &str = "/usr/lib/levee/alternatives";

/// `/dev`: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

/// The files of `/etc` that are no copies.
fn etc(spec: &Spec) -> [(&'static str, String); 6] {
    [
        ("/etc/passwd", passwd()),
        ("/etc/group", format!("root:x:0:\ntty:x:5:\nuser:x:{SERVICE_UID}:\nnogroup:x:65534:\n")),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".into()),
        ("/etc/hosts", hosts(spec)),
        ("/etc/hostname", format!("{}\n", spec.hostname)),
        ("/etc/resolv.conf", String::new()),
    ]
}

/// Links of `/dev`, and to what.
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

fn directory(path: &str) -> Inside {
    Inside::Directory(path.to_owned())
}

fn link((path, to): (&str, &str)) -> Inside {
    Inside::Link { path: path.to_owned(), to: to.to_owned() }
}

fn tmpfs(path: &str, bytes: u64, owner: u32, mode: u32) -> Inside {
    Inside::Tmpfs { path: path.to_owned(), bytes, owner, mode }
}

pub(super) fn steps(spec: &Spec) -> Vec<Inside> {
    let mounted = match &spec.files {
        Files::Store { below, .. } => 1 + usize::from(below.is_some()),
        Files::Scratch { .. } => 0,
    };

    let mut steps = match &spec.programs {
        Programs::Root(_) => {
            vec![Inside::RootImage { number: mounted, bytes: ROOT_BYTES }, directory("/etc")]
        }
        _ => host_software(spec, mounted),
    };
    steps.extend(etc(spec).map(|(path, content)| Inside::File { path: path.to_owned(), content }));
    if spec.pages {
        steps.extend([directory(PAGES), tmpfs(PAGES, ROOT_BYTES, spec.uid_base, 0o755)]);
    }

    let user = spec.uid_base.saturating_add(SERVICE_UID);
    steps.push(directory("/dev"));
    steps.extend(DEVICES.map(|(name, major, minor)| Inside::Device {
        path: format!("/dev/{name}"),
        major,
        minor,
    }));
    steps.extend(["/dev/shm", "/dev/mqueue"].map(directory));
    steps.push(Inside::Queues);
    steps.extend(LINKS.map(link));
    if spec.needs.has(Need::Terminals) {
        steps.extend([directory("/dev/pts"), Inside::Terminals, link(("/dev/ptmx", "pts/ptmx"))]);
    }
    steps.push(tmpfs("/dev/shm", spec.scratch, spec.uid_base, 0o1777));

    steps.extend(["/proc", "/tmp", "/run", "/var", "/srv", "/home", "/root"].map(directory));
    if spec.needs.has(Need::Proc) {
        steps.push(Inside::Proc);
    }
    steps.push(tmpfs("/tmp", spec.scratch, spec.uid_base, 0o1777));
    steps.extend(["/run", "/var"].map(|path| tmpfs(path, spec.scratch, user, 0o755)));
    match &spec.files {
        Files::Store { below, .. } => {
            steps.extend(["/srv/own", "/srv/below"].map(directory));
            steps.push(Inside::Image { number: 0, path: "/srv/own".into() });
            if below.is_some() {
                steps.push(Inside::Image { number: 1, path: "/srv/below".into() });
            }
        }
        Files::Scratch { bytes } => {
            steps.push(directory("/home/user"));
            steps.push(tmpfs("/home/user", *bytes, user, 0o700));
        }
    }
    steps
}

/// A root with what the host's programs are and need.
fn host_software(spec: &Spec, number: usize) -> Vec<Inside> {
    let mut steps = vec![Inside::Root(ROOT_BYTES), directory("/usr")];
    match &spec.programs {
        Programs::Host => steps.push(Inside::Programs { from: "/usr".into(), path: "/usr".into() }),
        _ => steps.push(Inside::Image { number, path: "/usr".into() }),
    }
    steps.extend(MERGED.map(link));

    steps.extend(["/etc", "/etc/nginx", "/etc/ssl", "/etc/ssl/certs"].map(directory));
    // Hundreds of links on some hosts: mounted, because to copy them is a large part of a compartment's start.
    if matches!(spec.programs, Programs::Image(_)) {
        steps.push(link((ALTERNATIVES, ALTERNATIVES_INSIDE)));
    } else if std::path::Path::new(ALTERNATIVES).is_dir() {
        steps.push(directory(ALTERNATIVES));
        steps.push(Inside::Programs { from: ALTERNATIVES.into(), path: ALTERNATIVES.into() });
    }
    steps.extend(COPIED.map(|path| Inside::Copy(path.into())));
    steps
}

fn passwd() -> String {
    format!(
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         user:x:{SERVICE_UID}:{SERVICE_UID}:user:/home/user:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
}

fn hosts(spec: &Spec) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for (address, names) in &spec.hosts {
        let names: Vec<&str> = names.iter().map(DomainName::as_str).collect();
        text.push_str(&format!("{address} {}\n", names.join(" ")));
    }
    text
}
