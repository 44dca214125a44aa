//! `levee-tpe doctor` at a workstation, before a real server: each fault is found, said alone, and has its remedy.

use levee_sys::cgroup::{Cgroup, Limits};
use levee_system::{World, eventually, sh, text};
use rcgen::{CertificateParams, Issuer, KeyPair};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// What the doctor finds at ws1 by this bundle.
struct Found(i32, Value);

impl Found {
    fn at(world: &World, bundle: &Path) -> Self {
        let doctor = text(&levee_system::programs().join("levee-tpe"));
        let socket = text(&world.path("ws1-run").join("tpe.sock"));
        let done = world.outside(
            "ws1",
            &doctor,
            &["--json", "--socket", &socket, "doctor", "--bundle", &text(bundle)],
        );
        Self(done.status, serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done:?}")))
    }

    fn of(&self, what: &str) -> (&str, &str, &str) {
        let all = self.1["findings"].as_array().expect("findings");
        let one = all.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{what}: {}", self.1));
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        (text("state"), text("detail"), text("remedy"))
    }

    /// Everything that lacks, and the exit status says so.
    #[track_caller]
    fn lacks(&self, expected: &[&str]) {
        let all = self.1["findings"].as_array().expect("findings");
        let lacking: Vec<&str> =
            all.iter().filter(|one| one["state"] == "lacks").filter_map(|one| one["what"].as_str()).collect();
        assert_eq!(lacking, expected, "{}", self.1);
        assert_eq!((self.0, &self.1["fit"]), (i32::from(!expected.is_empty()), &expected.is_empty().into()));
        for what in expected {
            assert!(!self.of(what).2.is_empty(), "{what} has no remedy");
        }
    }
}

/// A certificate of this key by the site's authority, for so many days around now.
fn certificate(world: &World, key: &Path, name: &str, days: std::ops::Range<i64>) -> String {
    let read = |path: &Path| fs::read_to_string(path).expect("a file of the state directory");
    let authority = world.path("state/authority");
    let ca = KeyPair::from_pem(&read(&authority.join("ca.key"))).expect("the authority's key");
    let issuer = Issuer::from_ca_cert_pem(&read(&authority.join("ca.pem")), ca).expect("the authority");
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now + time::Duration::days(days.start);
    params.not_after = now + time::Duration::days(days.end) + time::Duration::hours(1);
    params.extended_key_usages =
        vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::from_pem(&read(key)).expect("the key");
    params.signed_by(&key, &issuer).expect("a certificate").pem()
}

/// A copy of ws1's bundle with one file changed.
fn changed(
    world: &World,
    name: &str,
    file: &str,
    change: impl FnOnce(String) -> String,
) -> std::path::PathBuf {
    let (from, to) = (world.path("state/hosts/ws1"), world.path(name));
    sh("cp", &["-r", &text(&from), &text(&to)]).ok();
    let whole = fs::read_to_string(to.join(file)).expect("a file of the bundle");
    fs::write(to.join(file), change(whole)).expect("write into the bundle");
    to
}

#[test]
fn what_keeps_a_workstation_from_its_server_is_found_and_said_with_its_remedy() {
    let mut world = World::new("doc", SITE, &["ws1"]);
    let bundle = world.path("state/hosts/ws1");
    // Nothing is up: the host is there, and says so.
    let down = Found::at(&world, &bundle);
    down.lacks(&["TCP", "UDP 500", "UDP 4500"]);
    assert!(down.of("TCP").2.contains("nothing listens") && down.of("UDP 500").1.contains("nothing listens"));
    assert_eq!((down.of("certificate").0, down.of("path MTU").0), ("untried", "untried"));

    world.start_server();
    let well = Found::at(&world, &bundle);
    well.lacks(&[]);
    for what in [
        "TCP",
        "certificate",
        "clock",
        "server's certificate",
        "own certificate",
        "welcome",
        "UDP 500",
        "UDP 4500",
        "path MTU",
    ] {
        assert_eq!(well.of(what).0, "has", "{what}: {}", well.1);
    }
    assert_eq!(well.of("agent").0, "weaker", "no agent runs here yet");

    // One port at a time does not pass.
    for (rule, what, says) in [
        ("udp sport 500 drop;", "UDP 500", "UDP port 500"),
        ("udp sport 4500 drop;", "UDP 4500", "UDP port 4500"),
        ("tcp sport 7443 drop;", "TCP", "TCP port 7443"),
    ] {
        let table =
            format!("table inet doctor {{\nchain in {{\ntype filter hook input priority 0;\n{rule}\n}}\n}}");
        fs::write(world.path("nft"), format!("table inet doctor\ndelete table inet doctor\n{table}\n"))
            .unwrap();
        world.outside("ws1", "nft", &["-f", &text(&world.path("nft"))]).ok();
        let found = Found::at(&world, &bundle);
        found.lacks(&[what]);
        assert!(found.of(what).2.contains(says), "{}", found.1);
    }
    world.outside("ws1", "nft", &["delete", "table", "inet", "doctor"]).ok();

    // A link that is too small: it works, and less well.
    world.outside("ws1", "ip", &["link", "set", "outer", "mtu", "1420"]).ok();
    let small = Found::at(&world, &bundle);
    small.lacks(&[]);
    assert_eq!(small.of("path MTU").0, "weaker");
    assert!(small.of("path MTU").1.contains("1420 octets pass"), "{}", small.1);
    world.outside("ws1", "ip", &["link", "set", "outer", "mtu", "1500"]).ok();

    // Another name, another authority.
    let renamed = changed(&world, "renamed", "workstation.toml", |whole| {
        whole.replace("server.harbour.example", "other.example")
    });
    let found = Found::at(&world, &renamed);
    found.lacks(&["certificate"]);
    assert!(found.of("certificate").1.contains("expects other.example"), "{}", found.1);
    let other = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let stranger = params.self_signed(&other).expect("a certificate").pem();
    let found = Found::at(&world, &changed(&world, "stranger", "authority.pem", |_| stranger));
    found.lacks(&["certificate"]);
    assert!(found.of("certificate").1.contains("another authority"), "{}", found.1);

    // The workstation's own certificate near its end is told beforehand; a clock that is wrong by the server's certificate is.
    let key = world.path("state/hosts/ws1/device.key");
    let near = certificate(&world, &key, "ws1", -10..59);
    let found = Found::at(&world, &changed(&world, "near", "chain.pem", |_| near));
    found.lacks(&[]);
    assert_eq!(found.of("own certificate"), ("weaker", "it ends in 59 days", found.of("own certificate").2));
    assert!(found.of("own certificate").2.contains("levee enrol host"));
    for (days, lacks, state) in [
        (-30..-1_i64, &["clock", "server's certificate"][..], "lacks"),
        (5..100, &["clock", "server's certificate"][..], "lacks"),
        (-30..40, &[][..], "weaker"),
    ] {
        world.stop_server();
        let tls = world.path("state/server/tls.key");
        let pem = certificate(&world, &tls, "server.harbour.example", days.clone());
        fs::write(world.path("state/server/chain.pem"), pem).expect("the server's chain");
        world.start_server();
        let found = Found::at(&world, &bundle);
        found.lacks(lacks);
        assert_eq!(found.of("server's certificate").0, state, "{days:?} {}", found.1);
        if !lacks.is_empty() {
            assert!(found.of("clock").2.contains("clock"), "{}", found.1);
        }
    }

    // A workstation that nobody lets in any more is told so, before anybody signs on and when somebody has.
    let kept = changed(&world, "kept", "chain.pem", |whole| whole);
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", "UNCLASSIFIED").ok();
    assert_eq!(Found::at(&world, &kept).of("welcome").1, "the trusted path is up");
    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    world.levee(&["enrol", "revoke", &site, "ws1", "--state", &state]).ok();
    world.levee(&["reload", "--run", &text(&world.path("run"))]).ok();
    eventually(Duration::from_secs(20), "the revoked workstation's doctor says so", || {
        let found = Found::at(&world, &kept);
        let (state, detail, _) = found.of("welcome");
        state == "lacks" && detail.contains("is revoked")
    });
    let found = Found::at(&world, &kept);
    found.lacks(&["welcome", "agent"]);
    assert!(found.of("agent").1.starts_with("ada is signed on"), "{}", found.1);
    world.tpe("ws1", &["logout"]);
    Found::at(&world, &kept).lacks(&["welcome"]);
}

#[test]
fn a_site_serves_and_is_used_with_the_capabilities_and_bounds_of_the_units() {
    let says = |unit: &str, key: &str| -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/systemd").join(unit);
        let text = fs::read_to_string(path).expect("the unit");
        assert!(text.contains("NoNewPrivileges=yes"));
        text.lines().find_map(|line| line.strip_prefix(key)).expect(key).to_owned()
    };
    let drops = |unit: &str| -> Vec<String> {
        let line = says(unit, "CapabilityBoundingSet=~");
        line.split(' ').map(|name| format!("-{}", name.trim_start_matches("CAP_").to_lowercase())).collect()
    };
    let dropped = drops("levee@.service");
    for unit in ["levee-workstation.service", "levee-gateway.service"] {
        assert_eq!(dropped, drops(unit), "{unit}");
    }
    assert!(dropped.len() > 10 && dropped.contains(&"-sys_module".to_owned()));
    let set = format!("--bounding-set={}", dropped.join(","));
    let mut world = World::new("unit", SITE, &["ws1"]);
    // Its group as systemd would make it.
    let memory = says("levee@.service", "MemoryMax=");
    let memory: u64 = memory.strip_suffix('M').expect("MiB").parse().expect("a number");
    let processes = says("levee@.service", "TasksMax=").parse().expect("a number");
    let limits = Limits { memory: memory << 20, processes, cpu_percent: Limits::ANY_TIME };
    let name = format!("levee-unit-{}", std::process::id());
    let mut group = Cgroup::create(&name, limits).expect("a control group");
    // And in no login, as what systemd starts: whose number is set once, without what the units leave out.
    let within = "echo 4294967295 2>/dev/null >/proc/self/loginuid; for procs in /sys/fs/cgroup/$0/cgroup.procs /sys/fs/cgroup/*/$0/cgroup.procs; do \
                  if [ -e $procs ]; then echo $$ > $procs || exit 1; fi; done; exec \"$@\"";
    world.start_by(&["sh", "-c", within, &name, "setpriv", "--no-new-privs", &set]);
    world.start_server();
    let of_warden = fs::read_to_string(format!("/proc/{}/cgroup", world.server_pid())).expect("its groups");
    assert!(of_warden.lines().filter(|line| line.ends_with(&name)).count() > 0, "{of_warden}");
    world.start_workstation("ws1");
    let bounding = fs::read_to_string(format!("/proc/{}/status", world.server_pid())).expect("its status");
    let bounding =
        bounding.lines().find_map(|line| line.strip_prefix("CapBnd:")).expect("its bounding set").trim();
    // CAP_SYS_MODULE (capability.h).
    assert_eq!(u64::from_str_radix(bounding, 16).expect("a number") >> 16 & 1, 0);
    world.login("ws1", "ada").ok();
    for label in ["UNCLASSIFIED", "SECRET//NATO,MED"] {
        world.level("ws1", label).ok();
        world.fetch("ws1", "http://www.harbour.example/").ok();
    }
    world.tpe("ws1", &["logout"]).ok();
    assert!(!group.ran_out_of_memory());
    drop(world);
    // Its processes are ending.
    group.remove_within(std::time::Duration::from_secs(10)).expect("nobody is left in it");
}
