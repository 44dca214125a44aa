//! The arm whose label has a kernel of its own, on an emulated processor: the program as a service in a machine, reached in a session's tunnel, as
//! a person reaches it. A partition has the host's kernel, and so has what a network of the host's is brought to.

use crate::compartment::head;
use crate::federation::FIRST;
use crate::host::processors;
use crate::netns::{Namespace, inside};
use crate::operate::text;
use crate::site::Signed;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const LABEL: &str = "LOW";
/// How long a machine may take to boot with an emulated processor on a loaded host.
const BOOT: Duration = Duration::from_secs(240);

/// The site. Its machine has as many processors as the host, so that jobs name the same one everywhere.
fn site(program: &Path, port: u16, root: &Path) -> String {
    let usual = "cpu = \"800%\"";
    let head = head(&[LABEL]).replace(usual, &format!("cpu = \"{}%\"", 100 * processors()));
    format!(
        "{head}[isolation]\nown-kernel = [\"{LABEL}\"]\nprocessor = \"emulated\"\nkernel-root = {root:?}\n\n\
         [[service]]\nname = \"operations\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"{LABEL}\"\nmode = \"direct\"\n\
         command = [{:?}, \"serve\"]\n",
        text(program)
    )
}

/// The machine, and the session that reaches it.
#[derive(Debug)]
pub(super) struct Machine {
    site: Signed,
    to: SocketAddr,
}

impl Machine {
    /// Boots it, with the kernel's package below `root`.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub(super) fn start(program: &Path, port: u16, root: &Path) -> io::Result<Machine> {
        let site = Signed::start("m", Namespace::new("mu")?, &site(program, port, root), LABEL)?;
        Ok(Machine { site, to: SocketAddr::from((FIRST.inner, port)) })
    }

    /// A connection to the program in it, once it has booted.
    ///
    /// # Errors
    /// When nobody answers in time.
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let (end, to) = (Instant::now() + BOOT, self.to);
        loop {
            let connect = move || TcpStream::connect_timeout(&to, Duration::from_secs(5));
            match inside(&self.site.client(), connect) {
                Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(200)),
                done => return done,
            }
        }
    }
}
