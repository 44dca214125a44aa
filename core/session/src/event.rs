//! What the state machine hears and what it says: its whole interface with the world.

pub use crate::federation::InForce;
use crate::federation::{Publication, Setting, Shared};
use crate::{SessionId, Stored, Time};
use levee_policy::audit::Event as Entry;
use levee_policy::decision::{Carry, ChangeAccess, Keys, Message, Pass};
use levee_policy::site::{Cipher, Keying, Placed, Protected, Reach};
use levee_policy::{
    ChannelName, DomainName, Grant, HostName, LabelName, ProtectionName, ServiceName, UserName,
};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// One trusted path: a tps child and the client behind it. The shell never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One operator's command that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(pub u64);

/// One message that waits at a guard for people: a million for each guard of the site file, counted from its place there. What else
/// happens on the server shows by none of them, and no number is used again before all others of its guard were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReleaseId(pub u64);

/// What a person says of such a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consent {
    /// It may pass, as far as they are concerned.
    Pass,
    /// It does not.
    Refuse,
}

/// What has become of such a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Released {
    /// It waits for another person.
    Waits,
    /// Two people have released it: it passes, if its guard's bounds still let it.
    Passes,
    /// It does not pass.
    Refused,
}

/// Such a message, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// By this it is asked for.
    pub id: ReleaseId,
    /// Of which guard, how large, and its digest.
    pub message: Message,
    /// The label that it would get to.
    pub to: LabelName,
    /// How long it still waits.
    pub left: Duration,
    /// Who has released it.
    pub by: Vec<UserName>,
}

/// Something that is to be durable before what follows from it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(pub(crate) u64);

/// One request to destroy the sockets of an inner address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutId(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A trusted path is up, and its certificate names this TPE.
    Hello {
        /// Which trusted path.
        client: ClientId,
        /// From the certificate.
        device: HostName,
        /// SHA-256 of the certificate.
        fingerprint: [u8; 32],
    },
    /// A client asks. Only while [`crate::Sessions::is_ready`] says so; anything else ends its trusted path.
    Request(ClientId, Request),
    /// A trusted path is gone.
    Gone(ClientId),
    /// Answer to [`Output::Verify`].
    Verified(ClientId, Verified),
    /// Answer to [`Output::StorePassword`]: whether the new password is on the disk.
    PasswordStored(ClientId, bool),
    /// Answer to [`Output::Commit`]: whether all of it is durable.
    Committed(CommitId, bool),
    /// A label's vault and compartment run; messages to the vault now reach this one.
    LabelUp(LabelName),
    /// They cannot be started; nothing of them is left.
    LabelFailed(LabelName, String),
    /// The label's vault is dead, its keys with it.
    LabelDied(LabelName),
    /// Answer to [`Output::Cut`]: how many sockets there were; `None` if they could not be destroyed.
    Cut(CutId, Option<u32>),
    /// A vault has put a session's record in place.
    VaultOpened(LabelName, SessionId),
    /// A vault has erased a session's keys and will pass no packet of it any more.
    VaultClosed(LabelName, SessionId),
    /// A vault lives.
    VaultPong(LabelName, u64),
    /// The channel to a vault has closed.
    VaultLost(LabelName),
    /// The keyer asks whether a TPE may have keys now. Answered by [`Output::Keys`].
    Wanted {
        /// The keyer's own number.
        ticket: u64,
        /// The TPE, as its certificate names it.
        device: HostName,
        /// At which label.
        label: LabelName,
        /// The range of labels in its certificate, in the site's words.
        accreditation: Option<String>,
    },
    /// The keyer has refused a negotiation by itself: by whom it was, at which label, and why.
    Refused(Option<HostName>, Option<LabelName>, String),
    /// The certificate of this TPE is revoked.
    Revoked(HostName),
    /// The certificate of this TPE has run out.
    RanOut(HostName),
    /// Certificates were revoked, and this TPE has shown none since the start.
    Unproved(HostName),
    /// The keyer has no IKE SA with this session's TPE, and should have.
    Renew(SessionId),
    /// The channel to the keyer is another one: so is the keyer.
    KeyerCame,
    /// An operator says that this person may not sign on, or may again: their sessions end, and nobody who has signed on so is any more.
    Disable(OperatorId, UserName, bool),
    /// Whether this label can run here is to be found out by running it. It is stopped again if nobody has a session there.
    Try(OperatorId, LabelName),
    /// An operator is to do something within this label, which is started for it where it does not run. Recorded first.
    Enter(OperatorId, LabelName, Entering),
    /// An operator says who reaches a service, in the place of who owns it.
    Access(OperatorId, Access),
    /// An operator ends the session shown by this name.
    End(OperatorId, String),
    /// An operator puts a posture in force, or the default back.
    Posture(OperatorId, Wish),
    /// At a label nothing is left from before its ciphers were changed; the sessions named had nothing new when the old was erased.
    Moved(LabelName, u64, Vec<SessionId>),
    /// Answer to [`Output::Postures`]: at no label anything runs of a service that is off.
    PosturesKept(u64),
    /// Postures that were set at another server of the site are to be in force here, as this one says.
    Set(DomainName, Setting),
    /// A server is believed no more: what it has said, and has not come to pass here, does not.
    Disowned(DomainName),
    /// Answer to [`Output::Set`], where it asks for one: nothing of before is left at the other servers, but for these.
    Kept(Vec<DomainName>),
    /// Answer to [`Output::Publish`].
    Published(SessionId, Publication),
    /// Answer to [`Output::Withdraw`]: no other server passes anything of the session.
    Withdrawn(SessionId),
    /// A session of another server may be used here.
    Appeared(Box<Shared>),
    /// A session of this other server's is over. Answered by [`Output::Over`].
    Vanished(DomainName, SessionId),
    /// This session of this server is to end: its workstation has one at another server, too.
    Clash(SessionId),
    /// It cannot be proved that any session may go on: all of them end, and why.
    Fence(String),
    /// A guard's filter has let a message through, and people are to release it.
    Offered {
        /// Which guard's.
        channel: ChannelName,
        /// The guard's own number.
        ticket: u64,
        /// SHA-256 of it.
        digest: [u8; 32],
        /// The whole of it.
        content: Vec<u8>,
    },
    /// What people have released of this guard's, under this number, does not wait there any more: it has passed, or was refused.
    Settled {
        /// Which guard's.
        channel: ChannelName,
        /// The guard's own number.
        ticket: u64,
    },
    /// A guard's process is gone, and with it what waited there.
    GuardLost(ChannelName),
    /// Time has passed: what anybody had said by then has been handed in.
    Tick,
}

/// What an operator wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Which posture, or the default, and at which labels; others stay as they are.
    pub what: Placed,
    /// For how long; `None`: until another wish.
    pub lasting: Option<Duration>,
    /// Why, in the operator's words.
    pub reason: String,
}

/// Whether a person reaches a service at a label, as one of its owners or an operator has said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// At which label.
    pub label: LabelName,
    /// Which service.
    pub service: ServiceName,
    /// Who.
    pub user: UserName,
    /// Whether.
    pub admits: bool,
}

impl Access {
    pub(crate) fn of(change: &ChangeAccess) -> Self {
        let (label, service) = (change.label().clone(), change.service().clone());
        Self { label, service, user: change.user().clone(), admits: change.admits() }
    }
}

/// A service at a label that is for some people alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accessible {
    /// Which.
    pub service: ServiceName,
    /// Whether who asks owns it.
    pub mine: bool,
    /// Whom it is for; to who asks and does not own it, themself or nobody.
    pub people: Vec<UserName>,
    /// Whether it is for more than these.
    pub more: bool,
}

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Request {
    /// Sign a person on; the shell keeps the password until [`Output::Verify`].
    Login(UserName),
    /// Take a session up again.
    Resume(SessionId),
    /// Open a session, ending the one there is.
    Level {
        /// At which label.
        label: LabelName,
        /// With which protection beyond what every tunnel there has.
        protection: Option<ProtectionName>,
        /// For the session's name, should there be one.
        id: SessionId,
        /// Random, to pick inner addresses by.
        random: u64,
    },
    /// Change the password; the shell keeps both until [`Output::Verify`].
    Passwd,
    /// What is so now?
    Status,
    /// Keep the trusted path alive.
    KeepAlive,
    /// Keep the trusted path alive; the person has done something since the request before.
    Active,
    /// A file is to be carried out of the session or into it.
    Carry(Carry),
    /// Let nothing of the session pass until its person has proved themself again.
    Lock,
    /// The person proves themself; the shell keeps the password until [`Output::Verify`].
    Unlock,
    /// Which messages wait for this person?
    Releases,
    /// Show such a message, from this octet on.
    ShowRelease(ReleaseId, u32),
    /// The message of this digest, which has been shown, may pass or may not.
    Release(ReleaseId, [u8; 32], Consent),
    /// Which services at the session's label are for some people alone?
    Accesses,
    /// This person reaches this service at the session's label, or does not.
    Access(ServiceName, UserName, bool),
    /// End the session and sign off.
    Logout,
}

/// What became of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// It is the user's. With it came the code of a second factor: the step of time that this is the code of, if any.
    Right(Option<u64>),
    /// It is not, or there is no such user.
    Wrong,
    /// It could not be looked at.
    Unavailable,
}

/// What the shell is to do, in this order.
#[derive(Debug)]
pub enum Output {
    /// Write the entries to the audit log and the changes to the store, and make both durable; then answer
    /// [`Event::Committed`]. The shell may make many commits durable at once.
    Commit(CommitId, Vec<Entry>, Vec<Change>),
    /// Write an entry to the audit log; nothing waits for it.
    Audit(Entry),
    /// Count something that anybody can cause.
    Count(Counted),
    /// Answer a client.
    Reply(ClientId, Reply),
    /// End a trusted path.
    Disconnect(ClientId),
    /// Look whether the password that came with the client's request is this user's.
    Verify(ClientId, UserName),
    /// Put the new password that came with the client's request on the disk.
    StorePassword(ClientId, UserName),
    /// Have a label's vault and compartment run.
    Need(LabelName),
    /// No session is left at this label.
    Release(LabelName),
    /// Kill a label's vault.
    Kill(LabelName),
    /// Destroy the sockets of an inner address in a label's compartment.
    Cut(CutId, LabelName, IpAddr),
    /// To a vault.
    Vault(LabelName, ToVault),
    /// Answer to [`Event::Wanted`]: the session for which the TPE may have keys, if it may.
    Keys(u64, Option<KeyRecord>),
    /// To the keyer: this session's keys are gone from its vault, or the keyer does not know it, or knows what counts no more; where there
    /// are none, agree them anew.
    Renew(KeyRecord),
    /// To the keyer: agree keys at this label like this alone, and rekey what is there where it may not be kept.
    Keying(LabelName, Keying),
    /// To the warden: these postures are in force, the last over those before it, so that services are off. Answered by
    /// [`Event::PosturesKept`] with this number.
    Postures(u64, Vec<Placed>),
    /// This is recorded as what is in force. Where there are other servers, they have until then; the flag: [`Event::Kept`] is waited for.
    Set(Setting, Time, bool),
    /// Nothing is left here that it does not allow.
    Kept,
    /// To the keyer: this session is over.
    Revoke(SessionId),
    /// Have the site's other servers know this session.
    Publish(Stored),
    /// Have them end it, should they know it.
    Withdraw(Stored),
    /// Nothing is left of a session of this other server's that [`Event::Appeared`] told of.
    Over(DomainName, SessionId),
    /// The same, for a reason of this server's own that may be gone later.
    Missing(DomainName, SessionId),
    /// Two people have released this message: let it pass once that is in the log. The guard's own number.
    Pass(Grant<Pass>, u64),
    /// The message with this number of the guard's does not pass, also where it was told that it may and it has not yet.
    NotReleased(ChannelName, u64),
    /// This label runs: start this program there, and tell the operator what became of it.
    Execute(OperatorId, LabelName, Vec<String>),
    /// Answer to [`Event::End`], [`Event::Disable`], [`Event::Try`], [`Event::Enter`], [`Event::Access`] and [`Event::Posture`]: it is so, and what it ends is over; or why not.
    Operator(OperatorId, Result<(), String>),
}

/// What an operator does within a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entering {
    /// Puts a file into its store, by themself, once [`Output::Operator`] says that the label runs.
    Put {
        /// Where, in the store.
        path: String,
        /// How long it is.
        bytes: u64,
        /// What it is, in hexadecimal.
        sha256: String,
    },
    /// Has this program run there ([`Output::Execute`]).
    Execute(Vec<String>),
}

/// sessiond → a label's vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToVault {
    /// This session exists.
    Open {
        /// Its name.
        id: SessionId,
        /// Its inner addresses.
        inner: Vec<IpAddr>,
        /// The server where the person signed on, where that is another.
        owner: Option<DomainName>,
        /// All that its grant lets it reach.
        reach: Vec<Reach>,
        /// What its tunnel is sealed by; `None`: by whatever its label has.
        ciphers: Option<Vec<Cipher>>,
        /// Whether its packets come and go within the second tunnel alone, as the site says of its workstation.
        layered: bool,
    },
    /// This session is over.
    Close(SessionId),
    /// Every live session has been named; close all others.
    Synced,
    /// Show that you live.
    Ping(u64),
    /// Take keys for these ciphers alone from now on; the number is for [`Event::Moved`]. The flag: whatever there is is to be replaced,
    /// even by the same ciphers.
    Ciphers(u64, Vec<Cipher>, bool),
    /// Erase what is left from before that.
    Sever(u64),
}

/// A session for which keys may be agreed, once. Only a grant of the policy makes one:
///
/// ```compile_fail,E0451
/// use levee_policy::{Grant, decision::Keys};
/// fn forge(id: levee_session::SessionId, grant: Grant<Keys>) -> levee_session::KeyRecord {
///     levee_session::KeyRecord { id, inner: vec![], grant }
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its name.
    pub id: SessionId,
    /// Its inner addresses: what the TPE may be.
    pub inner: Vec<IpAddr>,
    /// What its tunnel must have now: by what was asked for it, and by the posture in force.
    pub protected: Protected,
    grant: Grant<Keys>,
}

impl KeyRecord {
    pub(crate) fn new(id: SessionId, inner: Vec<IpAddr>, protected: Protected, grant: Grant<Keys>) -> Self {
        Self { id, inner, protected, grant }
    }

    /// Whose keys, at which label, and what may be reached by them.
    pub fn keys(&self) -> &Keys {
        self.grant.action()
    }
}

/// What a client is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Signed on.
    LoggedIn(UserName),
    /// A session is open.
    Opened {
        /// Its name.
        id: SessionId,
        /// Its label.
        label: LabelName,
        /// Its inner addresses.
        inner: Vec<IpAddr>,
        /// All that its grant lets it reach.
        reach: Vec<Reach>,
        /// What its tunnel must have.
        protected: Protected,
    },
    /// The session goes on.
    Resumed(Status),
    /// The password is changed.
    PasswordChanged,
    /// What is so now.
    Status(Status),
    /// The file may be carried: that it was is in the log.
    Carried,
    /// The messages that wait for this person, the oldest first.
    Releases(Vec<Waiting>),
    /// A part of a message.
    Part(Vec<u8>),
    /// What has become of a message.
    Released(Released),
    /// The services that are for some people alone.
    Accesses(Vec<Accessible>),
    /// It is as the person has said, and nothing passes by what was so before.
    AccessChanged,
    /// The trusted path lives.
    Alive,
    /// No packet of the session passes.
    Locked,
    /// Packets of the session pass again.
    Unlocked,
    /// Signed off; no packet of the session will pass any more.
    LoggedOut,
    /// No, and why.
    Refused(RefusalKind, String),
    /// Unasked: the session was ended.
    Ended(String),
    /// Unasked: what the person should know.
    Notice(String),
    /// Unasked: nobody is signed on any more, and why.
    SignedOff(String),
    /// Unasked: the session is locked, and why.
    LockedUnasked(String),
    /// Unasked: the server's keyer does not know the TPE, or keys are to be others than before; negotiate anew.
    Renew(
        /// What its tunnel must have now.
        Protected,
    ),
}

/// What a refusal is about; the client hears it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// Unknown user, wrong password or wrong code; which of them is not said.
    Credentials,
    /// Nobody is signed on here.
    NotLoggedIn,
    /// Somebody is signed on here.
    AlreadyLoggedIn,
    /// There is no session, or not this one.
    NoSession,
    /// The policy does not allow this label.
    Label,
    /// The policy does not let this person carry files at this label.
    Carry,
    /// It cannot be done now.
    Unavailable,
    /// What was asked makes no sense here. Said by whoever reads the client's words, never by [`crate::Sessions`].
    Protocol,
    /// The site has people with a second factor: sign on with a code, whoever you are. Said by whoever reads the client's words.
    Code,
    /// The session is locked.
    Locked,
    /// No such message waits at a guard.
    NoMessage,
    /// The person does not decide who reaches that service, or not about this other person.
    Access,
}

/// What is so now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who is signed on.
    pub user: Option<UserName>,
    /// The session that is open: its name, its label, and since when.
    pub session: Option<(SessionId, LabelName, Time)>,
    /// Whether it is locked.
    pub locked: bool,
}

/// A session as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub id: SessionId,
    /// Who.
    pub user: UserName,
    /// From which TPE.
    pub device: HostName,
    /// SHA-256 of the certificate that it showed.
    pub fingerprint: [u8; 32],
    /// At which label.
    pub label: LabelName,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
    /// When its person signed on.
    pub opened: Time,
    /// Whether its trusted path is up.
    pub attached: bool,
    /// Whether nothing of it passes until its person has proved themself.
    pub locked: bool,
    /// The protections of its tunnel: what was asked for it.
    pub protections: Vec<ProtectionName>,
}

/// A change of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This session exists.
    Put(Stored),
    /// This session is locked, or is not any more.
    Locked(SessionId, bool),
    /// This person may not sign on, or may again.
    Disabled(UserName, bool),
    /// The user's code of this step of time has been taken, and none of it or of an earlier one will be again.
    Code(UserName, u64),
    /// At this label this person was the first.
    First(LabelName, UserName),
    /// Of something that others write, by its name, the log knows this digest now; `None`: that it is gone.
    Known(String, Option<[u8; 32]>),
    /// These postures are in force, and no others; what there is of before may be left.
    Postures(Setting),
    /// Nothing of before is left.
    Followed,
    /// This has been said of who reaches a service; or counts no more, where the flag is not set.
    Access(Access, bool),
    /// An operator has ended here, at this time, what is another server's session: it is not used here again. `None`: that is forgotten.
    EndedHere(SessionId, Option<Time>),
    /// This session does not exist, and at this label these addresses rest for [`crate::REST`] from now on.
    Remove(SessionId, LabelName, Vec<IpAddr>),
}

/// Something that somebody without a permission can cause, and so is counted rather than written one by one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counted {
    /// What happened.
    pub what: &'static str,
    /// At which TPE, where its certificate says so.
    pub device: Option<HostName>,
    /// Whom they said to be.
    pub user: Option<UserName>,
}
