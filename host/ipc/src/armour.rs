//! A message as text (RFC 7468), so that it can stand behind certificates in a file. Other programs that read such a file decode every block of
//! it, also those whose kind they do not know: what stands there has to be base64.

use pem_rfc7468::LineEnding;
use serde::{Serialize, de::DeserializeOwned};

/// The most bytes of one.
const MAX: usize = 1024;

/// The text; `None` if it cannot be written.
pub(crate) fn write(kind: &str, what: &impl Serialize) -> Option<String> {
    let bytes = postcard::to_allocvec(what).ok().filter(|bytes| bytes.len() <= MAX)?;
    pem_rfc7468::encode_string(kind, LineEnding::LF, &bytes).ok()
}

/// The one in a text, to the last octet.
pub(crate) fn read<T: DeserializeOwned>(kind: &str, text: &[u8]) -> Option<T> {
    let (begin, end) = (format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----"));
    let text = std::str::from_utf8(text).ok()?;
    let from = text.find(&begin)?;
    let block = text.get(from..)?;
    let block = block.get(..block.find(&end)?.checked_add(end.len())?)?;
    if block.len() > 2 * MAX {
        return None;
    }
    let (_, bytes) = pem_rfc7468::decode_vec(block.as_bytes()).ok()?;
    let (what, rest) = postcard::take_from_bytes(&bytes).ok()?;
    rest.is_empty().then_some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_is_base64_in_whole_lines() {
        for length in 0..200 {
            let what: Vec<u8> = (0..length).collect();
            let text = write("LEVEE TEST", &what).unwrap();
            assert_eq!(read("LEVEE TEST", text.as_bytes()), Some(what));
            let body: Vec<&str> = text.lines().filter(|line| !line.starts_with('-')).collect();
            assert_eq!(body.concat().len() % 4, 0, "{text}");
            assert!(body.iter().all(|line| line.len() <= 64), "{text}");
        }
        assert_eq!(write("LEVEE TEST", &vec![0_u8; MAX]), None);
    }
}
