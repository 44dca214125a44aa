//! The wire to the other host, with its keys.

use levee_daemon::{Descriptors, Fatal, whole};
use levee_ipc::warden::channel::{Shape, Wire};
use levee_oneway::{Form, KEY, Keys, Secret};
use std::os::fd::OwnedFd;
use zeroize::Zeroizing;

/// Octets of a key's file: two digits of each octet, and the end of the line.
const FILE: usize = 2 * KEY + 1;

/// The wire to the other host, as it is used.
#[derive(Debug)]
pub struct Far {
    pub wire: Wire,
    pub socket: OwnedFd,
    pub form: Form,
    pub keys: Keys,
    /// How often it was given a key that is none, in the place of another.
    pub no_keys: u64,
    /// Where it is kept up to where the other host was heard, where that one sends.
    pub heard: Option<OwnedFd>,
}

/// The wire as the warden gives it.
///
/// # Errors
/// Its form or its key is none.
pub fn begin(
    shape: Shape,
    wire: Wire,
    (socket, heard): (OwnedFd, Option<OwnedFd>),
    key: &OwnedFd,
    next: Option<&OwnedFd>,
) -> Result<Far, Fatal> {
    let fault = |why: &str| Fatal::new("begin", why);
    let [datagram, message] = [wire.datagram, shape.size].map(|size| usize::try_from(size).unwrap_or(0));
    let form = Form::new(datagram, message, wire.repair);
    let form = form.ok_or_else(|| fault("no block can be sent in datagrams of that size"))?;
    let current = secret(key, &wire)?;
    // One that nobody uses yet keeps nothing from passing.
    let (next, no_keys) = match next.map(|next| secret(next, &wire)) {
        None => (None, 0),
        Some(Ok(next)) => (Some(next), 0),
        Some(Err(_)) => (None, 1),
    };
    Ok(Far { wire, socket, form, keys: Keys { current, next }, no_keys, heard })
}

fn secret(key: &OwnedFd, wire: &Wire) -> Result<Secret, Fatal> {
    let text = whole(key, FILE).map_err(|why| Fatal::new("read the channel's key", why))?;
    let key = octets(&text);
    let key = key.ok_or_else(|| Fatal::new("begin", "the channel's key is not 64 hexadecimal digits"))?;
    Ok(Secret::new(key, wire.name.as_str()))
}

/// The keys that come in the place of those before.
///
/// # Errors
/// One of them is none.
pub fn keys(with: Descriptors, wire: &Wire) -> Result<Keys, Fatal> {
    let mut secrets = with.all().into_iter().map(|key| secret(&key, wire));
    let current = secrets.next().ok_or_else(|| Fatal::new("take a part", "it has no key"))??;
    Ok(Keys { current, next: secrets.next().transpose()? })
}

fn octets(text: &[u8]) -> Option<Zeroizing<[u8; KEY]>> {
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    let mut key = Zeroizing::new([0; KEY]);
    if digits.len() != 2 * KEY {
        return None;
    }
    for (octet, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        *octet = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_64_hexadecimal_digits_and_nothing_else() {
        let text = "00ff".repeat(16);
        let key = octets(text.as_bytes()).unwrap();
        assert_eq!(key[..4], [0, 255, 0, 255]);
        assert_eq!(octets(format!("{text}\n").as_bytes()), Some(key));
        for wrong in ["", &text[1..], &format!("{text}0"), &format!("{text}\n\n"), &text.replace('f', "g")] {
            assert_eq!(octets(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
