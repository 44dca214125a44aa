//! HTTP/1.1 (RFC 9112) over TLS, as far as etcd's JSON gateway needs it: one POST after the other on one connection.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For the TCP connection.
const CONNECT: Duration = Duration::from_secs(1);
/// For a handshake, and for an answer.
const WHOLE: Duration = Duration::from_secs(4);
/// So long is a part of an answer waited for that comes in pieces.
const PIECES: Duration = Duration::from_secs(1);
/// The most bytes of an answer's head, and of one chunk: etcd's own bound on a message is 2 MiB.
const MOST: usize = 8 << 20;

/// TLS with our certificate, as connections begin with it that are made from now on: keys may be followed by others while one lasts.
#[derive(Clone)]
pub struct Configured(Arc<Mutex<Arc<ClientConfig>>>);

impl Configured {
    /// With this, until there is another.
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self(Arc::new(Mutex::new(config)))
    }

    /// With another.
    pub fn set(&self, config: Arc<ClientConfig>) {
        // Nothing is done under the lock that could leave it as it must not be.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    fn get(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Who is asked, and how.
#[derive(Clone)]
pub struct Target {
    /// TLS, with our certificate.
    pub config: Configured,
    /// The name in the servers' certificates.
    pub name: ServerName<'static>,
    /// Where they are.
    pub members: Vec<SocketAddr>,
}

/// TLS on TCP.
type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A connection to one of the members.
pub struct Connection<S = Tls> {
    stream: S,
    host: String,
    buffer: Vec<u8>,
}

/// How an answer's body is framed.
#[derive(Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// How a body is framed that has these headers. Names of transfer codings have no case (RFC 9112, 7); a body with both is refused (6.3), and so is
/// one with neither.
fn framing(coding: Option<&str>, length: Option<&str>) -> std::io::Result<Framing> {
    match (coding.map(str::trim), length.map(str::trim)) {
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        (None, Some(digits)) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            Ok(Framing::Length(digits.parse().map_err(other)?))
        }
        _ => Err(other("an answer without one length")),
    }
}

/// An answer whose body has not been read.
pub struct Answer {
    /// The status code.
    pub status: u16,
    framing: Framing,
}

fn other(why: impl std::fmt::Display) -> std::io::Error {
    std::io::Error::other(why.to_string())
}

impl Connection {
    /// To the first member that answers, from this one on.
    pub fn open(target: &Target, first: usize) -> std::io::Result<Self> {
        let mut failed = other("etcd has no member");
        for number in 0..target.members.len() {
            let Some(address) = target.members.get((first + number) % target.members.len()) else { break };
            match Self::open_to(target, *address) {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn open_to(target: &Target, address: SocketAddr) -> std::io::Result<Self> {
        let tcp = TcpStream::connect_timeout(&address, CONNECT)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(CONNECT))?;
        tcp.set_write_timeout(Some(CONNECT))?;
        let tls = ClientConnection::new(target.config.get(), target.name.clone()).map_err(other)?;
        let mut stream = StreamOwned::new(tls, tcp);
        let until = Instant::now() + WHOLE;
        while stream.conn.is_handshaking() {
            if Instant::now() >= until {
                return Err(other("etcd does not come to an end with its handshake"));
            }
            if stream.conn.wants_write() {
                stream.conn.write_tls(&mut stream.sock)?;
            } else if stream.conn.read_tls(&mut stream.sock)? == 0 {
                return Err(other("etcd has closed the connection"));
            } else {
                stream.conn.process_new_packets().map_err(other)?;
            }
        }
        Ok(Self::over(stream, target.name.to_str().into_owned()))
    }

    /// How long a read waits for bytes.
    pub fn patience(&self, time: Duration) -> std::io::Result<()> {
        self.stream.sock.set_read_timeout(Some(time))
    }
}

impl<S: Read + Write> Connection<S> {
    /// To `host`, which is at the other end of this stream.
    pub fn over(stream: S, host: String) -> Self {
        Self { stream, host, buffer: Vec::new() }
    }

    /// Sends a request and reads the head of its answer.
    pub fn post(&mut self, path: &str, body: &[u8]) -> std::io::Result<Answer> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body].concat())?;
        self.stream.flush()?;
        let until = Instant::now() + CONNECT * 2;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 32];
            let mut response = httparse::Response::new(&mut headers);
            let parsed = response.parse(&self.buffer).map_err(other)?;
            if let httparse::Status::Complete(length) = parsed {
                let status = response.code.unwrap_or(0);
                let value = |name: &str| {
                    let header =
                        response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
                    header.and_then(|header| std::str::from_utf8(header.value).ok())
                };
                let framing = framing(value("transfer-encoding"), value("content-length"))?;
                self.buffer.drain(..length);
                return Ok(Answer { status, framing });
            }
            if Instant::now() >= until {
                return Err(other("etcd does not answer"));
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> std::io::Result<()> {
        if self.buffer.len() > MOST {
            return Err(other("an answer that is too long"));
        }
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes)? {
            0 => Err(other("etcd has closed the connection")),
            length => {
                self.buffer.extend_from_slice(bytes.get(..length).unwrap_or_default());
                Ok(())
            }
        }
    }

    /// The next part of an answer's body; `None` at its end. A read that is interrupted by its time can be repeated.
    pub fn chunk(&mut self, answer: &mut Answer) -> std::io::Result<Option<Vec<u8>>> {
        let until = Instant::now() + PIECES;
        match &mut answer.framing {
            Framing::Length(0) => Ok(None),
            Framing::Length(length) => {
                if *length > MOST {
                    return Err(other("an answer that is too long"));
                }
                while self.buffer.len() < *length {
                    self.more_until(until)?;
                }
                Ok(Some(self.buffer.drain(..std::mem::take(length)).collect()))
            }
            Framing::Chunked => loop {
                let parsed = httparse::parse_chunk_size(&self.buffer).map_err(|_| other("no chunk"))?;
                if let httparse::Status::Complete((head, length)) = parsed {
                    let length = usize::try_from(length).map_err(other)?;
                    if length > MOST {
                        return Err(other("an answer that is too long"));
                    }
                    if length == 0 {
                        // Trailers, if any, up to an empty line.
                        let rest = self.buffer.get(head..).unwrap_or_default();
                        if rest.starts_with(b"\r\n") {
                            self.buffer.drain(..head + 2);
                            answer.framing = Framing::Length(0);
                            return Ok(None);
                        }
                        if let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") {
                            self.buffer.drain(..head + end + 4);
                            answer.framing = Framing::Length(0);
                            return Ok(None);
                        }
                    } else if self.buffer.len() >= head + length + 2 {
                        let chunk = self.buffer.get(head..head + length).unwrap_or_default().to_vec();
                        self.buffer.drain(..head + length + 2);
                        return Ok(Some(chunk));
                    }
                }
                self.more_until(until)?;
            },
        }
    }

    fn more_until(&mut self, until: Instant) -> std::io::Result<()> {
        if Instant::now() >= until {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.more()
    }

    /// A request and its whole answer.
    pub fn ask(&mut self, path: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
        let until = Instant::now() + WHOLE;
        let mut answer = self.post(path, body)?;
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk(&mut answer)? {
            if Instant::now() >= until {
                return Err(other("an answer without an end"));
            }
            whole.extend_from_slice(&chunk);
            if whole.len() > MOST {
                return Err(other("an answer that is too long"));
            }
        }
        Ok((answer.status, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_framed_in_one_way_and_the_codings_name_has_no_case() {
        for coding in ["chunked", "Chunked", "CHUNKED", " chunked "] {
            assert_eq!(framing(Some(coding), None).unwrap(), Framing::Chunked, "{coding}");
        }
        assert_eq!(framing(None, Some(" 17 ")).unwrap(), Framing::Length(17));
        for (coding, length) in [
            (None, None),
            (Some("gzip"), None),
            (Some("gzip, chunked"), None),
            (Some("chunked"), Some("17")),
            (None, Some("+17")),
            (None, Some("-1")),
            (None, Some("")),
            (None, Some("17, 17")),
            (None, Some("99999999999999999999999")),
        ] {
            assert!(framing(coding, length).is_err(), "{coding:?} {length:?}");
        }
    }
}
