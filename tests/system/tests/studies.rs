//! The laboratory's studies with levee itself as an arm, in their smallest form.
//!
//! Needs root, e2fsprogs, bubblewrap, podman, etcd and levee's own programs (`cargo build --workspace --bins`).

use levee_lab::study::run::{Sample, manifest, samples};
use levee_lab::study::{Row, Study};
use levee_system::{eventually, host, programs, sh, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Runs a study in three blocks of short trials; answers its directory.
fn smallest(dir: &Path, name: &str, rows: &[&str], arms: &[&str]) -> PathBuf {
    smallest_of(dir, Study::named(name).unwrap().unwrap(), 3, rows, arms)
}

/// The same in one block, where what is started for each block, or a tool's own time, is most of it.
fn once(dir: &Path, name: &str, rows: &[&str], arms: &[&str]) -> PathBuf {
    smallest_of(dir, Study::named(name).unwrap().unwrap(), 1, rows, arms)
}

fn smallest_of(dir: &Path, mut study: Study, blocks: usize, rows: &[&str], arms: &[&str]) -> PathBuf {
    let quick = study.forms.get_mut("quick").unwrap();
    (quick.blocks, quick.seconds) = (blocks, 0.004);
    quick.rows = Some(rows.iter().map(|r| (*r).to_owned()).collect());
    quick.arms = Some(arms.iter().map(|a| (*a).to_owned()).collect());
    let file = dir.join("study.toml");
    fs::write(&file, toml::to_string(&study).unwrap()).unwrap();
    let mut said = String::new();
    for run in ["run", "another", "last"] {
        let out = dir.join(run);
        let mut lab = Command::new(programs().join("levee-lab"));
        lab.arg("run").arg(&file).args(["--quick", "--seed", "3", "--out"]).arg(&out);
        let lab = lab.output().unwrap();
        if lab.status.success() {
            return out;
        }
        said = String::from_utf8_lossy(&lab.stderr).into_owned();
        // A link that had no room for some packets, on a host that was busy then: that the laboratory says so is what it is to do.
        if !said.contains("packets found no room in it") {
            break;
        }
    }
    panic!("{said}");
}

/// Asserts that every arm was there, and that each measured every row at least once.
fn whole(run: &Path, rows: &[&str], arms: &[&str]) {
    let m = manifest(run).unwrap();
    assert_eq!(m.absent, []);
    let all = samples(run).unwrap();
    assert_eq!(all.len(), m.plan().len());
    for (row, arm) in rows.iter().flat_map(|r| arms.iter().map(move |a| (*r, *a))) {
        let has = |r: &Row| m.study.arms.iter().any(|a| a.name == arm && a.has(r));
        if m.study.rows().any(|(_, r)| r.id == row && !has(r)) {
            continue;
        }
        let here: Vec<&Sample> = all.iter().filter(|s| s.row == row && s.arm == arm).collect();
        assert!(here.iter().any(|s| s.seconds.is_some()), "{row} in {arm}: {here:?}");
    }
    // What a reader is told first; on a busy host three blocks may be too few to tell anything, and one always is.
    let report = fs::read_to_string(run.join("report.md")).unwrap();
    assert!(
        ["Here, ", "Nothing was measured in enough blocks"].iter().any(|told| report.contains(told)),
        "{report}"
    );
}

#[test]
fn small_operations_are_measured_natively_in_a_compartment_in_a_partition_in_bubblewrap_and_in_podman() {
    let dir = tempfile::tempdir().unwrap();
    let rows = [
        "int-div",
        "null-io",
        "select-tcp",
        "exec",
        "shell",
        "create-10K",
        "page-fault",
        "periodic/1",
        "attacked/1",
    ];
    let arms = ["native", "compartment", "partition", "bubblewrap", "podman"];
    let run = smallest(dir.path(), "partition", &rows, &arms);
    whole(&run, &rows, &arms);
    for s in samples(&run).unwrap().iter().filter(|s| s.row.ends_with("/1") && s.seconds.is_some()) {
        assert!(s.counted.contains_key("missed deadlines, %"), "{s:?}");
        assert_eq!(s.row.starts_with("periodic"), s.counted.contains_key("software interrupts, %"), "{s:?}");
    }
}

#[test]
fn small_operations_are_measured_under_a_kernel_of_its_own_and_cost_more_there() {
    let dir = tempfile::tempdir().unwrap();
    let (rows, arms) = (["int-div", "null-call", "exec"], ["native", "machine"]);
    let mut study = Study::named("partition").unwrap().unwrap();
    let root = programs().join("../guest/root");
    let root =
        fs::canonicalize(&root).unwrap_or_else(|e| panic!("{}: {e}: run scripts/guest", root.display()));
    study
        .arms
        .iter_mut()
        .filter(|arm| arm.name == "machine")
        .for_each(|arm| arm.kernel_root = Some(root.clone()));
    let run = smallest_of(dir.path(), study, 3, &rows, &arms);
    whole(&run, &rows, &arms);
    let all = samples(&run).unwrap();
    let least = |arm: &str| {
        let here = all.iter().filter(|s| s.row == "exec" && s.arm == arm);
        here.filter_map(|s| s.seconds).fold(f64::INFINITY, f64::min)
    };
    // Translated, every instruction is several.
    assert!(least("machine") > 2.0 * least("native"), "{} {}", least("machine"), least("native"));
}

#[test]
fn what_the_kernels_own_labels_cost_is_measured_in_machines_with_and_without_them() {
    let dir = tempfile::tempdir().unwrap();
    // (An arm whose packets do not carry what they should is absent.)
    let rows = ["null-call", "open-close", "find-cold", "read-uncached", "loopback-request", "pair-request"];
    let arms = ["off", "mls", "mls-cipso"];
    let mut study = Study::named("selinux").unwrap().unwrap();
    let made = fs::canonicalize(programs().join("../guest")).expect("run scripts/guest");
    study.arms.iter_mut().for_each(|arm| arm.guest = Some(made.clone()));
    let run = smallest_of(dir.path(), study, 1, &rows, &arms);
    whole(&run, &rows, &arms);
}

#[test]
fn pages_go_over_macsec_and_esp_in_machines_whose_kernel_has_both() {
    let dir = tempfile::tempdir().unwrap();
    // (An arm whose packets are not what they should be is absent.)
    let (rows, arms) = (["run/https", "pair-request"], ["link", "macsec+esp"]);
    let mut study = Study::named("macsec").unwrap().unwrap();
    let made = fs::canonicalize(programs().join("../guest")).expect("run scripts/guest");
    study.arms.iter_mut().for_each(|arm| arm.guest = Some(made.clone()));
    let run = smallest_of(dir.path(), study, 1, &rows, &arms);
    whole(&run, &rows, &arms);
    let all = samples(&run).unwrap();
    let least = |arm: &str, what: &str| {
        let here = all.iter().filter(|s| s.row == "run/https" && s.arm == arm);
        here.filter_map(|s| s.counted.get(what)).fold(f64::INFINITY, |a, b| a.min(*b))
    };
    // Each packet has 32 octets of MACsec more, and 28 and more of ESP. (How many acknowledgements there are is a matter of time.)
    let (bare, within) = (least("link", "octets on the wire"), least("macsec+esp", "octets on the wire"));
    let packets = least("link", "packets");
    assert!(within > bare + 40.0 * packets, "{within} {bare} {packets}");
}

#[test]
fn what_slots_cost_is_seen_by_the_clock_and_within_them_operations_cost_what_they_do_without() {
    let dir = tempfile::tempdir().unwrap();
    let (rows, arms) = (["steady", "woken", "sum"], ["native", "partition", "framed-5", "framed-50"]);
    let run = smallest(dir.path(), "frames", &rows, &arms);
    whole(&run, &rows, &arms);
    let all = samples(&run).unwrap();
    let least = |row: &str, arm: &str| {
        let here = all.iter().filter(|s| s.row == row && s.arm == arm);
        here.filter_map(|s| s.seconds).fold(f64::INFINITY, f64::min)
    };
    // One slot of two: by the clock half of the work is done at the most, however busy the host is.
    let (by_clock, within) = (least("steady", "framed-5"), least("sum", "partition"));
    assert!(by_clock > 1.5 * within, "{by_clock} {within}");
    // By the mean a quarter of a slot late.
    assert!(least("woken", "framed-5") > 0.000_5, "{}", least("woken", "framed-5"));
    assert!(least("woken", "framed-50") > least("woken", "partition"), "{all:?}");
    for arm in ["framed-5", "framed-50"] {
        assert!(least("sum", arm) < 1.5 * within, "{arm} {} {within}", least("sum", arm));
        let counted = all.iter().filter(|s| s.arm == arm && s.row == "steady" && s.seconds.is_some());
        assert!(
            counted.into_iter().all(|s| s.counted["what keeps the frames, % of a processor"] > 0.0),
            "{all:?}"
        );
    }
}

#[test]
fn calculation_storage_and_network_are_measured_plain_in_a_compartment_and_over_a_labelled_link() {
    let dir = tempfile::tempdir().unwrap();
    let rows =
        ["ray-trace", "fourier", "find-warm", "read-uncached", "copy-large", "copy-small", "loopback-stream"];
    let rows = [&rows[..], &["link-stream", "link-packets", "link-request"]].concat();
    let arms = ["plain", "compartment", "labelled"];
    let run = smallest(dir.path(), "labelled", &rows, &arms);
    whole(&run, &rows, &arms);
    let all = samples(&run).unwrap();
    for s in all.iter().filter(|s| s.row == "link-packets" && s.seconds.is_some()) {
        assert!(s.counted["octets a packet"] <= 1514.0, "{s:?}");
    }
    let largest = |arm: &str| {
        let of = all.iter().filter(|s| s.row == "link-stream" && s.arm == arm);
        of.filter_map(|s| s.counted.get("octets a packet")).fold(0.0_f64, |a, b| a.max(*b))
    };
    for arm in arms {
        assert!(largest(arm) > 3000.0, "{arm} sends no super-segments: {all:?}");
    }
}

#[test]
fn each_kind_of_openssls_rows_is_measured_in_both_places() {
    let dir = tempfile::tempdir().unwrap();
    let rows = ["openssl/evp/sha1", "openssl/old/ghash", "openssl/sign/dsa1024", "openssl/verify/rsa1024"];
    let arms = ["plain", "compartment"];
    let run = once(dir.path(), "labelled", &rows, &arms);
    whole(&run, &rows, &arms);
    let all = samples(&run).unwrap();
    // A kibibyte digested takes less than a signature.
    let middle = |row: &str| all.iter().filter(|s| s.row == row).find_map(|s| s.seconds).unwrap();
    assert!(middle("openssl/evp/sha1") * 1024.0 < middle("openssl/sign/dsa1024"), "{all:?}");
}

#[test]
fn connections_at_a_rate_are_answered_over_a_link_and_through_each_kind_of_vaults() {
    let dir = tempfile::tempdir().unwrap();
    let rows = ["connections@200", "kept@1000", "stream"];
    let arms = ["link", "vault", "clear", "stacks", "chacha", "agreeing"];
    let run = once(dir.path(), "vaulted", &rows, &arms);
    whole(&run, &rows, &arms);
    for s in samples(&run).unwrap().iter().filter(|s| s.row == "connections@200" && s.seconds.is_some()) {
        assert!(s.counted["errors, %"] < 100.0 && s.counted["answered in a second"] > 0.0, "{s:?}");
    }
    for arm in &arms[1..] {
        let all = samples(&run).unwrap().into_iter().filter(|s| s.row == "stream" && s.arm == *arm);
        let spent: Vec<f64> =
            all.filter_map(|mut s| s.counted.remove("levee's processor time, s/GB")).collect();
        assert!(!spent.is_empty() && spent.iter().all(|each| *each > 0.0), "{arm}: {spent:?}");
    }
}

#[test]
fn sessions_and_pages_are_measured_within_tls_esp_both_and_two_layers_and_each_layer_is_seen_on_the_wire() {
    let dir = tempfile::tempdir().unwrap();
    let rows = ["https", "sftp"];
    let arms = ["bare", "tls", "esp", "tls+esp", "esp-quic"];
    // Of what it starts nothing is left to itself.
    let left = || {
        let of = |name| host::children(1, name).into_iter().map(|process| process.pid);
        ["nginx", "stunnel4", "sshd"].into_iter().flat_map(of).collect::<BTreeSet<_>>()
    };
    let before = left();
    let run = smallest(dir.path(), "layers", &rows, &arms);
    assert_eq!(left().difference(&before).count(), 0);
    whole(&run, &rows, &arms);
    let all = samples(&run).unwrap();
    let octets = |arm: &str| {
        let here = all.iter().filter(|s| s.row == "https" && s.arm == arm);
        let each = here.filter_map(|s| s.counted.get("octets on the wire").copied());
        each.fold(f64::INFINITY, f64::min)
    };
    // The same page, and what each layer adds to it.
    for (less, more) in [("bare", "tls"), ("bare", "esp"), ("esp", "tls+esp"), ("esp", "esp-quic")] {
        assert!(octets(less) + 200.0 < octets(more), "{less} {} {more} {}", octets(less), octets(more));
    }
}

#[test]
fn pages_go_within_wireguard_dtls_and_webrtc_and_over_a_bad_link_that_does_what_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let rows = ["https", "https~all"];
    let arms = ["bare", "wireguard", "dtls", "webrtc", "esp"];
    let run = once(dir.path(), "layers", &rows, &arms);
    whole(&run, &rows, &arms);
    let all = samples(&run).unwrap();
    // What came out of the wire, in each trial of a row and an arm that succeeded.
    let seen = |row: &str, arm: &str, what: &str| -> Vec<f64> {
        let here = all.iter().filter(|s| s.row == row && s.arm == arm && s.seconds.is_some());
        here.map(|s| s.counted.get(what).copied().unwrap_or_default()).collect()
    };
    for row in rows {
        let none = |arm, what| assert!(seen(row, arm, what).iter().all(|n| *n == 0.0), "{row} {arm}: {what}");
        let some = |arm, what: &str, least: f64| {
            let found = seen(row, arm, what);
            assert!(!found.is_empty() && found.iter().all(|n| *n >= least), "{row} {arm}: {what}: {found:?}");
        };
        // A page of 16 KiB and TLS around it are more than ten packets, and arrive as more than two.
        some("bare", "seen as TCP", 3.0);
        none("bare", "seen as UDP");
        // A data channel of WebRTC is within DTLS, too.
        let data = ["seen as data of WireGuard", "seen as data of DTLS", "seen as data of DTLS"];
        for (arm, data) in ["wireguard", "dtls", "webrtc"].into_iter().zip(data) {
            none(arm, "seen as TCP");
            some(arm, data, 3.0);
            some(arm, "octets within the tunnel", 16_384.0);
        }
        none("wireguard", "seen as data of DTLS");
        none("dtls", "seen as data of WireGuard");
        some("esp", "seen as UDP", 3.0);
    }
    // There and back three times, at the least (TCP's and TLS's handshakes, and the page): each way takes 15 ms or more.
    for s in all.iter().filter(|s| s.row == "https~all") {
        assert!(s.seconds.is_none_or(|took| took >= 0.09), "{s:?}");
    }
    let m = manifest(&run).unwrap();
    // Each of five ways, both ways: by datagrams before and after, and by the link's own count.
    assert_eq!(m.links.len(), arms.len() * 2 * 3);
    for did in &m.links {
        assert_eq!(did.as_asked(), Ok(()), "{did:?}");
        assert!(did.asked.name == "all" && did.lost > 0 && did.offered > did.lost, "{did:?}");
    }
    let page = fs::read_to_string(run.join("report.md")).unwrap();
    assert!(
        page.contains("| all | wireguard, there, datagrams of the laboratory's | 20 ± 5 ms, 1 % | 3000 |"),
        "{page}"
    );
}

#[test]
fn throughput_is_measured_in_each_direction_over_the_devices_on_its_way_and_what_the_site_does_not_list_is_refused()
 {
    let dir = tempfile::tempdir().unwrap();
    let ways = [("nvm-uvm", [false, true]), ("uvm-nvm", [false, true]), ("dev-nvm", [true, false])];
    let ways =
        [&ways[..], &[("nvm-dev", [true, false]), ("uvm-dev", [true, true]), ("dev-uvm", [true, true])]];
    let ways = ways.concat();
    let mut rows: Vec<String> = ways.iter().map(|(way, _)| format!("net/{way}/tcp")).collect();
    rows.extend(["dev-nvm/udp-1400", "uvm-dev/udp-64", "nvm-uvm/udp-512"].map(|row| format!("net/{row}")));
    rows.extend(["dev-nvm", "uvm-dev"].map(|way| format!("net/{way}/iperf3-tcp")));
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let arms = ["native", "compartment", "partition"];
    let run = once(dir.path(), "partition", &rows, &arms);
    whole(&run, &rows, &arms);
    let (all, m) = (samples(&run).unwrap(), manifest(&run).unwrap());
    let of = |arm: &str| -> BTreeSet<&str> {
        all.iter().filter(|s| s.arm == arm).map(|s| s.row.as_str()).collect()
    };
    let compartments = of("compartment");
    assert!(
        compartments.iter().all(|r| r.contains("/dev-nvm/") || r.contains("/nvm-dev/")),
        "{compartments:?}"
    );
    assert_eq!(of("partition"), of("native"));
    assert_eq!(of("native").len(), m.study.rows_of(&m.form).count());
    for s in all.iter().filter(|s| s.seconds.is_some()) {
        let (_, on) = ways.iter().find(|(way, _)| s.row.contains(&format!("/{way}/"))).unwrap();
        for (name, on) in ["packets at the card", "packets between the two places"].iter().zip(on) {
            let passed = s.counted[*name];
            // A question for an address, at the most, where nothing goes; a stream with its warm-up is hundreds of packets.
            assert!(if *on { passed >= 20.0 } else { passed <= 8.0 }, "{name}: {s:?}");
        }
        // Each hop that the site does not list was tried, and refused; over the link there is none.
        let refused = s.counted.get("tries at what the site does not list, refused").copied();
        let is_on_link = s.row.contains("/nvm-uvm/");
        assert_eq!(refused, (s.arm == "partition").then_some(f64::from(u8::from(!is_on_link))), "{s:?}");
    }
}

#[test]
fn messages_by_mpi_go_over_the_link_of_each_arm_and_not_through_the_memory_of_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let (rows, arms) = (["mpi-ring@4"], ["plain", "compartment", "labelled", "bare"]);
    let run = smallest(dir.path(), "labelled", &rows, &arms);
    whole(&run, &rows, &arms);
    // There and back: two packets a round at the least. Every packet on a labelled link's own interface was captured with a label, none elsewhere.
    for s in samples(&run).unwrap().iter().filter(|s| s.seconds.is_some()) {
        assert!(s.counted["packets a round"] >= 2.0, "{s:?}");
        let [with, without] = ["packets with a label", "packets without"].map(|name| s.counted[name]);
        let is_labelled = s.arm == "labelled";
        assert!(
            if is_labelled { with > 2.0 && without == 0.0 } else { with == 0.0 && without > 2.0 },
            "{s:?}"
        );
    }
}

/// The smallest experiment with F. It has more blocks than anybody waits for.
const FEDERATED: &str = r#"
name = "federated"
title = "Federated"
question = "Is the service the second server's?"
[[arm]]
name = "base"
baseline = true
drive = { path = "link", mediation = "none", session = "here" }
[[arm]]
name = "handoff"
drive = { path = "tunnel", mediation = "handoff", session = "elsewhere" }
[[arm]]
name = "relay"
drive = { path = "tunnel", mediation = "relay", session = "elsewhere" }
[[workload]]
kind = "TCP_CRR"
[form.quick]
blocks = 10000
seconds = 0.05
warmup = 0.01
layouts = ["together"]
"#;

/// A run of the laboratory's, which clears up when it is stopped, whatever became of the test.
struct Running(Option<Child>);

impl Running {
    fn stop(&mut self) -> Option<Output> {
        let lab = self.0.take()?;
        sh("kill", &["-INT", &lab.id().to_string()]).ok();
        lab.wait_with_output().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

#[test]
fn with_f_a_service_of_the_second_server_is_measured_in_a_session_of_the_first_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("federated.toml"), dir.path().join("run"));
    fs::write(&file, FEDERATED).unwrap();
    let mut lab = Command::new(programs().join("levee-lab"));
    lab.arg("run").arg(&file).args(["--quick", "--seed", "3", "--out"]).arg(&out);
    let lab = lab.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = lab.id();
    let mut lab = Running(Some(lab));
    // A trial of F in each mode that did its work, however busy the host was.
    let modes = ["handoff", "relay"];
    eventually(Duration::from_secs(90), "trials with F", || {
        let samples = fs::read_to_string(out.join("samples.ndjson")).unwrap_or_default();
        let worked = |mode: &&str| {
            let arm = format!(r#""arm":"{mode}""#);
            samples.lines().any(|line| line.contains(&arm) && !line.contains(r#""outcome":null"#))
        };
        modes.iter().all(worked)
    });
    let site = std::env::temp_dir().join(format!("levlab{pid}f"));
    let log = |state: &str| {
        let levee = text(&programs().join("levee"));
        sh(&levee, &["audit", "show", "--json", "--state", &text(&site.join(state))]).ok()
    };
    let granted = |log: &str, action: &str| {
        let of = |line: &&str| {
            line.contains(&format!(r#""action":"{action}""#))
                && line.contains(r#""user":"lab""#)
                && line.contains("granted")
        };
        log.lines().filter(of).count()
    };
    let (first, second) = (log("state"), log("second-state"));
    // The person is the first server's, and its services had no connection.
    assert_eq!((granted(&first, "sign-on"), granted(&first, "connect")), (1, 0), "{first}");
    // The second decided about each connection, and nobody signed on there.
    assert_eq!(granted(&second, "sign-on"), 0, "{second}");
    for mode in modes {
        let object = format!(r#""object":"{mode}-"#);
        let of: String = second.lines().filter(|line| line.contains(&object)).collect::<Vec<_>>().join("\n");
        assert!(granted(&of, "connect") > 3, "{mode}: {second}");
    }

    let lab = lab.stop().unwrap();
    let said = String::from_utf8_lossy(&lab.stderr);
    assert_eq!(lab.status.code(), Some(130), "{said}");
    assert!(!said.contains("absent"), "{said}");
    let mark = format!("levlab{pid}");
    assert!(!sh("ip", &["netns", "list"]).ok().contains(&mark));
    let left = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let left: Vec<_> = left.filter(|e| e.file_name().to_string_lossy().contains(&mark)).collect();
    assert!(left.is_empty(), "{left:?}");
    // etcd among them.
    let processes = sh("ps", &["-eo", "args"]).ok();
    assert!(!processes.lines().any(|line| line.contains(&mark)), "{processes}");
}
