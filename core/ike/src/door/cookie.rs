//! Cookies: who begins shows that it is where it says (RFC 7296 2.6), before anything is kept or computed for it.

use crate::api::{Now, Path, Random};
use crate::crypto::Secret;
use crate::crypto::prf::prf;
use crate::crypto::suite::Prf;
use std::net::IpAddr;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// How long a cookie's secret is used; the one before is still accepted (RFC 7296 2.6).
const LIFE: Duration = Duration::from_secs(60);

/// The secrets that cookies are made with.
#[derive(Debug, Default)]
pub(crate) struct Cookies(Option<Secrets>);

#[derive(Debug)]
struct Secrets {
    since: Duration,
    version: u8,
    now: Secret,
    before: Option<Secret>,
}

impl Cookies {
    /// The cookie for a request with this nonce and initiator's SPI.
    pub(crate) fn make(
        &mut self,
        nonce: &[u8],
        spi_i: u64,
        path: Path,
        now: Now,
        rng: &mut dyn Random,
    ) -> Vec<u8> {
        let secrets = self.refresh(now, rng);
        cookie(&secrets.now, secrets.version, nonce, spi_i, path)
    }

    /// Whether a request's cookie is one that it was given.
    pub(crate) fn is_good(
        &mut self,
        said: Option<&[u8]>,
        nonce: &[u8],
        spi_i: u64,
        path: Path,
        now: Now,
        rng: &mut dyn Random,
    ) -> bool {
        let Some(said) = said else { return false };
        let secrets = self.refresh(now, rng);
        let good = |secret: &Secret, version| {
            bool::from(cookie(secret, version, nonce, spi_i, path).as_slice().ct_eq(said))
        };
        good(&secrets.now, secrets.version)
            || secrets.before.as_ref().is_some_and(|s| good(s, secrets.version.wrapping_sub(1)))
    }

    fn refresh(&mut self, now: Now, rng: &mut dyn Random) -> &Secrets {
        let fresh = |rng: &mut dyn Random| {
            let mut secret = Secret::new(vec![0; 32]);
            rng.fill(&mut secret);
            secret
        };
        let next = match self.0.take() {
            Some(s) if now.monotonic < s.since.saturating_add(LIFE) => s,
            Some(s) => {
                let before = (now.monotonic < s.since.saturating_add(LIFE * 2)).then_some(s.now);
                Secrets { since: now.monotonic, version: s.version.wrapping_add(1), now: fresh(rng), before }
            }
            None => Secrets { since: now.monotonic, version: 0, now: fresh(rng), before: None },
        };
        self.0.insert(next)
    }
}

/// A cookie is prf(secret, Ni | address | port | SPIi) behind the secret's version (RFC 7296 2.6 suggests the like).
fn cookie(secret: &[u8], version: u8, nonce: &[u8], spi_i: u64, path: Path) -> Vec<u8> {
    let address = match path.remote.ip() {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    let port = path.remote.port().to_be_bytes();
    let mac = prf(Prf::HmacSha256, secret, &[&[version], &spi_i.to_be_bytes(), &port, &address, nonce]);
    [&[version], mac.as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    struct Counting(u8);

    impl Random for Counting {
        fn fill(&mut self, out: &mut [u8]) {
            self.0 = self.0.wrapping_add(1);
            out.fill(self.0);
        }
    }

    fn at(seconds: u64) -> Now {
        Now { monotonic: Duration::from_secs(seconds), unix_seconds: 1_790_000_000 }
    }

    /// RFC 7296 2.6: the secret changes often, and a cookie made just before the change is still taken.
    #[test]
    fn a_cookie_is_good_under_the_secret_in_use_and_the_one_before_and_then_no_more() {
        let address = |host| SocketAddr::from(([192, 0, 2, host], 500));
        let path = Path { local: address(1), remote: address(2), marker: false };
        // The other's secret is made at 0; each later request but the first finds it of that age.
        for (asked, good) in [
            (&[0, 59][..], true),
            (&[60], true),
            (&[60, 119], true),
            (&[119], true),
            (&[120], false),
            (&[60, 120], false),
            (&[1_000], false),
        ] {
            let (mut cookies, mut random) = (Cookies::default(), Counting(0));
            let cookie = cookies.make(b"nonce", 7, path, at(0), &mut random);
            let (last, before) = asked.split_last().expect("asked");
            for time in before {
                cookies.make(b"nonce", 7, path, at(*time), &mut random);
            }
            let said = cookies.is_good(Some(&cookie), b"nonce", 7, path, at(*last), &mut random);
            assert_eq!(said, good, "{asked:?}");
            // A new one is made with another secret from the sixtieth second on, not before.
            let anew = cookies.make(b"nonce", 7, path, at(*last), &mut random);
            assert_eq!(anew == cookie, *last < 60, "{asked:?}");
        }
    }
}
