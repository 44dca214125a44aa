//! How many labels and sessions one server holds: `multitude [LABELS SESSIONS SECONDS]` (1,000 and 10,000, as many of them as come
//! within 600), as root, on a quiet host, beside levee's programs (`cargo run --release -p levee-system --bin multitude`, after `make build`). Each label has a store of 4 MiB and
//! room for eight such as copies: 36 GB for a thousand.
//!
//! The server is whole: every label has its compartment, vault and upflow, every session its trusted path, its record in the vault, its
//! addresses. What is not there are the workstations: this program holds the far ends of all trusted paths but one itself, and no tunnel. The
//! one is a real workstation, which signs on when all others are there, and fetches a page.
#![forbid(unsafe_code)]

use levee_ipc::client::{KEEP_ALIVE, Reply, Request};
use levee_ipc::device::{EXPORTER, Proof, Sealed, proof_message};
use levee_ipc::{FrameReader, Secret, encode_frame};
use levee_policy::{DomainName, LabelName, UserName};
use levee_system::{PASSWORD, World, crowd, host, text};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SignatureScheme, StreamOwned};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../../conf/large/site.toml");
const SERVER: &str = "server.fleet.example";
const PAGE: &str = "http://www.fleet.example/";
/// The password of [`World::new`] under argon2id with the least parameters there are: what is looked at is not its hash.
const LEAST: &str =
    "$argon2id$v=19$m=8,t=1,p=1$PedPV5px3hBz65uOSq95KQ$jfYOQ4ylT2OgY+5OQ7qs2q+OeTy6Rh4FU+Go4kwMtxM\n";
const CATEGORIES: [&str; 10] =
    ["", "//NATO", "//MED", "//OPS", "//INTEL", "//CRYPTO", "//NAV", "//FUEL", "//LOG", "//LAW"];
const USERS: usize = 100;
/// Threads that hold the trusted paths.
const HANDS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// The client's end of a trusted path.
struct TrustedPath {
    tls: StreamOwned<ClientConnection, TcpStream>,
    frames: FrameReader,
}

impl TrustedPath {
    fn open(number: usize, hosts: &Path, namespace: &File) -> io::Result<Self> {
        let bundle = hosts.join(host_name(number));
        let read = |name: &str| fs::read(bundle.join(name));
        let mut roots = RootCertStore::empty();
        let certificate = |pem: &[u8]| CertificateDer::from_pem_slice(pem).map_err(io::Error::other);
        roots.add(certificate(&read("authority.pem")?)?).map_err(io::Error::other)?;
        let chain = CertificateDer::pem_slice_iter(&read("chain.pem")?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(io::Error::other)?;
        let key = PrivateKeyDer::from_pem_slice(&read("device.key")?).map_err(io::Error::other)?;
        let signing = rustls::crypto::ring::sign::any_ecdsa_type(&key).map_err(io::Error::other)?;
        let sealed = Sealed::from_text(&read("chain.pem")?).ok_or_else(|| io::Error::other("no passport"))?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain, key))
            .map_err(io::Error::other)?;
        let dial = || -> io::Result<TcpStream> {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            // A workstation has an address of its own.
            let [.., high, low] = (number as u32).to_be_bytes();
            bind(&socket, &SocketAddr::from((Ipv4Addr::new(10, 78, high, low), 0)))?;
            connect(&socket, &SocketAddr::from((Ipv4Addr::new(10, 77, 0, 1), 7443)))?;
            Ok(socket.into())
        };
        let mut stream = levee_sys::ns::in_net(namespace.as_fd(), dial).map_err(io::Error::other)??;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER).map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut stream)?;
        }
        let exporter = tls.export_keying_material([0; 32], EXPORTER, None).map_err(io::Error::other)?;
        let mut path = Self { tls: StreamOwned::new(tls, stream), frames: FrameReader::default() };
        let Reply::Challenge(nonce) = path.ask(&Request::Hello)? else {
            return Err(io::Error::other("no challenge"));
        };
        let server = DomainName::new(SERVER).map_err(io::Error::other)?;
        let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ECDSA_NISTP384_SHA384];
        let signer = signing.choose_scheme(&schemes).ok_or_else(|| io::Error::other("no scheme"))?;
        let signature = signer.sign(&proof_message(&server, &nonce, &exporter)).map_err(io::Error::other)?;
        match path.ask(&Request::Prove(Box::new(Proof { sealed, signature })))? {
            Reply::Alive => Ok(path),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        self.tls.write_all(&encode_frame(request).map_err(io::Error::other)?)?;
        loop {
            if let Some(reply) = self.frames.take().map_err(io::Error::other)? {
                return Ok(reply);
            }
            match self.tls.read(self.frames.space())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.frames.advance(bytes),
            }
        }
    }

    fn sit_down(number: usize, labels: usize, hosts: &Path, namespace: &File) -> Result<Self, String> {
        let mut path = Self::open(number, hosts, namespace).map_err(|e| format!("trusted path: {e}"))?;
        let user = UserName::new(&format!("user{:02}", number % USERS)).map_err(|e| e.to_string())?;
        let password = Secret::new(PASSWORD.as_bytes().to_vec()).ok_or("a password")?;
        match path.ask(&Request::Login { user, password, code: None }) {
            Ok(Reply::LoggedIn(_)) => {}
            other => return Err(format!("sign-on: {other:?}")),
        }
        let label = LabelName::new(&label(number % labels)).map_err(|e| e.to_string())?;
        match path.ask(&Request::Level(label, None)) {
            Ok(Reply::Opened(_)) => Ok(path),
            other => Err(format!("session: {other:?}")),
        }
    }
}

fn host_name(number: usize) -> String {
    format!("h{number:05}")
}

fn label(number: usize) -> String {
    format!("L{:02}{}@UNVERIFIED", number % 100, CATEGORIES[number / 100 % CATEGORIES.len()])
}

fn site(sessions: usize) -> String {
    let head = SITE.split("[[user]]").next().unwrap_or_default();
    let services = SITE.split_once("[[service]]").map_or("", |(_, rest)| rest);
    let services = services.split("[[network]]").next().unwrap_or_default();
    let range = "L00@VERIFIED..L99//NATO,MED,OPS,INTEL,CRYPTO,NAV,FUEL,LOG,LAW@UNVERIFIED";
    let mut site = head
        .replace("\"192.0.2.10\"", "\"10.77.0.1\"")
        .replace("\"2001:db8::10\"", "\"fd77::1\"")
        .replace("10.81.0.0/20", "10.81.0.0/16")
        .replace("store = \"32M\"", "store = \"4M\"");
    for number in 0..USERS {
        let _ = write!(site, "[[user]]\nname = \"user{number:02}\"\nclearance = \"{range}\"\n\n");
    }
    for number in 0..sessions {
        let name = host_name(number);
        let _ = write!(site, "[[host]]\nname = \"{name}\"\naccreditation = \"{range}\"\n\n");
    }
    format!("{site}[[service]]{services}")
}

fn number(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// What one thread did.
#[derive(Default)]
struct Hand {
    paths: Vec<TrustedPath>,
    milliseconds: Vec<f64>,
    faults: Vec<String>,
}

impl Hand {
    /// Sits down at places until none is left, and keeps those there are.
    fn work(
        &mut self,
        until: Instant,
        next: &AtomicUsize,
        end: usize,
        sit: &(impl Fn(usize) -> Result<TrustedPath, String> + Sync),
    ) {
        let mut kept = Instant::now();
        loop {
            if kept.elapsed() > KEEP_ALIVE {
                self.keep();
                kept = Instant::now();
            }
            if Instant::now() > until {
                return;
            }
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return;
            }
            let begun = Instant::now();
            match sit(number) {
                Ok(path) => {
                    self.milliseconds.push(begun.elapsed().as_secs_f64() * 1e3);
                    self.paths.push(path);
                }
                Err(why) => self.faults.push(format!("{number}: {why}")),
            }
        }
    }

    fn keep(&mut self) {
        let faults = &mut self.faults;
        self.paths.retain_mut(|path| match path.ask(&Request::KeepAlive) {
            Ok(Reply::Alive) => true,
            other => {
                faults.push(format!("kept: {other:?}"));
                false
            }
        });
    }
}

fn show(what: &str, mut times: Vec<f64>, all: Duration) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        times.get(((times.len().max(1) - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
    };
    let [least, median, most] = [0.0, 0.5, 1.0].map(at);
    if times.is_empty() {
        return println!("| {what} | | | {:.1} | |", all.as_secs_f64());
    }
    println!("| {what} | {median:.0} | {least:.0}–{most:.0} | {:.1} | {} |", all.as_secs_f64(), times.len());
}

/// All hands do something until it is done.
fn all_hands(hands: &mut [Hand], act: impl Fn(&mut Hand) + Sync) -> Duration {
    let begun = Instant::now();
    let act = &act;
    std::thread::scope(|scope| hands.iter_mut().for_each(|hand| drop(scope.spawn(move || act(hand)))));
    begun.elapsed()
}

fn main() {
    levee_system::ends_what_it_started();
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (labels, sessions, seconds) = match *arguments.as_slice() {
        [] => (1000, 10_000, 600),
        [labels, sessions, seconds] if (1..=1000).contains(&labels) && sessions >= labels => {
            (labels, sessions, seconds)
        }
        _ => panic!("usage: multitude [LABELS SESSIONS SECONDS]"),
    };
    let free = number("/proc/meminfo", "MemAvailable:");
    let begun = Instant::now();
    let real = host_name(sessions);
    let mut world = World::new("many", &site(sessions + 1), &[&real]);
    let credentials = world.path("state").join("sessiond/credentials");
    for number in 0..USERS {
        fs::write(credentials.join(format!("user{number:02}")), LEAST).expect("the credential");
    }
    world.server_sh("ip", &["route", "add", "local", "10.78.0.0/16", "dev", "lo"]).ok();
    eprintln!("prepared ({:.1} s)", begun.elapsed().as_secs_f64());
    world.start_server();
    world.start_workstation(&real);
    eprintln!("ready ({:.1} s)", begun.elapsed().as_secs_f64());

    let until = Instant::now() + Duration::from_secs(seconds as u64);
    let hosts = world.path("state").join("hosts");
    let namespace = File::open(format!("/run/netns/{}", world.namespace("server"))).expect("the namespace");
    let sit = |number: usize| TrustedPath::sit_down(number, labels, &hosts, &namespace);
    let mut hands: Vec<Hand> = (0..HANDS).map(|_| Hand::default()).collect();
    let next = AtomicUsize::new(0);
    println!("| what | median ms | range | all, s | n |\n|---|---|---|---|---|");
    let mut turn = |what: &str, end: usize| {
        if Instant::now() > until {
            return hands.iter().map(|hand| hand.paths.len()).sum::<usize>();
        }
        next.store(next.load(Ordering::Relaxed).min(end), Ordering::Relaxed);
        let all = all_hands(&mut hands, |hand| hand.work(until, &next, end, &sit));
        next.store(end, Ordering::Relaxed);
        let times = hands.iter_mut().flat_map(|hand| std::mem::take(&mut hand.milliseconds)).collect();
        show(what, times, all);
        for fault in hands.iter_mut().flat_map(|hand| std::mem::take(&mut hand.faults)).take(5) {
            eprintln!("  {fault}");
        }
        hands.iter().map(|hand| hand.paths.len()).sum::<usize>()
    };
    for end in (1..=5).map(|part| labels * part / 5) {
        turn(&format!("trusted path, sign-on, session at a new label, up to {end} labels"), end);
    }
    let mut held = 0;
    for end in (1..=5).map(|part| labels + (sessions - labels) * part / 5) {
        held =
            turn(&format!("trusted path, sign-on, session at a label that runs, up to {end} sessions"), end);
    }
    let all = all_hands(&mut hands, Hand::keep);
    show("every trusted path kept alive", vec![], all);

    // A person at a real workstation, among them.
    let seat = crowd::Seat { workstation: real.clone(), user: "user00".into(), label: label(labels / 2) };
    let time = |what: &str, act: &dyn Fn() -> levee_system::Done| {
        let begun = Instant::now();
        let done = act();
        show(what, vec![begun.elapsed().as_secs_f64() * 1e3], begun.elapsed());
        if done.status != 0 {
            eprintln!("  {what}: {}{}", done.out, done.err);
        }
        done
    };
    time("a real workstation among them: sign-on", &|| world.login(&real, &seat.user));
    all_hands(&mut hands, Hand::keep);
    time("its session", &|| world.level(&real, &seat.label));
    all_hands(&mut hands, Hand::keep);
    let page = time("its page", &|| world.fetch(&real, PAGE));
    let fault = crowd::fault(&page, &seat.label, &[]);
    all_hands(&mut hands, Hand::keep);

    let status = world.status();
    let (running, open) =
        (status["compartments"].as_array().map_or(0, Vec::len), status["session_count"].clone());
    let warden = world.server_pid();
    let server: Vec<host::Process> =
        host::Process::find(warden).into_iter().chain(host::below(warden)).collect();
    let descriptors = fs::read_dir(format!("/proc/{warden}/fd")).map_or(0, Iterator::count);
    let used = |all: &[host::Process]| all.iter().map(host::Process::processor_time).sum::<Duration>();
    let in_use = free.saturating_sub(number("/proc/meminfo", "MemAvailable:"));
    let (before, since) = (used(&server), Instant::now());
    all_hands(&mut hands, Hand::keep);
    std::thread::sleep(Duration::from_secs(3));
    let idle = (used(&server) - before).as_secs_f64() / since.elapsed().as_secs_f64() * 100.0;
    all_hands(&mut hands, Hand::keep);

    let all = all_hands(&mut hands, leave);
    show(
        "logout to its acknowledgement",
        hands.iter_mut().flat_map(|hand| std::mem::take(&mut hand.milliseconds)).collect(),
        all,
    );
    for fault in hands.iter().flat_map(|hand| &hand.faults).take(5) {
        eprintln!("  {fault}");
    }
    let _ = world.tpe(&real, &["logout"]);
    println!(
        "\nAt once: {open} sessions ({held} trusted paths held here), {running} labels running; the real workstation's page: {fault:?}."
    );
    println!(
        "Processes of the server: {}; descriptors of its warden: {descriptors}; with the trusted paths kept alive and nothing else it takes {idle:.0} % of a processor.",
        server.len()
    );
    show_memory(&server, in_use);
    let stopping = Instant::now();
    world.stop_server();
    eprintln!(
        "server stopped in {:.1} s; its state was in {}",
        stopping.elapsed().as_secs_f64(),
        text(&world.path("state"))
    );
}

/// What all processes have, by name.
fn show_memory(server: &[host::Process], in_use: u64) {
    let mut groups: std::collections::BTreeMap<&str, (usize, u64)> = std::collections::BTreeMap::new();
    for process in server.iter().filter(|process| process.name != "levee-tps") {
        let group = groups.entry(process.name.as_str()).or_default();
        group.0 += 1;
        group.1 += host::memory(std::slice::from_ref(process));
    }
    println!(
        "All that the host had less: {} MiB. Proportional, in MiB, without tps: {:?}",
        in_use >> 10,
        groups
            .iter()
            .map(|(name, (count, kib))| format!("{name} ×{count} {}", kib >> 10))
            .collect::<Vec<_>>()
    );
}

/// Signs everybody off.
fn leave(hand: &mut Hand) {
    for mut path in std::mem::take(&mut hand.paths) {
        let begun = Instant::now();
        match path.ask(&Request::Logout) {
            Ok(Reply::LoggedOut) => hand.milliseconds.push(begun.elapsed().as_secs_f64() * 1e3),
            other => hand.faults.push(format!("logout: {other:?}")),
        }
    }
}
