//! strongSwan's charon, run without kernel ESP.

use crate::net::Net;
use crate::pki::{Authority, Key, certificate_pem};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What of `strongswan.conf` a test changes.
#[derive(Debug, Clone, Default)]
pub struct Tuning {
    /// More lines for the section `charon`.
    pub charon: String,
    /// Write no log: for measurements.
    pub silent: bool,
}

/// A running charon, ended when dropped.
#[derive(Debug)]
pub struct Swan {
    dir: TempDir,
    child: Child,
    uri: String,
}

impl Swan {
    /// Starts charon with the given `swanctl.conf` and the keys and authorities it names.
    pub fn start(
        net: &Net,
        swanctl: &str,
        tuning: &Tuning,
        keys: &[(&str, &Key)],
        authorities: &[&Authority],
    ) -> Self {
        Self::start_in(&net.theirs(), swanctl, tuning, keys, authorities)
    }

    /// As [`start`](Self::start), but in our namespace: the peer of another charon.
    pub fn start_as_us(
        net: &Net,
        swanctl: &str,
        tuning: &Tuning,
        keys: &[(&str, &Key)],
        authorities: &[&Authority],
    ) -> Self {
        Self::start_in(&net.ours(), swanctl, tuning, keys, authorities)
    }

    fn start_in(
        namespace: &str,
        swanctl: &str,
        tuning: &Tuning,
        keys: &[(&str, &Key)],
        authorities: &[&Authority],
    ) -> Self {
        let dir = TempDir::with_prefix("levee-ike-").expect("a directory");
        let at = |p: &str| dir.path().join(p);
        for d in ["swanctl/x509", "swanctl/x509ca", "swanctl/private", "swanctl/x509crl"] {
            fs::create_dir_all(at(d)).expect("a directory");
        }
        let write = |p: &str, text: &str| fs::write(at(p), text).expect("a file");
        for (name, key) in keys {
            write(&format!("swanctl/private/{name}.pem"), &key.pem());
            write(&format!("swanctl/x509/{name}.pem"), &certificate_pem(&key.chain[0]));
            for (i, der) in key.chain.iter().skip(1).enumerate() {
                write(&format!("swanctl/x509ca/{name}-{i}.pem"), &certificate_pem(der));
            }
        }
        for (i, authority) in authorities.iter().enumerate() {
            write(&format!("swanctl/x509ca/root-{i}.pem"), &authority.pem);
        }
        write("swanctl/swanctl.conf", swanctl);
        let uri = format!("unix://{}", at("vici").display());
        write("strongswan.conf", &configuration(&uri, &at("log"), tuning));
        let out = fs::File::create(at("out")).expect("a file");
        let child = Command::new("nsenter")
            .arg(format!("--net={namespace}"))
            .args(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /run && exec /usr/lib/ipsec/charon"])
            .env("STRONGSWAN_CONF", at("strongswan.conf"))
            .env("SWANCTL_DIR", at("swanctl"))
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a descriptor"))
            .stderr(out)
            .spawn()
            .expect("run nsenter and unshare; install util-linux");
        let swan = Self { dir, child, uri };
        let end = Instant::now() + Duration::from_secs(20);
        while !swan.dir.path().join("vici").exists() {
            assert!(
                Instant::now() < end,
                "charon does not start; install strongswan, strongswan-swanctl, libcharon-extra-plugins, \
                 libstrongswan-standard-plugins and libstrongswan-extra-plugins, run as root: {}",
                swan.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        swan.swanctl(&["--load-all"]);
        swan
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new("swanctl");
        c.args(args)
            .args(["--uri", &self.uri])
            .env("STRONGSWAN_CONF", self.dir.path().join("strongswan.conf"))
            .env("SWANCTL_DIR", self.dir.path().join("swanctl"));
        c
    }

    /// Runs swanctl to its end and gives what it said.
    pub fn swanctl(&self, args: &[&str]) -> String {
        let out = self.command(args).output().expect("run swanctl; install strongswan-swanctl");
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "swanctl {}: {text}\n{}", args.join(" "), self.log());
        text
    }

    /// Starts swanctl and does not wait: what it asks for needs the other side.
    pub fn ask(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run swanctl")
    }

    /// The SAs as `swanctl --list-sas` shows them.
    pub fn sas(&self) -> String {
        self.swanctl(&["--list-sas"])
    }

    /// Processor time that charon has used, all threads, as the scheduler counts it.
    pub fn processor_time(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.child.id());
        let of = |task: std::io::Result<fs::DirEntry>| -> Option<u64> {
            let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        let all: Vec<u64> = fs::read_dir(tasks).expect("charon's threads").filter_map(of).collect();
        assert!(all.len() > 1, "charon has threads");
        Duration::from_nanos(all.iter().sum())
    }

    /// Memory that charon has resident, in octets.
    pub fn resident(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).expect("charon's memory");
        let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number of pages");
        pages * 4096
    }

    /// charon's log.
    pub fn log(&self) -> String {
        let read = |p: &str| fs::read_to_string(self.dir.path().join(p)).unwrap_or_default();
        read("out") + &read("log")
    }
}

fn configuration(uri: &str, log: &Path, tuning: &Tuning) -> String {
    let level = if tuning.silent { -1 } else { 2 };
    format!(
        "charon {{
  load = random nonce aes sha1 sha2 hmac kdf pem pkcs1 pkcs8 x509 pubkey revocation constraints openssl curve25519 gcm chapoly \
         kernel-libipsec kernel-netlink socket-default vici updown
  filelog {{ log {{ path = {log}
    default = {default}
    ike = {level}
    cfg = {level}
    flush_line = yes }} }}
  plugins {{ vici {{ socket = {uri} }} }}
  rsa_pss = yes
  retransmit_timeout = 1.0
  retransmit_tries = 4
  {more}
}}
",
        log = log.display(),
        default = level.min(1),
        more = tuning.charon
    )
}

impl Drop for Swan {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
