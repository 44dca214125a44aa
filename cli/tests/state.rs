//! A state directory knows which site it belongs to and what its labels meant: what does not fit is refused, and what is moved is
//! never lowered.
//!
//! Needs root, as `levee up` does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const OLD: &str = r#"["UNCLASSIFIED", "CONFIDENTIAL", "SECRET"]"#;

/// A state in which three labels have stores, each with its label in it.
struct Place(tempfile::TempDir);

fn levee(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_levee")).args(arguments).output().unwrap();
    levee_system::schema::hold("levee", arguments, &String::from_utf8_lossy(&output.stdout));
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let site = place.site("old.toml", OLD, "harbour");
        let made = place.run("enrol", &["authority", &site]);
        assert!(made.status.success(), "{}", said(&made));
        fs::create_dir_all(place.stores()).unwrap();
        for label in ["UNCLASSIFIED", "CONFIDENTIAL++MED", "SECRET"] {
            fs::write(place.stores().join(format!("{label}.img")), label).unwrap();
        }
        for copy in ["SECRET.below.img", "CONFIDENTIAL++MED.snapshot.img"] {
            fs::write(place.stores().join(copy), copy).unwrap();
        }
        place
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn stores(&self) -> PathBuf {
        self.state().join("stores")
    }

    /// A site file with these levels; nobody works there, so that every order is sound.
    fn site(&self, file: &str, levels: &str, name: &str) -> String {
        let small = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/small/site.toml"))
            .unwrap();
        let head = small.split("[[user]]").next().unwrap();
        assert!(head.contains(OLD) && head.contains("\"harbour\""), "{head}");
        let head: String = head
            .lines()
            .filter(|line| !line.starts_with("colours"))
            .map(|line| format!("{line}\n"))
            .collect();
        let text = head.replace(OLD, levels).replace("\"harbour\"", &format!("\"{name}\""));
        let path = self.0.path().join(file);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        let state = self.state();
        levee(&[&[command], arguments, &["--state", state.to_str().unwrap()]].concat())
    }

    /// What each image has in it, by its name.
    fn images(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.stores()).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut all: Vec<_> = entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect();
        all.sort();
        all
    }

    #[track_caller]
    fn is_refused_everywhere(&self, site: &str, why: &str) {
        let run = self.0.path().join("run");
        let up = self.run("up", &[site, "--run", run.to_str().unwrap()]);
        for (what, output) in [
            ("check", self.run("check", &[site])),
            ("up", up),
            ("enrol", self.run("enrol", &["server", site])),
        ] {
            assert!(!output.status.success(), "{what}");
            assert!(said(&output).contains(why), "{what}: {}", said(&output));
        }
    }
}

#[test]
fn levels_in_another_order_over_old_state_are_refused_and_so_is_another_sites_state() {
    let place = Place::new();
    let same = place.site("same.toml", OLD, "harbour");
    assert!(said(&place.run("check", &[&same])).contains("is sound"));
    let turned = place.site("turned.toml", r#"["SECRET", "CONFIDENTIAL", "UNCLASSIFIED"]"#, "harbour");
    place.is_refused_everywhere(
        &turned,
        r#"its `levels` had the order "UNCLASSIFIED", "CONFIDENTIAL", "SECRET""#,
    );
    let other = place.site("other.toml", OLD, "clinic");
    place.is_refused_everywhere(&other, "the state is that of the site `harbour`, not of `clinic`");
    // What was taken out stays known: it does not come back elsewhere.
    let fewer = place.site("fewer.toml", r#"["UNCLASSIFIED", "CONFIDENTIAL"]"#, "harbour");
    assert!(place.run("enrol", &["server", &fewer]).status.success());
    let back = place.site("back.toml", r#"["SECRET", "UNCLASSIFIED", "CONFIDENTIAL"]"#, "harbour");
    place.is_refused_everywhere(&back, "its `levels` had the order");
    // A level more, wherever it is, changes no other's place.
    let more =
        place.site("more.toml", r#"["OPEN", "UNCLASSIFIED", "CONFIDENTIAL", "SECRET", "TOP"]"#, "harbour");
    let check = place.run("check", &[&more]);
    assert!(!said(&check).contains("mean something else"), "{}", said(&check));
}

#[test]
fn of_two_site_files_that_do_not_fit_each_other_one_alone_is_held_however_close_they_come() {
    let place = Place::new();
    let pin = place.state().join("site-pin.toml");
    let before = fs::read(&pin).unwrap();
    // A level more above the lowest, or below it.
    let sites = [
        place.site("above.toml", r#"["UNCLASSIFIED", "OPEN", "CONFIDENTIAL", "SECRET"]"#, "harbour"),
        place.site("below.toml", r#"["OPEN", "UNCLASSIFIED", "CONFIDENTIAL", "SECRET"]"#, "harbour"),
    ];
    for round in 0..10 {
        fs::write(&pin, &before).unwrap();
        let up = |site: &String| {
            let mut up = Command::new(env!("CARGO_BIN_EXE_levee"));
            up.args(["up", site, "--state"]).arg(place.state()).arg("--run").arg(format!("{site}.run"));
            (site.clone(), up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        };
        let all: Vec<_> = sites.iter().cycle().take(6).map(up).collect();
        let said = all.into_iter().map(|(site, up)| (site, said(&up.wait_with_output().unwrap())));
        // A warden has been started by it, which finds no such address here, or another at work.
        let held = said.filter(|(_, said)| said.contains("harbour does not start")).map(|(site, _)| site);
        let held: std::collections::BTreeSet<String> = held.collect();
        assert_eq!(held.len(), 1, "{round}: {held:?}");
    }
}

#[test]
fn a_migration_renames_what_means_the_same_moves_upwards_and_never_down() {
    let place = Place::new();
    let site = place.site("new.toml", r#"["OPEN", "UNCLASSIFIED", "MEDIUM", "SECRET"]"#, "port");
    let migrate = |more: &[&str]| place.run("state", &[&["migrate", &site][..], more].concat());
    let before = place.images();
    assert!(said(&migrate(&[])).contains("--site-was harbour"));
    let was = ["--site-was", "harbour"];
    // CONFIDENTIAL is not there any more.
    let refused = migrate(&was);
    assert!(!refused.status.success() && said(&refused).contains("CONFIDENTIAL//MED"), "{}", said(&refused));
    // To lower levels, to fewer categories, to two at one place.
    for (to, why) in [
        ("UNCLASSIFIED//MED", "who works at UNCLASSIFIED could read it then"),
        ("MEDIUM", "who is not cleared for MED"),
        ("SECRET//NATO", "who is not cleared for MED"),
    ] {
        let moved = format!("CONFIDENTIAL//MED={to}");
        let refused = migrate(&[&was[..], &["--renamed", "CONFIDENTIAL=MEDIUM", "--move", &moved]].concat());
        assert!(!refused.status.success() && said(&refused).contains(why), "{to}: {}", said(&refused));
    }
    let twice =
        migrate(&[&was[..], &["--renamed", "CONFIDENTIAL=MEDIUM", "--move", "UNCLASSIFIED=SECRET"]].concat());
    assert!(!twice.status.success() && said(&twice).contains("two stores"), "{}", said(&twice));
    let all = [&was[..], &["--renamed", "CONFIDENTIAL=MEDIUM", "--move", "SECRET=SECRET//NATO"]].concat();
    let dry = migrate(&[&all[..], &["--dry-run", "--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&dry.stdout).unwrap();
    let moved = serde_json::json!([["CONFIDENTIAL//MED", "MEDIUM//MED"], ["SECRET", "SECRET//NATO"]]);
    assert_eq!((&json["moved"], &json["stay"]), (&moved, &serde_json::json!(["UNCLASSIFIED"])));
    assert_eq!(place.images(), before, "nothing was done");

    let done = migrate(&all);
    assert!(done.status.success(), "{}", said(&done));
    let expected = [
        ("MEDIUM++MED.img", "CONFIDENTIAL++MED"),
        ("SECRET++NATO.img", "SECRET"),
        ("UNCLASSIFIED.img", "UNCLASSIFIED"),
    ];
    assert_eq!(place.images(), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    assert!(said(&place.run("check", &[&site])).contains("is sound"));
    place.is_refused_everywhere(&place.site("old.toml", OLD, "harbour"), "not of `harbour`");
}

#[test]
fn what_partitions_have_goes_where_their_label_goes_and_never_down() {
    let place = Place::new();
    let of = |label: &str| place.state().join("partitions").join(label);
    for label in ["UNCLASSIFIED", "SECRET", "CONFIDENTIAL"] {
        fs::create_dir_all(of(label)).unwrap();
        fs::write(of(label).join("sonar.img"), label).unwrap();
    }
    let last = place.state().join("sessiond/last-ran");
    fs::create_dir_all(last.parent().unwrap()).unwrap();
    let boot = "0f5c1f9e-6d3b-4c63-9d1a-5b6c7d8e9f00";
    fs::write(&last, format!("{:<95}\n", format!("{boot} 1000 1764450000000 end"))).unwrap();
    // Each level is called as the one above it was.
    let site = place.site("new.toml", r#"["CONFIDENTIAL", "SECRET", "TOP"]"#, "harbour");
    let migrate = |more: &[&str]| place.run("state", &[&["migrate", &site][..], more].concat());
    let refused = migrate(&["--renamed", "UNCLASSIFIED=CONFIDENTIAL", "--renamed", "CONFIDENTIAL=SECRET"]);
    assert!(!refused.status.success(), "{}", said(&refused));
    let renamed = ["UNCLASSIFIED=CONFIDENTIAL", "CONFIDENTIAL=SECRET", "SECRET=TOP"];
    let done = migrate(&renamed.map(|one| ["--renamed", one]).concat());
    assert!(done.status.success(), "{}", said(&done));
    for (label, had) in [("CONFIDENTIAL", "UNCLASSIFIED"), ("SECRET", "CONFIDENTIAL"), ("TOP", "SECRET")] {
        assert_eq!(fs::read_to_string(of(label).join("sonar.img")).unwrap(), had);
    }
    assert!(!of("UNCLASSIFIED").exists());
    // A time that has not come: sessiond takes no session up, whose label would be another.
    let never = u64::MAX;
    assert_eq!(
        fs::read_to_string(&last).unwrap(),
        format!("{:<95}\n", format!("{boot} {never} {never} end"))
    );
    assert!(said(&place.run("check", &[&site])).contains("is sound"));
}

#[test]
fn nothing_moves_while_a_warden_has_the_state_though_its_sessiond_does_not_run() {
    let place = Place::new();
    let renamed = place.site("renamed.toml", r#"["PUBLIC", "CONFIDENTIAL", "SECRET"]"#, "harbour");
    // As one has it that starts, or whose sessiond is between two lives.
    let warden = fs::File::create(place.state().join("lock")).unwrap();
    warden.lock().unwrap();
    let migrate = || place.run("state", &["migrate", &renamed, "--renamed", "UNCLASSIFIED=PUBLIC"]);
    let refused = migrate();
    assert!(!refused.status.success() && said(&refused).contains("levee down"), "{}", said(&refused));
    assert!(place.stores().join("UNCLASSIFIED.img").exists());
    warden.unlock().unwrap();
    let moved = migrate();
    assert!(moved.status.success() && place.stores().join("PUBLIC.img").exists(), "{}", said(&moved));
}

#[test]
fn what_says_that_a_virtual_machine_had_an_image_goes_where_the_image_goes() {
    let place = Place::new();
    let was = place.stores().join("CONFIDENTIAL++MED.img.machine");
    fs::write(&was, "").unwrap();
    let site = place.site("new.toml", r#"["UNCLASSIFIED", "MEDIUM", "SECRET"]"#, "harbour");
    let done = place.run("state", &["migrate", &site, "--renamed", "CONFIDENTIAL=MEDIUM"]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(place.stores().join("MEDIUM++MED.img.machine").exists() && !was.exists(), "{:?}", place.images());
}

#[test]
fn a_migration_that_was_interrupted_is_carried_to_its_end_and_nothing_starts_before() {
    // In both halves: all have their own names, or some have their last ones already. The two labels change places by name.
    for halfway in [false, true] {
        let place = Place::new();
        let site = place.site("new.toml", r#"["CONFIDENTIAL", "UNCLASSIFIED", "SECRET"]"#, "harbour");
        let file = place.state().join("site-pin.toml");
        let pin = fs::read_to_string(&file).unwrap();
        let (head, lattice) = pin.split_once("[[lattice]]").unwrap();
        let moving = r#"moving = [["UNCLASSIFIED.img", "SECRET.img"], ["SECRET.img", "UNCLASSIFIED.img"]]"#;
        fs::write(&file, format!("{head}{moving}\nhalfway = {halfway}\n[[lattice]]{lattice}")).unwrap();
        place.is_refused_everywhere(&site, "was interrupted");
        let at = |name: &str| place.stores().join(name);
        fs::rename(at("UNCLASSIFIED.img"), at("SECRET.img.moving")).unwrap();
        if halfway {
            fs::rename(at("SECRET.img"), at("UNCLASSIFIED.img")).unwrap();
        }
        let done = place.run("state", &["migrate", &site]);
        assert!(done.status.success(), "{}", said(&done));
        let images = place.images();
        assert!(images.contains(&("SECRET.img".into(), "UNCLASSIFIED".into())), "{images:?}");
        assert!(images.contains(&("UNCLASSIFIED.img".into(), "SECRET".into())), "{images:?}");
        assert!(said(&place.run("check", &[&site])).contains("is sound"));
    }
}

#[test]
fn of_many_revocations_at_once_none_is_lost() {
    let place = Place::new();
    let site = place.site("harbour.toml", OLD, "harbour");
    let server = place.state().join("server/chain.pem");
    let certificates: Vec<PathBuf> = (0..8)
        .map(|number| {
            let made = place.run("enrol", &["server", &site, "--force"]);
            assert!(made.status.success(), "{}", said(&made));
            let copy = place.0.path().join(format!("{number}.pem"));
            fs::copy(&server, &copy).unwrap();
            copy
        })
        .collect();
    let each = certificates.iter().map(|certificate| {
        let certificate = certificate.to_str().unwrap();
        let state = place.state();
        Command::new(env!("CARGO_BIN_EXE_levee"))
            .args(["enrol", "revoke", &site, "--certificate", certificate])
            .args(["--state", state.to_str().unwrap()])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    });
    let all: Vec<_> = each.collect();
    for mut revoke in all {
        assert!(revoke.wait().unwrap().success());
    }
    let list = fs::read(place.state().join("authority/ca.crl")).unwrap();
    let (_, list) = x509_parser::pem::parse_x509_pem(&list).unwrap();
    let (_, list) = x509_parser::parse_x509_crl(&list.contents).unwrap();
    assert_eq!(list.iter_revoked_certificates().count(), certificates.len());
}

#[test]
fn what_labels_have_is_listed_and_that_of_a_label_the_site_has_no_more_is_removed_with_all_copies() {
    let place = Place::new();
    let partition = place.state().join("partitions/SECRET");
    fs::create_dir_all(&partition).unwrap();
    fs::write(partition.join("web.img"), "of its partition").unwrap();
    let log = place.state().join("logs/labels/SECRET");
    fs::create_dir_all(&log).unwrap();
    fs::write(log.join("1.log"), "said").unwrap();
    let two = place.site("two.toml", r#"["UNCLASSIFIED", "CONFIDENTIAL"]"#, "harbour");
    let old = place.0.path().join("old.toml");
    let listed = |site: &str| {
        let output = place.run("state", &["list", site, "--json"]);
        assert!(output.status.success(), "{}", said(&output));
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = all.as_array().unwrap().clone().into_iter();
        rows.map(|one| {
            (one["label"].clone(), one["known"].clone(), one["images"].clone(), one["partitions"].clone())
        })
        .map(|(label, known, images, partitions)| format!("{label} {known} {images} {partitions}"))
        .collect::<Vec<_>>()
    };
    // Names of labels are their documents here; "SECRET.below.img" and "CONFIDENTIAL++MED.snapshot.img" theirs too.
    assert_eq!(
        listed(&two),
        ["\"CONFIDENTIAL//MED\" true 47 0", "\"SECRET\" false 22 16", "\"UNCLASSIFIED\" true 12 0"]
    );
    let text = said(&place.run("state", &["list", &two]));
    assert!(text.contains("images have 81 of 64G"), "{text}");

    let kept = place.run("state", &["remove", old.to_str().unwrap(), "SECRET"]);
    assert!(!kept.status.success() && said(&kept).contains("--force"), "{}", said(&kept));
    let nothing = place.run("state", &["remove", &two, "GONE"]);
    assert!(!nothing.status.success() && said(&nothing).contains("has nothing in"), "{}", said(&nothing));
    assert_eq!(listed(&two).len(), 3);
    fs::write(place.stores().join("UNCLASSIFIED.below.img"), "copies").unwrap();
    let removed = place.run("state", &["remove", &two, "SECRET"]);
    assert!(removed.status.success(), "{}", said(&removed));
    assert_eq!(listed(&two), ["\"CONFIDENTIAL//MED\" true 47 0", "\"UNCLASSIFIED\" true 12 0"]);
    assert!(!partition.exists() && !log.exists());
    let forced = place.run("state", &["remove", old.to_str().unwrap(), "UNCLASSIFIED", "--force"]);
    assert!(forced.status.success(), "{}", said(&forced));
    assert_eq!(listed(&two), ["\"CONFIDENTIAL//MED\" true 47 0"]);

    // Not under a server.
    let store = place.state().join("sessiond");
    fs::create_dir_all(&store).unwrap();
    let held = fs::File::create(store.join("sessions.redb")).unwrap();
    held.lock().unwrap();
    let refused = place.run("state", &["remove", old.to_str().unwrap(), "CONFIDENTIAL//MED", "--force"]);
    assert!(!refused.status.success() && said(&refused).contains("in use"), "{}", said(&refused));
    assert_eq!(listed(&two).len(), 1);
}

#[test]
fn what_is_missing_or_is_anothers_or_is_revoked_is_told_and_nothing_is_replaced_for_it() {
    let place = Place::new();
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/small/site.toml");
    let site = small.to_str().unwrap();
    let state = tempfile::tempdir().unwrap();
    let at = |file: &str| state.path().join(file);
    let levee = |arguments: &[&str]| {
        let output = levee(&[arguments, &["--state", state.path().to_str().unwrap()]].concat());
        (output.status.code(), said(&output))
    };
    let check = || levee(&["check", site]);
    let (code, told) = check();
    assert!(code == Some(0) && told.contains("has no keys: levee enrol all"), "{told}");
    assert_eq!(levee(&["enrol", "all", site]).0, Some(0));
    let (code, told) = check();
    assert!(code == Some(0) && !told.contains("not there") && !told.contains("has no keys"), "{told}");
    // Each file that is not there, where others of its part are.
    for lost in [
        "server/tls.key",
        "server/authority.pem",
        "server/auditor.pub",
        "hosts/ws1/workstation.toml",
        "authority/ca.pem",
    ] {
        let kept = fs::read(at(lost)).unwrap();
        fs::remove_file(at(lost)).unwrap();
        let (code, told) = check();
        assert!(
            code == Some(1)
                && told.contains(lost)
                && told.contains("not there")
                && told.contains("levee enrol"),
            "{lost}: {told}"
        );
        if lost != "server/auditor.pub" {
            let (code, told) = levee(&["enrol", "all", site]);
            assert!(code == Some(2) && told.contains("put back what is missing"), "{lost}: {told}");
        }
        fs::write(at(lost), kept).unwrap();
    }
    // A certificate that another authority has signed, and one that is revoked.
    let other = fs::read(place.state().join("authority/ca.pem")).unwrap();
    let own = fs::read(at("authority/ca.pem")).unwrap();
    fs::write(at("authority/ca.pem"), other).unwrap();
    let (code, told) = check();
    assert!(code == Some(1) && told.contains("no authority that is here has signed it"), "{told}");
    fs::write(at("authority/ca.pem"), own).unwrap();
    assert_eq!(levee(&["enrol", "revoke", site, "ws1"]).0, Some(0));
    let (code, told) = check();
    assert!(code == Some(0) && told.contains("hosts/ws1/chain.pem is revoked"), "{told}");
    assert!(!told.contains("hosts/ws2/chain.pem is revoked"), "{told}");
}
