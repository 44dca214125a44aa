//! What waits for the signer. It answers in the order in which it was asked.

use crate::source::Source;
use levee_daemon::{Events, Fatal, Outbox, TURN};
use levee_ike::{Command, PpkKeys, RequestId};
use levee_ipc::signer::{self, FromSigner, ToSigner};
use levee_ipc::{Channel, Secret};
use levee_policy::PpkId;
use levee_sys::wipe::scrub_stack;
use std::collections::VecDeque;

/// Questions that may wait; a handshake beyond them fails.
const MOST: usize = 1_024;

/// A question that the signer has not answered.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// For a signature.
    Sign(RequestId),
    /// For keys with a PPK in them.
    Mix(RequestId),
}

impl Asked {
    /// There will be no answer.
    fn refused(self) -> Command {
        match self {
            Self::Sign(request) => Command::Signed { request, signature: None },
            Self::Mix(request) => Command::PpkMixed { request, keys: None },
        }
    }

    /// What the state machine is told. An answer to another kind of question is none.
    fn answered(self, answer: FromSigner) -> Command {
        match (self, answer) {
            (Self::Sign(request), FromSigner::Signature(signature)) => {
                Command::Signed { request, signature: Some(signature) }
            }
            (Self::Mix(request), FromSigner::Mixed(keys)) => {
                let of = |key: &Secret| levee_ike::Secret::new(key.expose().to_vec());
                let keys = PpkKeys { d: of(&keys.d), pi: of(&keys.pi), pr: of(&keys.pr) };
                Command::PpkMixed { request, keys: Some(keys) }
            }
            (asked, _) => asked.refused(),
        }
    }
}

/// The channel to the signer, and what was asked on it.
#[derive(Debug, Default)]
pub struct Signer {
    channel: Outbox<ToSigner>,
    asked: VecDeque<Asked>,
}

impl Signer {
    /// Takes a new channel. What the old one owes will not be answered: that is what the state machine is told.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn replace(&mut self, channel: Channel, events: &mut Events<Source>) -> Result<Vec<Command>, Fatal> {
        self.channel.replace(channel, events, Source::Signer)?;
        Ok(self.asked.drain(..).map(Asked::refused).collect())
    }

    /// Asks for a signature over the octets of an IKE_AUTH (RFC 7296 2.15). What comes back is that there will be none.
    pub fn sign(&mut self, request: RequestId, octets: Vec<u8>) -> Option<Command> {
        self.ask(Asked::Sign(request), Some(ToSigner::IkeAuth(octets)))
    }

    /// Asks for a PPK in these keys (RFC 8784 3). What comes back is as in [`Signer::sign`].
    pub fn mix(
        &mut self,
        request: RequestId,
        id: &[u8],
        prf: levee_ike::Prf,
        keys: &PpkKeys,
    ) -> Option<Command> {
        let prf = match prf {
            levee_ike::Prf::HmacSha256 => signer::Prf::HmacSha256,
            levee_ike::Prf::HmacSha384 => signer::Prf::HmacSha384,
            levee_ike::Prf::HmacSha512 => signer::Prf::HmacSha512,
        };
        let question = || {
            let id = PpkId::new(std::str::from_utf8(id).ok()?).ok()?;
            let of = |key: &levee_ike::Secret| Secret::new(key.to_vec());
            let keys = signer::PpkKeys { d: of(&keys.d)?, pi: of(&keys.pi)?, pr: of(&keys.pr)? };
            Some(ToSigner::MixPpk { id, prf, keys })
        };
        let asked = self.ask(Asked::Mix(request), question());
        // What the encoder left on the stack.
        scrub_stack();
        asked
    }

    fn ask(&mut self, asked: Asked, question: Option<ToSigner>) -> Option<Command> {
        let may = self.asked.len() < MOST && self.channel.is_open();
        let Some(question) = question.filter(|_| may) else { return Some(asked.refused()) };
        self.asked.push_back(asked);
        self.channel.send(question);
        None
    }

    /// What it has answered, or that there will be no answers: a signer that is gone owes nothing.
    pub fn hear(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        for _ in 0..TURN {
            match self.channel.hear::<FromSigner>() {
                Ok(Some(answer)) => {
                    commands.extend(self.asked.pop_front().map(|asked| asked.answered(answer)));
                }
                Ok(None) => break,
                Err(_) => {
                    commands.extend(self.asked.drain(..).map(Asked::refused));
                    break;
                }
            }
        }
        scrub_stack();
        commands
    }
}
