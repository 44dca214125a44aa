//! Every message that one of levee's processes takes from another, from either side.
//!
//! Input: a byte that says which type, then the message. What is read back is written again: its own form is no longer than what
//! was read, and stands for nothing else; one octet more or less is no message.

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

fn check<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(message) = decode::<T>(bytes) else { return };
    let own = postcard::to_allocvec(&message).expect("what was read can be written");
    assert!(own.len() <= bytes.len(), "a message of {} octets is written with {}", bytes.len(), own.len());
    let again: T = decode(&own).expect("what was written can be read");
    assert_eq!(postcard::to_allocvec(&again).expect("again"), own);
    assert!(decode::<T>(&[&own[..], &[0]].concat()).is_err(), "an octet more");
    let shorter = own.split_last().map(|(_, shorter)| shorter);
    assert!(shorter.is_none_or(|shorter| decode::<T>(shorter).is_err()), "an octet less");
}

macro_rules! types {
    ($($name:ty),* $(,)?) => {
        const TYPES: &[fn(&[u8])] = &[$(check::<$name>),*];
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
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((which, message)) = input.split_first() else { return };
    if let Some(check) = TYPES.get(usize::from(*which)) {
        check(message);
    }
}
