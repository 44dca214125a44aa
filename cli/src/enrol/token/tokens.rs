//! The tokens of one command: libraries, the one token that is meant, and the PIN.

use super::Uri;
use crate::enrol::pki::PkiError;
use crate::programs;
use crate::typed::Passphrase;
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::AuthPin;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use zeroize::Zeroizing;

/// A PIN's file has its first line within so many octets.
const MOST: usize = 256;

/// Asks for the PIN of a token of this name.
pub type Asks<'a> = &'a dyn Fn(&str) -> Result<Passphrase, String>;

/// The libraries that were loaded, each once in a process, and the tokens that were logged in to: a PIN is asked for once.
pub struct Tokens<'a> {
    asks: Asks<'a>,
    sessions: RefCell<Vec<Opened>>,
    libraries: RefCell<BTreeMap<PathBuf, Pkcs11>>,
}

struct Opened {
    library: PathBuf,
    slot: Slot,
    writes: bool,
    session: Rc<Session>,
}

impl<'a> Tokens<'a> {
    /// None is used yet. A PIN that no file has is asked for with this.
    pub fn new(asks: Asks<'a>) -> Self {
        Self { asks, sessions: RefCell::default(), libraries: RefCell::default() }
    }

    /// A session in which the token's user is logged in.
    ///
    /// # Errors
    /// Why there is none, with the remedy.
    pub(super) fn session(&self, uri: &Uri, writes: bool) -> Result<Rc<Session>, PkiError> {
        let said = |error: Error| fault(uri, &told(&error));
        let library = self.library(&uri.module).map_err(|why| fault(uri, &why))?;
        let (slot, info) = slot(uri, &library)?;
        let is_its = |opened: &&Opened| opened.library == uri.module && opened.slot == slot;
        let known = self.sessions.borrow();
        if let Some(opened) = known.iter().filter(is_its).find(|opened| opened.writes || !writes) {
            return Ok(Rc::clone(&opened.session));
        }
        let is_logged_in = known.iter().any(|opened| is_its(&opened));
        drop(known);
        let session = if writes { library.open_rw_session(slot) } else { library.open_ro_session(slot) };
        let session = Rc::new(session.map_err(said)?);
        // Who is logged in is so in every session with this token (PKCS #11 2.40, 5.6).
        if info.login_required() && !is_logged_in {
            let pin = self.pin(uri, &info)?;
            match session.login(UserType::User, pin.as_ref()) {
                Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {}
                Err(error) => return Err(said(error)),
            }
        }
        let opened = Opened { library: uri.module.clone(), slot, writes, session: Rc::clone(&session) };
        self.sessions.borrow_mut().push(opened);
        Ok(session)
    }

    /// The library, loaded once. Root loads nothing that somebody else can change.
    fn library(&self, path: &Path) -> Result<Pkcs11, String> {
        if let Some(library) = self.libraries.borrow().get(path) {
            return Ok(library.clone());
        }
        let whole = programs::alone(path, rustix::process::geteuid().as_raw())?;
        let library = Pkcs11::new(&whole)
            .map_err(|error| format!("{} is no PKCS#11 library: {}", path.display(), told(&error)))?;
        library
            .initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))
            .map_err(|error| format!("the library {} does not start: {}", path.display(), told(&error)))?;
        self.libraries.borrow_mut().insert(path.to_owned(), library.clone());
        Ok(library)
    }

    /// The PIN; none where it is typed at the token.
    fn pin(&self, uri: &Uri, info: &TokenInfo) -> Result<Option<AuthPin>, PkiError> {
        if info.user_pin_locked() {
            return Err(fault(uri, "the token's PIN is locked: its security officer sets another"));
        }
        if info.protected_authentication_path() {
            return Ok(None);
        }
        let pin = match &uri.pin {
            // A command that is run again and again would lock the token.
            Some(_) if info.user_pin_final_try() => {
                let why = "one wrong PIN more locks the token, and a file may have a wrong one: take pin-source out of the URI, and type it";
                return Err(fault(uri, why));
            }
            Some(path) => pin_in(path),
            None => (self.asks)(&uri.token_name()),
        };
        let pin = pin.and_then(|pin| secret(&pin).ok_or_else(|| "the PIN is no text".to_owned()));
        pin.map(Some).map_err(|why| fault(uri, &why))
    }
}

impl Drop for Tokens<'_> {
    fn drop(&mut self) {
        // Sessions first: a TPM has room for few, and closing the last one logs out. What does not end now ends with the process.
        self.sessions.get_mut().clear();
        for library in std::mem::take(self.libraries.get_mut()).into_values() {
            let _ = library.finalize();
        }
    }
}

/// The one token that is meant.
fn slot(uri: &Uri, library: &Pkcs11) -> Result<(Slot, TokenInfo), PkiError> {
    let said = |error: Error| fault(uri, &told(&error));
    let mut fit = Vec::new();
    let mut all = Vec::new();
    for slot in library.get_slots_with_initialized_token().map_err(said)? {
        let info = library.get_token_info(slot).map_err(said)?;
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        all.push(format!("{:?} (serial {:?})", info.label(), info.serial_number()));
        if is(&uri.token, info.label())
            && is(&uri.serial, info.serial_number())
            && is(&uri.model, info.model())
            && is(&uri.manufacturer, info.manufacturer_id())
        {
            fit.push((slot, info));
        }
    }
    match (fit.pop(), fit.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) if all.is_empty() => {
            Err(fault(uri, "the library finds no token: is it there, and has it been initialized?"))
        }
        (None, _) => Err(fault(uri, &format!("there is no such token; there are: {}", all.join(", ")))),
        _ => Err(fault(uri, &format!("several tokens fit; say which by serial=: {}", all.join(", ")))),
    }
}

/// The PIN in a file: its first line. One that others than its owner may use is not taken.
fn pin_in(path: &Path) -> Result<Passphrase, String> {
    let fault = |why: &dyn std::fmt::Display| format!("pin-source {}: {why}", path.display());
    // A pipe without a writer is not waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| fault(&e))?;
    let meta = file.metadata().map_err(|e| fault(&e))?;
    if !meta.is_file() {
        return Err(fault(&"it is no file"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(fault(&format!("others than its owner may use it: chmod 600 {}", path.display())));
    }
    let mut text = Zeroizing::new([0u8; MOST]);
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest).map_err(|e| fault(&e))? {
            0 => break,
            read => length += read,
        }
    }
    let line =
        text.get(..length).unwrap_or_default().split(|octet| *octet == b'\n').next().unwrap_or_default();
    if line.is_empty() || line.len() == MOST {
        return Err(fault(&"its first line is no PIN"));
    }
    Ok(Zeroizing::new(line.to_vec()))
}

/// Without a copy that stays: it has its size from the beginning.
fn secret(octets: &[u8]) -> Option<AuthPin> {
    let text = std::str::from_utf8(octets).ok().filter(|text| !text.is_empty())?;
    Some(AuthPin::new(Box::from(text)))
}

pub(super) fn fault(uri: &Uri, why: &str) -> PkiError {
    PkiError(format!("{}: {why}", uri.name()))
}

/// What a token says, short, and what to do about it.
pub(super) fn told(error: &Error) -> String {
    let Error::Pkcs11(rv, function) = error else { return error.to_string() };
    match rv {
        RvError::PinIncorrect => "the PIN is wrong (after some more the token locks itself)".to_owned(),
        RvError::PinLenRange | RvError::PinInvalid => {
            "the PIN is wrong: it cannot be one of this token's".to_owned()
        }
        RvError::PinLocked => "the token's PIN is locked: its security officer sets another".to_owned(),
        RvError::PinExpired => "the PIN has expired: set another with the token's own tool".to_owned(),
        RvError::UserPinNotInitialized => {
            "the token has no PIN yet: set one with the token's own tool".to_owned()
        }
        RvError::TokenNotPresent | RvError::DeviceRemoved => {
            "the token was removed: put it back, and try again".to_owned()
        }
        RvError::TokenWriteProtected => {
            "the token is write-protected: it makes no key, and destroys none".to_owned()
        }
        rv => format!("{rv:?} by {function:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_pin_is_the_first_line_of_a_file_that_its_owner_alone_may_use() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pin");
        let written = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            pin_in(&path)
        };
        for (text, pin) in [("1234", "1234"), ("1234\n", "1234"), ("1234\nmore\n", "1234"), (" 1 \n", " 1 ")]
        {
            assert_eq!(written(text, 0o600).unwrap().as_slice(), pin.as_bytes());
        }
        for (text, mode, why) in [
            ("1234\n", 0o640, "chmod 600"),
            ("1234\n", 0o602, "chmod 600"),
            ("", 0o600, "no PIN"),
            ("\n1234", 0o600, "no PIN"),
            // A PIN that is cut short would be tried, and be wrong.
            (&"1".repeat(MOST), 0o600, "no PIN"),
            (&"1".repeat(MOST + 1), 0o600, "no PIN"),
        ] {
            let refused = written(text, mode).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(pin_in(place.path()).unwrap_err().contains("no file"));
        assert!(pin_in("/nonexistent/pin".as_ref()).is_err());
    }
}
