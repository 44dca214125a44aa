//! prf and prf+ (RFC 7296 2.13).

use super::Secret;
use super::suite::Prf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384, Sha512};

/// prf(key, parts[0] | parts[1] | …).
pub(crate) fn prf(alg: Prf, key: &[u8], parts: &[&[u8]]) -> Secret {
    fn run<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Secret {
        // HMAC takes keys of every length (RFC 2104 2), so the constructor has no failure to report.
        let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else {
            unreachable!("HMAC takes keys of every length")
        };
        for p in parts {
            mac.update(p);
        }
        Secret::new(mac.finalize().into_bytes().to_vec())
    }
    match alg {
        Prf::HmacSha256 => run::<Hmac<Sha256>>(key, parts),
        Prf::HmacSha384 => run::<Hmac<Sha384>>(key, parts),
        Prf::HmacSha512 => run::<Hmac<Sha512>>(key, parts),
    }
}

/// The first `length` octets of prf+(key, parts…). The counter is one octet, so at most 255 outputs of the prf: more than levee
/// asks for by a factor of twenty; the answer is cut there.
pub(crate) fn prf_plus(alg: Prf, key: &[u8], parts: &[&[u8]], length: usize) -> Secret {
    let mut out = Secret::new(Vec::with_capacity(length + 64));
    let mut last = Secret::default();
    for n in 1..=u8::MAX {
        let counter = [n];
        let mut input: Vec<&[u8]> = vec![&last];
        input.extend_from_slice(parts);
        input.push(&counter);
        last = prf(alg, key, &input);
        out.extend_from_slice(&last);
        if out.len() >= length {
            break;
        }
    }
    out.truncate(length);
    out
}
