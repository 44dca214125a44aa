//! Messages between levee's processes.
//!
//! A [`Channel`] is one end of a private `SOCK_SEQPACKET` pair that the warden made and handed out, so holding
//! a descriptor *is* the permission to speak on it: there is no name to connect to and no credential to check.
//! Each pair of processes has one file here, and that file is the whole interface between them.
//!
//! | file | what is in it |
//! |---|---|
//! | [`warden`] | the warden with every process that it starts |
//! | [`vault`], [`keyer`], [`signer`], [`mediator`], [`guard`], [`agree`], [`federation`], [`client`], [`operator`], [`tpe`] | one pair of processes each, or one process with all that speak to it: the table under "Who speaks with whom" in `docs/ARCHITECTURE.md`, which a test holds against the code |
//! | [`log`] | the warden to a label's logger |
//! | [`documents`] | two stages of upflow, of which one is in a label's virtual machine |
//! | [`device`] | the proof of a workstation's device, which sessiond checks and a client's process carries |
//! | [`sealed`] | memory that nobody can change any more, handed from one to another |
//!
//! It may not decide, start a process or open a name. Begin reading with `channel.rs`, then the file of the pair that you are after.
#![forbid(unsafe_code)]

/// Writes a line to standard error, which is the process's log; one that is full or gone is no reason to end.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stderr(), $($arg)*);
    }};
}

pub mod agree;
mod armour;
mod channel;
pub mod client;
pub mod device;
pub mod documents;
pub mod federation;
mod frame;
pub mod guard;
pub mod keyer;
pub mod log;
pub mod mediator;
pub mod operator;
mod room;
mod said;
pub mod sealed;
mod secret;
mod shown;
pub mod signer;
mod stream;
mod text;
pub mod tpe;
pub mod vault;
pub mod warden;

pub use channel::{Channel, MAX_FDS, Received, RecvError, SendError, decode};
pub use frame::{CLASSES, FrameError, FrameReader, encode_frame};
pub use levee_session::Rate;
pub use room::MAX_MESSAGE;
pub use room::erase;
pub use secret::Secret;
pub use shown::hide_names;
pub use stream::{Full, MAX_STREAMED, Stream};
pub use text::{steers, visible};
