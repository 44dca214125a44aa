//! Messages on a byte stream: a big-endian `u16` length, then that many bytes of postcard.

use crate::client::MAX_FRAME;
use serde::{Serialize, de::DeserializeOwned};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of the length before each message.
const HEADER: usize = 2;

/// Why a stream's bytes are not a message, or a message does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Empty, or larger than [`MAX_FRAME`].
    Length,
    /// Not of the expected type, or with bytes left over.
    Malformed,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Length => "a message that is empty or too long",
            Self::Malformed => "a malformed message",
        })
    }
}
impl std::error::Error for FrameError {}

/// One message as it goes on the wire, length first.
///
/// # Errors
/// [`FrameError::Length`] if it has more than [`MAX_FRAME`] bytes.
pub fn encode_frame<T: Serialize>(message: &T) -> Result<Zeroizing<Vec<u8>>, FrameError> {
    // Sized beforehand: a buffer that grows would leave unerased copies of a password behind.
    let mut frame = Zeroizing::new(vec![0u8; HEADER + MAX_FRAME]);
    let body = frame.get_mut(HEADER..).ok_or(FrameError::Length)?;
    let length = postcard::to_slice(message, body).map_err(|_| FrameError::Length)?.len();
    let prefix = u16::try_from(length).map_err(|_| FrameError::Length)?.to_be_bytes();
    frame.get_mut(..HEADER).ok_or(FrameError::Length)?.copy_from_slice(&prefix);
    frame.truncate(HEADER + length);
    Ok(frame)
}

/// Collects a stream's bytes and gives out its messages. What has been given out is erased.
pub struct FrameReader {
    buffer: Zeroizing<Vec<u8>>,
    filled: usize,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self { buffer: Zeroizing::new(vec![0; HEADER + MAX_FRAME]), filled: 0 }
    }
}

impl FrameReader {
    /// Where the stream's next bytes go. It is empty only while a whole message waits for [`Self::take`].
    pub fn space(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.filled..).unwrap_or_default()
    }

    /// So many bytes of [`Self::space`] have been filled.
    pub fn advance(&mut self, bytes: usize) {
        self.filled = self.filled.saturating_add(bytes).min(self.buffer.len());
    }

    /// Whether part of a message, or more, is here.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The next whole message, or `None` if its bytes are not all here yet.
    ///
    /// # Errors
    /// After any error the stream has no more meaning and must be given up.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some((header, rest)) =
            self.buffer.get(..self.filled).and_then(|b| b.split_first_chunk::<HEADER>())
        else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes(*header));
        if length == 0 || length > MAX_FRAME {
            return Err(FrameError::Length);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let parsed = match postcard::take_from_bytes(body) {
            Ok((message, [])) => Ok(Some(message)),
            _ => Err(FrameError::Malformed),
        };
        let end = HEADER + length;
        self.buffer.copy_within(end..self.filled, 0);
        let left = self.filled - end;
        if let Some(stale) = self.buffer.get_mut(left..self.filled) {
            stale.zeroize();
        }
        self.filled = left;
        parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(reader: &mut FrameReader, bytes: &[u8]) {
        reader.space()[..bytes.len()].copy_from_slice(bytes);
        reader.advance(bytes.len());
    }

    #[test]
    fn messages_come_out_whole_however_the_stream_is_cut() {
        let mut wire = encode_frame(&"one".to_string()).unwrap().to_vec();
        wire.extend_from_slice(&encode_frame(&"two".to_string()).unwrap());
        for cut in 0..=wire.len() {
            let mut reader = FrameReader::default();
            let mut got = Vec::new();
            for part in [&wire[..cut], &wire[cut..]] {
                feed(&mut reader, part);
                while let Some(message) = reader.take::<String>().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, ["one", "two"]);
            assert!(reader.is_empty());
            assert!(reader.buffer.iter().all(|&byte| byte == 0), "consumed bytes must be erased");
        }
    }

    #[test]
    fn empty_oversize_and_malformed_frames_are_refused() {
        let mut reader = FrameReader::default();
        feed(&mut reader, &[0, 0]);
        assert_eq!(reader.take::<String>(), Err(FrameError::Length));
        let mut reader = FrameReader::default();
        feed(&mut reader, &u16::try_from(MAX_FRAME + 1).unwrap().to_be_bytes());
        assert_eq!(reader.take::<String>(), Err(FrameError::Length));
        let mut reader = FrameReader::default();
        feed(&mut reader, &[0, 3, 1, b'x', b'y']);
        assert_eq!(reader.take::<String>(), Err(FrameError::Malformed), "bytes left over");
        assert_eq!(encode_frame(&vec![7u8; MAX_FRAME]).unwrap_err(), FrameError::Length);
    }

    #[test]
    fn the_largest_message_fits() {
        let text = "x".repeat(MAX_FRAME - 3);
        let wire = encode_frame(&text).unwrap();
        let mut reader = FrameReader::default();
        feed(&mut reader, &wire);
        assert_eq!(reader.take::<String>().unwrap().as_deref(), Some(text.as_str()));
    }
}
