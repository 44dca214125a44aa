//! In a test's virtual machine: levee's own compartments at labels of a site, one of each, and a shell's scripts in them.
//!
//! `levee-guest-labels SITE INIT PROGRAMS LABEL=IMAGE…`. It says `LABEL PID` for each compartment and then does what each line of standard
//! input says: `run LABEL SCRIPT` has a shell in that compartment do it; `listener LABEL` tells the
//! context of a listener that the warden makes there; `mount LABEL OTHER` attaches the store of the first at
//! `/srv/below` in the other's compartment, writable and with its uids: what namespaces, mounts and uids keep from it, it then has. What comes of it
//! follows, and a line `=> STATUS`. `victims` has each compartment run `/usr/bin/crossing` (`tests/guest/crossing.c`) as a victim. `cross KINDS MILLISECONDS EVERY`
//! has every label (or every so manieth) try everything on every other's, itself included, from its own namespaces but for those in KINDS, which are the
//! other's: a line for each pair.
//! `levee-guest-labels attach PID` puts the mount that is descriptor 3 into that process's tree.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use levee_policy::Site;
use levee_policy::site::Needs;
use levee_sys::cgroup::Limits;
use levee_sys::fork::inherited;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::ns::IdRange;
use levee_sys::spawn::Program;
use levee_warden::compartment::service::{Launch, Profile};
use levee_warden::compartment::{
    Compartment, Event, Files, Network, Plan, Programs, SERVICE_UID, Spec, UIDS,
};
use levee_warden::selinux;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

type Failed = Box<dyn std::error::Error>;

/// Where another's store is put.
const BELOW: &str = "/srv/below";

/// Where one listens that nobody asks.
const LISTENER: &str = "127.0.0.1:999";

/// How long a script may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    label: String,
    uid_base: u32,
    compartment: Compartment,
    network: Network,
    /// The last number given to a program.
    tickets: u64,
    context: String,
    victim: Option<Victim>,
}

/// A process that has what others could want.
struct Victim {
    /// Its number on the host, and inside.
    host: String,
    inner: String,
    /// Of what it keeps in memory.
    address: String,
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [verb, pid] if verb == "attach" => attach(pid),
        [site, init, programs, labels @ ..] => serve(site, Path::new(init), Path::new(programs), labels),
        _ => Err("SITE INIT PROGRAMS LABEL=IMAGE…".into()),
    }
}

fn attach(pid: &str) -> Result<(), Failed> {
    let mount = Mount::from_fd(inherited(3)?);
    let tree = File::open(format!("/proc/{pid}/ns/mnt"))?;
    move_into_link_name_space(tree.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(mount.attach(BELOW)?)
}

fn serve(site: &str, init: &Path, programs: &Path, labels: &[String]) -> Result<(), Failed> {
    let site = Site::parse(&std::fs::read_to_string(site)?).map_err(|problems| format!("{problems:?}"))?;
    // As a server does it first.
    selinux::check(&site)?;
    let mut places = Vec::new();
    for (number, label) in (1..).zip(labels) {
        let (label, image) = label.split_once('=').ok_or("LABEL=IMAGE")?;
        places.push(Place::start(&site, label, Path::new(image), programs, init, number)?);
    }
    let mut out = std::io::stdout();
    for place in &places {
        writeln!(out, "{} {}", place.label, place.pid()?)?;
    }
    writeln!(out, "=> 0")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let status = match obey(&mut places, &line, &mut out) {
            Ok(status) => status,
            Err(why) => {
                writeln!(out, "{why}")?;
                255
            }
        };
        writeln!(out, "=> {status}")?;
        out.flush()?;
    }
    Ok(())
}

fn obey(places: &mut [Place], line: &str, out: &mut impl std::io::Write) -> Result<u8, Failed> {
    let mut words = line.splitn(3, ' ');
    let (verb, label, rest) =
        (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let at = |label: &str| places.iter().position(|place| place.label == label).ok_or("no such label");
    match verb {
        Some("run") => {
            let at = at(label)?;
            let (said, status) = places.get_mut(at).ok_or("no such place")?.run(rest)?;
            writeln!(out, "{}", said.strip_suffix('\n').unwrap_or(&said))?;
            Ok(status)
        }
        Some("listener") => {
            let listener =
                places.get(at(label)?).ok_or("no such place")?.network.listen(LISTENER.parse()?)?;
            let mut context = vec![0; 256];
            let length = rustix::fs::fgetxattr(&listener, "security.selinux", &mut context)?;
            context.truncate(length);
            writeln!(out, "{}", String::from_utf8(context)?.trim_end_matches('\0'))?;
            Ok(0)
        }
        Some("victims") => {
            for place in places {
                place.has_victim()?;
            }
            Ok(0)
        }
        Some("cross") => {
            let (milliseconds, every) = rest.split_once(' ').ok_or("MILLISECONDS EVERY")?;
            let some: Vec<&Place> = places.iter().step_by(every.parse()?).collect();
            for (subject, object) in some.iter().flat_map(|s| some.iter().map(move |o| (s, o))) {
                let got = subject.tries(object, label, milliseconds)?;
                writeln!(out, "{} {} {got}", subject.label, object.label)?;
            }
            Ok(0)
        }
        Some("mount") => {
            let (of, to) = (places.get(at(label)?), places.get(at(rest)?));
            of.zip(to).ok_or("no such place").map(|(of, to)| of.lend(to))??;
            Ok(0)
        }
        _ => Err(
            "run LABEL SCRIPT, listener LABEL, mount LABEL OTHER, victims, or cross KINDS MILLISECONDS EVERY"
                .into(),
        ),
    }
}

impl Place {
    fn start(
        site: &Site,
        name: &str,
        image: &Path,
        programs: &Path,
        init: &Path,
        number: u32,
    ) -> Result<Self, Failed> {
        let label = site.vocabulary().parse(name).map_err(|e| e.to_string())?;
        let contexts = selinux::contexts(site, &label)?;
        let sockets = contexts.as_ref().map(|contexts| contexts.processes.clone());
        let uid_base = 0x7000_0000 + number * UIDS;
        let spec = Spec {
            label: site.label_name(&label).ok_or("a long name")?,
            cgroup: format!("levee-guest/{number}"),
            uid_base,
            limits: Limits { memory: 64 << 20, processes: 32, cpu_percent: 100 },
            processors: None,
            hostname: "guest".into(),
            hosts: Vec::new(),
            files: Files::Store { own: image.to_owned(), below: None },
            pages: false,
            scratch: 1 << 20,
            programs: Programs::Image(programs.to_owned()),
            needs: Needs::all(),
            contexts,
        };
        let context = sockets.clone().unwrap_or_default();
        let network = Network::new()?.in_context(sockets);
        let compartment = Compartment::start(&Plan::new(&spec), &network, init)?;
        let label = name.to_owned();
        Ok(Self { label, uid_base, compartment, network, tickets: 0, context, victim: None })
    }

    fn pid(&self) -> Result<i32, Failed> {
        Ok(self.compartment.process().ok_or("it has no process")?.pid.as_raw_nonzero().get())
    }

    /// What a shell's script inside says, and its status. Descriptor 3 is a listener of the warden's.
    fn run(&mut self, script: &str) -> Result<(String, u8), Failed> {
        self.tickets += 1;
        let port = u16::try_from(self.tickets)?.saturating_add(1000);
        let listener = self.network.listen(format!("127.0.0.1:{port}").parse()?)?;
        let (mut reader, writer): (File, OwnedFd) = {
            let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            (reader.into(), writer)
        };
        let start = Launch {
            ticket: self.tickets,
            program: "/usr/bin/sh".into(),
            argv: ["sh", "-c", script].map(Into::into).to_vec(),
            env: vec!["PATH=/usr/bin".into(), format!("PORT={port}")],
            input: false,
            terminal: false,
            filter: Profile::Service(Needs::all()),
        };
        self.compartment.run(start, &[writer.as_fd(), writer.as_fd(), listener.as_fd()])?;
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said)?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            for event in self.compartment.events()? {
                match event {
                    Event::Exited(_, status) => return Ok((said, status)),
                    Event::Refused(_, why) | Event::Failed(why) => return Err(why.into()),
                    Event::Built
                    | Event::Started(_)
                    | Event::Service(..)
                    | Event::Cut(..)
                    | Event::Turned(_) => {}
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("the script does not end: {said}").into())
    }

    /// Starts its victim, as a service, in the place of one that it has.
    fn has_victim(&mut self) -> Result<(), Failed> {
        if let Some(old) = self.victim.take() {
            let pid = rustix::process::Pid::from_raw(old.host.parse()?).ok_or("no process")?;
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
            let until = Instant::now() + PATIENCE;
            while !self.compartment.events()?.iter().any(|event| matches!(event, Event::Exited(..))) {
                if Instant::now() > until {
                    return Err("a victim does not end".into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.tickets += 1;
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let number = self.uid_base / UIDS % 100;
        let start = Launch {
            ticket: self.tickets,
            program: "/usr/bin/crossing".into(),
            argv: vec!["crossing".into(), "victim".into(), number.to_string(), self.label.clone()],
            env: Vec::new(),
            input: false,
            terminal: false,
            filter: Profile::Service(Needs::all()),
        };
        self.compartment.run(start, &[writer.as_fd(), writer.as_fd()])?;
        drop(writer);
        let mut line = String::new();
        std::io::BufReader::new(File::from(reader)).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["ready", inner, address] = words.as_slice() else {
            return Err(format!("the victim at {} said {line:?}", self.label).into());
        };
        let init = self.pid()?;
        let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children"))?;
        let host = children.split_whitespace().next().ok_or("process 1 has no child")?.to_owned();
        self.victim = Some(Victim { host, inner: (*inner).into(), address: (*address).into() });
        Ok(())
    }

    /// What a process of this label gets of another's things, a digit for each attempt.
    fn tries(&self, object: &Place, kinds: &str, milliseconds: &str) -> Result<String, Failed> {
        let victim = object.victim.as_ref().ok_or("no victims")?;
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let mut program = Program::new("/bin/crossing");
        let numbers = [self.pid()?.to_string(), object.pid()?.to_string()];
        let words =
            ["try", kinds, &numbers[0], &numbers[1], &victim.host, &SERVICE_UID.to_string(), &self.context];
        program.args.extend(words.map(Into::into));
        let number = (object.uid_base / UIDS % 100).to_string();
        let words = [milliseconds, &number, &object.label, &victim.inner, &victim.address];
        program.args.extend(words.map(Into::into));
        let error = std::io::stderr();
        (program.stdio[1], program.stdio[2]) = (Some(writer.as_fd()), Some(error.as_fd()));
        program.privileged = true;
        let child = program.start()?;
        drop(program);
        drop(writer);
        let mut said = String::new();
        File::from(reader).read_to_string(&mut said)?;
        match child.wait(PATIENCE)? {
            Some(levee_sys::pidfd::Exit::Status(0)) => Ok(said.trim_end().to_owned()),
            how => Err(format!("{} on {}: {how:?} {said}", self.label, object.label).into()),
        }
    }

    fn lend(&self, to: &Place) -> Result<(), Failed> {
        let store = self.compartment.images().first().ok_or("it has no store")?;
        let ids = IdRange { inside: 0, outside: to.uid_base, count: UIDS };
        let mount = store.mount(Attributes::DATA, Some(ids))?;
        let mut program = Program::new(std::env::current_exe()?);
        program.args.extend(["attach".into(), to.pid()?.to_string().into()]);
        program.fds = vec![mount.root()];
        let error = std::io::stderr();
        program.stdio[2] = Some(error.as_fd());
        program.privileged = true;
        match program.start()?.wait(PATIENCE)? {
            Some(levee_sys::pidfd::Exit::Status(0)) => Ok(()),
            how => Err(format!("not attached: {how:?}").into()),
        }
    }
}
