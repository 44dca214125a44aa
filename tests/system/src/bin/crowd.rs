//! `make crowd`: the paper's "100 clients with concurrent sessions at 100 levels", run. A server with the large example site, 100
//! workstations, 100 people; each signs on, opens a session at a level of their own, fetches a page and writes and reads a
//! document, all of them at the same moment at every step, and logs out.
//!
//! `crowd [--seats N]`, as root, on a quiet host, beside levee's programs. Server and workstations are network namespaces
//! of this host with the programs that they have on hosts of their own; what they share is the host: its processors, its kernel, its disk.
#![forbid(unsafe_code)]

use levee_system::crowd::{Seat, all, fault, read_mark, write_mark};
use levee_system::{Done, World, host};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../../conf/large/site.toml");
const PAGE: &str = "http://www.fleet.example/";

/// One row of the table.
struct Row {
    what: &'static str,
    milliseconds: Vec<f64>,
    faults: Vec<String>,
    all: Duration,
}

impl Row {
    fn show(&mut self) {
        self.milliseconds.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (self.milliseconds.len() - 1) as f64 * share;
            self.milliseconds.get(place.round() as usize).copied().unwrap_or(f64::NAN)
        };
        let [least, median, most] = [0.0, 0.5, 1.0].map(at);
        println!(
            "| {} | {median:.0} | {least:.0}–{most:.0} | {:.0} | {} | {} |",
            self.what,
            self.all.as_secs_f64() * 1e3,
            self.milliseconds.len(),
            self.faults.len()
        );
    }
}

fn step(what: &'static str, seats: &[Seat], act: impl Fn(&Seat) -> Option<String> + Sync) -> Row {
    eprintln!("{what}");
    let begun = Instant::now();
    let done = all(seats, act);
    let all = begun.elapsed();
    let milliseconds = done.iter().map(|(time, _)| time.as_secs_f64() * 1e3).collect();
    let faults: Vec<String> = done.into_iter().filter_map(|(_, fault)| fault).collect();
    for fault in faults.iter().take(5) {
        eprintln!("  {fault}");
    }
    Row { what, milliseconds, faults, all }
}

fn failed(seat: &Seat, done: Done) -> Option<String> {
    (done.status != 0).then(|| format!("{} at {}: {}{}", seat.user, seat.workstation, done.out, done.err))
}

/// A number of a line of a file below `/proc`.
fn number(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// What a program's processes do while nobody does anything.
#[derive(Clone, Copy, Default)]
struct Rest {
    /// In percent of a processor.
    share: f64,
    /// Times that they wake, in a second.
    wakes: f64,
}

impl std::iter::Sum for Rest {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            share: sum.share + one.share,
            wakes: sum.wakes + one.wakes,
        })
    }
}

/// While nobody does anything: by program, at the server and at the workstations. What was written last is copied upward before.
fn idle<'a>(server: &'a [host::Process], workstations: &'a [host::Process]) -> [BTreeMap<&'a str, Rest>; 2] {
    const WINDOW: Duration = Duration::from_secs(30);
    std::thread::sleep(Duration::from_secs(15));
    let now = |processes: &[host::Process]| processes.iter().map(host::Process::threads).collect::<Vec<_>>();
    let both = [server, workstations];
    let before = both.map(now);
    let begun = Instant::now();
    std::thread::sleep(WINDOW);
    let after = both.map(now);
    let window = begun.elapsed().as_secs_f64();
    let mut rest = [BTreeMap::new(), BTreeMap::new()];
    for (((rest, processes), before), after) in rest.iter_mut().zip(both).zip(before).zip(after) {
        for ((process, before), after) in processes.iter().zip(before).zip(after) {
            let more = |of: u64, than: u64| of.saturating_sub(than) as f64 / window;
            let one = Rest { share: more(after.0, before.0) / 1e7, wakes: more(after.1, before.1) };
            let all: &mut Rest = rest.entry(process.name.as_str()).or_default();
            *all = [*all, one].into_iter().sum();
        }
    }
    rest
}

fn by_name(processes: &[host::Process]) -> BTreeMap<&str, (usize, u64)> {
    let mut groups = BTreeMap::new();
    for process in processes {
        let group: &mut (usize, u64) = groups.entry(process.name.as_str()).or_default();
        group.0 += 1;
        group.1 += host::memory(std::slice::from_ref(process));
    }
    groups
}

fn main() {
    levee_system::ends_what_it_started();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = match arguments.as_slice() {
        [] => 100,
        [flag, count] if flag == "--seats" => count.parse().expect("a number of seats"),
        _ => panic!("usage: crowd [--seats N]"),
    };
    // The addresses that the namespaces have.
    let site = SITE.replace("\"192.0.2.10\"", "\"10.77.0.1\"").replace("\"2001:db8::10\"", "\"fd77::1\"");
    let seats: Vec<Seat> = (0..count.min(100))
        .map(|number| Seat {
            workstation: format!("ws{number:02}"),
            user: format!("user{number:02}"),
            label: format!("L{number:02}@UNVERIFIED"),
        })
        .collect();
    let names: Vec<&str> = seats.iter().map(|seat| seat.workstation.as_str()).collect();
    let mut rows = Vec::new();
    // Of what was killed before, perhaps.
    let groups = host::cgroups("fleet").len();
    let free = number("/proc/meminfo", "MemAvailable:");
    let begun = Instant::now();
    eprintln!("namespaces, certificates and passwords");
    let mut world = World::new("crowd", &site, &names);
    let directory = world.path("state");
    for network in 0..4 {
        let (deck, ship) = (format!("deck{network}"), format!("ship{network}"));
        world.server_sh("ip", &["link", "add", &deck, "type", "veth", "peer", "name", &ship]).ok();
    }
    eprintln!("server and workstations start ({:.1} s)", begun.elapsed().as_secs_f64());
    world.start_server();
    names.iter().for_each(|name| world.start_workstation(name));
    let ready = begun.elapsed();
    eprintln!("ready ({:.1} s)", ready.as_secs_f64());

    rows.push(step("sign-on", &seats, |seat| failed(seat, world.login(&seat.workstation, &seat.user))));
    rows.push(step("session at a label of their own, which runs for the first time ever", &seats, |seat| {
        failed(seat, world.level(&seat.workstation, &seat.label))
    }));
    let page = |seat: &Seat| fault(&world.fetch(&seat.workstation, PAGE), &seat.label, &seats);
    rows.push(step("page; starts nginx", &seats, page));
    rows.push(step("page", &seats, page));
    rows.push(step("a document written", &seats, |seat| failed(seat, write_mark(&world, seat, PAGE))));
    rows.push(step("the same document read: it is the own label's", &seats, |seat| {
        let read = read_mark(&world, seat, PAGE);
        (read.status != 0 || read.out != seat.label)
            .then(|| format!("{}: {}{}", seat.label, read.out, read.err))
    }));

    let status = world.status();
    let labels = status["compartments"].as_array().map_or(0, Vec::len);
    let sessions = status["session_count"].clone();
    let whole = |warden| host::Process::find(warden).into_iter().chain(host::below(warden));
    let server: Vec<host::Process> = whole(world.server_pid()).collect();
    let workstations: Vec<host::Process> = world.workstation_pids().flat_map(whole).collect();
    let (server_memory, workstations_memory) = (host::memory(&server), host::memory(&workstations));
    let (here, there) = (by_name(&server), by_name(&workstations));
    let in_use = free.saturating_sub(number("/proc/meminfo", "MemAvailable:"));
    let descriptors =
        std::fs::read_dir(format!("/proc/{}/fd", world.server_pid())).map_or(0, Iterator::count);
    let [here_idle, there_idle] = idle(&server, &workstations);

    rows.push(step("logout to its acknowledgement", &seats, |seat| {
        failed(seat, world.tpe(&seat.workstation, &["logout"]))
    }));
    rows.push(step("afterwards nothing runs any more (refused)", &seats, |seat| {
        (world.run(&seat.workstation, &["true"]).status == 0).then(|| format!("{}: it ran", seat.workstation))
    }));
    let left = world.status()["session_count"].clone();

    println!(
        "{} seats; namespaces, certificates, passwords and start: {:.1} s\n",
        seats.len(),
        ready.as_secs_f64()
    );
    println!("| all at once | median ms | range | all done, ms | n | failures |\n|---|---|---|---|---|---|");
    rows.iter_mut().for_each(Row::show);
    let at_server: Rest = here_idle.values().copied().sum();
    println!("\nAt once: {sessions} sessions, {labels} labels running; after the logouts: {left} sessions.");
    println!(
        "Descriptors of the server's warden: {descriptors}. With nobody doing anything the server takes {:.2} % of a processor, the workstations {:.2} %; for each label that runs the server wakes {:.1} times in a second.",
        at_server.share,
        there_idle.values().copied().sum::<Rest>().share,
        at_server.wakes / labels.max(1) as f64
    );
    println!(
        "\nMemory, proportional, in MiB: server {}, workstations {}; all that the host had less: {}.\n",
        server_memory >> 10,
        workstations_memory >> 10,
        in_use >> 10
    );
    println!(
        "| process | server: how many | MiB | % idle | wakes/s | workstations: how many | MiB | % idle | wakes/s |\n|---|---|---|---|---|---|---|---|---|"
    );
    let all_names: std::collections::BTreeSet<&str> = here.keys().chain(there.keys()).copied().collect();
    for name in all_names {
        let cell = |groups: &BTreeMap<&str, (usize, u64)>, idle: &BTreeMap<&str, Rest>| {
            let (count, memory) = groups.get(name).copied().unwrap_or_default();
            let Rest { share, wakes } = idle.get(name).copied().unwrap_or_default();
            format!("{count} | {:.1} | {share:.2} | {wakes:.1}", memory as f64 / 1024.0)
        };
        println!("| {name} | {} | {} |", cell(&here, &here_idle), cell(&there, &there_idle));
    }

    let stopping = Instant::now();
    world.stop_server();
    eprintln!("server stopped in {:.1} s", stopping.elapsed().as_secs_f64());
    let running: Vec<host::Process> = server.iter().chain(&workstations).cloned().collect();
    drop(world);
    let remains = remains(&running, groups, &directory);
    println!("\nLeft on the host: {remains:?}");
    let faults: usize = rows.iter().map(|row| row.faults.len()).sum();
    if faults > 0 || remains.iter().any(|(_, count)| *count > 0) || left != 0 {
        std::process::exit(1);
    }
}

/// What of a server that ran is left on the host: so much of each kind, once it does not become less.
fn remains(running: &[host::Process], groups: usize, directory: &Path) -> [(&'static str, usize); 4] {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let processes = running.iter().filter(|process| process.runs()).count();
        let remains = [
            ("processes", processes),
            ("control groups", host::cgroups("fleet").len().saturating_sub(groups)),
            ("loop devices", host::loops(directory).len()),
            ("mounts", host::mounts(&levee_system::text(directory)).len()),
        ];
        if remains.iter().all(|(_, count)| *count == 0) || Instant::now() > until {
            return remains;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
