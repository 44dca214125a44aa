//! Ways to put processes between a connection and the service, as services that a compartment can run: the paper's
//! own scheme, and its parts apart. levee has none of them; the laboratory measures what they would cost.
//!
//! Each takes its listener as levee passes it (`LISTEN_FDS`), and starts `levee-lab serve` behind itself.

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair, sockopt};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;

/// What stands between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheme {
    /// A process of the service for each connection, which it is handed.
    Inetd,
    /// One process that copies, to one daemon of the service behind it.
    Proxy,
    /// A process for each connection, which starts the service's process and copies between.
    SpawnCopy,
}

/// Bytes copied at once.
const CHUNK: usize = 65_536;

fn this() -> io::Result<Command> {
    // levee starts services by their whole path, and a compartment has no /proc where a program could ask for its own.
    let own = std::env::args_os().next().filter(|own| std::path::Path::new(own).is_absolute());
    let mut c = Command::new(own.map_or_else(std::env::current_exe, |own| Ok(own.into()))?);
    // a service's environment names listeners, which are not for those behind it
    c.env_clear().stdout(Stdio::null());
    Ok(c)
}

fn serve_one(connection: OwnedFd, close: bool) -> io::Result<Child> {
    let mut c = this()?;
    c.args(["serve", "--inetd", "--with-parent"]).stdin(Stdio::from(connection));
    if close {
        c.arg("--close");
    }
    c.spawn()
}

/// One direction to its end, which is passed on.
fn copy(mut from: impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buf = vec![0_u8; CHUNK];
    loop {
        let n = from.read(&mut buf)?;
        match buf.get(..n) {
            None | Some([]) => return Ok(()),
            Some(part) => to.write_all(part)?,
        }
    }
}

/// Answers what only the end of the client's own connection can: its congestion control (verb `a`).
fn answered(mut s: &TcpStream) -> io::Result<bool> {
    let mut verb = [0_u8; 1];
    let (n, _) = recv(s, &mut verb, RecvFlags::PEEK)?;
    if n == 1 && verb == [b'a'] {
        s.read_exact(&mut verb)?;
        s.write_all(sockopt::tcp_congestion(s)?.as_bytes())?;
        return Ok(true);
    }
    Ok(false)
}

/// The process for one connection, which it has as descriptor 0.
///
/// # Errors
/// When the service cannot be started, or a copy fails otherwise than by either side closing.
pub fn one(connection: OwnedFd, close: bool) -> io::Result<()> {
    let client = TcpStream::from(connection);
    rustix::io::ioctl_fionbio(&client, false)?;
    client.set_nodelay(true)?;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut child = serve_one(far, close)?;
    let near = UnixStream::from(near);
    if !close && answered(&client)? {
        drop(near);
        return child.wait().map(drop);
    }
    thread::scope(|scope| {
        let (from, mut to) = (&client, &near);
        let onward = scope.spawn(move || {
            drop(copy(from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
        let r = copy(&near, &mut &client);
        // the service has closed: the client hears of it, and a copy that waits for more is over
        drop(client.shutdown(Shutdown::Both));
        drop(onward.join());
        r
    })
    .or_else(ended)?;
    // one that still writes must hear that nobody reads
    drop(near);
    child.wait().map(drop)
}

/// That the other side is gone is no fault of a copy.
fn ended(e: io::Error) -> io::Result<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    if matches!(e.kind(), BrokenPipe | ConnectionReset | NotConnected) { Ok(()) } else { Err(e) }
}

/// Between a client and the daemon behind.
fn between(client: &TcpStream, to: SocketAddr, close: bool) -> io::Result<()> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(to)?;
    server.set_nodelay(true)?;
    if !close && answered(client)? {
        return Ok(());
    }
    thread::scope(|scope| {
        let (mut a, b) = (&server, client);
        scope.spawn(move || {
            drop(copy(b, &mut a));
            drop(a.shutdown(Shutdown::Write));
        });
        let r = copy(&server, &mut &*client);
        drop(client.shutdown(Shutdown::Both));
        r
    })
    .or_else(ended)
}

/// Starts the daemon behind a proxy, on the loopback device of the compartment, and says where it is.
fn daemon(own: u16, close: bool) -> io::Result<(Child, SocketAddr)> {
    let at = |distance: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, own.saturating_add(distance)));
    let mut c = this()?;
    c.args(["serve", "--with-parent", "--listen", &at(if close { 200 } else { 100 }).to_string()]);
    if close {
        c.args(["--close", &at(100).to_string()]);
    }
    let mut child = c.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() == "ready" {
        Ok((child, at(100)))
    } else {
        Err(io::Error::other("the daemon behind did not start"))
    }
}

/// Mediates what connects to the listener that was passed, for ever.
///
/// # Errors
/// When nothing was passed, or the daemon behind a proxy does not start.
pub fn mediate(scheme: Scheme, close: bool) -> io::Result<()> {
    let mut env = listenfd::ListenFd::from_env();
    let listener: TcpListener =
        env.take_tcp_listener(0)?.ok_or_else(|| io::Error::other("LISTEN_FDS passed no listener"))?;
    rustix::io::ioctl_fionbio(&listener, false)?;
    let behind = match scheme {
        Scheme::Proxy => Some(daemon(listener.local_addr()?.port(), close)?),
        _ => None,
    };
    println!("ready");
    let mut children: Vec<Child> = Vec::new();
    loop {
        let client = match listener.accept() {
            Ok((s, _)) => s,
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                continue;
            }
            Err(e) => return Err(e),
        };
        children.retain_mut(|c| matches!(c.try_wait(), Ok(None)));
        match scheme {
            Scheme::Inetd => children.push(serve_one(client.into(), close)?),
            Scheme::SpawnCopy => {
                let mut c = this()?;
                c.args(["mediate", "--one"]).stdin(Stdio::from(OwnedFd::from(client)));
                if close {
                    c.arg("--close");
                }
                children.push(c.spawn()?);
            }
            Scheme::Proxy => {
                if let Some((_, to)) = &behind {
                    let to = *to;
                    thread::spawn(move || drop(between(&client, to, close)));
                }
            }
        }
    }
}
