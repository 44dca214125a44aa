//! Who sits at a seat of this host, as systemd-logind has it: the screens and keyboards that belong together.

use super::words::Login;
use rustix::fs::{Mode, OFlags, openat};
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

/// Where logind writes of seats and sessions (sd-login(3); the files themselves are read by libsystemd alone, and by this).
const PLACE: &str = "/run/systemd";
/// A file of logind's is some hundred octets.
const MOST: usize = 16 * 1024;

/// The name of a seat, such as `seat0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat(String);

impl FromStr for Seat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match name.strip_prefix("seat") {
            Some(rest) if (1..=64).contains(&rest.len()) && rest.chars().all(plain) => {
                Ok(Self(name.to_owned()))
            }
            _ => Err(format!("`{name}` is no seat: `loginctl list-seats` names those of this host")),
        }
    }
}

/// A seat, and what logind writes.
pub struct Watched {
    seat: Seat,
    files: OwnedFd,
}

impl Seat {
    /// Opens what logind writes.
    ///
    /// # Errors
    /// There is no logind.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let files = rustix::fs::open(PLACE, flags, Mode::empty())?;
        openat(&files, "seats", flags, Mode::empty())?;
        Ok(files)
    }

    /// With what logind writes.
    pub fn with(self, files: OwnedFd) -> Watched {
        Watched { seat: self, files }
    }
}

impl Watched {
    /// Whether this account sits there: the login that has the seat's screen now is its, and the login that asks is not from elsewhere.
    ///
    /// # Errors
    /// Not, and why.
    pub fn admits(&self, uid: u32, login: Option<Login>) -> Result<(), String> {
        let seat = &self.seat.0;
        let active = self.value(&format!("seats/{seat}"), "ACTIVE_UID");
        if active.as_deref() != Some(uid.to_string().as_str()) {
            return Err(format!("who sits at the machine ({seat}) alone may use levee-tpe here"));
        }
        // A login of which logind knows nothing was not begun elsewhere by anything that has it know.
        let remote = login.and_then(|login| self.value(&format!("sessions/{}", login.number()), "REMOTE"));
        match remote.as_deref() {
            None | Some("0") => Ok(()),
            Some(_) => {
                Err(format!("you have come from another machine: at {seat} alone levee-tpe may be used"))
            }
        }
    }

    fn value(&self, file: &str, key: &str) -> Option<String> {
        let file = openat(&self.files, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = vec![0; MOST];
        let read = rustix::io::read(&file, &mut text).ok()?;
        let text = std::str::from_utf8(text.get(..read)?).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn who_has_the_seat_is_admitted_and_nobody_else_nor_from_elsewhere() {
        let place = tempfile::tempdir().unwrap();
        for directory in ["seats", "sessions"] {
            fs::create_dir(place.path().join(directory)).unwrap();
        }
        let files = OwnedFd::from(fs::File::open(place.path()).unwrap());
        let watched = "seat0".parse::<Seat>().unwrap().with(files);
        let said =
            |uid, login| watched.admits(uid, login).map_err(|why| why.split(' ').next().unwrap().to_owned());
        assert_eq!(said(1000, None), Err("who".into()), "nobody sits there that logind knows");
        // As logind writes them.
        fs::write(
            place.path().join("seats/seat0"),
            "# This is private data. Do not parse.\nIS_SEAT0=1\nCAN_MULTI_SESSION=1\nCAN_TTY=1\nCAN_GRAPHICAL=1\nACTIVE=3\n\
             ACTIVE_UID=1000\nSESSIONS=3 5\nUIDS=1000 1001\n",
        )
        .unwrap();
        fs::write(place.path().join("sessions/3"), "UID=1000\nACTIVE=1\nREMOTE=0\nSEAT=seat0\n").unwrap();
        fs::write(place.path().join("sessions/7"), "UID=1000\nACTIVE=1\nREMOTE=1\nREMOTE_HOST=192.0.2.7\n")
            .unwrap();
        let login = |number: u32| serde_json::from_value(number.into()).ok();
        assert_eq!(said(1000, login(3)), Ok(()));
        assert_eq!(
            said(1000, login(9)),
            Ok(()),
            "of the account's own services, which logind has no session for"
        );
        assert_eq!(said(1000, None), Ok(()));
        assert_eq!(said(1000, login(7)), Err("you".into()));
        assert_eq!(said(1001, login(5)), Err("who".into()), "who is logged in there, and not in front");
        assert_eq!(said(100, None), Err("who".into()));
    }

    #[test]
    fn a_seat_is_a_name_and_no_path() {
        for name in ["seat0", "seat-usb-pci-0000_00", "seat1"] {
            assert!(name.parse::<Seat>().is_ok(), "{name}");
        }
        for name in ["", "seat", "seat/../0", "seat0/..", "../seat0", "Seat0", "seat0 ", "seat.0"] {
            assert!(name.parse::<Seat>().is_err(), "{name}");
        }
    }
}
