//! The full screen, in a real terminal emulator (tmux), over a real trusted path.

mod world;

use levee_ipc::client::Lattice;
use levee_system::host;
use rustix::net::SendFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use world::common::PATIENCE;
use world::{Prod, World};

/// A terminal with `levee-tpe` in it.
struct Terminal {
    name: String,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

impl Terminal {
    fn named() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { name: format!("levee-{}-{number}", std::process::id()) }
    }

    fn new(world: &World) -> Self {
        let terminal = Self::named();
        let program = env!("CARGO_BIN_EXE_levee-tpe");
        let command = format!("SHELL=/bin/sh exec {program} --socket {}", world.socket.display());
        terminal.start(&command);
        terminal
    }

    /// As [`Terminal::new`], of so many columns and rows, with this environment.
    fn sized(world: &World, columns: u16, rows: u16, environment: &str) -> Self {
        let terminal = Self::named();
        let program = env!("CARGO_BIN_EXE_levee-tpe");
        let command =
            format!("{environment} SHELL=/bin/sh exec {program} --socket {}", world.socket.display());
        terminal.start_sized(&command, columns, rows);
        terminal
    }

    /// A terminal with this shell command in it.
    fn running(command: &str) -> Self {
        let terminal = Self::named();
        terminal.start(command);
        terminal
    }

    fn start(&self, command: &str) {
        self.start_sized(command, 80, 24);
    }

    fn start_sized(&self, command: &str, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, command]);
        // What would let a program into tmux's own clipboard.
        self.tmux(&["set-option", "-s", "set-clipboard", "on"]);
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.name])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("this test needs tmux: apt-get install tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        let mut arguments = vec!["send-keys"];
        arguments.extend(keys);
        self.tmux(&arguments);
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The first row, with its colours.
    fn banner(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e", "-S", "0", "-E", "0"])
    }

    /// Waits until the screen shows this.
    fn shows(&self, what: &str) {
        self.until(what, |terminal| terminal.text().contains(what));
    }

    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !so(self) {
            assert!(started.elapsed() < PATIENCE, "not so: {what}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn sign_on(&self) {
        self.shows("Sign on");
        self.keys(&["ada", "Enter", "correct horse", "Enter"]);
        self.shows("Trusted menu");
    }

    /// Goes down the menu to this item, and takes it.
    fn choose(&self, item: &str) {
        let mut text = self.text();
        while !text.contains(&format!("> {item}")) {
            self.keys(&["Down"]);
            self.until("the next item", |terminal| terminal.text() != text);
            text = self.text();
        }
        self.keys(&["Enter"]);
    }

    /// Opens a session by the menu, which starts a shell.
    fn open(&self, label: &str) {
        self.shows(&format!("Session at {label}"));
        self.choose(&format!("Session at {label}"));
        self.until("banner", |terminal| terminal.banner().contains(label));
        self.shows("Ctrl-]: trusted menu");
    }
}

/// Black on green, bold, as tmux writes it.
const GREEN: &str = "\u{1b}[1m\u{1b}[38;5;0m\u{1b}[48;5;2m";

#[test]
fn a_person_signs_on_and_works_under_the_banner_of_their_level() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.shows("nobody is signed on");
    terminal.keys(&["ada", "Enter", "wrong", "Enter"]);
    terminal.shows("unknown user or wrong password");
    assert!(!terminal.text().contains("wrong horse"));
    terminal.keys(&["correct horse", "Enter"]);
    terminal.shows("Clearance UNCLASSIFIED..SECRET");
    terminal.open("SECRET");
    assert!(terminal.banner().starts_with(GREEN), "{:?}", terminal.banner());
    assert!(terminal.banner().contains("ada"));
    terminal.keys(&["echo $((6 * 7))-$TERM", "Enter"]);
    terminal.shows("42-xterm-256color");
    terminal.keys(&["stty size", "Enter"]);
    terminal.shows("23 80");
    terminal.keys(&["exit 3", "Enter"]);
    terminal.shows("The program has ended with status 3.");
}

#[test]
fn where_the_site_asks_for_a_code_the_form_does_and_keeps_the_password_for_it() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.shows("Sign on");
    terminal.keys(&["ada", "Enter", "a code beside it", "Enter"]);
    terminal.shows("> Code");
    terminal.keys(&["654321", "Enter"]);
    terminal.shows("unknown user or wrong password");
    terminal.keys(&["a code beside it", "Enter", "123456"]);
    terminal.shows("> Code      ******");
    assert!(!terminal.text().contains("123456"));
    terminal.keys(&["Enter"]);
    terminal.shows("Trusted menu");
}

#[test]
fn a_screen_that_starts_when_somebody_is_signed_on_offers_their_levels() {
    let world = World::new();
    assert!(world.tpe(&["login", "ada", "--password-stdin"], "correct horse\n").status.success());
    let terminal = Terminal::new(&world);
    terminal.shows("Trusted menu");
    terminal.open("SECRET");
}

#[test]
fn a_locked_session_shows_and_passes_nothing_until_the_password_is_typed() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    let selectors = || world.seen.lock().unwrap().records.last().unwrap().selectors.len();
    terminal.sign_on();
    terminal.open("SECRET");
    terminal.keys(&["echo $((6 * 7))-horses", "Enter"]);
    terminal.shows("42-horses");
    let before = selectors();
    assert!(before > 0);
    // By the attention key, and by the server.
    for by_person in [true, false] {
        if by_person {
            terminal.keys(&["C-]"]);
            terminal.shows("Trusted menu");
            terminal.choose("Lock");
        } else {
            world.prod(Prod::Lock);
        }
        terminal.shows("The session is locked");
        terminal.until("the vault has its record without a selector", |_| selectors() == 0);
        assert!(terminal.banner().contains("LOCKED") && !terminal.text().contains("42-horses"));
        let refused = world.tpe(&["run", "--import", "--export", "--", "true"], "");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("locked"), "{refused:?}");
        // Nothing but the password leads out of it.
        terminal.keys(&["Escape", "C-]", "wrong", "Enter"]);
        terminal.shows("wrong password");
        assert!(!terminal.text().contains("42-horses"));
        terminal.keys(&["correct horse", "Enter"]);
        terminal.shows("42-horses");
        assert_eq!(selectors(), before);
        assert!(!terminal.banner().contains("LOCKED"));
    }
}

#[test]
fn nothing_that_a_program_writes_touches_the_banner() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.sign_on();
    terminal.open("SECRET");
    let before = terminal.banner();
    for attack in [
        // To the first row; clear everything; another screen; a scroll region; a title; reset; origin mode.
        r"printf '\033[1;1HUNCLASSIFIED'",
        r"printf '\033[2J\033[HUNCLASSIFIED\033[0;0HUNCLASSIFIED'",
        r"printf '\033[?1049hUNCLASSIFIED'",
        r"printf '\033[1;24r\033[24;1H\n\n\n\n\033[1;1HUNCLASSIFIED'",
        r"printf '\033]0;UNCLASSIFIED\007\033]2;UNCLASSIFIED\033\\'",
        r"printf '\033cUNCLASSIFIED'",
        r"printf '\033[?6h\033[99AUNCLASSIFIED\033[99L\033[99M\033[99S\033[99T'",
        r"printf '\033P$qm\033\\\033[6n\033[c\033[?25l'",
        // At the end of the last row what the terminal shows wider than it is said to be: it would go on in another row, and all move up.
        r"printf '\033[1;1HUNCLASSIFIED\033[99;999H\343\211\210\033[2;1H'",
    ] {
        terminal.keys(&["-l", attack]);
        terminal.keys(&["Enter"]);
        terminal.keys(&["-l", "; echo done | tr a-z A-Z"]);
        terminal.keys(&["C-u", "echo done | tr a-z A-Z", "Enter"]);
        terminal.shows("DONE");
        assert_eq!(terminal.banner(), before, "after {attack}");
        terminal.keys(&["clear", "Enter"]);
        terminal.until("clear", |terminal| !terminal.text().contains("DONE"));
    }
}

#[test]
fn the_attention_key_leads_to_the_trusted_menu_and_back_while_the_program_runs_on() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.sign_on();
    terminal.open("UNCLASSIFIED");
    terminal.keys(&["sleep 1; echo later | tr a-z A-Z", "Enter"]);
    terminal.keys(&["C-]"]);
    terminal.shows("Return to the program");
    assert!(!terminal.text().contains("later"), "nothing of the program is in sight");
    std::thread::sleep(Duration::from_millis(1200));
    assert!(!terminal.text().contains("LATER"));
    terminal.keys(&["Escape"]);
    terminal.shows("LATER");
}

/// The channel by which what reads the program's terminal speaks to the screen.
fn readers_channel(terminal: &Terminal) -> OwnedFd {
    let pid = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).trim().parse().expect("a number");
    let of = |process: &host::Process| {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).ok()?.flatten();
        let links = fds.filter_map(|fd| Some((fd.file_name(), std::fs::read_link(fd.path()).ok()?)));
        let links: Vec<(String, String)> =
            links.map(|(fd, to)| (fd.to_string_lossy().into(), to.to_string_lossy().into())).collect();
        links.iter().find(|(_, to)| to.contains("ptmx"))?;
        let (fd, _) = links.iter().find(|(_, to)| to.starts_with("socket:"))?;
        let pidfd = pidfd_open(Pid::from_raw(process.pid.cast_signed())?, PidfdFlags::empty()).ok()?;
        pidfd_getfd(pidfd, fd.parse().ok()?, PidfdGetfdFlags::empty()).ok()
    };
    let confined = |one: &host::Process| one.status("Seccomp") == "2";
    host::below(pid).iter().filter(|one| confined(one)).find_map(of).expect("a reader")
}

/// Floods: terminal's reader → `levee-tpe`.
#[test]
fn a_reader_that_is_taken_over_and_speaks_without_end_keeps_nobody_from_the_menu_and_ends_with_its_program() {
    let world = World::new();
    let own = Terminal::new(&world);
    own.sign_on();
    own.open("SECRET");
    let program = "read line; exit 3";
    let run = format!(
        "{} --socket {} run -- /bin/sh -c '{program}'; echo status $?; exec sleep 60",
        env!("CARGO_BIN_EXE_levee-tpe"),
        world.socket.display()
    );
    let once = Terminal::running(&run);
    once.shows("Ctrl-]: trusted menu");
    own.keys(&[program, "Enter"]);
    for terminal in [&once, &own] {
        let channel = readers_channel(terminal);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // A row of 9,000 empty pieces, which takes longer to read than to say.
                let row = [&[0, 0, 0xa8, 0x46][..], &[0; 9_000 * 7]].concat();
                while !over.load(Ordering::Relaxed) {
                    if rustix::net::send(&channel, &row, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                std::thread::sleep(Duration::from_millis(500));
                terminal.keys(&["C-]"]);
                terminal.shows("Return to the program");
                terminal.keys(&["Escape"]);
                terminal.until("the program again", |one| !one.text().contains("Return to the program"));
                terminal.keys(&["Enter"]);
                terminal.shows("status 3");
            }));
            over.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|why| std::panic::resume_unwind(why));
        });
    }
}

#[test]
fn a_change_of_level_changes_the_banner_and_leaves_nothing_of_the_old_one_in_sight() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.sign_on();
    terminal.open("SECRET");
    terminal.keys(&["echo the-plan", "Enter"]);
    terminal.shows("the-plan\n");
    terminal.keys(&["C-]"]);
    terminal.open("UNCLASSIFIED");
    assert!(!terminal.text().contains("the-plan"));
    assert!(!terminal.text().contains("SECRET"));
    terminal.keys(&["C-]"]);
    terminal.shows("Sign off");
    terminal.choose("Sign off");
    terminal.shows("Signed off");
    terminal.shows("Sign on");
    assert_eq!(world.events().iter().filter(|event| event.starts_with("purge")).count(), 2);
}

#[test]
fn a_level_that_cannot_be_opened_leads_back_to_the_one_before_and_the_screen_says_so() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.sign_on();
    terminal.open("SECRET");
    terminal.keys(&["echo the-plan", "Enter"]);
    terminal.shows("the-plan\n");
    terminal.keys(&["C-]"]);
    terminal.shows("Session at KEYLESS");
    terminal.choose("Session at KEYLESS");
    terminal.shows("TS_UNACCEPTABLE");
    terminal.shows("back at SECRET, in a new");
    assert!(terminal.banner().contains("SECRET"), "{}", terminal.banner());
    assert!(!terminal.text().contains("the-plan"));
    // And on from there.
    terminal.choose("Start a shell");
    terminal.keys(&["echo going-on", "Enter"]);
    terminal.shows("going-on\n");
}

#[test]
fn a_session_that_the_server_ends_leaves_the_screen_at_once() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.sign_on();
    terminal.open("SECRET");
    terminal.keys(&["echo the-plan", "Enter"]);
    terminal.shows("the-plan\n");
    world.prod(Prod::Notice("five minutes are left".into()));
    terminal.until("the notice in the banner", |terminal| terminal.text().contains("five minutes are left"));
    world.prod(Prod::End("an operator ended it".into()));
    terminal.shows("an operator ended it");
    assert!(!terminal.text().contains("the-plan"));
    assert!(terminal.banner().contains("NO SESSION"));
}

#[test]
fn a_resized_terminal_resizes_the_programs() {
    let world = World::new();
    let terminal = Terminal::new(&world);
    terminal.sign_on();
    terminal.open("SECRET");
    terminal.tmux(&["resize-window", "-x", "100", "-y", "40"]);
    terminal
        .until("a wider banner", |terminal| terminal.text().lines().next().is_some_and(|row| row.len() > 90));
    terminal.keys(&["stty size", "Enter"]);
    terminal.shows("39 100");
    assert!(terminal.banner().contains("SECRET"));
}

#[test]
fn what_a_program_writes_reaches_the_terminal_as_text_under_its_level_and_its_orders_do_not() {
    let world = World::new();
    assert!(world.tpe(&["login", "ada", "--password-stdin"], "correct horse\n").status.success());
    assert!(world.tpe(&["level", "SECRET"], "").status.success());
    // The clipboard by OSC 52, a title, a question about the terminal, another colour of everything, a false prompt.
    let attack = r"sleep 1; printf '\033]52;c;dGhlIHBsYW4=\007\033]2;mine\007\033[6n\033[c\033]11;red\007one\033[2;1Htwo\nPassword: '; sleep 1; exit 4";
    let run = format!(
        "sh -c {:?}; echo status $?; exec sleep 60",
        format!(
            "{} --socket {} run -- /bin/sh -c {:?}",
            env!("CARGO_BIN_EXE_levee-tpe"),
            world.socket.display(),
            attack
        )
    );
    let terminal = Terminal::running(&run);
    terminal.shows("Ctrl-]: trusted menu");
    assert!(
        terminal.banner().starts_with(GREEN) && terminal.banner().contains("SECRET"),
        "{:?}",
        terminal.banner()
    );
    terminal.shows("status 4");
    let text = terminal.text();
    let rows: Vec<&str> = text.lines().map(str::trim_end).filter(|row| !row.is_empty()).collect();
    assert_eq!(rows[0], " SECRET  a program's words follow", "{text}");
    assert_eq!(&rows[1..4], ["one", "two", "Password:"], "{text}");
    assert!(
        rows[4].starts_with(" SECRET  end of its words, status 4; orders to the terminal dropped: "),
        "{text}"
    );
    assert_eq!(terminal.tmux(&["show-buffer"]), "", "nothing is in the clipboard");
    assert_ne!(terminal.tmux(&["display-message", "-p", "#{pane_title}"]).trim(), "mine");
}

#[test]
fn a_program_at_the_terminal_can_be_left_by_the_attention_key_and_ends() {
    let world = World::new();
    assert!(world.tpe(&["login", "ada", "--password-stdin"], "correct horse\n").status.success());
    assert!(world.tpe(&["level", "SECRET"], "").status.success());
    let run = format!(
        "{} --socket {} run -- /bin/sh -c 'echo begun; exec sleep 600'; echo status $?; exec sleep 60",
        env!("CARGO_BIN_EXE_levee-tpe"),
        world.socket.display()
    );
    let terminal = Terminal::running(&run);
    terminal.shows("begun");
    terminal.keys(&["C-]"]);
    terminal.shows("Return to the program");
    terminal.choose("End the program");
    terminal.shows("status 129");
}

fn lattice() -> Lattice {
    let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    Lattice {
        count: 3 * 4_096,
        levels: names(&["UNCLASSIFIED", "CONFIDENTIAL", "SECRET"]),
        categories: names(&[
            "ALPHA", "BRAVO", "CHARLIE", "DELTA", "ECHO", "FOXTROT", "GOLF", "HOTEL", "INDIA", "JULIETT",
            "KILO", "LIMA",
        ]),
        needed: vec![],
        integrity: vec![String::new()],
    }
}

/// What the screen says, without what breaks it into rows.
fn joined(terminal: &Terminal) -> String {
    terminal.text().chars().filter(|character| !character.is_whitespace()).collect()
}

#[test]
fn a_level_with_many_categories_is_put_together_at_every_width_and_its_marking_is_whole() {
    for (columns, rows) in [(25, 24), (80, 24), (300, 50)] {
        let world =
            World::offering(["UNCLASSIFIED", "SECRET//ALPHA"].map(world::label).to_vec(), Some(lattice()));
        let terminal = Terminal::sized(&world, columns, rows, "");
        terminal.shows("Ctrl-C");
        terminal.sign_on();
        // The keys and the way out are in sight, whatever is chosen.
        for said in ["Ctrl-D:", "Ctrl-C:", "> Choose a level", "Sign off"] {
            terminal.shows(said);
        }
        assert!(joined(&terminal).contains("12288"), "how many there are\n{}", terminal.text());
        terminal.keys(&["Enter"]);
        terminal.shows("> (*) UNCLASSIFIED");
        // By its letter; then categories by theirs.
        terminal.keys(&["s", "Space"]);
        terminal.shows("> (*) SECRET");
        for (letter, name) in
            [("a", "ALPHA"), ("f", "FOXTROT"), ("g", "GOLF"), ("j", "JULIETT"), ("l", "LIMA")]
        {
            terminal.keys(&[letter, "Space"]);
            terminal.shows(&format!("> [x] {name}"));
        }
        // A tick is taken back.
        terminal.keys(&["Space"]);
        terminal.shows("> [ ] LIMA");
        terminal.keys(&["Home"]);
        terminal.shows("> ( ) UNCLASSIFIED");
        terminal.keys(&["End"]);
        terminal.shows("> Open a session at");
        let label = "SECRET//ALPHA,FOXTROT,GOLF,JULIETT";
        terminal.until("the label", |terminal| joined(terminal).contains(&format!("sessionat{label}")));
        terminal.keys(&["Enter"]);
        terminal.until("the banner", |terminal| joined(terminal).starts_with(&format!("===={label}ada")));
        terminal.until("the hint", |terminal| joined(terminal).contains("Ctrl-]:trustedmenu"));
        // The program has what the banner leaves it.
        terminal.keys(&["stty size", "Enter"]);
        let left = rows - if columns == 25 { 4 } else { 1 };
        terminal.shows(&format!("{left} {columns}"));
        terminal.keys(&["C-]"]);
        terminal.shows("Return to the program");
        terminal.keys(&["C-d"]);
        terminal.shows("Signed off");
        assert!(
            world.events().iter().any(|event| event == &format!("server opens {label}")),
            "{:?}",
            world.events()
        );
    }
}

#[test]
fn a_level_is_searched_for_by_a_part_of_its_name_or_typed_whole() {
    let labels: Vec<_> = (0..40).map(|number| world::label(&format!("LEVEL-{number:02}"))).collect();
    let world = World::offering(labels, None);
    let terminal = Terminal::new(&world);
    terminal.sign_on();
    terminal.shows("Choose a level (40 of them)");
    terminal.keys(&["/", "l", "e", "3", "7"]);
    terminal.shows("> As typed: le37");
    terminal.keys(&["BSpace", "BSpace", "BSpace", "BSpace", "3", "7"]);
    terminal.shows("> LEVEL-37");
    terminal.keys(&["Enter"]);
    terminal.until("banner", |terminal| terminal.banner().contains("LEVEL-37"));
    terminal.keys(&["C-]"]);
    terminal.shows("Return to the program");
    terminal.keys(&["/"]);
    terminal.keys(&["-l", "NOWHERE"]);
    terminal.shows("> As typed: NOWHERE");
    terminal.keys(&["Enter"]);
    terminal.shows("NOWHERE is not within your clearance");
    assert!(terminal.banner().contains("LEVEL-37"), "a level that is refused costs no session");
    terminal.keys(&["Escape"]);
    terminal.shows("Return to the program");
    terminal.keys(&["Escape"]);
    // What comes right behind an Esc is Alt with it.
    terminal.until("the program", |terminal| !terminal.text().contains("Return to the program"));
    terminal.keys(&["echo still | tr a-z A-Z", "Enter"]);
    terminal.shows("STILL");
}

#[test]
fn the_screen_is_left_by_ctrl_c_and_has_no_colours_where_none_are_wanted() {
    let world = World::new();
    let terminal = Terminal::sized(&world, 80, 24, "NO_COLOR=1");
    terminal.shows("Esc, Ctrl-C: leave");
    terminal.sign_on();
    terminal.open("SECRET");
    let banner = terminal.banner();
    assert!(
        banner.contains("==== SECRET") && !banner.contains("[48;") && !banner.contains("[42m"),
        "{banner:?}"
    );
    terminal.keys(&["C-]"]);
    terminal.shows("Return to the program");
    terminal.keys(&["C-c"]);
    terminal.until("the end", |terminal| terminal.tmux(&["list-sessions"]).is_empty());
    assert_eq!(world.status()["session"]["label"], "SECRET", "the session stays");
}

/// What has come from a terminal's other end, once it has this.
fn comes(master: &mut File, said: &mut String, what: &str) {
    let started = Instant::now();
    let mut chunk = [0; 65_536];
    while !said.contains(what) {
        assert!(started.elapsed() < PATIENCE, "not so: {what}\n{said:?}");
        match master.read(&mut chunk) {
            Ok(read) => said.push_str(&String::from_utf8_lossy(&chunk[..read])),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn a_terminal_that_says_any_size_is_used_as_far_as_a_screen_goes() {
    let world = World::new();
    let sized = |master: &File, (ws_row, ws_col): (u16, u16)| {
        tcsetwinsize(master, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    };
    for first in [(u16::MAX, u16::MAX), (0, 0), (1, 1), (24, 80)] {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let mut master = File::from(openpt(flags).unwrap());
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        sized(&master, first);
        let side = || Stdio::from(ioctl_tiocgptpeer(&master, flags).unwrap());
        // Its terminal, so that it hears of another size.
        let mut child = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_levee-tpe"), "--socket"])
            .arg(&world.socket)
            .env("TERM", "xterm-256color")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("this test needs setsid: apt-get install util-linux");
        let mut said = String::new();
        // In one row there is room for the level alone.
        if first != (1, 1) {
            comes(&mut master, &mut said, "Sign on");
        }
        for size in [(u16::MAX, u16::MAX), (1, 1), (50, 132)] {
            sized(&master, size);
            said.clear();
            if size == (50, 132) {
                comes(&mut master, &mut said, "Sign on");
            }
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(most < 150_000, "{first:?}: {most} kB");
        // Ctrl-C.
        master.write_all(b"\x03").unwrap();
        let started = Instant::now();
        let ended = loop {
            // Who is not read does not end.
            let _ = master.read(&mut [0; 65_536]);
            match child.try_wait().unwrap() {
                Some(ended) => break ended,
                None if started.elapsed() > PATIENCE => panic!("{first:?}: it does not end"),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(ended.success(), "{first:?}: {ended}");
    }
}
