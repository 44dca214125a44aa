//! Whether certificates are of the site's authority, of the right names, and hold by this host's clock.

use super::finding::{Bundle, Finding};
use levee_ipc::client::Request;
use levee_tls::{Life, Unbelieved};
use rustls::ClientConnection;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// What is said of the server's certificate.
pub const SERVER: [&str; 4] = ["certificate", "clock", "server's certificate", "welcome"];
/// Certificates are warned of so long before they end.
const WARNED: i64 = 60 * DAY;
/// Seconds.
const DAY: i64 = 86_400;
/// For the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// What to do about a certificate of this workstation's.
const RENEW: &str = "on the server `levee enrol host` for this host again, with --force; copy the bundle here; then `levee reload`, and `levee-tpe logout` where somebody is signed on: the new keys count some ten seconds later";

/// How many days are between two seconds, in words.
fn days(from: i64, to: i64) -> String {
    match to.saturating_sub(from) / DAY {
        0 => "less than a day".into(),
        1 => "a day".into(),
        many => format!("{many} days"),
    }
}

/// The workstation's own certificates, its authority's and the revocation list.
pub fn own(bundle: &Path, authority: &[u8], revoked: Option<&[u8]>, now: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    let list = revoked.map(levee_tls::list).transpose();
    let serials = list.as_ref().ok().and_then(Option::as_ref).map(|list| list.serials.as_slice());
    for (what, file) in [("own certificate", "chain.pem"), ("own certificate for IKE", "ike-chain.pem")] {
        let path = bundle.join(file);
        let lives = std::fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|pem| levee_tls::lives(&pem).map_err(|error| error.to_string()));
        found.push(match lives.as_deref() {
            Ok([own, ..]) if serials.unwrap_or_default().contains(&own.serial) => {
                Finding::lacks(what, "it is revoked", RENEW)
            }
            Ok([own, ..]) => lasting(what, own, now, RENEW),
            Ok([]) => Finding::lacks(what, format!("{}: no certificate in it", path.display()), RENEW),
            Err(error) => Finding::lacks(what, format!("{}: {error}", path.display()), RENEW),
        });
    }
    let anew = "have the site's authority made anew, and every host enrolled (levee enrol)";
    found.push(match levee_tls::lives(authority).as_deref() {
        Ok([first, ..]) => lasting("authority", first, now, anew),
        Ok([]) => Finding::lacks("authority", "no certificate in authority.pem", anew),
        Err(error) => Finding::lacks("authority", error.to_string(), anew),
    });
    let copy = "on the server make the list anew (levee enrol revoke), copy authority/ca.crl into the bundle, then `levee reload`";
    match list {
        Ok(None) => {}
        Ok(Some(list)) => found.push(match list.until {
            Some(until) if until < now => Finding::lacks(
                "revocation list",
                format!("it ended {} ago: nobody is believed by it", days(until, now)),
                copy,
            ),
            Some(until) if until < now.saturating_add(WARNED / 4) => {
                Finding::weaker("revocation list", format!("it ends in {}", days(now, until)), copy)
            }
            _ => Finding::has("revocation list", "current"),
        }),
        Err(error) => found.push(Finding::lacks("revocation list", error.to_string(), copy)),
    }
    found
}

/// How long a certificate still holds.
fn lasting(what: &'static str, life: &Life, now: i64, remedy: &str) -> Finding {
    if now < life.begins {
        return Finding::lacks(
            what,
            format!("it holds only in {}, by this host's clock", days(now, life.begins)),
            "set this host's clock (timedatectl set-ntp true)",
        );
    }
    if now > life.ends {
        return Finding::lacks(what, format!("it ended {} ago", days(life.ends, now)), remedy);
    }
    let left = days(now, life.ends);
    match life.ends.saturating_sub(now) < WARNED {
        true => Finding::weaker(what, format!("it ends in {left}"), remedy),
        false => Finding::has(what, format!("it holds for {left}")),
    }
}

/// Whether this host's clock agrees with the times of a certificate.
fn clocks(clock: &'static str, verdict: Result<(), Unbelieved>, life: &Life, now: i64) -> Finding {
    match verdict {
        _ if now < life.begins => Finding::lacks(
            clock,
            format!(
                "the server's certificate holds only in {}, by this host's clock",
                days(now, life.begins)
            ),
            "set the clocks of this host and of the server (timedatectl set-ntp true)",
        ),
        Err(Unbelieved::Time) => Finding::lacks(
            clock,
            format!("the server's certificate ended {} ago, by this host's clock", days(life.ends, now)),
            "set this host's clock (timedatectl set-ntp true); if it is right, the server's certificate is to be renewed",
        ),
        _ => Finding::has(clock, "within the time of the server's certificate"),
    }
}

/// Whether a certificate is the server's.
fn belief(
    certificate: &'static str,
    verdict: Result<(), Unbelieved>,
    life: &Life,
    site: &Bundle,
    shaken: Result<(), String>,
) -> Finding {
    let names = life.names.join(", ");
    match verdict {
        // What is wrong with its time is said of the clock.
        Ok(()) | Err(Unbelieved::Time) => {
            Finding::has(certificate, format!("of {}, by the site's authority", site.server_name))
        }
        Err(Unbelieved::Authority) => Finding::lacks(
            certificate,
            "another authority signed it",
            "copy this host's bundle anew from the server; if it is the same, something else answers there: tell the site's operators",
        ),
        Err(Unbelieved::Name) => Finding::lacks(
            certificate,
            format!("it is of {names}, and this host expects {}", site.server_name),
            "the server's name has changed, or another answers there: enrol this host anew (levee enrol host) and copy the bundle",
        ),
        Err(Unbelieved::Revoked) => Finding::lacks(
            certificate,
            "the authority has revoked it",
            "tell the site's operators: the server is to be enrolled anew (levee enrol server)",
        ),
        Err(Unbelieved::List) => Finding::lacks(
            certificate,
            "the bundle's revocation list is too old to believe anybody by",
            "copy authority/ca.crl of the server into the bundle, then `levee reload`",
        ),
        Err(Unbelieved::Other) => Finding::lacks(
            certificate,
            shaken.err().unwrap_or_else(|| "it is not what TLS wants".into()),
            "enrol this host anew on the server and copy the bundle",
        ),
    }
}

/// Whether the server goes on with this workstation: it judges its certificate once TLS is up, and then answers the first request of a path.
fn welcomed(tls: &mut ClientConnection, stream: &mut TcpStream) -> Result<(), String> {
    let words = |error: &std::io::Error| match error.get_ref().and_then(|why| why.downcast_ref()) {
        Some(error) => crate::agent::unwelcome(error),
        None => format!("the server does not answer: {error}"),
    };
    let frame = levee_ipc::encode_frame(&Request::Hello).map_err(|error| error.to_string())?;
    tls.writer().write_all(&frame).map_err(|error| error.to_string())?;
    loop {
        tls.complete_io(stream).map_err(|error| words(&error))?;
        match tls.reader().read(&mut [0]) {
            Ok(0) => return Err("the server closed the connection".into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(words(&error)),
        }
    }
}

/// This workstation's chain, and its key.
pub type Own = (Vec<u8>, Zeroizing<Vec<u8>>);

/// What a server has shown, how the handshake went, and what the server said to this workstation's own certificate, where it was shown.
type Talked = (Arc<levee_tls::Looker>, Result<(), String>, Option<Finding>);

/// Talks to a server as far as it lets this workstation, which shows this chain with its key.
fn talk(
    stream: &mut TcpStream,
    site: &Bundle,
    (authority, revoked): (&[u8], Option<&[u8]>),
    shows: Option<(&[u8], &[u8])>,
) -> Result<Talked, String> {
    let [.., welcome] = SERVER;
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let looks = |own| levee_tls::looker(authority, revoked, own, site.suites).map_err(|error| words(&error));
    let (unfit, (config, looker)) = match looks(shows) {
        // The server's certificate is looked at all the same.
        Err(why) if shows.is_some() => (Some(Finding::lacks(welcome, why, RENEW)), looks(None)?),
        looked => (None, looked?),
    };
    let name = levee_tls::server_name(&site.server_name).map_err(|error| words(&error))?;
    let mut tls = ClientConnection::new(config, name).map_err(|error| words(&error))?;
    for limit in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        limit(stream, Some(HANDSHAKE)).map_err(|error| words(&error))?;
    }
    let mut shaken = Ok(());
    while tls.is_handshaking() && shaken.is_ok() {
        shaken = tls.complete_io(stream).map(|_| ()).map_err(|error| words(&error));
    }
    let said =
        (unfit.is_none() && shows.is_some() && shaken.is_ok()).then(|| match welcomed(&mut tls, stream) {
            Ok(()) => Finding::has(welcome, "the server takes this workstation's certificate"),
            Err(why) => Finding::lacks(welcome, why, RENEW),
        });
    Ok((looker, shaken, unfit.or(said)))
}

/// The server's certificate, and what it says to this workstation's own (a chain and its key), in the order of [`SERVER`].
pub fn server(
    mut stream: TcpStream,
    site: &Bundle,
    (authority, revoked): (&[u8], Option<&[u8]>),
    own: Result<Own, Finding>,
    now: i64,
) -> Vec<Finding> {
    let [certificate, clock, left, welcome] = SERVER;
    let unknown = |why: &str, remedy: &str| {
        vec![
            Finding::lacks(certificate, why, remedy),
            Finding::untried(clock, "the server shows no certificate"),
            Finding::untried(left, "the server shows no certificate"),
            Finding::untried(welcome, "the server shows no certificate"),
        ]
    };
    let shows = own.as_ref().ok().map(|(chain, key)| (chain.as_slice(), key.as_slice()));
    let (looker, shaken, said) = match talk(&mut stream, site, (authority, revoked), shows) {
        Ok(talked) => talked,
        Err(error) => return unknown(&error, "enrol this host anew on the server and copy the bundle"),
    };
    let Some(shown) = looker.shown() else {
        let why = shaken.err().unwrap_or_else(|| "no certificate came".into());
        return unknown(
            &why,
            "what answers there is no levee server of this site, or too many connections come from here: see `addresses` and `trusted-path-port`, and try again",
        );
    };
    let Some(life) = shown.life else {
        return unknown("it cannot be read", "see who answers at that address");
    };
    let renew = "the site's operators renew it: `levee enrol rotate SITE trusted-path`, then `levee reload`";
    vec![
        belief(certificate, shown.verdict, &life, site, shaken),
        clocks(clock, shown.verdict, &life, now),
        lasting(left, &life, now, renew),
        own.err().or(said).unwrap_or_else(|| Finding::untried(welcome, "the server is not believed")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn a_certificate_is_warned_of_sixty_days_before_its_end() {
        let life = Life { begins: 1_000, ends: 1_000 + 100 * DAY, names: vec![], serial: vec![] };
        let at = |now| lasting("it", &life, now, "renew");
        assert_eq!(at(999).state, State::Lacks);
        assert!(at(999).remedy.contains("clock"));
        assert_eq!(at(1_000 + 39 * DAY).state, State::Has);
        let near = at(1_000 + 41 * DAY);
        assert_eq!(
            (near.state, near.detail.as_str(), near.remedy.as_str()),
            (State::Weaker, "it ends in 59 days", "renew")
        );
        assert_eq!(at(1_001 + 100 * DAY).state, State::Lacks);
    }
}
