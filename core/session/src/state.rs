//! The states of clients, sessions and labels. Each variant holds what is known in that state and nothing else.

use crate::event::{ClientId, CommitId, Consent, CutId, Entering, OperatorId, ReleaseId};
use crate::federation::Setting;
use crate::stored::Stored;
use crate::{SessionId, Time};
use levee_policy::{DomainName, Grant, HostName, LabelName, UserName, decision};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A trusted path.
pub(crate) struct Client {
    pub device: HostName,
    pub fingerprint: [u8; 32],
    pub person: Option<UserName>,
    /// When that person signed on: by it is counted how long they stay.
    pub since: Time,
    /// When that person was last seen to do something.
    pub active: Time,
    /// What the client has asked and waits for; a client asks one thing at a time.
    pub busy: Option<Busy>,
}

/// A request that takes more than one step.
pub(crate) enum Busy {
    /// Prove who they are; until the password may be looked at, or is being looked at.
    Proving(Proof, UserName, Option<Time>),
    /// Login, once that is proved.
    SigningOn(UserName, SigningOn),
    /// Resume, until the decision is durable.
    Resuming(SessionId, CommitId),
    /// Level.
    Opening(Opening),
    /// Passwd, once the present one is proved.
    ChangingPassword(ChangingPassword),
    /// Carry, until the decision is durable.
    Carrying(Grant<decision::Carry>, CommitId),
    /// Release, until the person's word is durable.
    Releasing(Grant<decision::Release>, ReleaseId, Consent, CommitId),
    /// Access, by this number, until it is durable and vaults have been told.
    Accessing(u64),
    /// Lock, until the session's vault passes nothing of it.
    Locking,
    /// Unlock, once its person has proved themself.
    Unlocking(Unlocking),
    /// Logout, until the session is over.
    Leaving,
}

/// What somebody proves who they are for.
#[derive(Clone, Copy)]
pub(crate) enum Proof {
    SignOn,
    NewPassword,
    Unlock,
}

/// Steps of unlocking a session.
pub(crate) enum Unlocking {
    /// The person has proved themself, and may go on; until that is durable.
    Recording(Grant<decision::SignOn>, CommitId),
    /// Until the session's vault has its record again.
    Reopening,
}

pub(crate) enum SigningOn {
    /// The password is right, and signing on granted; until that is durable.
    Recording(Grant<decision::SignOn>, CommitId),
    /// Until the session that this TPE still has is over.
    Clearing(Grant<decision::SignOn>),
}

pub(crate) enum ChangingPassword {
    Recording(Grant<decision::ChangePassword>, CommitId),
    Storing,
}

impl SigningOn {
    pub fn waits_for(&self, commit: CommitId) -> bool {
        matches!(self, Self::Recording(_, of) if *of == commit)
    }
}

impl ChangingPassword {
    pub fn waits_for(&self, commit: CommitId) -> bool {
        matches!(self, Self::Recording(_, of) if *of == commit)
    }
}

pub(crate) enum Opening {
    /// Granted; until that is durable. The flag: whether the store has it then.
    Recording(Box<Granted>, CommitId, bool),
    /// Until its label runs, or is given up then: the session that it is to replace goes on meanwhile.
    Preparing(Box<Granted>, Time),
    /// Until the session that it replaces is over. The flag: whether the store has the new one.
    Replacing(Box<Granted>, bool),
    /// The session exists; it says how far it is.
    Session(SessionId),
}

/// What a new session is made of: it exists only once the decision is durable and the TPE has no other.
pub(crate) struct Granted {
    pub grant: Grant<decision::Session>,
    pub record: Stored,
}

/// A session of another server that is to be taken once that is durable.
pub(crate) struct Coming {
    pub owner: DomainName,
    pub granted: Granted,
}

/// A session, from its grant's effect until nothing of it is left.
pub(crate) struct Session {
    pub record: Stored,
    pub vault: InVault,
    /// Until when the vault may take to say that it has what it was told; `None` where nothing is awaited.
    pub answer: Option<Time>,
    /// Whether a vault ever knew it, so that there may be sockets.
    pub reached: bool,
    /// How the site's other servers stand to it.
    pub shared: Sharing,
    pub phase: Phase,
}

/// How the site's other servers stand to a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// They do not know it, or there are none.
    Not,
    /// They are being told.
    Publishing,
    /// They may know it.
    Published,
    /// They are to end it.
    Withdrawing,
    /// It is theirs: the person signed on at this other server. Questions of the keyer that wait for the label to be up, granted.
    Theirs(DomainName, Vec<(u64, Grant<decision::Keys>)>),
}

/// What the vault that now runs at the session's label knows of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InVault {
    /// Nothing.
    Absent,
    /// It was told, and so many answers have not come. 0: it may know it from before sessiond started, and was not told since.
    Told(u32),
    /// It has the record.
    Ready,
}

pub(crate) enum Phase {
    /// Until the vault has the record, to be used by this client. The grant ends with the session.
    Making { grant: Grant<decision::Session>, client: ClientId, deadline: Time },
    /// The store had it at the start; until that it goes on is durable. Nothing of it is put out before.
    Returning { grant: Grant<decision::Session>, commit: CommitId },
    /// In use.
    Open(Open),
    /// On its way out; no permission is left.
    Closing(Closing),
}

pub(crate) struct Open {
    pub grant: Grant<decision::Session>,
    pub link: Link,
    pub lock: Lock,
    /// The vault's keys are gone with the vault.
    pub keys_lost: bool,
    /// The TPE is to be asked to negotiate anew once it is back.
    pub renewing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// Its trusted path.
    Attached(ClientId),
    /// It ends at this time unless its TPE takes it up again.
    Detached(Time),
    /// Its trusted path is another server's.
    Elsewhere,
}

/// Whether anything of a session passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    /// Yes. Its person was last seen to do something then.
    Used(Time),
    /// Its vault is to pass nothing. If it is silent until the time given, it is killed.
    Locking(Time),
    /// No.
    Locked,
    /// Its person has proved themself then: its vault is to pass packets again.
    Unlocking(Time),
}

impl Lock {
    /// Whether nothing of the session is to pass.
    pub fn bars(self) -> bool {
        matches!(self, Self::Locking(_) | Self::Locked)
    }
}

pub(crate) struct Closing {
    pub reason: String,
    pub step: Step,
    pub waiters: Vec<Waiter>,
    /// The audit log has the end: the store alone is to be told, however often that fails.
    pub logged: bool,
    /// Only what this server has of another one's session ends, which may be used here again.
    pub for_now: bool,
}

/// The steps of an end, in order: none begins before the one above it is done.
pub(crate) enum Step {
    /// Until the vault has erased the keys, or is dead. If it is silent until the time given, it is killed.
    Vault(Time),
    /// Until the sockets at the inner addresses are gone. So many times that has failed.
    Sockets(BTreeSet<CutId>, u32),
    /// They could not be destroyed: try again then. So many times it has failed.
    SocketsAgain(Time, u32),
    /// Until no other server passes anything of it. From then on whoever waits is told that it is not known.
    Elsewhere(Time),
    /// Until the end is durable.
    Recording(CommitId),
    /// It could not be made durable: try again then.
    RecordingAgain(Time),
}

/// Who is told when a session is over.
pub(crate) enum Waiter {
    /// A client that signs off.
    LogOut(ClientId),
    /// A client that replaces it by a session at another level.
    Replace(ClientId),
    /// A client that signs on where it was left.
    SignOn(ClientId),
    /// An operator who ended it.
    Operator(OperatorId),
    /// The change of posture that ended it.
    Posture(SessionId),
    /// A client that did not ask for its end.
    TellEnded(ClientId),
    /// A client whose session could not be opened.
    Refuse(ClientId),
    /// Nobody: a session that was to replace it, came into the store with its end, and is not wanted any more.
    Discard(Box<Stored>),
}

/// A label that has sessions.
pub(crate) struct UsedLabel {
    pub vault: Vault,
    pub sessions: BTreeSet<SessionId>,
}

pub(crate) enum Vault {
    /// The warden was asked for it.
    Starting,
    /// It runs. The ping that it has not answered, and when to send the next or to give it up.
    Up { ping: Option<u64>, next: Time },
    /// Its channel is gone; if the warden does not say by then that it is dead, it is killed.
    Lost(Time),
    /// It is being killed.
    Dying,
    /// It is dead; the warden will start another.
    Dead,
}

/// What a commit is for.
pub(crate) enum Purpose {
    SignOn(ClientId),
    Resume(ClientId),
    Open(ClientId),
    Password(ClientId),
    Carry(ClientId),
    Release(ClientId),
    Unlock(ClientId),
    End(SessionId),
    /// A session that the store had.
    Restore(SessionId),
    /// What an operator says of a person.
    Disable(OperatorId, UserName, bool),
    /// An operator enters a label.
    Enter(OperatorId, LabelName, Entering),
    /// A change of posture.
    Posture(PostureChange),
    /// Who reaches a service.
    Access(Asker, Grant<decision::ChangeAccess>),
    /// A session of another server.
    Appear(SessionId),
    /// Nobody waits for it.
    Nothing,
}

/// Something that has a deadline. A timer that is no longer due when it fires does nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Client(ClientId),
    Session(SessionId),
    Label(levee_policy::LabelName),
    Release(ReleaseId),
    Posture,
}

pub(crate) type Clients = BTreeMap<ClientId, Client>;

/// Who has asked for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// An owner, by the request of this number.
    Client(ClientId, u64),
    Operator(OperatorId),
}

/// A change of posture, until it is recorded.
#[derive(Debug)]
pub(crate) struct PostureChange {
    /// `None`: time has brought it, or another server.
    pub operator: Option<OperatorId>,
    /// The server that has said it.
    pub from: Option<DomainName>,
    pub to: Setting,
    pub name: String,
    pub follow: Duration,
}
