//! MACsec (IEEE 802.1AE) around the same protocols (`levee lab run macsec`): the network between two ends of one machine of `scripts/guest`'s, whose
//! kernel has it, as the laboratory's host may not. There SSH, SFTP and HTTPS go over a link, over MACsec on it, over the kernel's ESP, and over both.

use super::archive::File;
use super::layers::{Kit, SERVED, SESSION};
use crate::netns::tool;
use crate::operate::text;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, io, str};

/// Where the files of both ends are in a machine.
const AT: &str = "/kit";
/// The server's end of the machine's link, as the operations know it.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 215, 1, 2);
/// What runs in it beside its own: each with its libraries.
const PROGRAMS: [&str; 5] =
    ["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/sftp", "/usr/sbin/nginx", "/usr/bin/curl"];
/// What newer versions of OpenSSH's server start for themselves.
const PARTS: [&str; 2] = ["/usr/lib/openssh/sshd-session", "/usr/lib/openssh/sshd-auth"];
/// Octets of the large file.
const LARGE: usize = 4 << 20;

/// What makes a machine what the arm says, at its console, and then shows it by what is on the wire. `None`: there is no such arm.
pub(super) fn commands(arm: &str) -> Option<Vec<String>> {
    let (macsec, esp) = match arm {
        "link" => (false, false),
        "macsec" => (true, false),
        "esp" => (false, true),
        "macsec+esp" => (true, true),
        _ => return None,
    };
    let device = if macsec { "sec" } else { "pair" };
    let seen = match (macsec, esp) {
        (true, _) => "macsec",
        (false, true) => "esp",
        (false, false) => "clear",
    };
    let mut all: Vec<String> = [
        "busybox --install -s /bin; mkdir -p /run/netns /run/sshd /var/empty && chmod 755 /run/sshd /var/empty",
        "mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm && ip link set lo up && modprobe veth",
        "ip netns add far && ip -n far link set lo up && ip link add pair type veth peer name pair netns far",
        "ip link set pair address 02:00:00:00:00:01 && ip -n far link set pair address 02:00:00:00:00:02",
        // A queue that counts what goes out as it is on a wire: a super-segment as so many packets. (busybox would take its own tc.)
        "/bin/tc qdisc replace dev pair root pfifo limit 100000 && /bin/tc -n far qdisc replace dev pair root pfifo limit 100000",
        "ip link set pair up && ip -n far link set pair up",
    ]
    .map(str::to_owned)
    .into();
    if macsec {
        all.push("modprobe macsec".into());
        all.extend([1, 2].map(secured));
    }
    for (own, far) in [(1, ""), (2, "-n far ")] {
        all.push(format!(
            "ip {far}address add 10.215.1.{own}/24 dev {device} && ip {far}link set {device} up"
        ));
        if esp {
            all.push(associations(own, far));
        }
    }
    let (ssh, sshd) = (SERVED[0].1, format!("/usr/sbin/sshd -i -f {AT}/sshd.conf"));
    all.push(format!(
        "ip netns exec far socat TCP-LISTEN:{ssh},bind={SERVER},reuseaddr,fork EXEC:\"{sshd}\",nofork >/dev/null 2>&1 &"
    ));
    all.push(format!(
        "ip netns exec far /usr/sbin/nginx -e {AT}/nginx.log -c {AT}/server-nginx.conf >/dev/null 2>&1 &"
    ));
    all.push(format!("/operations packets pair pair {seen}"));
    all.extend(
        ["server", "client"]
            .map(|end| format!("dd if=/dev/urandom of={AT}/{end}/large bs={LARGE} count=1 2>/dev/null")),
    );
    // A server may still be starting.
    let once = format!("/bin/sh {AT}/jobs/https >/dev/null");
    all.push(format!(
        "n=0; until {once}; do n=$((n+1)); [ $n -lt 10 ] || break; sleep 1; done; [ $n -lt 10 ]"
    ));
    Some(all)
}

/// One end's MACsec, with a key each way that both know: AES-256-GCM, everything encrypted.
fn secured(end: u8) -> String {
    let (far, other) = if end == 1 { ("", 2) } else { ("-n far ", 1) };
    let key = |of: u8| format!("key 0{of} {}", format!("{of:02x}").repeat(32));
    let peer = format!("sec rx port 1 address 02:00:00:00:00:0{other}");
    format!(
        "ip {far}link add link pair sec type macsec cipher gcm-aes-256 encrypt on && ip {far}macsec add sec tx sa 0 pn 1 on {} && \
         ip {far}macsec add {peer} && ip {far}macsec add {peer} sa 0 pn 1 on {}",
        key(end),
        key(other)
    )
}

/// One end's ESP, in transport mode: an association each way (AES-256-GCM, RFC 4106), and what asks for them.
fn associations(own: u8, far: &str) -> String {
    let other = 3 - own;
    let state = |from: u8, to: u8| {
        let key = format!("{from:02x}").repeat(36);
        format!(
            "ip {far}xfrm state add src 10.215.1.{from} dst 10.215.1.{to} proto esp spi 0x100{from} mode transport \
             aead 'rfc4106(gcm(aes))' 0x{key} 128"
        )
    };
    let policy = |from: u8, to: u8, way: &str| {
        format!(
            "ip {far}xfrm policy add src 10.215.1.{from} dst 10.215.1.{to} dir {way} tmpl proto esp mode transport"
        )
    };
    [state(own, other), state(other, own), policy(own, other, "out"), policy(other, own, "in")].join(" && ")
}

/// What is in a machine beside its own: programs with their libraries, and the files of both ends.
///
/// # Errors
/// Which cannot be had, and what to install.
pub(super) fn files() -> io::Result<Vec<File>> {
    let kit = Kit::make()?;
    kit.nginx("server", SERVER)?;
    let mut all = Vec::new();
    for program in PROGRAMS {
        if !Path::new(program).exists() {
            return Err(io::Error::other(format!("{program} is not there: run scripts/need study")));
        }
    }
    let parts = PARTS.into_iter().filter(|part| Path::new(part).exists());
    let mut needed = BTreeSet::new();
    for program in PROGRAMS.into_iter().chain(parts) {
        needed.insert(program.to_owned());
        let said = tool("ldd", &[program])?;
        needed.extend(said.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned));
    }
    for path in &needed {
        all.push(File::read(Path::new(path), path)?);
    }
    let users = "root:x:0:0:root:/kit/client:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n\
                 nobody:x:65534:65534::/var/empty:/bin/false\n";
    all.push(File::new("/etc/passwd", 0o644, users));
    all.push(File::new("/etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"));
    for (row, job) in jobs() {
        all.push(File::new(&format!("{AT}/jobs/{row}"), 0o644, &job));
    }
    all.extend(ends(&kit)?);
    Ok(all)
}

/// The files of both ends, where they are in a machine. What names its own place names that one.
fn ends(kit: &Kit) -> io::Result<Vec<File>> {
    let (mut all, mut left) = (Vec::new(), vec![kit.directory().to_owned()]);
    while let Some(directory) = left.pop() {
        let here = |path: &Path| text(path).replacen(&text(kit.directory()), AT, 1);
        all.push(File::directory(&here(&directory)));
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let mut file = File::read(&path, &here(&path))?;
            file.mode = 0o100_000 | fs::metadata(&path)?.permissions().mode() & 0o777;
            if let Ok(words) = str::from_utf8(&file.content) {
                file.content = words.replace(&text(kit.directory()), AT).into_bytes();
            }
            all.push(file);
        }
    }
    Ok(all)
}

/// What one iteration of each row is, for the machine's shell.
fn jobs() -> [(&'static str, String); 5] {
    let identity =
        format!("-F none -i {AT}/key -o BatchMode=yes -o HostKeyAlias=lab -o UserKnownHostsFile={AT}/known");
    let (ssh, https) = (SERVED[0].1, SERVED[1].1);
    let sftp = |batch: &str| format!("sftp {identity} -q -b {batch} -P {ssh} root@{SERVER}");
    let name = "server.lab.example";
    let path = "PATH=/bin:/usr/bin:/usr/sbin\n";
    let there = format!("{path}cd {AT}/client || exit 1\n");
    let transfer = |batch: &str, after: &str| {
        format!("{there}printf '{batch}' >{AT}/batch\n{}{after}", sftp(&format!("{AT}/batch")))
    };
    [
        (
            "ssh",
            format!("{there}exec ssh {identity} -T -p {ssh} root@{SERVER} \"cd {AT}/server; {SESSION}\"\n"),
        ),
        ("sftp", format!("{there}exec {}\n", sftp(&format!("{AT}/typical")))),
        (
            "https",
            format!(
                "{path}exec curl -sS --fail --cacert {AT}/tls.crt --resolve {name}:{https}:{SERVER} -o /dev/null https://{name}:{https}/page\n"
            ),
        ),
        ("sftp-down", transfer("get large largeDw\\n", " && rm largeDw\n")),
        ("sftp-up", transfer("put large largeUp\\nrm largeUp\\n", "\n")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_arm_shows_what_is_on_its_wire_and_has_one_key_each_way() {
        for (arm, seen) in [("link", "clear"), ("macsec", "macsec"), ("esp", "esp"), ("macsec+esp", "macsec")]
        {
            let all = commands(arm).expect(arm);
            assert!(all.contains(&format!("/operations packets pair pair {seen}")), "{all:?}");
            assert_eq!(all.iter().any(|c| c.contains("type macsec")), arm.starts_with("macsec"), "{all:?}");
            assert_eq!(all.iter().any(|c| c.contains("xfrm state")), arm.ends_with("esp"), "{all:?}");
        }
        assert!(commands("off").is_none(), "another study's");
        let (one, other) = (secured(1), secured(2));
        for key in ["01".repeat(32), "02".repeat(32)] {
            assert!(one.contains(&key) && other.contains(&key), "{one} {other}");
        }
    }
}
