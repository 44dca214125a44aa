//! Every message that one of levee's processes takes from another, from either side.
//!
//! Input: a byte that says which type, then the message. What is read back is written again: its own form is no longer than what
//! was read, and stands for nothing else; one octet more or less is no message.
//!
//! That none is left out `tests/tidy/tests/messages.rs` holds. Programs that are no library have theirs in files that are compiled here as well.

#[path = "../../../daemons/tps/src/news.rs"]
pub mod news;
#[path = "../../../tpe/src/agent/words.rs"]
pub mod words;

use levee_ipc::warden::channel::{ChannelPart, Counted};
use levee_ipc::warden::frames::{FramesPart, FramesState};
use levee_ipc::warden::fsd::FsdPart;
use levee_ipc::warden::guard::{GuardPart, GuardSays};
use levee_ipc::warden::keyer::KeyerPart;
use levee_ipc::warden::layer::{LayerPart, LayerState};
use levee_ipc::warden::mediator::MediatorPart;
use levee_ipc::warden::sessiond::SessiondPart;
use levee_ipc::warden::signer::{SignerPart, Unusable};
use levee_ipc::warden::stack::StackPart;
use levee_ipc::warden::tpe::TpePart;
use levee_ipc::warden::tps::TpsPart;
use levee_ipc::warden::upflow::{CopyPart, SnapshotPart};
use levee_ipc::warden::vault::{GatePart, VaultPart};
use levee_ipc::warden::{LabelEvent, Nothing, Order, Said, UpflowCounters, WorkstationEvent};
use levee_ipc::{
    agree, client, decode, device, documents, federation, guard, keyer, log, mediator, operator,
};
use levee_ipc::{signer, tpe, vault};
use levee_warden::compartment::proto::{FromInit, ToInit};
use levee_warden::machine::proto::{FromGuest, ToGuest};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::terminal::parser;

/// Whether it is one.
fn check<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(message) = decode::<T>(bytes) else { return false };
    let own = postcard::to_allocvec(&message).expect("what was read can be written");
    assert!(own.len() <= bytes.len(), "a message of {} octets is written with {}", bytes.len(), own.len());
    let again: T = decode(&own).expect("what was written can be read");
    assert_eq!(postcard::to_allocvec(&again).expect("again"), own);
    assert!(decode::<T>(&[&own[..], &[0]].concat()).is_err(), "an octet more");
    let shorter = own.split_last().map(|(_, shorter)| shorter);
    assert!(shorter.is_none_or(|shorter| decode::<T>(shorter).is_err()), "an octet less");
    true
}

macro_rules! types {
    ($($name:ty),* $(,)?) => {
        const TYPES: &[(&str, fn(&[u8]) -> bool)] = &[$((stringify!($name), check::<$name>)),*];
    };
}

// What a saved input is about is said by its place here: add at the end.
types! {
    Order<SessiondPart>, Order<TpsPart>, Order<KeyerPart>, Order<SignerPart>, Order<VaultPart>, Order<GatePart>,
    Order<StackPart>, Order<MediatorPart>, Order<FsdPart>, Order<SnapshotPart>, Order<CopyPart>, Order<TpePart>,
    Said<levee_ipc::warden::SessiondRequest>, Said<levee_ipc::warden::TpeRequest>, Said<UpflowCounters>,
    Said<Unusable>, Said<Nothing>, LabelEvent, WorkstationEvent,
    client::TpsToSessiond, client::ChildToSessiond, client::Request, client::Reply, device::Proof,
    keyer::ToKeyer, keyer::FromKeyer,
    vault::SessiondToVault, vault::VaultToSessiond, vault::KeyerToVault, vault::VaultToKeyer,
    agree::ToStack, agree::FromStack,
    mediator::SessiondToMediator, mediator::MediatorToSessiond, mediator::ToStarter, mediator::FromStarter,
    signer::ToSigner, signer::FromSigner,
    federation::Ask, federation::Heard, federation::Envelope,
    operator::Command, operator::Answer,
    tpe::Command, tpe::Answer,
    log::ToLogger, documents::Carried,
    ToInit, FromInit, ToGuest, FromGuest,
    parser::News, parser::Order,
    Order<LayerPart>, Said<LayerState>, Order<ChannelPart>, Said<Counted>,
    Order<FramesPart>, Said<FramesState>,
    Order<GuardPart>, Said<GuardSays>, guard::GuardToSessiond, guard::SessiondToGuard,
    words::FromAcceptor, words::Watch, words::ToConnection<tpe::Answer>, words::FromConnection,
    news::News, levee_ipc::warden::WhatRuns,
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    message(input);
}

/// The type of which an input is a message, if it is one.
pub fn message(input: &[u8]) -> Option<&'static str> {
    let (which, message) = input.split_first()?;
    let (name, check) = TYPES.get(usize::from(*which))?;
    check(message).then_some(*name)
}

/// The names of all types.
pub fn names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name)
}

/// An input that is this message of the type that is called so here.
///
/// # Panics
/// There is no such type.
fn input(name: &str, message: &impl Serialize) -> Vec<u8> {
    let which = names().position(|one| one == name).unwrap_or_else(|| panic!("{name}: no type"));
    let which = u8::try_from(which).expect("few types");
    [&[which], postcard::to_allocvec(message).expect("it can be written").as_slice()].concat()
}

/// Honest messages between the agent, its acceptor and connection processes, and of a tps child: names for files, and inputs.
pub fn honest() -> Vec<(&'static str, Vec<u8>)> {
    use words::{Account, FromAcceptor, FromConnection, Login, ToConnection, Watch};
    let account = Account { uid: 1_000, login: Some(Login(3)) };
    let (acceptor, connection) = ("words::FromAcceptor", "words::FromConnection");
    let to_connection = "words::ToConnection<tpe::Answer>";
    let hear = ToConnection::<tpe::Answer>::Hear;
    let refused = tpe::Answer::Refused { kind: client::RefusalKind::Protocol, reason: "no".into() };
    vec![
        ("somebody-came", input(acceptor, &FromAcceptor::Came(account))),
        ("somebody-unheard", input(acceptor, &FromAcceptor::Unheard("too many".into()))),
        ("login-over", input(acceptor, &FromAcceptor::Over(Login(3)))),
        ("login-watched", input("words::Watch", &Watch(Some(Login(3))))),
        ("person-heard", input(to_connection, &hear)),
        ("person-answered", input(to_connection, &ToConnection::Say(refused))),
        ("person-said", input(connection, &FromConnection::Said(tpe::Command::Status))),
        ("file-fetched", input(connection, &FromConnection::File(Err("no file came along".into())))),
        ("child-up", input("news::News", &news::News::Up)),
        ("child-ended", input("news::News", &news::News::End(news::End::Malformed))),
    ]
}
