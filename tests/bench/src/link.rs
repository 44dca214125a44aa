//! The two namespaces, the link between them, and the servers of the workloads.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use levee_lab::netns::Namespace;

/// What every TCP connection uses: set on each socket and read back at both ends, because hosts differ.
pub const CONGESTION: &str = "cubic";
/// The link's addresses: the server's, the client's.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// See [`SERVER`].
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Connections served at once: one in each of a hundred labels, and those of a trial before whose tunnel is gone.
pub const CONNECTIONS: usize = 256;
/// Where the workloads are served, at every address of the server's namespace.
pub const PORT: u16 = 12_865;

/// A process that is killed when dropped.
#[derive(Debug)]
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // Gone already when it failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The link.
#[derive(Debug)]
pub struct Link {
    serve: Guard,
    /// The server's namespace.
    pub server: Namespace,
    /// The client's namespace.
    pub client: Namespace,
}

impl Link {
    /// Makes it.
    ///
    /// # Errors
    /// Without root, or `ip`.
    pub fn new() -> io::Result<Self> {
        levee_lab::netns::sweep()?;
        let (server, client) = (Namespace::new("bs")?, Namespace::new("bc")?);
        server.link(&client, SERVER, CLIENT, "eth0")?;
        // A stream whose client is gone without a word, with the tunnel that it came by, holds its server for about 13 s
        // and not for a quarter of an hour.
        server.sysctl("net/ipv4/tcp_retries2", "5")?;
        // No connection knows what one before it met on the way: a way that was bad for a while is not slow for ever.
        for end in [&server, &client] {
            end.sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
        }
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--with-parent", "--listen", &format!("0.0.0.0:{PORT}"), "--netns"])
            .arg(server.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take();
        let serve = Guard(child);
        let mut line = String::new();
        if let Some(out) = out {
            BufReader::new(out).read_line(&mut line)?;
        }
        if line.trim() != "ready" {
            return Err(io::Error::other("the workloads' server did not start (see above)"));
        }
        Ok(Self { serve, server, client })
    }
}

impl Link {
    /// The process that serves the workloads.
    pub fn served_by(&self) -> u32 {
        self.serve.0.id()
    }
}

/// An open file of a namespace, to work in it.
///
/// # Errors
/// When it is gone.
pub fn open(space: &Namespace) -> io::Result<File> {
    File::open(space.path())
}

/// Where the workloads are served at this address.
pub fn served_at(address: Ipv4Addr) -> SocketAddr {
    SocketAddr::from((address, PORT))
}
