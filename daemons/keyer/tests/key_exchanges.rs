//! What keys are agreed by, where sessiond says so while there are IKE SAs.

mod world;

use levee_ike::{ChildProposal, Childless, Encryption, Event, Identity, IkeProposal, IkeSuite, KeyExchange};
use levee_ipc::Channel;
use levee_ipc::keyer::{FromKeyer, KeyRecord, ToKeyer};
use levee_ipc::vault::VaultToKeyer;
use levee_ipc::warden::Place;
use levee_policy::site::{Cipher, Exchange, Keying};
use std::time::Duration;
use world::*;

const MOMENT: Duration = Duration::from_millis(300);

/// A server, its vault at SECRET, and a client that is not levee's, with these proposals.
struct Site {
    server: Keyer,
    vault: Channel,
    client: Client,
    /// The ciphers of its session's protection.
    own: Option<Vec<Cipher>>,
}

impl Site {
    /// With a client that has these ciphers alone for its packets, and every one for IKE.
    fn sealing(by: Vec<Encryption>) -> Self {
        let child = ChildProposal { encryption: by, ..ChildProposal::default() };
        Self::of(vec![IkeProposal::default()], child, Childless::Allow)
    }

    fn new(proposals: Vec<IkeProposal>, childless: Childless) -> Self {
        Self::of(proposals, ChildProposal::default(), childless)
    }

    fn of(proposals: Vec<IkeProposal>, child: ChildProposal, childless: Childless) -> Self {
        let authority = Authority::new();
        let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
        let vault = server.vault(&label("SECRET"), SLOT);
        let host = authority.identity("ws1", Some(RANGE));
        let id = Identity::Fqdn("ws1".into());
        let mut config = Client::config(&authority, &host, id, childless);
        (config.ike, config.child) = (proposals, vec![child]);
        Self { client: Client::with(config, &host, server.group.address()), server, vault, own: None }
    }

    fn tell(&self, keying: Keying) {
        self.server.tell(&ToKeyer::Keying(label("SECRET"), keying));
    }

    /// Answers the question for keys that is next.
    fn answer(&mut self) {
        let asker = &self.server.asker;
        self.client.until("a question for sessiond", |_| readable(asker, Duration::ZERO));
        match self.server.said() {
            FromKeyer::Wanted { ticket, .. } => {
                let record = KeyRecord { ciphers: self.own.clone(), ..record(1, "SECRET") };
                self.server.tell(&ToKeyer::Answer { ticket, record: Some(record) });
            }
            other => panic!("no question: {other:?}"),
        }
    }

    /// Has an IKE SA with a child; gives the inbound SPI.
    fn connect(&mut self) -> u32 {
        self.client.connect("SECRET");
        self.answer();
        self.children(1);
        keys(&self.vault).inbound.0
    }

    /// The inbound SPI of the keys that the vault erases next.
    fn deleted(&mut self) -> u32 {
        let vault = &self.vault;
        self.client.until("keys to be erased", |_| readable(vault, Duration::ZERO));
        deleted(vault)
    }

    /// Until the client has had so many.
    fn children(&mut self, count: usize) {
        let made = |event: &&Event| matches!(event, Event::ChildEstablished(_));
        self.client.until("children", |events| events.iter().filter(made).count() >= count);
    }

    /// By what the client's children had keys of their own, the newest last.
    fn own(&self) -> Vec<KeyExchange> {
        let own = |event: &Event| match event {
            Event::ChildEstablished(child) => child.suite.key_exchange,
            _ => None,
        };
        self.client.events.iter().filter_map(own).collect()
    }

    /// By what the client's IKE SA was agreed, the newest last.
    fn suites(&self) -> Vec<(KeyExchange, bool)> {
        suites(&self.client.events)
    }
}

fn suites(events: &[Event]) -> Vec<(KeyExchange, bool)> {
    let shape = |suite: &IkeSuite| (suite.key_exchange, !suite.additional.is_empty());
    let of = |event: &Event| match event {
        Event::IkeEstablished { suite, .. } | Event::IkeRekeyed { suite, .. } => Some(shape(suite)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

fn hybrid() -> IkeProposal {
    IkeProposal { additional: vec![vec![KeyExchange::MlKem768]], ..IkeProposal::default() }
}

#[test]
fn an_ike_sa_of_another_curve_gets_new_keys_first_and_then_its_children_do() {
    let mut site = Site::new(vec![IkeProposal::default()], Childless::Allow);
    let before = site.connect();
    assert_eq!(site.suites(), [(KeyExchange::X25519, false)]);
    site.tell(keying(&[Exchange::P384], false));
    site.children(2);
    assert_eq!(site.suites(), [(KeyExchange::X25519, false), (KeyExchange::P384, false)]);
    assert_eq!(site.own().last(), Some(&KeyExchange::P384));
    let after = keys(&site.vault);
    assert_eq!(site.deleted(), before);
    // The same again, and more than that, is nothing.
    site.tell(keying(&[Exchange::P384], false));
    site.tell(keying(&ALL, false));
    assert!(silent(&site.vault, MOMENT));
    // And then less once more: the IKE SA is as it must be, and its children are agreed anew.
    site.tell(keying(&[Exchange::P384, Exchange::X25519], false));
    site.children(3);
    keys(&site.vault);
    assert_eq!(site.deleted(), after.inbound.0);
    assert_eq!(site.suites().len(), 2, "{:?}", site.suites());
}

/// What the client's IKE SA was sealed by, and its children, the newest last.
fn sealed_by(events: &[Event]) -> (Vec<Encryption>, Vec<Encryption>) {
    let ike = |event: &Event| match event {
        Event::IkeEstablished { suite, .. } | Event::IkeRekeyed { suite, .. } => Some(suite.encryption),
        _ => None,
    };
    let child = |event: &Event| match event {
        Event::ChildEstablished(child) => Some(child.suite.encryption),
        _ => None,
    };
    (events.iter().filter_map(ike).collect(), events.iter().filter_map(child).collect())
}

#[test]
fn an_ike_sa_of_another_cipher_gets_new_keys_first_and_then_its_children_do() {
    use Encryption::{Aes256Gcm16, ChaCha20Poly1305};
    let chacha = || Keying { ciphers: vec![Cipher::ChaCha20Poly1305], ..keying(&ALL, false) };
    let mut site = Site::new(vec![IkeProposal::default()], Childless::Allow);
    let before = site.connect();
    assert_eq!(sealed_by(&site.client.events), (vec![Aes256Gcm16], vec![Aes256Gcm16]));
    site.tell(chacha());
    site.children(2);
    let both = vec![Aes256Gcm16, ChaCha20Poly1305];
    assert_eq!(sealed_by(&site.client.events), (both.clone(), both));
    let in_order = |event: &&Event| {
        matches!(event, Event::IkeRekeyed { .. })
            || matches!(event, Event::ChildEstablished(child) if child.suite.encryption == ChaCha20Poly1305)
    };
    let first = site.client.events.iter().find(in_order);
    assert!(matches!(first, Some(Event::IkeRekeyed { .. })), "{first:?}");
    keys(&site.vault);
    assert_eq!(site.deleted(), before);
    // Who comes later begins with it, and a peer has the IKE SA by nothing else.
    let mut other = Site::new(vec![IkeProposal::default()], Childless::Allow);
    other.tell(chacha());
    other.connect();
    assert_eq!(sealed_by(&other.client.events).0, [ChaCha20Poly1305]);
    other.client.rekey_ike(vec![IkeProposal { encryption: vec![Aes256Gcm16], ..IkeProposal::default() }]);
    other.client.until("a refusal", |events| {
        events.iter().any(
            |event| matches!(event, Event::IkeNotRekeyed { reason, .. } if reason == "NO_PROPOSAL_CHOSEN"),
        )
    });
    // A client that has nothing of it in IKE gets no keys by it for its packets either.
    let aes = IkeProposal { encryption: vec![Aes256Gcm16], ..IkeProposal::default() };
    let mut site = Site::new(vec![aes], Childless::Allow);
    site.connect();
    site.tell(chacha());
    let asker = &site.server.asker;
    site.client.until("a word of it to sessiond", |_| readable(asker, Duration::ZERO));
    assert!(silent(&site.vault, MOMENT));
    site.server.counts("IKE: a peer does not agree to the ciphers and key exchanges that are asked for now");
    assert_eq!(sealed_by(&site.client.events).1, [Aes256Gcm16]);
}

#[test]
fn a_protection_holds_for_ikes_own_messages_too() {
    use Encryption::{Aes256Gcm16, ChaCha20Poly1305};
    let own = || Some(vec![Cipher::ChaCha20Poly1305]);
    // A client that prefers something else has other keys first, as with a posture.
    let mut site = Site::sealing(vec![ChaCha20Poly1305]);
    site.own = own();
    site.tell(keying(&ALL, false));
    site.client.connect("SECRET");
    site.answer();
    site.client.until("other keys", |events| sealed_by(events).0.len() == 2);
    site.answer();
    site.children(1);
    keys(&site.vault);
    let both = vec![Aes256Gcm16, ChaCha20Poly1305];
    assert_eq!(sealed_by(&site.client.events), (both.clone(), vec![ChaCha20Poly1305]));
    // Back to what the protection has not it does not go.
    site.client.rekey_ike(vec![IkeProposal { encryption: vec![Aes256Gcm16], ..IkeProposal::default() }]);
    site.client.until("a refusal", |events| {
        let is_refusal = |reason: &str| reason == "NO_PROPOSAL_CHOSEN";
        events.iter().any(|event| matches!(event, Event::IkeNotRekeyed { reason, .. } if is_refusal(reason)))
    });
    // The next session of that host has none.
    site.server.tell(&ToKeyer::Revoke(session(1)));
    site.deleted();
    site.own = None;
    site.client.ask("SECRET");
    site.answer();
    site.children(2);
    assert_eq!(sealed_by(&site.client.events).0, both);
    site.client.rekey_ike(vec![IkeProposal { encryption: vec![Aes256Gcm16], ..IkeProposal::default() }]);
    site.client.until("other keys", |events| sealed_by(events).0.len() == 3);

    // levee's own workstation begins with it: its child is not put off.
    let pair = Pair::new();
    pair.server.tell(&ToKeyer::Keying(label("SECRET"), keying(&ALL, false)));
    let with = || KeyRecord { ciphers: own(), ..record(1, "SECRET") };
    pair.connect(with());
    pair.answer("SECRET", Some(with()));
    assert_eq!(keys(&pair.secret).cipher, Cipher::ChaCha20Poly1305);
}

#[test]
fn who_comes_meanwhile_is_asked_for_what_counts_at_once_and_its_ike_sa_does_not_get_less_later() {
    let mut site = Site::new(vec![IkeProposal::default()], Childless::Allow);
    site.tell(keying(&[Exchange::P384], false));
    site.connect();
    assert_eq!(site.suites(), [(KeyExchange::P384, false)]);
    assert_eq!(site.own(), [KeyExchange::P384]);
    let refused = |events: &[Event]| {
        let reasons = events.iter().filter_map(|event| match event {
            Event::IkeNotRekeyed { reason, .. } => Some(reason.as_str()),
            _ => None,
        });
        reasons.collect::<Vec<_>>().join(" ")
    };
    let only = |curve| vec![IkeProposal { key_exchange: vec![curve], ..IkeProposal::default() }];
    site.client.rekey_ike(only(KeyExchange::X25519));
    site.client.until("a refusal", |events| refused(events) == "NO_PROPOSAL_CHOSEN");
    site.client.rekey_ike(vec![IkeProposal::default()]);
    site.client.until("other keys", |events| suites(events).len() == 2);
    assert_eq!(site.suites(), [(KeyExchange::P384, false); 2]);
}

#[test]
fn what_was_asked_for_before_is_not_had_by_what_does_not_count_any_more() {
    // Its IKE SA is of another curve.
    let mut site = Site::new(vec![IkeProposal::default()], Childless::Allow);
    site.client.connect("SECRET");
    let asker = &site.server.asker;
    site.client.until("a question for sessiond", |_| readable(asker, Duration::ZERO));
    site.tell(keying(&[Exchange::P384], false));
    site.answer();
    site.answer();
    site.children(1);
    assert_eq!(keys(&site.vault).cipher, levee_ipc::vault::Cipher::Aes256Gcm);
    assert_eq!((site.own(), site.suites().len()), (vec![KeyExchange::P384], 2));

    // Its IKE SA is as it must be, and the child itself was asked for by another curve.
    site.tell(keying(&ALL, false));
    site.client.ask("SECRET");
    let asker = &site.server.asker;
    site.client.until("a question for sessiond", |_| readable(asker, Duration::ZERO));
    site.tell(keying(&[Exchange::P384], false));
    site.answer();
    site.client.until("the child", |events| {
        let of = |event: &&Event| matches!(event, Event::ChildEstablished(child) if child.suite.key_exchange == Some(KeyExchange::X25519));
        events.iter().any(|event| of(&event))
    });
    site.server.counts("keys that a vault was not to have: they were agreed by what does not count any more");
}

#[test]
fn an_ike_sa_that_has_no_child_gets_other_keys_when_it_is_to_have_one() {
    let mut site = Site::new(vec![IkeProposal::default()], Childless::Allow);
    let before = site.connect();
    site.server.tell(&ToKeyer::Revoke(session(1)));
    assert_eq!(site.deleted(), before);
    site.tell(keying(&[Exchange::P384], false));
    site.client.until("a moment", |_| silent(&site.vault, MOMENT));
    assert_eq!(site.suites(), [(KeyExchange::X25519, false)], "nobody has asked for more");
    // The session's vault is another one, or the session is there again: the server asks for the child itself.
    site.server.tell(&ToKeyer::Renew(record(1, "SECRET")));
    site.children(2);
    assert_eq!(site.suites().last(), Some(&(KeyExchange::P384, false)));
    assert_eq!(site.own().last(), Some(&KeyExchange::P384));
    keys(&site.vault);
}

#[test]
fn what_the_server_asked_for_before_is_not_had_by_an_ike_sa_that_does_not_count_any_more() {
    let mut site = Site::new(vec![IkeProposal::default(), hybrid()], Childless::Allow);
    let before = site.connect();
    site.server.tell(&ToKeyer::Revoke(session(1)));
    assert_eq!(site.deleted(), before);
    site.client.until("a moment", |_| silent(&site.vault, MOMENT));
    // The client hears of it late, and agrees.
    site.server.tell(&ToKeyer::Renew(record(1, "SECRET")));
    std::thread::sleep(MOMENT);
    site.tell(keying(&ALL, true));
    std::thread::sleep(MOMENT);
    site.children(2);
    assert_eq!(site.suites(), [(KeyExchange::X25519, false)]);
    site.client.until("a moment", |_| silent(&site.vault, MOMENT));
    // What waits for keys has them when it is as it must be.
    site.vault.send(&VaultToKeyer::Acquire(session(1))).unwrap();
    site.children(3);
    assert_eq!(site.suites().last(), Some(&(KeyExchange::X25519, true)));
    keys(&site.vault);
    site.server.counts("keys that a vault was not to have: they were agreed by what does not count any more");
}

#[test]
fn a_client_that_begins_without_ml_kem_gets_its_child_when_its_ike_sa_has_it() {
    // One asks for its child in the first exchange, and has to ask again by itself; the other is put off, and does.
    for childless in [Childless::Never, Childless::Allow] {
        // What it offers first is taken.
        let mut site = Site::new(vec![IkeProposal::default(), hybrid()], childless);
        site.tell(keying(&ALL, true));
        site.client.connect("SECRET");
        site.answer();
        let has_it = |events: &[Event]| suites(events).iter().any(|(_, ml_kem)| *ml_kem);
        site.client.until("an IKE SA with ML-KEM", has_it);
        assert_eq!(site.suites(), [(KeyExchange::X25519, false), (KeyExchange::X25519, true)]);
        if childless == Childless::Never {
            assert!(silent(&site.vault, MOMENT), "no keys are from before");
            site.client.ask("SECRET");
        }
        site.answer();
        site.children(1);
        keys(&site.vault);
    }
}

#[test]
fn a_client_without_ml_kem_keeps_what_it_has_until_its_vault_erases_it_and_gets_no_other() {
    let mut site = Site::new(vec![IkeProposal::default()], Childless::Allow);
    site.connect();
    site.tell(keying(&ALL, true));
    site.client.ask("SECRET");
    // It is put off until it is known that its IKE SA gets no other keys.
    let refused = loop {
        let asker = &site.server.asker;
        site.client.until("a word to sessiond", |_| readable(asker, Duration::ZERO));
        match site.server.said() {
            FromKeyer::Wanted { ticket, .. } => {
                site.server.tell(&ToKeyer::Answer { ticket, record: Some(record(1, "SECRET")) });
            }
            FromKeyer::Refused { reason, .. } => break reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused.contains("does not count any more"), "{refused}");
    assert!(silent(&site.vault, MOMENT));
    assert_eq!(site.suites(), [(KeyExchange::X25519, false)], "its IKE SA stays");
    // When it counts again there are keys.
    site.tell(keying(&ALL, false));
    site.client.ask("SECRET");
    site.answer();
    site.children(2);
    keys(&site.vault);
}

#[test]
fn a_workstation_follows_to_another_curve_and_has_ml_kem_at_any_time() {
    let (pair, there, here) = Pair::agreed();
    pair.server.tell(&ToKeyer::Keying(label("SECRET"), keying(&[Exchange::P384], true)));
    let (new_there, new_here) = (keys(&pair.secret), keys(&pair.at_workstation));
    assert_eq!((new_there.inbound.0, new_here.inbound.0), (new_here.outbound.0, new_there.outbound.0));
    assert_eq!(deleted(&pair.secret), there.inbound.0);
    assert_eq!(deleted(&pair.at_workstation), here.inbound.0);
}
