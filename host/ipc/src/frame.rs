//! Messages on a byte stream: a big-endian `u16` length, which is one of [`CLASSES`], and behind it so many bytes: the length of the
//! message in another `u16`, the message in postcard, zeros. Who sees the stream's records sees no more of a message than its class.

use crate::client::MAX_FRAME;
use serde::{Serialize, de::DeserializeOwned};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of each of the two lengths before a message.
const HEADER: usize = 2;

/// The lengths that there are on the wire, the outer one not counted. What a person asks is in the first, and the answers too, unless a
/// site has labels or servers by the dozen.
pub const CLASSES: [usize; 3] = [2_048, 8_192, HEADER + MAX_FRAME];

/// The longest message with its lengths.
const LARGEST: usize = HEADER + HEADER + MAX_FRAME;

/// Why a stream's bytes are not a message, or a message does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Empty, larger than [`MAX_FRAME`], or of no class.
    Length,
    /// Not of the expected type, with bytes left over, or with others than zeros behind it.
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
/// [`FrameError::Length`] if it has no byte, or more than [`MAX_FRAME`]: nobody would take it.
pub fn encode_frame<T: Serialize>(message: &T) -> Result<Zeroizing<Vec<u8>>, FrameError> {
    // Sized beforehand: a buffer that grows would leave unerased copies of a password behind.
    let mut frame = Zeroizing::new(vec![0u8; LARGEST]);
    let body = frame.get_mut(2 * HEADER..).ok_or(FrameError::Length)?;
    let length = postcard::to_slice(message, body).map_err(|_| FrameError::Length)?.len();
    if length == 0 {
        return Err(FrameError::Length);
    }
    let class = CLASSES.into_iter().find(|class| HEADER + length <= *class).ok_or(FrameError::Length)?;
    for (place, length) in [(0, class), (HEADER, length)] {
        let prefix = u16::try_from(length).map_err(|_| FrameError::Length)?.to_be_bytes();
        frame.get_mut(place..place + HEADER).ok_or(FrameError::Length)?.copy_from_slice(&prefix);
    }
    frame.truncate(HEADER + class);
    Ok(frame)
}

/// Collects a stream's bytes and gives out its messages. What has been given out is erased.
pub struct FrameReader {
    buffer: Zeroizing<Vec<u8>>,
    filled: usize,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self { buffer: Zeroizing::new(vec![0; LARGEST]), filled: 0 }
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
        let class = usize::from(u16::from_be_bytes(*header));
        if !CLASSES.contains(&class) {
            return Err(FrameError::Length);
        }
        let Some(padded) = rest.get(..class) else { return Ok(None) };
        let parsed = message(padded).map(Some);
        let end = HEADER + class;
        self.buffer.copy_within(end..self.filled, 0);
        let left = self.filled - end;
        if let Some(stale) = self.buffer.get_mut(left..self.filled) {
            stale.zeroize();
        }
        self.filled = left;
        parsed
    }
}

/// What is behind a class.
fn message<T: DeserializeOwned>(padded: &[u8]) -> Result<T, FrameError> {
    let (length, rest) = padded.split_first_chunk::<HEADER>().ok_or(FrameError::Length)?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (body, padding) = rest.split_at_checked(length).ok_or(FrameError::Length)?;
    if length == 0 {
        return Err(FrameError::Length);
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) if padding.iter().all(|byte| *byte == 0) => Ok(message),
        _ => Err(FrameError::Malformed),
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

    /// A frame of this class whose message is said to be of this length.
    fn frame(class: usize, length: u16, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER + class];
        frame[..2].copy_from_slice(&u16::try_from(class).unwrap().to_be_bytes());
        frame[2..4].copy_from_slice(&length.to_be_bytes());
        frame[4..4 + body.len()].copy_from_slice(body);
        frame
    }

    fn taken(bytes: &[u8]) -> Result<Option<String>, FrameError> {
        let mut reader = FrameReader::default();
        feed(&mut reader, bytes);
        reader.take()
    }

    #[test]
    fn empty_oversize_and_malformed_frames_are_refused() {
        for class in [0, 1, 2_047, 2_049, u16::try_from(MAX_FRAME + 1).unwrap(), u16::MAX] {
            assert_eq!(taken(&class.to_be_bytes()), Err(FrameError::Length), "of no class: {class}");
        }
        assert_eq!(taken(&frame(2_048, 2, &[1, b'x'])), Ok(Some("x".into())));
        assert_eq!(taken(&frame(2_048, 0, &[])), Err(FrameError::Length));
        assert_eq!(taken(&frame(2_048, 2_047, &[])), Err(FrameError::Length), "longer than its class");
        assert_eq!(taken(&frame(2_048, 3, &[1, b'x', b'y'])), Err(FrameError::Malformed), "bytes left over");
        assert_eq!(taken(&frame(2_048, 2, &[1, b'x', b'y'])), Err(FrameError::Malformed), "not zeros behind");
        assert_eq!(encode_frame(&vec![7u8; MAX_FRAME]).unwrap_err(), FrameError::Length);
        assert_eq!(encode_frame(&()).unwrap_err(), FrameError::Length, "what no reader takes is not written");
    }

    #[test]
    fn what_a_person_asks_is_as_long_whoever_they_are_and_whatever_the_label() {
        use crate::client::{Reply, Request};
        let secret = |length| crate::Secret::new(vec![7; length]).unwrap();
        let mut requests = vec![Request::KeepAlive, Request::Status, Request::Logout];
        for length in [1, 2, 31, 32] {
            let user = levee_policy::UserName::new(&"u".repeat(length)).unwrap();
            for code in [None, Some(secret(6))] {
                let (user, password) = (user.clone(), secret(length * 16));
                requests.push(Request::Login { user, password, code });
            }
        }
        for length in [1, 6, 100, 255] {
            let protection = (length > 100).then(|| "p".repeat(32).parse().unwrap());
            let label = levee_policy::LabelName::new(&"L".repeat(length)).unwrap();
            requests.push(Request::Level(label, protection));
        }
        for request in requests {
            assert_eq!(encode_frame(&request).unwrap().len(), HEADER + CLASSES[0]);
        }
        for reason in ["", "no", "`ugo` is cleared for UNCLASSIFIED, not for SECRET"] {
            let reply = Reply::Ended { reason: reason.into() };
            assert_eq!(encode_frame(&reply).unwrap().len(), HEADER + CLASSES[0]);
        }
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
