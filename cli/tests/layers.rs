//! `levee check` of sites that claim two layers: one sound, and others with one planted sharing each.

use levee_system::sh;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const SITE: &str = include_str!("../../conf/small/site.toml");

fn levee(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_levee")).args(arguments).output().expect("levee runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// An enrolled site, in a directory of its own.
struct Enrolled {
    directory: tempfile::TempDir,
}

impl Enrolled {
    fn new(change: impl Fn(String) -> String) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let site = change(SITE.replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]"));
        fs::write(directory.path().join("site.toml"), site).expect("write the site");
        let enrolled = Self { directory };
        let (status, said) = levee(&[
            "enrol",
            "all",
            &text(&enrolled.path("site.toml")),
            "--state",
            &text(&enrolled.path("state")),
        ]);
        assert_eq!(status, 0, "{said}");
        // Programs as they are; a test puts others in their place.
        fs::create_dir(enrolled.path("programs")).expect("a directory");
        for program in ["levee-vault", "levee-keyer", "levee-signer", "levee-layer"] {
            symlink(levee_system::programs().join(program), enrolled.path("programs").join(program))
                .expect("a link");
        }
        enrolled
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The requirements, as (part, verdict, refuses, evidence); and the exit code.
    fn check(&self) -> (i32, Vec<(String, String, bool, String)>) {
        let programs = text(&self.path("programs"));
        let state = text(&self.path("state"));
        let site = text(&self.path("site.toml"));
        let (status, said) = levee(&["check", &site, "--state", &state, "--programs", &programs, "--json"]);
        let answer: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
        let line = |line: &serde_json::Value| {
            let word = |key: &str| line[key].as_str().expect("a word").to_owned();
            (word("part"), word("verdict"), line["refuses"].as_bool().expect("yes or no"), word("evidence"))
        };
        (status, answer["layers"].as_array().expect("requirements").iter().map(line).collect())
    }

    /// What refuses the site: each part, with the evidence.
    #[track_caller]
    fn refused_for(&self, part: &str, evidence: &str) {
        let (status, lines) = self.check();
        let all: Vec<_> = lines.iter().filter(|line| line.2).collect();
        assert_eq!(status, 1, "{lines:#?}");
        let [(told, verdict, _, why)] = all[..] else { panic!("for one thing alone: {all:#?}") };
        assert_eq!((told.as_str(), verdict.as_str()), (part, "unmet"));
        assert!(why.contains(evidence), "{why}");
    }

    /// What is warned of, beside what one host cannot have twice.
    #[track_caller]
    fn warned_of(&self, part: &str, evidence: &str) {
        let (status, lines) = self.check();
        let line = lines.iter().find(|line| line.0 == part).expect("a line");
        assert_eq!((status, line.1.as_str(), line.2), (0, "unmet", false), "{lines:#?}");
        assert!(line.3.contains(evidence), "{line:?}");
    }

    fn replace(&self, program: &str, with: &Path) {
        let path = self.path("programs").join(program);
        fs::remove_file(&path).expect("it was there");
        symlink(with, path).expect("a link");
    }
}

const WITHIN_ONE_HOST: [&str; 7] =
    ["IP stack", "host", "operator", "source of randomness", "kernel", "processor", "compiler"];

#[test]
fn a_site_with_two_layers_has_two_and_what_one_host_cannot_have_twice_is_said() {
    let enrolled = Enrolled::new(|site| site);
    let (status, lines) = enrolled.check();
    assert_eq!(status, 0, "{lines:#?}");
    assert_eq!(lines.len(), 17);
    for (part, verdict, refuses, evidence) in &lines {
        let shared = WITHIN_ONE_HOST.contains(&part.as_str());
        assert_eq!((verdict == "unmet", *refuses), (shared, false), "{part}: {evidence}");
    }
    let library = &lines[0];
    assert_eq!((library.0.as_str(), library.1.as_str()), ("cryptographic library", "assessed"));
    for named in ["RustCrypto", "aws-lc", "ring within", "OpenSSL around"] {
        assert!(library.3.contains(named), "{}", library.3);
    }
    // And in words, a line each; a site with one layer has none.
    let (_, said) = levee(&[
        "check",
        &text(&enrolled.path("site.toml")),
        "--state",
        &text(&enrolled.path("state")),
        "--programs",
        &text(&enrolled.path("programs")),
    ]);
    assert!(said.contains("two layers:\n  cryptographic library: assessed: two: "), "{said}");
    assert!(said.contains("  kernel: unmet: as on any one host: both have "), "{said}");
}

#[test]
fn one_library_process_or_program_nobody_can_look_into_in_both_is_refused_with_the_evidence() {
    let enrolled = Enrolled::new(|site| site);
    let programs = levee_system::programs();
    // 1. The second tunnel's program is one that links ring, as the vault does.
    enrolled.replace("levee-layer", &programs.join("levee-tps"));
    enrolled.refused_for("cryptographic library", "ring (/");
    // 2. The vault's program is one that links OpenSSL, as the second tunnel does.
    enrolled.replace("levee-layer", &programs.join("levee-layer"));
    let copy = enrolled.path("copy");
    levee_system::copy_program(&programs.join("levee-layer"), &copy);
    enrolled.replace("levee-vault", &copy);
    enrolled.refused_for("cryptographic library", "both have OpenSSL (/");
    // 3. One that is stripped, so that nobody sees what it links.
    let stripped = enrolled.path("stripped");
    sh("strip", &["-o", &text(&stripped), &text(&programs.join("levee-vault"))]).ok();
    enrolled.replace("levee-vault", &stripped);
    enrolled.refused_for("cryptographic library", "its symbols are stripped");
    // 4. What is no program at all.
    let script = enrolled.path("script");
    fs::write(&script, "#!/bin/sh\n").expect("write");
    enrolled.replace("levee-vault", &script);
    enrolled.refused_for("cryptographic library", "it is no program");
}

#[test]
fn one_authority_key_kind_of_key_or_store_for_both_is_refused_with_the_evidence() {
    let copy = |from: PathBuf, to: PathBuf| {
        fs::copy(from, to).expect("copy");
    };
    // 5. The site's authority vouches for the second tunnel.
    let enrolled = Enrolled::new(|site| site);
    copy(enrolled.path("state/authority/ca.pem"), enrolled.path("state/layer/authority.pem"));
    enrolled.refused_for("authority", "ca.pem");
    // 6. Keys of the same kind.
    let enrolled = Enrolled::new(|site| site);
    copy(enrolled.path("state/server/chain.pem"), enrolled.path("state/layer/chain.pem"));
    enrolled.refused_for("type of key", "both have EC");
    // 7. The private keys are one uid's: whoever reads one reads the other.
    let enrolled = Enrolled::new(|site| site);
    let owner = fs::metadata(enrolled.path("state/server/ike.key")).expect("a key").uid();
    chown(enrolled.path("state/layer/layer.key"), Some(owner), Some(owner)).expect("chown");
    enrolled.refused_for("store of private keys", &format!("both have uid {owner}"));
    // 8. A key that is not there: unknown counts as shared.
    fs::remove_file(enrolled.path("state/layer/layer.key")).expect("it was there");
    enrolled.refused_for("store of private keys", "unknown of the layer around");
    // 9. An authority that is not there.
    let enrolled = Enrolled::new(|site| site);
    fs::remove_file(enrolled.path("state/layer/authority.pem")).expect("it was there");
    enrolled.refused_for("authority", "unknown of the layer around");
    // 10. The very key, which is of the same kind as well.
    let enrolled = Enrolled::new(|site| site);
    copy(enrolled.path("state/server/ike-chain.pem"), enrolled.path("state/layer/chain.pem"));
    let (status, lines) = enrolled.check();
    let refused: Vec<_> = lines.iter().filter(|line| line.2).map(|line| line.0.as_str()).collect();
    assert_eq!((status, refused), (1, vec!["private key", "type of key"]));
}

#[test]
fn a_server_whose_two_layers_are_one_is_not_started() {
    let enrolled = Enrolled::new(|site| site);
    fs::copy(enrolled.path("state/authority/ca.pem"), enrolled.path("state/layer/authority.pem"))
        .expect("copy");
    let [site, state, run] = ["site.toml", "state", "run"].map(|name| text(&enrolled.path(name)));
    let (status, said) = levee(&["up", &site, "--state", &state, "--run", &run]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("they are one by their authority: both have key "), "{said}");
    assert!(!enrolled.path("run").exists(), "nothing was begun");
}

#[test]
fn one_cipher_or_key_exchange_for_both_is_warned_of() {
    // 11. A posture prefers what the second tunnel has.
    let posture = "\n[[posture]]\nname = \"siege\"\nciphers = [\"chacha20-poly1305\"]\n";
    let enrolled = Enrolled::new(|site| site + posture);
    enrolled.warned_of("cipher", "both have ChaCha20-Poly1305 (posture siege; levee-layer)");
    // 12. The suites of CNSA agree on keys as the second tunnel does.
    let enrolled = Enrolled::new(|site| {
        let site = site.replace("keys = \"P-256\"", "keys = \"P-384\"");
        let changed = site.replace("suites = \"default\"", "suites = \"cnsa\"");
        assert_ne!(changed, site, "the example site names the key");
        changed
    });
    enrolled.warned_of("key exchange", "both have P-384");
}

const GATEWAY: &str = "\n[gateway]\naddresses = [\"192.0.2.1\"]\ninside = \"10.77.0.9\"\n";

#[test]
fn where_the_server_has_a_key_of_before_there_was_a_gateway_that_is_said_until_it_is_gone() {
    let enrolled = Enrolled::new(|site| site);
    let [site, state] = ["site.toml", "state"].map(|name| text(&enrolled.path(name)));
    fs::write(&site, fs::read_to_string(&site).expect("the site") + GATEWAY).expect("write the site");
    let (status, said) = levee(&["enrol", "all", &site, "--state", &state, "--force"]);
    assert_eq!(status, 0, "{said}");
    let before = enrolled.path("state/layer/layer.key");
    enrolled.warned_of("host", &text(&before));
    fs::remove_file(&before).expect("its key");
    let (_, lines) = enrolled.check();
    let host = lines.iter().find(|line| line.0 == "host").expect("a line");
    assert_eq!(host.1, "assessed", "{host:?}");
}

#[test]
fn with_a_gateway_the_two_layers_are_two_hosts_and_the_server_has_no_key_of_the_second() {
    let enrolled = Enrolled::new(|site| site + GATEWAY);
    let (status, lines) = enrolled.check();
    assert_eq!(status, 0, "{lines:#?}");
    let line = |part: &str| lines.iter().find(|line| line.0 == part).expect("a line");
    for part in ["host", "IP stack", "source of randomness", "way in", "store of private keys", "authority"] {
        assert_eq!(line(part).1, "assessed", "{:?}", line(part));
    }
    // What nobody sees from here counts as shared, and refuses nothing.
    for part in ["operator", "kernel", "processor"] {
        assert_eq!((line(part).1.as_str(), line(part).2), ("unmet", false), "{:?}", line(part));
    }
    // The bundles say where it is, and the server's own directory has nothing of it.
    let read = |name: &str| fs::read_to_string(enrolled.path(name)).expect(name);
    let bundle = read("state/gateway/gateway.toml");
    for said in ["inside = \"10.77.0.9\"", "server = \"10.77.0.1\"", "addresses = [\"192.0.2.1\"]"] {
        assert!(bundle.contains(said), "{said}: {bundle}");
    }
    assert!(read("state/hosts/ws1/workstation.toml").contains("gateway = \"192.0.2.1\""));
    assert!(!enrolled.path("state/layer/layer.key").exists());
    // Its key is followed by another in its bundle.
    let chain = read("state/gateway/layer/chain.pem");
    let [site, state] = ["site.toml", "state"].map(|name| text(&enrolled.path(name)));
    let (status, said) = levee(&["enrol", "rotate", &site, "layer", "--state", &state]);
    assert_eq!(status, 0, "{said}");
    assert_ne!(read("state/gateway/layer/chain.pem"), chain);
    assert_eq!(enrolled.check().0, 0);
    // A workstation that looks for it elsewhere would not find it.
    let bundle = enrolled.path("state/hosts/ws1/workstation.toml");
    let other = fs::read_to_string(&bundle).expect("its bundle").replace("\"192.0.2.1\"", "\"192.0.2.2\"");
    fs::write(&bundle, other).expect("write");
    let (status, said) = levee(&["check", &site, "--state", &state]);
    assert!(status != 0 && said.contains("another second tunnel"), "{status}: {said}");
}
