//! What a label's own file system of programs costs beside a `/usr` that all share: time until nginx has answered for the first
//! time in a new compartment, and the memory that is charged to it then.
//!
//! `cargo run --release -p levee-warden --example label-cost` (after `cargo build --release --workspace --bins`), as root. Its
//! figures are in `docs/SPECIFICATION.md`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use levee_policy::LabelName;
use levee_policy::site::{Mode, Needs, Program, Protocol};
use levee_sys::cgroup::Limits;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::ns;
use levee_warden::compartment::proto::ToInit;
use levee_warden::compartment::service::Served;
use levee_warden::compartment::{Compartment, Files, Network, Plan, Programs, Spec, Store};
use levee_warden::programs::{self, Wanted};
use std::os::fd::AsRawFd;

type Failed = Box<dyn std::error::Error>;

const ROUNDS: u32 = 50;

fn main() -> Result<(), Failed> {
    let memory = Mount::tmpfs(1 << 30, 16, 0o700, Attributes::DATA)?;
    let wanted = Wanted::new(["/usr/sbin/nginx".to_owned()], []);
    let begun = Instant::now();
    programs::make(&wanted, memory.root())?;
    let image = PathBuf::from(format!("/proc/self/fd/{}/{}", memory.root().as_raw_fd(), wanted.file_name()));
    println!(
        "image: {} MiB, there after {:.1} s",
        fs::metadata(&image)?.len() >> 20,
        begun.elapsed().as_secs_f64()
    );
    let directory = tempfile::tempdir_in("/var/tmp")?;
    let store = directory.path().join("own.img");
    Store::create(&store, 8 << 20)?;
    let forms = [("shared", Programs::Host), ("own", Programs::Image(image))];
    let mut seen: Vec<Vec<(f64, u64)>> = vec![Vec::new(); forms.len()];
    // In turn, so that the host's load meets all alike; the first is to warm up.
    for round in 0..=ROUNDS {
        for ((_, programs), seen) in forms.iter().zip(&mut seen) {
            let cost = once(round, programs.clone(), &store)?;
            if round > 0 {
                seen.push(cost);
            }
        }
    }
    for ((name, _), mut seen) in forms.iter().zip(seen) {
        seen.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = |at: usize| seen.get(at).copied().unwrap_or_default();
        let mut bytes: Vec<u64> = seen.iter().map(|(_, bytes)| *bytes).collect();
        bytes.sort_unstable();
        println!(
            "{name:>6}: first answer after {:.1} ms (least {:.1}), {:.1} MiB charged",
            median(seen.len() / 2).0,
            median(0).0,
            *bytes.get(bytes.len() / 2).unwrap_or(&0) as f64 / f64::from(1 << 20)
        );
    }
    Ok(())
}

/// Milliseconds until the first answer, and bytes charged then.
fn once(round: u32, programs: Programs, store: &Path) -> Result<(f64, u64), Failed> {
    let network = Network::new()?;
    let address: SocketAddr = "127.0.0.1:80".parse()?;
    let listener = network.listen(address)?;
    let label = LabelName::new("SECRET")?;
    let served = Served {
        name: "web".parse()?,
        label: label.clone(),
        program: Program::Nginx,
        mode: Mode::Direct,
        protocol: Protocol::Tcp,
        addresses: vec![address],
        uploads: false,
        below: Vec::new(),
        more: false,
        needs: Needs::default(),
    };
    let group = format!("levee-cost/{}-{round}", std::process::id());
    let spec = Spec {
        label,
        cgroup: group.clone(),
        uid_base: 0x7100_0000,
        limits: Limits { memory: 512 << 20, processes: 64, cpu_percent: 200 },
        processors: None,
        hostname: "cost".into(),
        hosts: Vec::new(),
        files: Files::Store { own: store.to_owned(), below: None },
        pages: true,
        scratch: 8 << 20,
        programs,
        needs: Needs::default(),
        contexts: None,
    };
    let own = std::env::current_exe()?;
    let init = own.ancestors().nth(2).unwrap_or(Path::new("/")).join("levee-init");
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    let begun = Instant::now();
    let given = vec![(ToInit::Service { served, off: false }, vec![null.into(), listener])];
    let compartment = Compartment::start_with(&Plan::new(&spec), &network, &init, given)?;
    let answered = ns::in_net(network.ns(), || -> std::io::Result<usize> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        stream.read(&mut [0; 64])
    })??;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    if answered == 0 {
        return Err("nginx did not answer".into());
    }
    let charged = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .iter()
        .flat_map(|root| {
            ["memory.usage_in_bytes", "memory.current"].map(|file| format!("{root}/{group}/{file}"))
        })
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    compartment.stop()?;
    Ok((took, charged.ok_or("no control group counts memory")?))
}
