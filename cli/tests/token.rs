//! An authority whose private key is in a token, as an operator makes and uses it: with SoftHSM, with a TPM (swtpm, by tpm2-pkcs11), and
//! with a library that lies.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use x509_parser::pem::Pem;

/// Nothing else of these tests has these digits.
const PIN: &str = "83917264";
const SITE: &str = "conf/small/site.toml";

/// The library of a package, where distributions put it.
fn library(names: &[&str], package: &str) -> PathBuf {
    let found = names.iter().map(PathBuf::from).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("none of {names:?} is there: install {package}"))
}

fn softhsm() -> PathBuf {
    let names = [
        "/usr/lib/softhsm/libsofthsm2.so",
        "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
        "/usr/lib64/pkcs11/libsofthsm2.so",
    ];
    library(&names, "softhsm2")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}: see scripts/need"));
    let said = text(&output.stdout).to_owned() + text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Waits until it is so.
#[track_caller]
fn until(not: &str, so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{not}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A place with a state directory, a token, and what reaches it.
struct Place {
    directory: tempfile::TempDir,
    library: PathBuf,
    variables: Vec<(&'static str, String)>,
    /// What runs for it: the TPM, first.
    running: Vec<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        for child in self.running.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Place {
    fn bare(library: PathBuf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = Self { directory, library, variables: Vec::new(), running: Vec::new() };
        std::fs::write(place.at("pin"), format!("{PIN}\n")).unwrap();
        std::fs::set_permissions(place.at("pin"), std::fs::Permissions::from_mode(0o600)).unwrap();
        place
    }

    /// With a token of SoftHSM's, `site`.
    fn soft() -> Self {
        let mut place = Self::bare(softhsm());
        let (configuration, tokens) = (place.at("softhsm2.conf"), place.at("tokens"));
        std::fs::create_dir(&tokens).unwrap();
        std::fs::write(
            &configuration,
            format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display()),
        )
        .unwrap();
        place.variables.push(("SOFTHSM2_CONF", configuration.display().to_string()));
        place.token("site", "--free");
        place
    }

    /// With a TPM's.
    fn tpm() -> Self {
        let names = [
            "/usr/lib/x86_64-linux-gnu/pkcs11/libtpm2_pkcs11.so",
            "/usr/lib64/pkcs11/libtpm2_pkcs11.so",
            "/usr/lib/pkcs11/libtpm2_pkcs11.so",
        ];
        let mut place = Self::bare(library(&names, "libtpm2-pkcs11-1"));
        let (state, store, socket) = (place.at("tpm"), place.at("store"), place.at("socket"));
        std::fs::create_dir(&state).unwrap();
        std::fs::create_dir(&store).unwrap();
        let control = format!("{}.ctrl", socket.display());
        let mut swtpm = Command::new("swtpm");
        swtpm
            .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
            .args(["--tpmstate", &format!("dir={}", state.display())])
            .args(["--server", &format!("type=unixio,path={}", socket.display())])
            .args(["--ctrl", &format!("type=unixio,path={control}")]);
        place.start(&mut swtpm);
        until("swtpm does not listen", || Path::new(&control).exists());
        // A TPM has room for three keys: a broker swaps them, as the kernel does behind /dev/tpmrm0.
        let bus = place.at("bus");
        let address = format!("unix:path={}", bus.display());
        place.start(Command::new("dbus-daemon").args([
            "--session",
            "--nofork",
            &format!("--address={address}"),
        ]));
        until("dbus-daemon does not listen", || bus.exists());
        place.variables.push(("DBUS_SESSION_BUS_ADDRESS", address));
        let mut broker = place.command("tpm2-abrmd");
        let tcti = format!("--tcti=swtpm:path={}", socket.display());
        place.start(broker.args(["--session", "--allow-root", &tcti]));
        place.variables.push(("TPM2_PKCS11_STORE", store.display().to_string()));
        place.variables.push(("TPM2_PKCS11_TCTI", "tabrmd:bus_type=session".to_owned()));
        until("the TPM does not answer", || {
            let mut slots = place.command("softhsm2-util");
            slots
                .arg("--show-slots")
                .arg("--module")
                .arg(&place.library)
                .output()
                .is_ok_and(|said| said.status.success())
        });
        place.token("site", "--slot=1");
        place
    }

    fn start(&mut self, command: &mut Command) {
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.running.push(started.unwrap_or_else(|e| panic!("{command:?}: {e}: see scripts/need")));
    }

    fn token(&self, name: &str, slot: &str) {
        let mut command = self.command("softhsm2-util");
        let module = format!("--module={}", self.library.display());
        run(command.args([
            "--init-token",
            slot,
            &module,
            "--label",
            name,
            "--pin",
            PIN,
            "--so-pin",
            "12345678",
        ]));
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn state(&self, name: &str) -> String {
        std::fs::read_to_string(self.at("state").join(name)).unwrap()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// The URI of a key.
    fn uri(&self, object: &str) -> String {
        let (library, pin) = (self.library.display(), self.at("pin"));
        format!("pkcs11:token=site;object={object}?module-path={library}&pin-source={}", pin.display())
    }

    fn levee_with(&self, arguments: &[&str], input: &str, variables: &[(&str, &str)]) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut child = self
            .command(env!("CARGO_BIN_EXE_levee"))
            .args(arguments)
            .args(["--state", self.at("state").to_str().unwrap()])
            .envs(variables.iter().copied())
            .current_dir(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that refuses at once ends without reading; what it says is what counts.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        levee_system::schema::hold("levee", arguments, text(&output.stdout));
        output
    }

    /// What a command says that does what it is told.
    #[track_caller]
    fn levee(&self, arguments: &[&str]) -> String {
        let output = self.levee_with(arguments, "", &[]);
        let said = text(&output.stdout).to_owned() + text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        said
    }

    /// That a command is refused, with these words, and changes nothing in the state directory.
    #[track_caller]
    fn refused(&self, arguments: &[&str], input: &str, variables: &[(&str, &str)], why: &str) {
        let before = files(&self.at("state"));
        let output = self.levee_with(arguments, input, variables);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {variables:?}: {said}");
        assert!(said.contains(why), "{arguments:?} {variables:?}: {said}, and not {why}");
        assert!(!said.contains(PIN), "{said}");
        assert!(files(&self.at("state")) == before, "{arguments:?} {variables:?} changed something");
    }

    /// The private keys of a name, as another program sees them.
    fn keys(&self, object: &str) -> String {
        let mut command = self.command("p11tool");
        command.args(["--provider", self.library.to_str().unwrap(), "--login", "--list-privkeys", "--batch"]);
        let output =
            command.arg(format!("pkcs11:token=site;object={object}")).env("GNUTLS_PIN", PIN).output();
        let output = output.unwrap_or_else(|e| panic!("p11tool: {e}: install gnutls-bin"));
        text(&output.stdout).to_owned()
    }

    /// Has another program do something with the token.
    fn p11tool(&self, arguments: &[&str]) -> String {
        let mut command = self.command("p11tool");
        command
            .args(["--provider", self.library.to_str().unwrap(), "--login", "--batch"])
            .env("GNUTLS_PIN", PIN);
        run(command.args(arguments))
    }

    /// A library that lies, in the place of the token's.
    fn lying(&mut self) {
        let (source, built) = (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/liar.c"), self.at("liar.so"));
        let real = format!("-DREAL=\"{}\"", self.library.display());
        run(Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", &real, "-o"])
            .arg(&built)
            .args([source, "-ldl"]));
        self.library = built;
    }
}

/// Every file below a directory, with its content; its times do not count.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

fn first(pem: &str) -> Pem {
    Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap()
}

/// The public key of a certificate.
fn public(pem: &str) -> Vec<u8> {
    first(pem).parse_x509().unwrap().public_key().raw.to_vec()
}

/// That each of these certificates is signed by this authority.
#[track_caller]
fn signed(place: &Place, authority: &str, chains: &[&str]) {
    let authority = first(&place.state(authority));
    let authority = authority.parse_x509().unwrap();
    for chain in chains {
        let certificate = first(&place.state(chain));
        let certificate = certificate.parse_x509().unwrap();
        certificate.verify_signature(Some(authority.public_key())).unwrap_or_else(|e| panic!("{chain}: {e}"));
    }
}

const OF_WS1: [&str; 2] = ["hosts/ws1/chain.pem", "hosts/ws1/ike-chain.pem"];
const OF_SERVER: [&str; 2] = ["server/chain.pem", "server/ike-chain.pem"];

/// Makes a site whose authority is in the token, has it sign in every way there is, and answers what the token says of its key.
fn a_site_by(place: &Place) -> String {
    let uri = place.uri("authority");
    place.levee(&["enrol", "all", SITE, "--token", &uri]);
    signed(place, "authority/ca.pem", &[&["authority/ca.pem"], &OF_WS1[..], &OF_SERVER[..]].concat());
    let at_first = place.state("hosts/ws1/chain.pem");
    place.levee(&["enrol", "host", SITE, "ws1", "--force"]);
    place.levee(&["enrol", "server", SITE, "--force"]);
    place.levee(&["enrol", "rotate", SITE, "ike"]);
    place.levee(&["enrol", "rotate", SITE, "host", "ws1"]);
    let request = place.at("request");
    let own = Command::new(env!("CARGO_BIN_EXE_levee"))
        .args(["enrol", "request", request.to_str().unwrap(), "--host", "ws2"])
        .output()
        .unwrap();
    assert!(own.status.success());
    let request = request.join("request.pem");
    place.levee(&["enrol", "sign", SITE, request.to_str().unwrap(), "--host", "ws2", "--force"]);
    place.levee(&["enrol", "revoke", SITE, "ws2"]);
    let of_ws2 = ["hosts/ws2/chain.pem", "hosts/ws2/ike-chain.pem"];
    signed(place, "authority/ca.pem", &[&OF_WS1[..], &OF_SERVER[..], &of_ws2].concat());
    assert_ne!(place.state("hosts/ws1/chain.pem"), at_first);
    let list = first(&place.state("authority/ca.crl"));
    let (_, list) = x509_parser::parse_x509_crl(&list.contents).unwrap();
    let authority = first(&place.state("authority/ca.pem"));
    list.verify_signature(authority.parse_x509().unwrap().public_key()).unwrap();
    assert_eq!(list.iter_revoked_certificates().count(), 2);
    // Of the key, the disk has where it is, and neither it nor its PIN.
    let all = files(&place.at("state"));
    let private = all.keys().filter(|path| path.starts_with(place.at("state/authority")));
    let names: Vec<_> = private.map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["ca.crl", "ca.pem", "ca.uri"]);
    assert!(place.state("authority/ca.uri").starts_with("pkcs11:token=site;object=authority;type=private?"));
    assert!(all.values().all(|octets| !octets.windows(PIN.len()).any(|part| part == PIN.as_bytes())));
    let check = place.levee(&["check", SITE]);
    let said = format!(
        "authority: its private key is in a token, pkcs11:token=site;object=authority, by the library {}",
        place.library.display()
    );
    // The one who is revoked, and the key that is the auditor's, are told.
    let told =
        |line: &str| line.contains("auditor.key") || line.contains("ws2") && line.contains("is revoked");
    let warns = |line: &str| line.contains("warning") && !told(line);
    assert!(check.contains(&said) && !check.lines().any(warns), "{check}");
    place.keys("authority")
}

#[test]
fn an_authority_in_a_token_signs_for_all_and_no_file_has_its_key() {
    let place = Place::soft();
    let key = a_site_by(&place);
    assert!(key.contains("CKA_SENSITIVE") && key.contains("CKA_NEVER_EXTRACTABLE"), "{key}");
    assert_eq!(key.matches("type=private").count(), 1, "{key}");
    // Its certificate made anew is for the same key: the token has one of that name.
    let (before, uri) = (place.state("authority/ca.pem"), place.uri("authority"));
    place.levee(&["enrol", "authority", SITE, "--token", &uri, "--force"]);
    let after = place.state("authority/ca.pem");
    assert!(before != after && public(&before) == public(&after));
    signed(&place, "authority/ca.pem", &OF_WS1);
    assert_eq!(place.keys("authority").matches("type=private").count(), 1);
    // Never back into a file, nor to another key, by the way.
    place.refused(&["enrol", "all", SITE, "--force"], "", &[], "--token");
    place.refused(&["enrol", "authority", SITE], "", &[], "is there already");
    let other = place.uri("other");
    place.refused(
        &["enrol", "all", SITE, "--token", &other],
        "",
        &[],
        "levee enrol rotate conf/small/site.toml authority --token",
    );
    assert_eq!(place.keys("other"), "");
    // The PIN is asked for where no file has it.
    let asked = place.state("authority/ca.uri");
    std::fs::write(place.at("state/authority/ca.uri"), asked.split("&pin-source").next().unwrap()).unwrap();
    place.refused(&["enrol", "host", SITE, "ws1", "--force"], "", &[], "empty");
    place.refused(&["enrol", "host", SITE, "ws1", "--force"], "11111111\n", &[], "the PIN is wrong");
    let typed = place.levee_with(&["enrol", "host", SITE, "ws1", "--force"], &format!("{PIN}\n"), &[]);
    assert_eq!(typed.status.code(), Some(0), "{}", text(&typed.stderr));
    // Once for each command, however many signatures it takes.
    let uri = uri.split("&pin-source").next().unwrap();
    let all = ["enrol", "all", SITE, "--force", "--token", uri];
    let other = other.split("&pin-source").next().unwrap();
    let follows = ["enrol", "rotate", SITE, "authority", "--token", other];
    for arguments in [&all[..], &follows] {
        let typed = place.levee_with(arguments, &format!("{PIN}\n"), &[]);
        assert_eq!(typed.status.code(), Some(0), "{}", text(&typed.stderr));
    }
    let typed = place.levee_with(
        &["enrol", "host", SITE, "ws1", "--force", "--passphrase"],
        &format!("a passphrase\n{PIN}\n"),
        &[],
    );
    assert_eq!(typed.status.code(), Some(0), "{}", text(&typed.stderr));
    signed(&place, "authority/ca.pem", &OF_WS1);
}

#[test]
fn a_token_that_is_absent_locked_or_has_another_key_signs_nothing_and_the_remedy_is_said() {
    let place = Place::soft();
    let uri = place.uri("authority");
    let first = |uri: &str, why: &str| place.refused(&["enrol", "all", SITE, "--token", uri], "", &[], why);
    first(&uri.replace("token=site", "token=others"), "there is no such token; there are: \"site\"");
    first(
        &uri.replace(place.library.to_str().unwrap(), "/nonexistent/p11.so"),
        "/nonexistent/p11.so: No such file",
    );
    first(&uri.replace(place.library.to_str().unwrap(), "/etc/passwd"), "is no PKCS#11 library");
    let empty = place.at("empty.so");
    run(Command::new("cc").args(["-shared", "-o"]).arg(&empty).args(["-x", "c", "/dev/null"]));
    first(&uri.replace(place.library.to_str().unwrap(), empty.to_str().unwrap()), "is no PKCS#11 library");
    first(&uri.replace("/pin", "/no-pin"), "pin-source");
    std::fs::write(place.at("wrong-pin"), "11111111\n").unwrap();
    first(&uri.replace("/pin", "/wrong-pin"), "chmod 600");
    std::fs::set_permissions(place.at("wrong-pin"), std::fs::Permissions::from_mode(0o600)).unwrap();
    first(&uri.replace("/pin", "/wrong-pin"), "the PIN is wrong");
    first(&format!("{uri}&pin-value={}", "11"), "is not written into a URI");
    // A library that somebody else could change is not loaded by root.
    let others = place.at("others.so");
    std::fs::copy(&place.library, &others).unwrap();
    std::fs::set_permissions(&others, std::fs::Permissions::from_mode(0o666)).unwrap();
    first(&uri.replace(place.library.to_str().unwrap(), others.to_str().unwrap()), "chmod go-w");
    // A key that was in a file once.
    let key = place.at("key.pem");
    run(Command::new("openssl")
        .args(["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"])
        .arg(&key));
    let mut import = place.command("softhsm2-util");
    run(import.args([
        "--import",
        key.to_str().unwrap(),
        "--token",
        "site",
        "--label",
        "brought",
        "--id",
        "01",
        "--pin",
        PIN,
    ]));
    first(&place.uri("brought"), "the key was brought into the token");
    // One on another curve.
    place.p11tool(&["--generate-privkey=ecdsa", "--curve=secp384r1", "--label=large", "pkcs11:token=site"]);
    first(&place.uri("large"), "not on P-256");
    place.p11tool(&["--generate-privkey=rsa", "--bits=2048", "--label=rsa", "pkcs11:token=site"]);
    first(&place.uri("rsa"), "not for ECDSA");
    assert_eq!(place.keys("authority"), "", "and no key was made");
    place.levee(&["enrol", "all", SITE, "--token", &uri]);
    // Another key under the same name, two of them, none.
    let host = ["enrol", "host", SITE, "ws1", "--force"];
    place.p11tool(&[
        "--generate-privkey=ecdsa",
        "--curve=secp256r1",
        "--label=authority",
        "pkcs11:token=site",
    ]);
    place.refused(&host, "", &[], "several private keys fit");
    place.p11tool(&["--delete", "pkcs11:token=site;object=authority"]);
    place.refused(&host, "", &[], "has no such private key");
    place.p11tool(&[
        "--generate-privkey=ecdsa",
        "--curve=secp256r1",
        "--label=authority",
        "pkcs11:token=site",
    ]);
    place.refused(&host, "", &[], "not by the key of the authority's certificate");
    place.refused(
        &["enrol", "server", SITE, "--force"],
        "",
        &[],
        "not by the key of the authority's certificate",
    );
    place.refused(
        &["enrol", "revoke", SITE, "ws1"],
        "",
        &[],
        "not by the key of the authority's certificate",
    );
    place.refused(
        &["enrol", "rotate", SITE, "ike"],
        "",
        &[],
        "not by the key of the authority's certificate",
    );
    // A key in a file beside it.
    std::fs::copy(&key, place.at("state/authority/ca.key")).unwrap();
    place.refused(&host, "", &[], "remove the one that is not its");
    let check = place.levee_with(&["check", SITE, "--json"], "", &[]);
    assert_eq!(check.status.code(), Some(1), "{}", text(&check.stdout));
}

#[test]
fn a_library_that_lies_gets_nothing_signed_and_is_loaded_only_to_sign() {
    let mut place = Place::soft();
    place.lying();
    let uri = place.uri("authority");
    let loaded = place.at("loaded");
    let note = ("LEVEE_LOADED", loaded.to_str().unwrap());
    // Before there is an authority: what a token says of its keys.
    place.p11tool(&["--generate-privkey=ecdsa", "--curve=secp256r1", "--label=there", "pkcs11:token=site"]);
    let there = place.uri("there");
    let made = ["enrol", "all", SITE, "--token", &there];
    for (lie, why) in [
        ("says nothing", "may give this key out"),
        ("gives out", "may give this key out"),
        ("gave out", "was brought into the token"),
        ("point", "not by the key"),
        ("twice", "several private keys fit"),
        ("refuses", "the token does not sign: DeviceError"),
        ("another digest", "not by the key"),
        ("another signature", "not by the key"),
        ("locked", "the token's PIN is locked"),
    ] {
        place.refused(&made, "", &[("LEVEE_LIE", lie)], why);
    }
    let all = place.levee_with(&["enrol", "all", SITE, "--token", &uri], "", &[note]);
    assert!(all.status.success() && loaded.exists(), "{}", text(&all.stderr));
    let host = ["enrol", "host", SITE, "ws1", "--force"];
    for (lie, why) in [
        ("another digest", "not by the key of the authority's certificate"),
        ("zeros", "not by the key of the authority's certificate"),
        ("ones", "not by the key of the authority's certificate"),
        ("short", "something that is no signature"),
        ("nothing", "something that is no signature"),
        ("refuses", "the token does not sign: DeviceError"),
        ("never there", "has no such private key"),
        ("final try", "take pin-source out"),
    ] {
        place.refused(&host, "", &[("LEVEE_LIE", lie)], why);
    }
    for arguments in [
        &host[..],
        &["enrol", "server", SITE, "--force"],
        &["enrol", "rotate", SITE, "trusted-path"],
        &["enrol", "rotate", SITE, "host", "ws1"],
        &["enrol", "revoke", SITE, "ws1"],
        &["enrol", "authority", SITE, "--force", "--token", &uri],
    ] {
        let lie = [("LEVEE_LIE", "another signature")];
        place.refused(arguments, "", &lie, "not by the key of the authority's certificate");
    }
    // What signs nothing loads nothing, whatever the state says.
    std::fs::remove_file(&loaded).unwrap();
    for (arguments, code) in [
        (&["check", SITE][..], 0),
        (&["enrol", "rotate", SITE, "audit"], 0),
        (&["enrol", "auditor", SITE, "--force"], 0),
        (&["enrol", "all", SITE], 0),
    ] {
        let output = place.levee_with(arguments, "", &[note]);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(!loaded.exists(), "{arguments:?} loads the library");
    }
    let signs = place.levee_with(&host, "", &[note]);
    assert!(signs.status.success() && loaded.exists());
}

/// Has another authority follow the one that there is, and everybody get a certificate of the new one.
fn followed(place: &Place, token: &[&str]) {
    place.levee(&[&["enrol", "rotate", SITE, "authority"], token].concat());
    for rest in [&["trusted-path"][..], &["ike"], &["host", "ws1"], &["host", "ws2"]] {
        place.levee(&[&["enrol", "rotate", SITE], rest].concat());
    }
}

const FINISH: [&str; 5] = ["enrol", "rotate", SITE, "authority", "--finish"];

#[test]
fn an_authority_in_a_token_follows_one_in_a_file_and_its_key_is_destroyed_when_another_follows_it() {
    let mut place = Place::soft();
    place.lying();
    place.levee(&["enrol", "all", SITE]);
    assert!(place.levee(&["check", SITE]).contains("state/authority/ca.key, not encrypted"));
    place.levee(&["enrol", "revoke", SITE, "ws2"]);
    let (one, two) = (place.uri("one"), place.uri("two"));
    place.refused(
        &["enrol", "rotate", SITE, "ike", "--token", &one],
        "",
        &[],
        "says which key the next authority has",
    );
    followed(&place, &["--token", &one]);
    signed(&place, "authority/ca.pem", &[&OF_WS1[..], &OF_SERVER[..]].concat());
    assert_eq!(place.state("authority/ca.crl").matches("BEGIN X509 CRL").count(), 2);
    let said = place.levee(&FINISH);
    assert!(said.contains("destroyed: the old") && said.contains("former-ca.key"), "{said}");
    let names = || {
        files(&place.at("state/authority"))
            .into_keys()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["ca.crl", "ca.pem", "ca.uri"]);
    // The next one has another key.
    place.refused(&["enrol", "rotate", SITE, "authority"], "", &[], "another object=");
    place.refused(&["enrol", "rotate", SITE, "authority", "--token", &one], "", &[], "another object=");
    followed(&place, &["--token", &two]);
    assert_eq!(names(), ["ca.crl", "ca.pem", "ca.uri", "former-ca.pem", "former-ca.uri"]);
    place.levee(&["enrol", "revoke", SITE, "ws2"]);
    assert!(place.keys("one").contains("type=private"));
    // A token that says so and has it still is not believed.
    let state = place.at("state");
    let copy = place.at("copy");
    run(Command::new("cp").arg("-a").arg(&state).arg(&copy));
    for (lie, why) in [("kept", "has it still"), ("another signature", "not by the key")] {
        let output = place.levee_with(&FINISH, "", &[("LEVEE_LIE", lie)]);
        let said = text(&output.stdout).to_owned() + text(&output.stderr);
        // Where the token lies about its signatures, nothing is signed, and so nothing ends.
        let ended = output.status.success();
        assert!(
            said.contains(why) && (!ended || said.contains("not known to be destroyed")),
            "{lie}: {said}"
        );
        assert_eq!(ended, lie == "kept");
        run(Command::new("rm").arg("-r").arg(&state));
        run(Command::new("cp").arg("-a").arg(&copy).arg(&state));
        assert!(place.keys("one").contains("type=private"));
    }
    let said = place.levee(&FINISH);
    assert!(said.contains("was destroyed in its token (pkcs11:token=site;object=one)"), "{said}");
    assert_eq!(place.keys("one"), "");
    assert!(place.keys("two").contains("type=private"));
    let told: Vec<_> =
        files(&place.at("state/rotated")).into_values().map(|told| text(&told).to_owned()).collect();
    assert!(
        told.iter().any(|told| told.contains("destroyed in its token (pkcs11:token=site;object=one)")),
        "{told:?}"
    );
    assert_eq!(names(), ["ca.crl", "ca.pem", "ca.uri"]);
}

#[test]
fn a_key_that_somebody_else_has_put_under_the_old_name_is_not_destroyed() {
    let place = Place::soft();
    let (one, two) = (place.uri("one"), place.uri("two"));
    place.levee(&["enrol", "all", SITE, "--token", &one]);
    followed(&place, &["--token", &two]);
    place.p11tool(&["--delete", "pkcs11:token=site;object=one"]);
    place.p11tool(&["--generate-privkey=ecdsa", "--curve=secp256r1", "--label=one", "pkcs11:token=site"]);
    let said = place.levee(&FINISH);
    assert!(said.contains("not known to be destroyed") && said.contains("not by the key"), "{said}");
    assert!(place.keys("one").contains("type=private"));
    signed(&place, "authority/ca.pem", &[&OF_WS1[..], &OF_SERVER[..]].concat());
}

#[test]
fn the_federations_authority_is_in_the_same_token_under_a_name_of_its_own() {
    let place = Place::soft();
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(SITE);
    let site = place.at("site.toml");
    let peer = "[federation]\netcd = [\"192.0.2.9:2379\"]\netcd-name = \"etcd.harbour.example\"\nlease = \"10s\"\n\
                [[federation.peer]]\nname = \"two.harbour.example\"\naddress = \"192.0.2.2\"\n\
                inner-address = \"10.80.0.2\"\ninner-pool = \"10.80.2.0/24\"\n";
    std::fs::write(&site, format!("{}\n{peer}", std::fs::read_to_string(small).unwrap())).unwrap();
    let site = site.to_str().unwrap();
    let (uri, two) = (place.uri("authority"), place.uri("two"));
    let chains = ["server/federation-chain.pem", "etcd/chain.pem"];
    place.levee(&["enrol", "all", site, "--token", &uri]);
    signed(&place, "authority/federation-ca.pem", &chains);
    assert!(place.keys("authority-federation").contains("type=private"));
    assert_ne!(public(&place.state("authority/ca.pem")), public(&place.state("authority/federation-ca.pem")));
    place.levee(&["enrol", "rotate", site, "federation-authority", "--token", &two]);
    place.levee(&["enrol", "rotate", site, "federation"]);
    place.levee(&["enrol", "etcd", site, "--force"]);
    let chain = place.at("state/server/federation-chain.pem");
    place.levee(&["enrol", "revoke", site, "--federation", chain.to_str().unwrap()]);
    assert_eq!(place.state("authority/federation-ca.crl").matches("BEGIN X509 CRL").count(), 2);
    let said = place.levee(&["enrol", "rotate", site, "federation-authority", "--finish"]);
    assert!(
        said.contains("destroyed in its token (pkcs11:token=site;object=authority-federation)"),
        "{said}"
    );
    signed(&place, "authority/federation-ca.pem", &chains);
    assert_eq!(place.keys("authority-federation"), "");
    assert!(place.keys("two").contains("type=private") && place.keys("authority").contains("type=private"));
    let all = files(&place.at("state/authority"));
    assert!(all.keys().all(|path| path.extension().is_none_or(|end| end != "key")), "{:?}", all.keys());
}

#[test]
fn an_authority_in_a_tpm_signs_for_all_and_is_followed_by_another() {
    let place = Place::tpm();
    let key = a_site_by(&place);
    assert!(key.contains("CKA_SENSITIVE") && key.contains("CKA_NEVER_EXTRACTABLE"), "{key}");
    let (uri, two) = (place.uri("authority"), place.uri("two"));
    place.refused(&["enrol", "rotate", SITE, "authority", "--token", &uri], "", &[], "another object=");
    std::fs::write(place.at("pin"), "11111111\n").unwrap();
    place.refused(&["enrol", "host", SITE, "ws1", "--force"], "", &[], "the PIN is wrong");
    std::fs::write(place.at("pin"), PIN).unwrap();
    followed(&place, &["--token", &two]);
    signed(&place, "authority/ca.pem", &[&OF_WS1[..], &OF_SERVER[..]].concat());
    let said = place.levee(&FINISH);
    assert!(said.contains("was destroyed in its token (pkcs11:token=site;object=authority)"), "{said}");
    assert_eq!(place.keys("authority"), "");
    // Without the TPM there is no authority.
    let mut place = place;
    place.running[0].kill().unwrap();
    place.running[0].wait().unwrap();
    place.refused(&["enrol", "host", SITE, "ws1", "--force"], "", &[], "pkcs11:token=site;object=two");
}
