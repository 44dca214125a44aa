//! strongSwan's charon at a workstation, without kernel ESP: an ordinary IPsec client in place of levee's own.

use crate::{World, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running charon, ended when dropped.
#[derive(Debug)]
pub struct Swan {
    directory: PathBuf,
    child: Child,
    uri: String,
}

impl Swan {
    /// Starts charon in a workstation's namespace with the IKE key and certificate of its bundle; `labels` are the
    /// children that it knows, each by the name `LABEL` in lower case letters and digits.
    #[track_caller]
    pub fn start(world: &World, workstation: &str, labels: &[&str]) -> Self {
        Self::as_peer(world, workstation, labels, &Peer { id: workstation, ..Peer::default() })
    }

    /// As [`Swan::start`], as this peer of the server's.
    #[track_caller]
    pub fn as_peer(world: &World, workstation: &str, labels: &[&str], peer: &Peer<'_>) -> Self {
        let directory = world.path(&format!("{workstation}-swan"));
        let bundle = world.path("state").join("hosts").join(workstation);
        let at = |name: &str| directory.join(name);
        // One that ran here before.
        let _ = fs::remove_dir_all(&directory);
        for name in ["swanctl/x509", "swanctl/x509ca", "swanctl/private"] {
            fs::create_dir_all(at(name)).expect("a directory");
        }
        for (from, to) in [
            ("ike-chain.pem", "swanctl/x509/host.pem"),
            ("ike.key", "swanctl/private/host.pem"),
            ("authority.pem", "swanctl/x509ca/site.pem"),
        ] {
            fs::copy(bundle.join(from), at(to)).expect("a file of the bundle");
        }
        let uri = format!("unix://{}", at("vici").display());
        let mut text = connection(peer, labels);
        if let Some(id) = peer.ppk {
            let file = fs::read_to_string(bundle.join("ppk.key")).expect("the bundle's half of the PPK");
            let base64 = file.lines().skip_while(|line| !line.starts_with('-')).nth(1).expect("PEM");
            text.push_str(&format!("secrets {{ ppk-1 {{ id = {id}\n secret = 0s{base64} }} }}\n"));
        }
        fs::write(at("swanctl/swanctl.conf"), text).expect("a file");
        fs::write(at("strongswan.conf"), configuration(&uri, &at("log"))).expect("a file");
        let out = fs::File::create(at("out")).expect("a file");
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", world.namespace(workstation)))
            .args(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /run && exec /usr/lib/ipsec/charon"])
            .env("STRONGSWAN_CONF", at("strongswan.conf"))
            .env("SWANCTL_DIR", at("swanctl"))
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a descriptor"))
            .stderr(out)
            .spawn()
            .expect("run nsenter and unshare (scripts/need test installs them)");
        let swan = Self { directory, child, uri };
        let until = Instant::now() + Duration::from_secs(60);
        while !swan.directory.join("vici").exists() {
            assert!(
                Instant::now() < until,
                "charon does not start (scripts/need test installs strongSwan):\n{}",
                swan.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        swan.swanctl(&["--load-all"]).1.expect("the configuration is loaded");
        swan
    }

    /// Runs swanctl to its end; what it said, and whether it succeeded.
    pub fn swanctl(&self, arguments: &[&str]) -> (String, Result<(), String>) {
        let output = Command::new("swanctl")
            .args(arguments)
            .args(["--uri", &self.uri])
            .env("STRONGSWAN_CONF", self.directory.join("strongswan.conf"))
            .env("SWANCTL_DIR", self.directory.join("swanctl"))
            .output()
            .expect("run swanctl (scripts/need test installs it)");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let done = if output.status.success() { Ok(()) } else { Err(format!("{said}\n{}", self.log())) };
        (said, done)
    }

    /// Asks for the child of this name.
    pub fn initiate(&self, child: &str) -> Result<(), String> {
        self.swanctl(&["--initiate", "--child", child, "--timeout", "20"]).1
    }

    /// The SAs there are.
    pub fn sas(&self) -> String {
        self.swanctl(&["--list-sas"]).0
    }

    /// The encryption keys of every child that charon has logged, without their salts, the newest last.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let log = self.log();
        let mut lines = log.lines();
        let mut keys = Vec::new();
        while let Some(line) = lines.next() {
            if !(line.contains("encryption initiator key =>") || line.contains("encryption responder key =>"))
            {
                continue;
            }
            // Sixteen octets a line: `   0: 4B 1D …  their letters`.
            let mut key = Vec::new();
            while key.len() < 32 {
                let octets = lines.next().and_then(|line| line.split_once(": ")).expect("a whole dump").1;
                let octet = |word: &str| u8::from_str_radix(word, 16).ok();
                key.extend(octets.split(' ').take(16).map_while(octet));
            }
            key.truncate(32);
            keys.push(key);
        }
        keys
    }

    /// charon's log.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        read("out") + &read("log")
    }
}

impl Drop for Swan {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The name of the child with this label.
pub fn child(label: &str) -> String {
    label.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

/// What charon says that it is, and has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer<'a> {
    /// Its identity.
    pub id: &'a str,
    /// The name of the PPK in the bundle, which it then insists on.
    pub ppk: Option<&'a str>,
    /// What it proposes.
    pub offers: Offers,
}

/// Which algorithms strongSwan proposes.
#[derive(Debug, Clone, Copy, Default)]
pub enum Offers {
    /// X25519, and what else its defaults have.
    #[default]
    X25519,
    /// The same, P-384 behind X25519, and AES-128-GCM for IKE itself, too.
    TwoCurves,
    /// Those of CNSA alone.
    Cnsa,
}

fn connection(Peer { id, ppk, offers }: &Peer<'_>, labels: &[&str]) -> String {
    let (groups, ike, esp) = match offers {
        Offers::X25519 => ("x25519", "aes256gcm16", "aes256gcm16-aes128gcm16"),
        Offers::TwoCurves => ("x25519-ecp384", "aes256gcm16-aes128gcm16", "aes256gcm16-aes128gcm16"),
        Offers::Cnsa => ("ecp384", "aes256gcm16", "aes256gcm16"),
    };
    let ppk = ppk.map(|id| format!("ppk_id = {id}\n  ppk_required = yes")).unwrap_or_default();
    let children: String = labels
        .iter()
        .map(|label| {
            format!(
                "{} {{ local_ts = dynamic\n remote_ts = 10.80.0.1/32\n esp_proposals = {esp}-{groups}\n \
                 label = {label}\n label_mode = simple }}\n",
                child(label)
            )
        })
        .collect();
    format!(
        "connections {{ levee {{
  version = 2
  remote_addrs = 10.77.0.1
  vips = 0.0.0.0
  proposals = {ike}-prfsha384-{groups}
  {ppk}
  local {{ auth = pubkey\n certs = host.pem\n id = {id} }}
  remote {{ auth = pubkey\n id = server.harbour.example }}
  children {{ {children} }}
}} }}
"
    )
}

fn configuration(uri: &str, log: &Path) -> String {
    format!(
        "charon {{
  load = random nonce aes sha1 sha2 hmac kdf pem pkcs1 pkcs8 x509 pubkey revocation constraints openssl curve25519 \
         gcm kernel-libipsec kernel-netlink socket-default vici updown
  filelog {{ log {{ path = {}\n default = 1\n ike = 2\n cfg = 2\n chd = 4\n flush_line = yes }} }}
  plugins {{ vici {{ socket = {uri} }} }}
  retransmit_timeout = 1.0
  retransmit_tries = 4
}}
",
        text(log)
    )
}
