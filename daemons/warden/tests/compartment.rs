//! Needs root, e2fsprogs and nginx: real compartments.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Lab, fetch, served};
use levee_policy::site::{Need, Needs};
use levee_sys::mount::Attributes;
use levee_sys::ns;
use levee_warden::compartment::proto::ToInit;
use levee_warden::compartment::service::Report;
use levee_warden::compartment::{Compartment, Contexts, Event, Files, Plan, Store};

#[test]
fn an_image_is_not_opened_again_before_its_last_mount_is_gone() {
    use rustix::fs::{FlockOperation, flock};
    let lab = Lab::new("twice");
    let Files::Store { own, .. } = &lab.spec.files else { panic!("no store") };
    let store = Store::open(own).unwrap();
    let mount = store.mount(Attributes::DATA, None).unwrap();
    drop(store);
    let held = std::fs::File::open(own).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap_err();
    drop(mount);
    Store::open(own).unwrap();
}

#[test]
fn what_a_virtual_machine_had_as_a_disk_the_host_does_not_mount_any_more() {
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("SECRET.img");
    Store::create(&image, 16 << 20).unwrap();
    drop(Store::open(&image).unwrap().mount(Attributes::DATA, None).unwrap());
    // Whoever has the disk can write what it likes there, and the next site file may name the label no more.
    drop(Store::disk(&image).unwrap());
    let refused = Store::open(&image).unwrap_err().to_string();
    assert!(refused.contains("own-kernel"), "{refused}");
    drop(Store::disk(&image).unwrap());
    // An image in its place is another.
    assert!(Store::create(&image, 16 << 20).is_err());
    assert!(Store::open(&image).is_err(), "what could not be made changes nothing");
    std::fs::rename(&image, place.path().join("away")).unwrap();
    Store::create(&image, 16 << 20).unwrap();
    Store::open(&image).unwrap();
}

#[test]
fn nginx_serves_its_label_from_inherited_listeners_through_the_compartments_own_network() {
    let lab = Lab::new("serve");
    let mut running = lab.start_serving();
    let page = fetch(&lab, "GET", "/", b"");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("<h1>SECRET</h1>") && page.contains("X-Label: SECRET"), "{page}");
    // What it is configured by is process 1's alone to write, whatever the service has become.
    let tries = "cd /etc/nginx/levee; for what in 'rm -f web.conf' 'touch new' 'cp /dev/null index.html' 'mv web.conf old' \
                 'chmod 777 .'; do $what; done; ls";
    let (out, _) = lab.shell(&mut running, tries);
    let refused = ["Permission denied", "Operation not permitted"].map(|why| out.matches(why).count());
    assert!(refused == [4, 1] && out.ends_with("index.html\nweb.conf\n"), "{out}");
    running.stop().unwrap();
}

#[test]
fn documents_are_written_to_the_own_store_and_survive_a_restart() {
    let lab = Lab::new("store");
    let running = lab.start_serving();
    let answer = fetch(&lab, "PUT", "/own/dir/plan.txt", b"attack at dawn");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    running.stop().unwrap();
    let running = lab.start_serving();
    assert!(fetch(&lab, "GET", "/own/dir/plan.txt", b"").ends_with("attack at dawn"));
    assert!(fetch(&lab, "GET", "/", b"").contains("dir/"), "the page lists the own documents");
    running.stop().unwrap();
}

#[test]
fn copies_of_dominated_labels_are_read_and_writing_them_is_refused_by_the_mount() {
    let lab = Lab::new("below");
    lab.put_below("U/low.txt", "unclassified");
    let mut running = lab.start_serving();
    let low = fetch(&lab, "GET", "/below/U/low.txt", b"");
    assert!(low.ends_with("unclassified") && low.contains("X-Label: SECRET"), "{low}");
    // A browser runs no script of it.
    assert!(low.contains("Content-Security-Policy: script-src 'none'; object-src 'none'"), "{low}");
    assert!(fetch(&lab, "GET", "/", b"").contains("low.txt"), "the page lists the dominated documents");
    for (method, path) in
        [("PUT", "/below/U/low.txt"), ("PUT", "/below/U/new.txt"), ("DELETE", "/below/U/low.txt")]
    {
        let body: &[u8] = if method == "PUT" { b"x" } else { b"" };
        let answer = fetch(&lab, method, path, body);
        assert!(answer.starts_with("HTTP/1.1 403"), "{method} {path}: {answer}");
    }
    let (out, _) = lab
        .shell(&mut running, "echo x > /srv/below/U/low.txt; rm -f /srv/below/U/low.txt; mkdir /srv/below/d");
    assert_eq!(out.matches("Read-only file system").count(), 3, "{out}");
    assert!(fetch(&lab, "GET", "/below/U/low.txt", b"").ends_with("unclassified"));
    running.stop().unwrap();
}

#[test]
fn a_page_of_a_label_below_that_is_shown_within_the_page_of_all_runs_no_script_there_either() {
    let lab = Lab::new("within");
    lab.put_below("U/index.html", "<script>low()</script>");
    let running = lab.start_serving();
    let page = fetch(&lab, "GET", "/", b"");
    assert!(page.contains("<script>low()</script>") && page.contains("X-Label: SECRET"), "{page}");
    assert!(page.contains("Content-Security-Policy: script-src 'none'; object-src 'none'"), "{page}");
    running.stop().unwrap();
}

#[test]
fn a_full_store_is_the_labels_own_trouble() {
    let lab = Lab::new("full");
    let mut running = lab.start();
    let (out, _) = lab.shell(&mut running, "head -c 100000000 /dev/zero > /srv/own/big");
    assert!(out.contains("No space left on device"), "{out}");
    running.stop().unwrap();
}

#[test]
fn a_program_inside_has_no_capability_no_host_uid_no_new_privileges_and_a_filter() {
    let lab = Lab::new("status");
    let mut running = lab.start();
    let (status, _) = lab.shell(
        &mut running,
        "echo files $(ulimit -Sn) $(ulimit -Hn); cat /proc/self/status; cat /proc/self/uid_map",
    );
    assert!(status.contains("files 16384 16384"), "{status}");
    for line in [
        "Uid:\t1000\t1000\t1000\t1000",
        "Groups:\t ",
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.lines().any(|l| l.trim_end() == line.trim_end()), "{line:?} is not in {status}");
    }
    let map: Vec<&str> = status.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(map, ["0", lab.spec.uid_base.to_string().as_str(), "65536"]);
    // And process 1 has no more than it needs, as the host sees it.
    let init = running.process().unwrap().pid.as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{init}/status")).unwrap();
    assert!(status.contains(&format!("Uid:\t{0}\t{0}\t{0}\t{0}", lab.spec.uid_base)), "{status}");
    assert!(status.contains("CapEff:\t00000000000000e0"), "{status}");
    assert!(status.contains("CapBnd:\t0000000000000000"), "{status}");
    running.stop().unwrap();
}

#[test]
fn the_host_is_out_of_sight() {
    let lab = Lab::new("sight");
    let secret = lab.directory.path().join("host-secret");
    std::fs::write(&secret, "x").unwrap();
    let mut running = lab.start();
    let script = format!(
        "cat {}; ls -A /root /home /mnt /sys /boot /opt 2>&1; ls /proc | grep -v '^[0-9]'; ls -d /proc/[0-9]*; \
         cat /proc/1/status /proc/1/environ; kill -9 1; hostname; wc -l < /proc/self/mounts; cat /etc/shadow; \
         cat /proc/self/cgroup; ls /etc; touch /usr/x /etc/x /x; ls /dev; \
         for f in softnet_stat sockstat protocols; do cat /proc/self/net/$f 2>/dev/null || echo hidden; done",
        secret.display()
    );
    let (out, _) = lab.shell(&mut running, &script);
    assert!(out.contains("host-secret: No such file"), "{out}");
    for gone in ["/mnt", "/sys", "/boot", "/opt"] {
        assert!(out.contains(&format!("cannot access '{gone}'")), "{gone}: {out}");
    }
    for word in ["meminfo", "cpuinfo", "loadavg", "sysrq-trigger", "kallsyms"] {
        assert!(!out.contains(word), "{word}: {out}");
    }
    // Its own processes alone, and process 1 not even by name.
    assert!(!out.contains("/proc/1\n"), "{out}");
    assert!(out.contains("compartment-sight"), "{out}");
    assert!(out.contains("/etc/shadow: No such file"), "{out}");
    assert!(out.contains("0::/\n"), "{out}");
    assert_eq!(out.matches("Read-only file system").count(), 3, "{out}");
    assert_eq!(out.matches("hidden\n").count(), 3, "what is counted for the whole machine: {out}");
    for device in ["mem", "kmsg", "loop0", "net", "vsock", "vhost-net", "fuse"] {
        assert!(!out.lines().any(|l| l == device), "{device}: {out}");
    }
    running.stop().unwrap();
}

#[test]
fn free_space_of_the_host_is_not_shown() {
    let lab = Lab::new("statfs");
    let mut running = lab.start();
    let (out, _) = lab.shell(
        &mut running,
        "for d in / /usr /etc /tmp /run /var /dev /srv/own; do stat -f -c '%n %b %S' $d; done",
    );
    for line in out.lines() {
        let words: Vec<u64> = line.split(' ').skip(1).filter_map(|w| w.parse().ok()).collect();
        let [blocks, size] = words.as_slice() else { panic!("{line}") };
        assert!(blocks * size <= 64 << 20, "a file system of the host's size: {line}");
    }
    assert_eq!(out.lines().count(), 8, "{out}");
    running.stop().unwrap();
}

#[test]
fn limits_of_memory_processes_and_processor_hold() {
    let lab = Lab::new("limits");
    let mut running = lab.start();
    let (out, _) = lab.shell(&mut running, "for i in $(seq 1 200); do sleep 5 & done 2>&1; echo end");
    assert!(out.contains("Cannot fork") || out.contains("Resource temporarily unavailable"), "{out}");
    running.stop().unwrap();
    let mut running = lab.start();
    let (out, status) = lab.shell(&mut running, "tail /dev/zero");
    assert_eq!(status, 137, "killed for its memory: {out}");
    running.stop().unwrap();
    let mut lab = Lab::new("tenth");
    lab.spec.limits.cpu_percent = 10;
    let mut running = lab.start();
    let busy = "python3 -c 'import time\nwall, cpu = time.monotonic(), time.process_time()\n\
                while time.monotonic() < wall + 1.5: pass\n\
                print((time.process_time() - cpu) / (time.monotonic() - wall))'";
    let (out, _) = lab.shell(&mut running, busy);
    let share: f64 = out.trim().parse().unwrap_or_else(|e| panic!("{e}: {out}"));
    assert!(share < 0.2, "a tenth of a processor is {share} of one");
    running.stop().unwrap();
}

#[test]
fn killing_a_process_or_a_compartment_leaves_the_others_running() {
    let (a, b) = (Lab::new("one"), Lab::new("two"));
    let (one, mut two) = (a.start_serving(), b.start_serving());
    assert!(fetch(&a, "GET", "/", b"").starts_with("HTTP/1.1 200"));
    one.kill().unwrap();
    assert!(levee_sys::pidfd::ended(&one.process().unwrap().pidfd, Duration::from_secs(5)).unwrap());
    assert!(fetch(&b, "GET", "/", b"").starts_with("HTTP/1.1 200"));
    one.stop().unwrap();
    // A killed program is reported and can be started again.
    let null = std::fs::File::open("/dev/null").unwrap();
    for _ in 0..2 {
        two.run(b.program(1, "sleep 100"), &[null.as_fd(), null.as_fd(), null.as_fd()]).unwrap();
        assert_eq!(b.next(&mut two), Event::Started(1));
        two.signal(1, 9).unwrap();
        assert_eq!(b.next(&mut two), Event::Exited(1, 137));
    }
    assert!(fetch(&b, "GET", "/", b"").starts_with("HTTP/1.1 200"));
    two.stop().unwrap();
}

#[test]
fn process_1_starts_a_service_by_its_first_connection_and_says_what_became_of_it() {
    let lab = Lab::new("services");
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let offer = |name: &str, port, script| {
        let served = served(name, address(port), &["sh", "-c", script]);
        let log = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
        (ToInit::Service { served, off: false }, vec![log, lab.network.listen(address(port)).unwrap()])
    };
    // What runs has the power of a service, as its process 1 has no other.
    let unable =
        "test $(sed -n 's/CapEff:.//p' /proc/self/status) = 0000000000000000 || exit 9; exec sleep 100";
    let given = vec![offer("well", 81, unable), offer("broken", 82, "exit 7")];
    let init = Path::new(env!("CARGO_BIN_EXE_levee-init"));
    let mut running = Compartment::start_with(&Plan::new(&lab.spec), &lab.network, init, given).unwrap();
    let connect = |port| ns::in_net(lab.network.ns(), || TcpStream::connect(address(port))).unwrap();
    let mut next = |place: u16| match lab.next(&mut running) {
        Event::Service(at, report) if at == place => report,
        other => panic!("{other:?}"),
    };

    let _waits = connect(81).unwrap();
    assert_eq!(next(0), Report { starts: 1, told: None, trouble: None });
    let well = next(0);
    let told = well.told.expect("what runs for a while is told");
    assert_eq!((told.done, told.reason.as_str()), (true, "started by its first connection"));

    let mut refused = connect(82).unwrap();
    refused.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(next(1).starts, 1);
    let broken = next(1);
    let told = broken.told.expect("what does not start is told");
    assert_eq!((told.done, told.reason.as_str()), (false, "failed to start: ended with status 7"));
    let (why, rests) = broken.trouble.expect("it rests");
    assert!(why == "ended with status 7" && rests <= Duration::from_secs(1), "{why} {rests:?}");
    assert_eq!(refused.read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(connect(82).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    // When it has rested it is offered again, and told once.
    std::thread::sleep(Duration::from_millis(1_500));
    let _again = connect(82).unwrap();
    assert_eq!(next(1).starts, 2);
    let broken = next(1);
    assert!(broken.told.is_none() && broken.trouble.is_some(), "{broken:?}");
    running.stop().unwrap();
}

/// A service that leaves a process behind, in a session of its own, which has its first connection and its listener.
const LINGERS: &str = "exec python3 -c 'import os, socket
listener = socket.socket(fileno=3)
listener.setblocking(True)
first, _ = listener.accept()
first.send(b\"x\")
if os.fork() == 0:
  os.setsid()
  if os.fork() == 0:
    while True:
      try:
        listener.listen(5)
        listener.accept()[0].send(b\"y\")
      except OSError: pass
os._exit(0)'";

#[test]
fn what_is_turned_off_ends_with_all_that_it_left_behind_and_starts_for_nobody_until_it_is_on_again() {
    let lab = Lab::new("turned");
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let offer = |name: &str, port, script: &str, off| {
        let served = served(name, address(port), &["sh", "-c", script]);
        let log = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
        (ToInit::Service { served, off }, vec![log, lab.network.listen(address(port)).unwrap()])
    };
    let given = vec![
        offer("lingers", 81, LINGERS, false),
        offer("stays", 82, "exec sleep 100", false),
        offer("never", 83, LINGERS, true),
    ];
    let init = Path::new(env!("CARGO_BIN_EXE_levee-init"));
    let mut running = Compartment::start_with(&Plan::new(&lab.spec), &lab.network, init, given).unwrap();
    let connect = |port| ns::in_net(lab.network.ns(), || TcpStream::connect(address(port))).unwrap();
    let refused = |port| connect(port).unwrap_err().kind() == std::io::ErrorKind::ConnectionRefused;
    let hear = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut byte = [0; 1];
        stream.read(&mut byte).map(|count| byte[..count].to_vec())
    };
    let turn = |running: &mut Compartment, ticket, off: &[&str]| {
        running.turn(ticket, off.iter().map(|name| name.parse().unwrap()).collect()).unwrap();
        assert!(running.is_turning().is_some());
        // What is on, and waited for, may start again before that is told.
        let mut starts = 0;
        loop {
            match lab.next(running) {
                Event::Turned(_) => break,
                Event::Service(1, report) => starts = report.starts,
                _ => {}
            }
        }
        assert!(running.is_turning().is_none());
        starts
    };
    let first = connect(81).unwrap();
    assert_eq!(hear(&first).unwrap(), b"x");
    let _stays = connect(82).unwrap();
    // Process 1 may be as late as it likes: what is to start again has started before.
    while !matches!(lab.next(&mut running), Event::Service(1, Report { starts: 1, .. })) {}
    let left = connect(81).unwrap();
    assert_eq!(hear(&left).unwrap(), b"y", "something was left behind");
    assert!(refused(83), "off from the beginning");

    let before = turn(&mut running, 1, &["lingers", "never"]);
    for stream in [&first, &left] {
        assert!(!matches!(hear(stream), Ok(bytes) if !bytes.is_empty()), "its connections are over");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(refused(81) && refused(83), "nobody listens again");
    // What is on starts again.
    let _again = connect(82).unwrap();
    let starts = loop {
        if before > 1 {
            break before;
        }
        if let Event::Service(1, report) = lab.next(&mut running) {
            assert!(report.trouble.is_none(), "{report:?}");
            if report.starts > 1 {
                break report.starts;
            }
        }
    };
    assert_eq!(starts, 2);

    turn(&mut running, 2, &[]);
    assert_eq!(hear(&connect(81).unwrap()).unwrap(), b"x");
    assert_eq!(hear(&connect(83).unwrap()).unwrap(), b"x");
    running.stop().unwrap();
}

#[test]
fn a_program_that_stops_whatever_it_may_signal_does_not_stop_process_1() {
    let lab = Lab::new("stopper");
    let mut running = lab.start();
    let null = std::fs::File::open("/dev/null").unwrap();
    let fds = [null.as_fd(), null.as_fd(), null.as_fd()];
    // It meets what is started after it between the change of uid and the exec.
    let script = "exec python3 -c 'import os, signal\nwhile True:\n try: os.kill(-1, signal.SIGSTOP)\n except OSError: pass'";
    running.run(lab.program(1, script), &fds).unwrap();
    assert_eq!(lab.next(&mut running), Event::Started(1));
    std::thread::sleep(Duration::from_millis(500));
    for ticket in 2..=30 {
        running.run(lab.program(ticket, "exec sleep 100"), &fds).unwrap();
        let started = lab.next(&mut running);
        assert_eq!(started, Event::Started(ticket), "process 1 waits for what somebody has stopped");
    }
    // What is stopped can be ended still, and that is told.
    for ticket in 2..=30 {
        running.signal(ticket, 9).unwrap();
    }
    for _ in 2..=30 {
        let ended = lab.next(&mut running);
        assert!(matches!(ended, Event::Exited(2..=30, 137)), "{ended:?}");
    }
    running.stop().unwrap();
}

#[test]
fn the_warden_takes_no_descriptor_from_process_1() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new("giver");
    // One that is taken over: it says that all is done, and sends along what is not its warden's to close.
    let taken = lab.directory.path().join("init");
    let script = "#!/usr/bin/python3\nimport array, socket, time\nwarden = socket.socket(fileno=3)\n\
        with_it = array.array('i', [0])\n\
        warden.sendmsg([bytes(1)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, with_it)])\ntime.sleep(60)\n";
    std::fs::write(&taken, script).unwrap();
    std::fs::set_permissions(&taken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let log = std::io::stderr();
    let begun = Compartment::begin(&Plan::new(&lab.spec), &lab.network, &taken, log.as_fd(), Vec::new());
    let mut running = begun.unwrap_or_else(|e| panic!("{e}"));
    let until = Instant::now() + Duration::from_secs(10);
    let said = loop {
        match running.events() {
            Ok(events) if events.is_empty() => assert!(Instant::now() < until, "it says nothing"),
            Ok(events) => break format!("{events:?}"),
            Err(e) => break e.to_string(),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(said.contains("process 1 sends descriptors"), "{said}");
    running.stop().unwrap();
}

#[test]
fn a_program_that_cannot_be_executed_is_refused() {
    let lab = Lab::new("unfit");
    let mut running = lab.start();
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut start = lab.program(1, "");
    start.program = "/etc/hosts".into();
    running.run(start, &[null.as_fd(), null.as_fd(), null.as_fd()]).unwrap();
    assert_eq!(lab.next(&mut running), Event::Started(1));
    let Event::Refused(1, why) = lab.next(&mut running) else { panic!("it was executed") };
    assert!(why.contains("/etc/hosts: execute the program"), "{why}");
    running.stop().unwrap();
}

#[test]
fn the_plan_is_printed_as_it_is_carried_out() {
    let lab = Lab::new("plan");
    let text = Plan::new(&lab.spec).to_string();
    assert!(text.starts_with("compartment SECRET\n  1  warden     make control group"), "{text}");
    let last: Vec<&str> = text.lines().rev().take(4).collect();
    assert!(last[0].contains("system-call filter") && last[1].contains("Landlock"), "{text}");
    let position = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
    assert!(position("change the root") < position("join the user namespace"));
    assert!(position("join the user namespace") < position("empty the bounding set"));
}

#[test]
fn the_selinux_contexts_of_a_compartment_come_before_what_is_mounted_and_before_what_is_started() {
    let mut lab = Lab::new("contexts");
    let of = |kind: &str| format!("system_u:system_r:{kind}:s2:c0");
    lab.spec.contexts =
        Some(Contexts { processes: of("process"), files: of("files"), programs: of("programs") });
    let text = Plan::new(&lab.spec).to_string();
    let all = |who: &str, what: &str| -> Vec<usize> {
        let steps = text.lines().enumerate().filter(|(_, line)| line.contains(who) && line.contains(what));
        steps.map(|(number, _)| number).collect()
    };
    for who in ["warden", "process 1"] {
        let contexts = all(who, "contexts: files system_u:system_r:files:s2:c0");
        let mounted =
            ["mount image", "mount the programs", "mount a tmpfs", "mount the host's", "mount devpts"];
        let mounted: Vec<usize> = mounted.into_iter().flat_map(|what| all(who, what)).collect();
        assert_eq!(contexts.len(), 1, "{text}");
        assert!(!mounted.is_empty() && mounted.iter().all(|step| *step > contexts[0]), "{text}");
    }
    // Taken on when no power is left, and before the filter under which everything is started.
    let taken = all("process 1", "take on the SELinux context system_u:system_r:process:s2:c0");
    assert!(
        taken[0] > all("process 1", "bounding set")[0] && taken[0] < all("process 1", "Landlock")[0],
        "{text}"
    );
    lab.spec.contexts = None;
    assert!(!Plan::new(&lab.spec).to_string().contains("SELinux"));
}

#[test]
fn what_a_label_uses_up_of_a_limit_per_user_is_not_missing_for_another() {
    let (a, b) = (Lab::new("greedy"), Lab::new("frugal"));
    let (mut greedy, mut frugal) = (a.start(), b.start());
    // As many message queues as one may have, and as many pending signals.
    let script = "import ctypes, os, signal\n\
        libc = ctypes.CDLL(None)\n\
        n = 0\n\
        while libc.mq_open(b'/q%d' % n, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0: n += 1\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [40])\n\
        s = 0\n\
        while s < 200000 and libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(0)) == 0: s += 1\n\
        print(n, s, flush=True)";
    let count = |out: &str| out.split_whitespace().map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>();
    let python = |hold: &str| format!("python3 -c \"{script}\nimport time\ntime.sleep({hold})\"");
    let held = format!(
        "{} > /tmp/count 2>/dev/null & while ! [ -s /tmp/count ]; do sleep 0.02; done; cat /tmp/count",
        python("60")
    );
    let (first, _) = a.shell(&mut greedy, &held);
    let (second, _) = b.shell(&mut frugal, &python("0"));
    let (first, second) = (count(&first), count(&second));
    assert!(first.iter().all(|n| *n > 0), "{first:?}");
    // A signal or two of its own may be on its way to a program at that moment: of all there are the other has none left.
    let as_much = first.iter().zip(&second).all(|(first, second)| first.abs_diff(*second) <= first / 1_000);
    assert!(first.len() == second.len() && as_much, "{second:?} is not what the first found: {first:?}");
    greedy.stop().unwrap();
    frugal.stop().unwrap();
}

#[test]
fn a_workstations_compartment_has_a_scratch_home_names_and_a_terminal_and_forgets_everything() {
    let mut lab = Lab::new("station");
    lab.spec.files = Files::Scratch { bytes: 4 << 20 };
    let mut running = lab.start();
    let (out, _) = lab.shell(
        &mut running,
        "echo kept > /home/user/file; cat /etc/hosts; ls /srv; head -c 9000000 /dev/zero > /home/user/big",
    );
    assert!(out.contains("10.0.0.1 files.example"), "{out}");
    assert!(out.contains("No space left on device"), "{out}");
    let (out, _) = lab.shell(&mut running, "rm /home/user/big; cat /home/user/file");
    assert_eq!(out, "kept\n");

    // A program on a terminal of the caller's: it is the controlling one, and an interrupt typed there arrives.
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let controller = rustix::pty::openpt(flags).unwrap();
    rustix::pty::grantpt(&controller).unwrap();
    rustix::pty::unlockpt(&controller).unwrap();
    let name = rustix::pty::ptsname(&controller, Vec::new()).unwrap();
    let terminal = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut start = lab.program(5, "test -t 0 && : < /dev/tty && echo has a terminal; exec sleep 60");
    start.terminal = true;
    running.run(start, &[terminal.as_fd(), terminal.as_fd(), terminal.as_fd()]).unwrap();
    assert_eq!(lab.next(&mut running), Event::Started(5));
    drop(terminal);
    let mut controller = std::fs::File::from(controller);
    let mut said = vec![0; 100];
    let n = controller.read(&mut said).unwrap();
    assert_eq!(String::from_utf8_lossy(&said[..n]).trim_end(), "has a terminal");
    std::thread::sleep(Duration::from_millis(100)); // sleep has taken the shell's place
    controller.write_all(&[3]).unwrap();
    assert_eq!(lab.next(&mut running), Event::Exited(5, 130));

    running.stop().unwrap();
    let mut running = lab.start();
    let (out, _) = lab.shell(&mut running, "ls -A /home/user");
    assert_eq!(out, "");
    running.stop().unwrap();
}

#[test]
fn services_have_terminals_only_where_one_of_them_asks() {
    let made = "python3 -c 'import os; a, b = os.openpty(); os.write(a, b\"here\\n\"); print(os.read(b, 9))'";
    let other = "mkdir /tmp/pts; mount -t devpts devpts /tmp/pts || mknod /tmp/ptmx c 5 2; ls /dev/ptmx /dev/pts/ptmx";
    let mut lab = Lab::new("terminals");
    lab.spec.needs = Needs::default();
    let mut running = lab.start();
    let (out, status) = lab.shell(&mut running, made);
    assert!(status == 1 && !out.contains("here"), "{status}: {out}");
    let (out, status) = lab.shell(&mut running, other);
    assert!(status != 0 && !out.lines().any(|line| line.starts_with("/dev")), "{status}: {out}");
    running.stop().unwrap();
    lab.spec.needs = [Need::Terminals].into_iter().collect();
    let mut running = lab.start();
    let (out, status) = lab.shell(&mut running, made);
    assert!(status == 0 && out.contains("here"), "{status}: {out}");
    running.stop().unwrap();
}

#[test]
fn a_compartment_starts_in_a_moment_and_nginx_answers_soon_after() {
    let lab = Lab::new("moment");
    let (mut start, mut answer) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let began = Instant::now();
        let running = lab.start_serving();
        start.push(began.elapsed());
        assert!(fetch(&lab, "GET", "/", b"").starts_with("HTTP/1.1 200"));
        answer.push(began.elapsed());
        running.stop().unwrap();
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (start, answer) = (median(&mut start), median(&mut answer));
    let line = format!("median of 20: compartment {start:?}, first answer of nginx {answer:?}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    assert!(start < Duration::from_secs(2) && answer < Duration::from_secs(4), "{line}");
}

/// How many neighbours the machine knows by IPv6, of all namespaces together (the first field of a processor's line, in hexadecimal).
fn neighbours() -> u32 {
    let table = std::fs::read_to_string("/proc/net/stat/ndisc_cache").unwrap();
    let first = table.lines().nth(1).and_then(|line| line.split_whitespace().next());
    u32::from_str_radix(first.unwrap(), 16).unwrap()
}

#[test]
fn whoever_is_spoken_to_by_the_tunnel_takes_no_room_in_the_table_of_neighbours() {
    use std::net::UdpSocket;
    let network = levee_warden::compartment::Network::new().unwrap();
    let interface = levee_warden::compartment::Interface {
        name: "levee0".into(),
        mtu: 1400,
        addresses: vec!["10.80.0.1/32".parse().unwrap(), "fd80::1/128".parse().unwrap()],
        routes: vec!["10.80.1.0/24".parse().unwrap(), "fd80:1::/64".parse().unwrap()],
    };
    let options = levee_sys::tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
    let tun = network.add(&interface, || levee_sys::tun::open("levee0", options)).unwrap();
    let before = neighbours();
    let spoken = ns::in_net(network.ns(), || {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        let speak = |to: String| u32::from(socket.send_to(b"x", (to.as_str(), 9)).is_ok());
        let one_by_one: u32 = (1..400).map(|n| speak(format!("fd80:1::{n:x}"))).sum();
        // The device takes what nobody reads only so far.
        let groups: u32 = (1..400).map(|n| speak(format!("ff0e::{n:x}"))).sum();
        (one_by_one, groups)
    })
    .unwrap();
    let grown = neighbours().saturating_sub(before);
    assert!(spoken.0 == 399 && spoken.1 == 0, "{spoken:?}");
    // Others on this machine have neighbours too.
    assert!(grown < 100, "{grown}");
    drop(tun);
}
