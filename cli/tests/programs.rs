//! levee's own programs, held to the manifest that is installed with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SITE: &str = include_str!("../../conf/small/site.toml");

/// A directory as `make install` leaves one: this program, two that stand for the others, and their digests.
fn installed() -> tempfile::TempDir {
    assert!(rustix::process::geteuid().is_root(), "who installs levee is root: run this test so");
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    levee_system::copy_program(Path::new(env!("CARGO_BIN_EXE_levee")), &directory.path().join("levee"));
    for name in ["levee-vault", "levee-tpe"] {
        fs::write(directory.path().join(name), name).unwrap();
    }
    manifest(directory.path());
    directory
}

fn manifest(directory: &Path) {
    let _ = fs::remove_file(directory.join("MANIFEST"));
    let sums = Command::new("sh").args(["-c", "sha256sum -- *"]).current_dir(directory).output().unwrap();
    assert!(sums.status.success());
    fs::write(directory.join("MANIFEST"), sums.stdout).unwrap();
}

/// Runs the program that is installed there; what it says.
fn levee(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new(directory.join("levee")).args(arguments).output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// What `levee up` says of a site. It finds no warden there, and so starts nothing.
fn up(directory: &Path, site: &str) -> String {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("site.toml"), site).unwrap();
    fs::create_dir_all(at("state/server")).unwrap();
    fs::write(at("state/server/tls.key"), "a key").unwrap();
    fs::set_permissions(at("state/server/tls.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let said = levee(
        directory,
        &["up", &at("site.toml"), "--state", &at("state"), "--run", &at("run"), "--no-trial"],
    );
    // Two say the same where they differ in the place alone.
    said.replace(place.path().to_str().unwrap(), "PLACE")
}

#[test]
fn a_server_starts_with_the_programs_that_were_installed_and_with_no_other() {
    let directory = installed();
    let at = |name: &str| directory.path().join(name);
    let doctor = || levee(directory.path(), &["doctor"]);
    assert!(doctor().contains("3 in "), "{}", doctor());
    let sound = up(directory.path(), SITE);
    assert!(sound.contains("levee-warden") && !sound.contains("installed"), "{sound}");

    let wrong = |what: &str, told: &str| {
        let said = up(directory.path(), SITE);
        assert!(said.contains(what) && said.contains(told) && !said.contains("levee-warden"), "{said}");
    };
    fs::write(at("levee-vault"), "another").unwrap();
    wrong("levee-vault", "is not the program that was installed: install levee again");
    assert!(doctor().contains("is not the program that was installed"), "{}", doctor());
    fs::remove_file(at("levee-vault")).unwrap();
    wrong("levee-vault", "is missing");
    fs::write(at("levee-vault"), "levee-vault").unwrap();
    // A package that this host does not have has this one.
    fs::remove_file(at("levee-tpe")).unwrap();
    assert_eq!(up(directory.path(), SITE).replace("2 in", "3 in"), sound);
    fs::write(at("levee-sessiond"), "of another version").unwrap();
    wrong("levee-sessiond", "was not installed with the others");
    fs::remove_file(at("levee-sessiond")).unwrap();
    for name in ["levee-vault", "MANIFEST", "."] {
        let before = fs::metadata(at(name)).unwrap().permissions();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o777)).unwrap();
        wrong(name, "somebody but root can change it");
        fs::set_permissions(at(name), before).unwrap();
    }
    // What is in the manifest, root's and the right one, but where somebody else can put another in its place.
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(at("levee-vault"), elsewhere.path().join("levee-vault")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("levee-vault"), at("levee-vault")).unwrap();
    wrong("levee-vault", "is a link: install levee again");
    fs::remove_file(at("levee-vault")).unwrap();
    fs::rename(elsewhere.path().join("levee-vault"), at("levee-vault")).unwrap();
    let above = tempfile::tempdir().unwrap();
    let moved = above.path().join("levee");
    fs::rename(directory.path(), &moved).unwrap();
    for (mode, owner) in [(0o777, 0), (0o755, 65_534), (0o1_777, 65_534)] {
        fs::set_permissions(above.path(), fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(above.path(), Some(owner), None).unwrap();
        let said = up(&moved, SITE);
        assert!(said.contains("somebody but root can change it") && !said.contains("levee-warden"), "{said}");
    }
    std::os::unix::fs::chown(above.path(), Some(0), None).unwrap();
    assert!(up(&moved, SITE).contains("levee-warden"), "a directory as /tmp is");
    fs::rename(&moved, directory.path()).unwrap();
    for text in ["no digest\n", "00  levee\n", &fs::read_to_string(at("MANIFEST")).unwrap().repeat(2)] {
        let before = fs::read(at("MANIFEST")).unwrap();
        fs::write(at("MANIFEST"), text).unwrap();
        wrong("MANIFEST", "line ");
        fs::write(at("MANIFEST"), before).unwrap();
    }
    assert!(up(directory.path(), SITE).contains("levee-warden"));
}

/// Keys, each with a certificate of its own.
fn keys(place: &Path, names: &[(&str, &str)]) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
    for (name, chain) in names {
        fs::write(place.join(name), key.serialize_pem()).unwrap();
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(place.join(chain), &certificate).unwrap();
    }
    fs::write(place.join("authority.pem"), &certificate).unwrap();
}

/// A workstation's bundle.
fn bundle(place: &Path) {
    keys(place, &[("device.key", "chain.pem"), ("ike.key", "ike-chain.pem")]);
    fs::write(place.join("workstation.toml"), "site = \"harbour\"\n").unwrap();
}

#[test]
fn nothing_starts_by_keys_or_in_directories_that_somebody_but_root_can_change() {
    let directory = installed();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("site.toml"), SITE).unwrap();
    for made in ["state/server/ppk", "run", "bundle"] {
        fs::create_dir_all(at(made)).unwrap();
    }
    for made in ["state/server/tls.key", "state/server/ike.key", "state/server/ppk/ws1.key"] {
        fs::write(at(made), "a key").unwrap();
        fs::set_permissions(at(made), fs::Permissions::from_mode(0o600)).unwrap();
    }
    bundle(&place.path().join("bundle"));
    let (state, run) = (at("state"), at("run"));
    let server =
        || levee(directory.path(), &["up", &at("site.toml"), "--state", &state, "--run", &run, "--no-trial"]);
    let workstation =
        || levee(directory.path(), &["up", &at("bundle"), "--workstation", "--state", &state, "--run", &run]);
    for said in [server(), workstation()] {
        assert!(said.contains("levee-warden") && !said.contains("somebody"), "{said}");
    }
    let ill = Some(65_532);
    let servers = ["state", "state/server", "state/server/ike.key", "state/server/ppk/ws1.key", "run"];
    let workstations = ["bundle", "bundle/ike.key", "bundle/workstation.toml", "state", "run"];
    for (names, up) in [(servers, &server as &dyn Fn() -> String), (workstations, &workstation)] {
        for name in names {
            std::os::unix::fs::chown(at(name), ill, None).unwrap();
            let said = up();
            assert!(said.contains(&at(name)) && said.contains("somebody but root can change it"), "{said}");
            assert!(!said.contains("levee-warden"), "{said}");
            std::os::unix::fs::chown(at(name), Some(0), None).unwrap();
        }
    }
    // The second tunnel's keys are their own uid's, and nobody else's.
    let second = Some(0xf000_0001);
    for (store, up) in [("state/layer", &server as &dyn Fn() -> String), ("bundle/layer", &workstation)] {
        let key = format!("{store}/layer.key");
        fs::create_dir(at(store)).unwrap();
        keys(&place.path().join(store), &[("layer.key", "chain.pem")]);
        [store, &key].iter().for_each(|name| std::os::unix::fs::chown(at(name), second, None).unwrap());
        assert!(up().contains("levee-warden"), "{}", up());
        std::os::unix::fs::chown(at(&key), ill, None).unwrap();
        assert!(up().contains(&at(&key)) && !up().contains("levee-warden"), "{}", up());
        std::os::unix::fs::chown(at(&key), second, None).unwrap();
    }
    // It is no other key's uid.
    std::os::unix::fs::chown(at("bundle/ike.key"), second, None).unwrap();
    assert!(workstation().contains("ike.key: somebody but root"), "{}", workstation());
    // And by a link to the bundle it is the same.
    std::os::unix::fs::symlink(at("bundle"), at("link")).unwrap();
    let linked = ["up", &at("link"), "--workstation", "--state", &state, "--run", &run];
    let said = levee(directory.path(), &linked);
    assert!(said.contains("ike.key: somebody but root") && !said.contains("levee-warden"), "{said}");
    std::os::unix::fs::chown(at("bundle/ike.key"), Some(0), None).unwrap();
    assert!(levee(directory.path(), &linked).contains("levee-warden"));
    // A run directory that is still to be made, where somebody else may be first.
    fs::create_dir(at("others")).unwrap();
    fs::set_permissions(at("others"), fs::Permissions::from_mode(0o777)).unwrap();
    let said =
        levee(directory.path(), &["up", &at("site.toml"), "--state", &state, "--run", &at("others/run")]);
    assert!(said.contains("others") && !said.contains("levee-warden"), "{said}");
    // Whose the site file is, is said.
    std::os::unix::fs::chown(at("site.toml"), ill, None).unwrap();
    let said = server();
    assert!(
        said.contains("warning") && said.contains("site.toml") && said.contains("levee-warden"),
        "{said}"
    );
}

#[test]
fn the_warden_is_told_which_site_file_was_looked_at() {
    let directory = installed();
    let warden = directory.path().join("levee-warden");
    // In the warden's place: it says how it was called.
    fs::write(&warden, "#!/bin/sh\necho \"called: $*\" >&2\nexit 1\n").unwrap();
    fs::set_permissions(&warden, fs::Permissions::from_mode(0o755)).unwrap();
    manifest(directory.path());
    let site = SITE.replace("levels", "level");
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("site.toml");
    fs::write(&path, &site).unwrap();
    let sum = Command::new("sha256sum").arg(&path).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap().split(' ').next().unwrap().to_owned();
    let said = up(directory.path(), &site);
    assert!(said.contains("called: --server") && said.contains(&format!("--checked {sum}")), "{said}");
    // And what the state was that it was held to.
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("site.toml"), SITE).unwrap();
    let up = || {
        let said = ["up", &at("site.toml"), "--state", &at("state"), "--run", &at("run"), "--no-trial"];
        levee(directory.path(), &said)
    };
    // Without any key it would end at once, and say less.
    let said = up();
    assert!(said.contains("has no keys: levee enrol all") && !said.contains("called: --server"), "{said}");
    fs::create_dir_all(at("state/server")).unwrap();
    fs::write(at("state/server/tls.key"), "a key").unwrap();
    fs::set_permissions(at("state/server/tls.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let said = up();
    let both = SITE.to_owned() + &fs::read_to_string(at("state/site-pin.toml")).unwrap();
    let sum = ring::digest::digest(&ring::digest::SHA256, both.as_bytes());
    let sum: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(said.contains(&format!("--checked {sum}")), "{said}");
}

#[test]
fn a_workstation_starts_with_all_that_it_runs_and_without_what_servers_run() {
    let directory = installed();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("levee-sessiond"), "levee-sessiond").unwrap();
    manifest(directory.path());
    let place = tempfile::tempdir().unwrap();
    let of = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(of("workstation")).unwrap();
    bundle(&place.path().join("workstation"));
    let (bundle, state, run) = (of("workstation"), of("state"), of("run"));
    let up = || {
        let arguments = ["up", "--workstation", &bundle, "--state", &state, "--run", &run, "--no-trial"];
        levee(directory.path(), &arguments)
    };
    fs::remove_file(at("levee-sessiond")).unwrap();
    let sound = up();
    // It comes as far as the warden, which is not there.
    assert!(sound.contains("levee-warden") && !sound.contains("is missing"), "{sound}");
    for name in ["levee-tpe", "levee-vault"] {
        fs::remove_file(at(name)).unwrap();
        let said = up();
        assert!(said.contains(&format!("{name} is missing: install levee again")), "{said}");
        fs::write(at(name), name).unwrap();
    }
    assert_eq!(up(), sound);
    // Who has not said what the host is for is told of what every host has.
    fs::remove_file(at("levee-tpe")).unwrap();
    fs::remove_file(at("levee-vault")).unwrap();
    let doctor = levee(directory.path(), &["doctor"]);
    assert!(
        doctor.contains("levee-vault is missing") && !doctor.contains("levee-tpe is missing"),
        "{doctor}"
    );
}

#[test]
fn where_nothing_says_what_was_installed_a_server_starts_unless_its_site_wants_high_assurance() {
    let directory = installed();
    fs::remove_file(directory.path().join("MANIFEST")).unwrap();
    assert!(levee(directory.path(), &["doctor"]).contains("not held to anything"));
    assert!(up(directory.path(), SITE).contains("levee-warden"));
    let high = SITE.replace("assurance = \"normal\"", "assurance = \"high\"");
    assert_ne!(high, SITE);
    let said = up(directory.path(), &high);
    assert!(said.contains("wants high assurance") && !said.contains("levee-warden"), "{said}");
    manifest(directory.path());
    assert!(up(directory.path(), &high).contains("levee-warden"));
}
