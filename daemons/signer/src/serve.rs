//! The signer's loop.

use crate::content;
use crate::keys::Keys;
use crate::ppk::Ppks;
use levee_ipc::signer::{FromSigner, ToSigner, Use};
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Place, ToWarden};
use levee_ipc::{Channel, Received, RecvError, SendError};
use levee_sys::sandbox::Sandbox;
use rustix::event::{PollFd, PollFlags, poll};

/// The most channels at a time: one for each client of the trusted path, and a few more.
const MAX_CLIENTS: usize = 4096;

struct Client {
    channel: Channel,
    key_use: Use,
    /// Whether the warden attached it: the trusted path server's own channel, which may introduce others.
    parent: bool,
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone. False when it cannot, for a reason that
/// the warden was told.
pub fn serve() -> Result<bool, String> {
    let control = levee_sys::fork::inherited(CONTROL_FD).map_err(|e| e.to_string())?;
    let control = Channel::from_fd(control);
    let (mut keys, mut ppks) = (Keys::new(), Ppks::default());
    let mut clients = Vec::new();
    let mut passphrase = None;
    let place = loop {
        match control.recv::<FromWarden>() {
            Ok(Received { message: FromWarden::Begin(place), .. }) => break place,
            Ok(Received { message: FromWarden::Stop, .. }) | Err(RecvError::Closed) => return Ok(true),
            Ok(received) => match &received.message {
                FromWarden::Passphrase(secret) => passphrase = Some(secret.clone()),
                FromWarden::Attach(Attachment::PrivateKey(key_use)) => {
                    let key_use = *key_use;
                    let fd = received.into_fd().ok_or("the warden sent a key without its file")?;
                    if let Err(e) = keys.read(key_use, fd, passphrase.as_ref()) {
                        return unusable(&control, format!("the file of the key for {key_use:?} {e}"));
                    }
                }
                FromWarden::Attach(Attachment::Ppk(id)) => {
                    let id = id.clone();
                    let fd = received.into_fd().ok_or("the warden sent a PPK without its file")?;
                    if let Err(e) = ppks.read(id.clone(), fd, passphrase.as_ref()) {
                        return unusable(&control, format!("the file of the PPK {id} {e}"));
                    }
                }
                _ => attach(received, &mut clients),
            },
            Err(error) => return Err(format!("from the warden: {error}")),
        }
    };
    drop(passphrase);
    levee_sys::wipe::scrub_stack();
    Sandbox::new(levee_sys::seccomp::SIGNER).enter().map_err(|e| e.to_string())?;
    control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    loop {
        let mut fds = vec![PollFd::new(&control, PollFlags::IN)];
        fds.extend(clients.iter().map(|client: &Client| PollFd::new(&client.channel, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("poll: {error}")),
        }
        let ready: Vec<bool> = fds.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        match control.try_recv::<FromWarden>() {
            Ok(Received { message: FromWarden::Stop, .. }) | Err(RecvError::Closed) => return Ok(true),
            Ok(received) => attach(received, &mut clients),
            Err(RecvError::Empty) => {}
            Err(error) => return Err(format!("from the warden: {error}")),
        }
        // One request of each client a turn, so that none waits for more than one of each other.
        let mut joined = Vec::new();
        let mut ready = ready.into_iter();
        clients.retain(|client| {
            !ready.next().unwrap_or(false) || answer(client, &keys, &ppks, place, &mut joined)
        });
        joined.truncate(MAX_CLIENTS.saturating_sub(clients.len()));
        clients.append(&mut joined);
    }
}

/// Tells the warden which key cannot be used.
fn unusable(control: &Channel, why: String) -> Result<bool, String> {
    control.send(&ToWarden::Unusable(why)).map_err(|e| format!("to the warden: {e}"))?;
    Ok(false)
}

/// Takes a channel that the warden attaches. One that replaces another comes when that one's end is closed.
fn attach(received: Received<FromWarden>, clients: &mut Vec<Client>) {
    if let FromWarden::Attach(Attachment::SignerClient(key_use)) = &received.message {
        let key_use = *key_use;
        if let Some(fd) = received.into_fd() {
            clients.push(Client { channel: Channel::from_fd(fd), key_use, parent: true });
        }
    }
}

/// Answers one request. False when the channel is done with: closed, malformed, or not read by its client.
fn answer(client: &Client, keys: &Keys, ppks: &Ppks, place: Place, joined: &mut Vec<Client>) -> bool {
    let received = match client.channel.try_recv::<ToSigner>() {
        Ok(received) => received,
        Err(RecvError::Empty) => return true,
        Err(_) => return false,
    };
    if matches!(received.message, ToSigner::Join) {
        // The one request without an answer. A client that was itself introduced introduces nobody.
        if !client.parent || client.key_use != Use::Tls {
            return false;
        }
        if let Some(fd) = received.into_fd() {
            joined.push(Client { channel: Channel::from_fd(fd), key_use: client.key_use, parent: false });
        }
        return true;
    }
    let answer = match received.message {
        ToSigner::MixPpk { id, prf, keys } if client.key_use == Use::Ike => {
            ppks.mix(&id, prf, &keys).map(FromSigner::Mixed)
        }
        request => content::check(request, client.key_use, place)
            .and_then(|content| keys.sign(client.key_use, &content))
            .map(FromSigner::Signature),
    };
    let answer = answer.unwrap_or(FromSigner::Refused);
    match client.channel.try_send(&answer) {
        Ok(()) => true,
        Err(SendError::Full | SendError::Closed | SendError::TooLarge | SendError::Io(_)) => false,
    }
}
