//! Messages between levee's processes.
//!
//! A [`Channel`] is one end of a private `SOCK_SEQPACKET` pair that the warden made and handed out, so holding
//! a descriptor *is* the permission to speak on it: there is no name to connect to and no credential to check.
//! Each pair of processes has one file here, and that file is the whole interface between them.
//!
//! | file | who speaks |
//! |---|---|
//! | [`warden`] | the warden and every process it starts |
//! | [`vault`] | sessiond → vault, keyer ↔ vault |
//! | [`mediator`] | sessiond ↔ mediator, mediator ↔ process 1 of its compartment |
//! | [`guard`] | a guard ↔ sessiond |
//! | [`keyer`] | sessiond (on a workstation: the TPE) ↔ keyer |
//! | [`signer`] | tps, keyer, sessiond → signer |
//! | [`client`] | a person's TPE ↔ tps child ↔ sessiond |
//! | [`operator`] | the `levee` command ↔ sessiond |
//! | [`federation`] | sessiond ↔ fsd, where the site has several servers |
//! | [`log`] | the warden → a label's logger |
//! | [`documents`] | two stages of upflow, of which one is in a label's virtual machine |
//! | [`agree`] | a label's gate ↔ its two stacks, where they must agree |
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
pub use stream::{Full, MAX_STREAMED, Stream};
pub use text::visible;
