//! What the two layers of a site are made of on this host: programs on the disk and as they run, keys, uids, sockets. What it means is
//! `levee_policy::layers`'s to say.

mod program;
mod running;

use crate::output::{Paint, shown};
use levee_policy::Site;
use levee_policy::layers::{
    Evidence, Judgement, Layer, Line, Part, Rule, SECOND_CIPHER, SECOND_EXCHANGE, Seen, judge,
};
use levee_policy::site::{Cipher, Gateway, Posture, Suites};
use running::ServerProcesses;
use serde::Serialize;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Whose keys and ciphers make the tunnel within.
const WITHIN: [&str; 3] = ["levee-vault", "levee-keyer", "levee-signer"];
/// And these where stacks must agree.
const AGREEING: [&str; 2] = ["levee-gate", "levee-witness"];
/// The one around.
const AROUND: [&str; 1] = ["levee-layer"];

/// A requirement as it is printed.
#[derive(Serialize)]
pub struct Shown {
    part: &'static str,
    verdict: &'static str,
    /// Whether it is why the site is refused.
    refuses: bool,
    evidence: String,
}

/// Every requirement of a site with two layers; none of one with one. `programs` is where levee's are.
pub fn lines(site: &Site, state: &Path, programs: &Path) -> Vec<Line> {
    if !site.vault().has_second_tunnel() {
        return Vec::new();
    }
    let running = ServerProcesses::find(state);
    let (mut within, mut around) = (Layer::default(), Layer::default());
    let names = |names: &[&'static str]| names.to_vec();
    let agrees = site.vault().agrees_anywhere() || site.postures().iter().any(Posture::agrees);
    let agreeing: &[&str] = if agrees { &AGREEING } else { &[] };
    // What a gateway runs nobody sees from here.
    let there = if site.gateway().is_some() { None } else { running.as_ref() };
    let sides = [
        (&mut within, names(&[&WITHIN[..], agreeing].concat()), running.as_ref()),
        (&mut around, names(&AROUND), there),
    ];
    for (layer, names, running) in sides {
        for name in names {
            // What runs is what counts, be the file on the disk another by now.
            if !running.is_some_and(|running| running.add(layer, name)) {
                program_of(layer, &programs.join(name));
            }
        }
    }
    common(&mut within, running.as_ref());
    match site.gateway() {
        Some(gateway) => elsewhere(&mut around, gateway),
        None => common(&mut around, running.as_ref()),
    }
    ciphers(site, &mut within);
    around.add(Part::Cipher, Evidence::found([SECOND_CIPHER], "levee-layer", Seen::OnDisk));
    around.add(Part::Exchange, Evidence::found([SECOND_EXCHANGE], "levee-layer", Seen::OnDisk));
    let server = state.join("server");
    identity(&mut within, &server.join("ike-chain.pem"), &state.join("authority/ca.pem"));
    store(&mut within, &server.join("ike.key"));
    let end = state.join(if site.gateway().is_some() { "gateway/layer" } else { "layer" });
    identity(&mut around, &end.join("chain.pem"), &end.join("authority.pem"));
    match end.join("layer.key") {
        key if site.gateway().is_some() && !key.exists() => {
            around.add(Part::Store, Evidence::found(["the gateway's"], "[gateway]", Seen::OnDisk));
        }
        key => store(&mut around, &key),
    }
    // Of before there was a gateway: it is good for that end as well.
    let before = state.join("layer/layer.key");
    if site.gateway().is_some() && before.exists() {
        around.add(
            Part::Host,
            Evidence::found([own_name().trim()], &before.display().to_string(), Seen::OnDisk),
        );
    }
    ways(site, &mut within, &mut around, running.as_ref());
    let mut lines = judge(&within, &around);
    // Hosts with one layer reach keyer and vaults by the same addresses as the second tunnel; nothing else comes by them of hosts with two.
    let beside = site.vault().has_layer_beside();
    for way in lines.iter_mut().filter(|line| beside && line.part == Part::Way) {
        way.rule = Rule::Warned;
    }
    lines
}

/// A program on the disk: libraries, compiler, and which file it is.
fn program_of(layer: &mut Layer, path: &Path) {
    let place = path.display().to_string();
    match std::fs::metadata(path) {
        Ok(meta) => {
            let file = format!("the program {}:{}", meta.dev(), meta.ino());
            layer.add(Part::Process, Evidence::found([file], &place, Seen::OnDisk));
        }
        Err(e) => layer.add(Part::Process, Evidence::Unknown(format!("{place}: {e}"))),
    }
    program::add(layer, path, &place, Seen::OnDisk);
    // The warden gives each of its processes a uid of its own; that it did is seen where they run.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    layer.add(Part::Uid, Evidence::found([format!("{name}'s own")], "the warden's table", Seen::OnDisk));
}

/// This host's.
fn own_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// What one host cannot have twice.
fn common(layer: &mut Layer, running: Option<&ServerProcesses>) {
    let seen = Seen::Running;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    layer.add(Part::Host, Evidence::found([own_name().trim()], "this host", seen));
    layer.add(Part::Operator, Evidence::found(["root"], "this host", seen));
    layer.add(Part::Randomness, Evidence::found(["getrandom(2)"], "this kernel", seen));
    let kernel = read("/proc/sys/kernel/osrelease");
    layer.add(Part::Kernel, Evidence::found([kernel.trim()], "this host", seen));
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("this host's", |(_, model)| model);
    layer.add(Part::Processor, Evidence::found([model], "this host", seen));
    let stack = running.map_or_else(|| "the warden's".to_owned(), ServerProcesses::namespace);
    layer.add(Part::Stack, Evidence::found([stack], "the tunnels' sockets", seen));
}

/// What a gateway has of its own, as the site file says; what kernel and processor it has, and who operates it, nobody knows here.
fn elsewhere(layer: &mut Layer, gateway: &Gateway) {
    let host = format!("the gateway at {}", gateway.inside());
    for part in [Part::Host, Part::Randomness, Part::Stack] {
        layer.add(part, Evidence::found([host.as_str()], "[gateway]", Seen::OnDisk));
    }
    for part in [Part::Operator, Part::Kernel, Part::Processor] {
        layer.add(part, Evidence::Unknown(format!("{host}: what it has is not seen from here")));
    }
}

/// What the site's vaults prefer, by default and in each posture.
fn ciphers(site: &Site, within: &mut Layer) {
    let family = |cipher: &Cipher| match cipher {
        Cipher::Aes256Gcm | Cipher::Aes128Gcm => "AES-GCM",
        Cipher::ChaCha20Poly1305 => SECOND_CIPHER,
    };
    let suites = site.crypto().suites();
    let first = suites.ciphers().first().map(family);
    within.add(Part::Cipher, Evidence::found(first, "[crypto]", Seen::OnDisk));
    for posture in site.postures() {
        let place = format!("posture {}", posture.name());
        within.add(
            Part::Cipher,
            Evidence::found(site.ciphers_under(Some(posture)).first().map(family), &place, Seen::OnDisk),
        );
    }
    let exchanges = match suites {
        Suites::Default => ["X25519", "ML-KEM-768"],
        Suites::Cnsa | Suites::CnsaMlKem => ["P-384", "ML-KEM-1024"],
    };
    within.add(Part::Exchange, Evidence::found(exchanges, "[crypto]", Seen::OnDisk));
}

/// A layer's certificate, and its authority's.
fn identity(layer: &mut Layer, chain: &Path, authority: &Path) {
    let seen = Seen::OnDisk;
    let of = |path: &Path| match program::certificate(path) {
        Ok(certificate) => Ok((certificate, path.display().to_string())),
        Err(why) => Err(Evidence::Unknown(why)),
    };
    match of(chain) {
        Ok((certificate, place)) => {
            layer.add(Part::Key, Evidence::found([certificate.key], &place, seen));
            layer.add(Part::KeyType, Evidence::found([certificate.kind], &place, seen));
        }
        Err(unknown) => {
            [Part::Key, Part::KeyType].into_iter().for_each(|part| layer.add(part, unknown.clone()))
        }
    }
    match of(authority) {
        Ok((certificate, place)) => {
            layer.add(Part::Authority, Evidence::found([certificate.key], &place, seen))
        }
        Err(unknown) => layer.add(Part::Authority, unknown),
    }
}

/// Whose a layer's private key is on the disk.
fn store(layer: &mut Layer, key: &Path) {
    match std::fs::metadata(key) {
        Ok(meta) => {
            let owner = format!("uid {}", meta.uid());
            layer.add(Part::Store, Evidence::found([owner], &key.display().to_string(), Seen::OnDisk));
        }
        Err(e) => layer.add(Part::Store, Evidence::Unknown(format!("{}: {e}", key.display()))),
    }
}

/// Where each layer can be reached.
fn ways(site: &Site, within: &mut Layer, around: &mut Layer, running: Option<&ServerProcesses>) {
    let server = site.server();
    if let Some(gateway) = site.gateway() {
        let all = gateway.addresses().iter().map(ToString::to_string);
        around.add(Part::Way, Evidence::found(all, "[gateway]", Seen::OnDisk));
        let own = running.map(|running| running.sockets(&[server.tunnel_port(), server.ike_port()]));
        let table = || Evidence::found(["127.0.0.1"], "the warden's table", Seen::OnDisk);
        return within.add(Part::Way, own.unwrap_or_else(table));
    }
    let Some(running) = running else {
        within.add(Part::Way, Evidence::found(["127.0.0.1"], "the warden's table", Seen::OnDisk));
        let all = || server.addresses().iter().map(ToString::to_string);
        if site.vault().has_layer_beside() {
            within
                .add(Part::Way, Evidence::found(all(), "addresses, for hosts with one layer", Seen::OnDisk));
        }
        return around.add(Part::Way, Evidence::found(all(), "addresses", Seen::OnDisk));
    };
    within.add(Part::Way, running.sockets(&[server.tunnel_port(), server.ike_port()]));
    around.add(Part::Way, running.sockets(&[server.layer_port()]));
}

/// As it is printed.
pub fn shown_lines(lines: &[Line]) -> Vec<Shown> {
    let one = |line: &Line| Shown {
        part: line.part.as_str(),
        verdict: line.verdict.as_str(),
        refuses: line.refuses(),
        evidence: line.evidence.clone(),
    };
    lines.iter().map(one).collect()
}

/// In words: a line for each requirement.
pub fn render(lines: &[Line], paint: Paint) -> String {
    let one = |line: &Line| {
        let weight = match (line.verdict, line.rule) {
            (Judgement::Unmet, Rule::Refused) => paint.error("refused"),
            (Judgement::Unmet, Rule::Warned) => "warning".to_owned(),
            (Judgement::Unmet, Rule::Allowed) => "as on any one host".to_owned(),
            _ => "two".to_owned(),
        };
        let (part, verdict, evidence) = (line.part, line.verdict.as_str(), shown(&line.evidence));
        format!("  {part}: {verdict}: {weight}: {evidence}\n")
    };
    let all: String = lines.iter().map(one).collect();
    if lines.is_empty() { all } else { format!("two layers:\n{all}") }
}
