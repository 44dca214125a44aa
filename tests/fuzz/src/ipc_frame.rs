//! The trusted path's frames, as a tps child and a workstation's agent read them from TLS.
//!
//! Input: the length of the pieces that the bytes come in, then parts, each behind a byte of options and two bytes of length.
//! Options: 1: the part is a message, and gets the right frame; else it is part of the stream as it is. 2: it is written of a larger class.

use levee_ipc::client::{Reply, Request};
use levee_ipc::{CLASSES, FrameReader, decode, encode_frame};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A frame with these octets for its message.
fn framed(message: &[u8], larger: bool) -> Vec<u8> {
    let class = CLASSES.into_iter().find(|class| message.len() + 2 <= *class && (!larger || *class > 2_048));
    let Some(class) = class else { return Vec::new() };
    let mut frame = u16::try_from(class).expect("a class").to_be_bytes().to_vec();
    frame.extend(u16::try_from(message.len()).expect("shorter").to_be_bytes());
    frame.extend(message);
    frame.resize(2 + class, 0);
    frame
}

/// The messages of a stream that comes in pieces of so many octets, each as it is written again, and whether it came to an error.
fn read<T: Serialize + DeserializeOwned>(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut reader, mut messages) = (FrameReader::default(), Vec::new());
    let mut rest = stream;
    loop {
        loop {
            match reader.take::<T>() {
                Ok(Some(message)) => messages.push(encode_frame(&message).expect("it was shorter").to_vec()),
                Ok(None) => break,
                Err(_) => return (messages, true),
            }
        }
        let space = reader.space();
        assert!(!space.is_empty(), "a frame that is not whole leaves room for the rest of it");
        let length = space.len().min(piece).min(rest.len());
        if length == 0 {
            return (messages, false);
        }
        let (now, later) = rest.split_at(length);
        space[..length].copy_from_slice(now);
        reader.advance(length);
        rest = later;
    }
}

fn check<T: Serialize + DeserializeOwned>(stream: &[u8], piece: usize, expected: Option<usize>) {
    let (messages, failed) = read::<T>(stream, piece);
    assert_eq!((&messages, failed), (&read::<T>(stream, usize::MAX).0, failed), "however the stream is cut");
    for frame in &messages {
        assert_eq!(read::<T>(frame, usize::MAX), (vec![frame.clone()], false));
    }
    if let Some(expected) = expected {
        assert_eq!(messages.len(), expected, "every message in its frame is taken");
    }
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&piece, mut rest)) = input.split_first() else { return };
    let (mut stream, mut requests, mut whole) = (Vec::new(), 0, true);
    while let Some((&[options, high, low], tail)) = rest.split_first_chunk::<3>() {
        let (part, tail) = tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([high & 0x1f, low]))));
        rest = tail;
        if options & 1 == 0 {
            stream.extend(part);
            whole &= part.is_empty();
        } else {
            let frame = framed(part, options & 2 != 0);
            // Whether a stream goes on behind a message that is none, nobody needs to know.
            whole &= decode::<Request>(part).is_ok() && !part.is_empty() && !frame.is_empty();
            requests += usize::from(!frame.is_empty());
            stream.extend(frame);
        }
    }
    let piece = usize::from(piece) * 16 + 1;
    check::<Request>(&stream, piece, whole.then_some(requests));
    check::<Reply>(&stream, piece, None);
}
