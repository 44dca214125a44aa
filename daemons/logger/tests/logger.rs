//! The logger as the warden starts it: real pipes, its real filter.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use levee_ipc::Channel;
use levee_ipc::log::ToLogger;
use levee_sys::pidfd::{Child, Exit};
use levee_sys::pipe::{Pipe, charged_to, dead_ends};
use levee_sys::spawn::Program;

struct Running {
    directory: tempfile::TempDir,
    child: Child,
    channel: Option<Channel>,
}

fn start() -> Running {
    let directory = tempfile::tempdir().expect("a directory");
    let (child, channel) = start_in(directory.path());
    Running { directory, child, channel: Some(channel) }
}

fn start_in(directory: &Path) -> (Child, Channel) {
    let (ours, theirs) = Channel::pair().expect("a channel");
    let files = ["0.log", "1.log"].map(|name| -> OwnedFd {
        File::options().create(true).append(true).open(directory.join(name)).expect("a file").into()
    });
    let (input, output) = dead_ends().expect("dead ends");
    let mut program = Program::new(env!("CARGO_BIN_EXE_levee-logger"));
    program.fds = vec![theirs.as_fd(), files[0].as_fd(), files[1].as_fd()];
    program.stdio = [Some(input.as_fd()), Some(output.as_fd()), Some(output.as_fd())];
    program.die_with_parent = false;
    (program.start().expect("start the logger"), ours)
}

impl Running {
    fn source(&self, name: &str) -> Pipe {
        let pipe = charged_to(0x7000_0001).expect("a pipe (run this as root)");
        let channel = self.channel.as_ref().expect("a logger that runs");
        channel.send_with(&ToLogger::Source(name.into()), &[pipe.read.as_fd()]).expect("it listens");
        pipe
    }

    fn text(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.path().join(name)).expect("text");
        read("0.log") + &read("1.log")
    }

    #[track_caller]
    fn wait_for(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.text().contains(what) {
            assert!(Instant::now() < until, "no {what:?} in {}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Closes the channel, and waits until it has ended well.
    #[track_caller]
    fn end(&mut self) {
        self.channel = None;
        let exit = self.child.wait(Duration::from_secs(20)).expect("wait");
        assert!(matches!(exit, Some(Exit::Status(0))), "{exit:?}");
    }
}

fn write(pipe: &Pipe, bytes: &[u8]) {
    File::from(pipe.write.try_clone().expect("another descriptor")).write_all(bytes).expect("it is read");
}

#[test]
fn each_line_has_its_time_and_its_process_and_the_last_words_are_written() {
    let mut logger = start();
    let (web, mail) = (logger.source("web"), logger.source("mail"));
    write(&web, b"started\n");
    write(&mail, b"\x1b[2Jhidden\n");
    logger.wait_for("web: started\n");
    logger.wait_for("mail: \\x1b[2Jhidden\n");
    write(&web, b"the end");
    logger.end();
    let text = logger.text();
    assert!(text.ends_with("Z web: the end\n"), "{text}");
    for line in text.lines() {
        let (time, _) = line.split_once(' ').expect("a time");
        assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{line}");
    }
}

#[test]
fn a_process_that_writes_without_end_fills_neither_the_disk_nor_the_others_log() {
    let mut logger = start();
    let (noisy, quiet) = (logger.source("noisy"), logger.source("quiet"));
    let line = b"all work and no play\n";
    let chunk = [line.as_slice(); 512].concat();
    let mut written = 0;
    while written < 8 << 20 {
        write(&noisy, &chunk);
        written += chunk.len();
    }
    write(&quiet, b"heard all the same\n");
    logger.wait_for("quiet: heard all the same\n");
    logger.end();
    let text = logger.text();
    assert!(text.len() < 256 << 10, "{} bytes of {written}", text.len());
    // Nothing is lost without a word: what is there and what was left out is what was written.
    let there = text.lines().filter(|line| line.contains("all work")).count();
    let left_out: usize = text
        .lines()
        .filter_map(|line| line.split_once('[')?.1.split_once(" lines left out")?.0.parse::<usize>().ok())
        .sum();
    assert_eq!(there + left_out, written / line.len());
}

#[test]
fn another_logger_goes_on_with_the_same_pipes_and_no_writer_dies() {
    let mut logger = start();
    let web = logger.source("web");
    write(&web, b"one\n");
    logger.wait_for("web: one\n");
    logger.child.kill().expect("kill it");
    write(&web, b"two\n");
    let (child, channel) = start_in(logger.directory.path());
    (logger.child, logger.channel) = (child, Some(channel));
    let channel = logger.channel.as_ref().expect("a logger that runs");
    channel.send_with(&ToLogger::Source("web".into()), &[web.read.as_fd()]).expect("it listens");
    logger.wait_for("web: two\n");
    logger.end();
    assert_eq!(logger.text().lines().count(), 2);
}

#[test]
fn a_source_without_a_pipe_ends_it() {
    let logger = start();
    logger.channel.as_ref().expect("it runs").send(&ToLogger::Source("web".into())).expect("it listens");
    let exit = logger.child.wait(Duration::from_secs(20)).expect("wait");
    assert!(matches!(exit, Some(Exit::Status(1))), "{exit:?}");
}
