//! What etcd, or who stands in its place, answers to fsd.
//!
//! Input: the length of the pieces that it comes in, a byte of options, then the answer. Options: 1: the answer is given its head and
//! is one chunk; 2: it is one to a request, and not a watch that goes on.
//!
//! The program is no library: the two files are compiled here as well.

#[path = "../../../daemons/fsd/src/http.rs"]
pub mod http;
#[path = "../../../daemons/fsd/src/etcd.rs"]
pub mod table;

use std::io::{Read, Write};

use http::Connection;
use levee_ipc::federation::{ENVELOPE, PAGE, PAGES};
use table::{Found, News, OwnKeys, Table, Watch};

/// A stream that says this, in pieces, and takes anything.
struct Said<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl Read for Said<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let length = self.piece.min(to.len()).min(self.rest.len());
        let (now, later) = self.rest.split_at(length);
        to[..length].copy_from_slice(now);
        self.rest = later;
        Ok(length)
    }
}

impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn connection(stream: &[u8], piece: usize) -> Connection<Said<'_>> {
    Connection::over(Said { rest: stream, piece }, "etcd.example".to_owned())
}

/// All that a watch says until it ends.
fn watched(stream: &[u8], piece: usize) -> Vec<News> {
    let place =
        OwnKeys { site: "harbour".parse().expect("a site"), me: "one.example".parse().expect("a name") };
    let table = Table::new(
        &place,
        vec!["one.example".parse().expect("a name"), "two.example".parse().expect("a name")],
    );
    let mut connection = connection(stream, piece);
    let Ok(answer) = connection.post("/v3/watch", b"{}") else { return Vec::new() };
    let mut watch = Watch::over(connection, answer);
    let mut batches = Vec::new();
    while let Ok(Some(batch)) = watch.next(&table) {
        batches.push(batch);
    }
    batches
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&[piece, options], answer)) = input.split_first_chunk::<2>() else { return };
    let piece = usize::from(piece) * 8 + 1;
    let stream = if options & 1 == 0 {
        answer.to_vec()
    } else {
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", answer.len());
        [head.as_bytes(), answer, b"\r\n0\r\n\r\n"].concat()
    };
    if options & 2 != 0 {
        if let Ok((_, body)) = connection(&stream, piece).ask("/v3/kv/range", b"{}") {
            assert!(body.len() <= stream.len(), "an answer is not longer than what came");
            if options & 1 != 0 {
                assert_eq!(body, answer);
            }
        }
        return;
    }
    let batches = watched(&stream, piece);
    assert_eq!(batches, watched(&stream, usize::MAX), "however the answer is cut");
    let mut bytes_in_all = 0;
    for found in batches.iter().flat_map(|batch| &batch.found) {
        let (bytes, most) = match found {
            Found::Envelope(bytes) => (bytes, ENVELOPE),
            Found::Page { page, bytes, .. } => {
                assert!(usize::from(*page) < PAGES);
                (bytes, PAGE)
            }
        };
        assert!((1..=most).contains(&bytes.len()));
        bytes_in_all += bytes.len();
    }
    assert!(bytes_in_all <= stream.len(), "nothing is longer than what came");
}
