//! What tunnels cost on this host: a file that an operator may have put among sessiond's own (`levee lab prices --state`). It is told to whoever
//! opens a session, and to operators. Nothing is decided by it, and one that is not there, damaged or of another host costs nobody a session.

use levee_policy::Label;
use levee_policy::site::{Posture, Protected, Site, VaultKind};
use levee_prices::{Book, Carried, Host, Kind, MOST_OCTETS, Prices as Measured, Told, Unpriced};
use levee_session::Time;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx};
use std::fs::read_to_string;
use std::os::fd::OwnedFd;

/// The file's name, in sessiond's directory.
const FILE: &str = "prices.toml";

/// The file, and what it said last.
pub struct Prices {
    directory: OwnedFd,
    here: Host,
    book: Book,
    /// Which file that was: number, length, and when it was written.
    of: Option<(u64, u64, i64, u32)>,
}

/// This host. To be asked before the sandbox is entered.
pub fn here() -> Host {
    // Where /proc says nothing, no price is this host's.
    let text = |path: &str| read_to_string(path).unwrap_or_default();
    Host::of(&text("/proc/cpuinfo"), &text("/proc/sys/kernel/osrelease"))
}

impl Prices {
    /// Of the file in this directory, which need not be there.
    pub fn new(directory: OwnedFd, here: Host) -> Self {
        let book = Book::read(None, &here);
        Self { directory, here, book, of: None }
    }

    /// What the file says now: it is read again when it is another one.
    fn book(&mut self) -> &Book {
        let wanted = StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MTIME;
        let found = statx(&self.directory, FILE, AtFlags::SYMLINK_NOFOLLOW, wanted).ok();
        let of =
            found.map(|file| (file.stx_ino, file.stx_size, file.stx_mtime.tv_sec, file.stx_mtime.tv_nsec));
        if of != self.of {
            self.of = of;
            self.book = Book::read(of.and_then(|_| self.text()).as_deref(), &self.here);
        }
        &self.book
    }

    /// The file's text; empty, and so damaged, where it cannot be read or is too long; `None`: there is none.
    fn text(&self) -> Option<Vec<u8>> {
        // Whatever it is, nobody waits for it.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = match openat(&self.directory, FILE, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return None,
            fd => fd.ok(),
        };
        let text = fd.and_then(|fd| levee_daemon::whole(&fd, MOST_OCTETS).ok());
        Some(text.map(|text| text.to_vec()).unwrap_or_default())
    }

    /// Everything that was measured.
    ///
    /// # Errors
    /// Why there is nothing.
    pub fn all(&mut self, now: Time) -> Result<Measured, Unpriced> {
        self.book().at(seconds(now)).cloned()
    }

    /// What the tunnel of a session costs that is opened now, where this posture counts, and would cost without what was asked for it: sealed
    /// by the preferred one of what it may be.
    pub fn told(
        &mut self,
        site: &Site,
        label: &Label,
        posture: Option<&Posture>,
        protected: &Protected,
        now: Time,
    ) -> Told {
        let ciphers = site.ciphers_under(posture);
        let without = site.protected_under(label, &Protected::default(), posture);
        let of = |protected: &Protected| -> Kind {
            Some((*protected.among(ciphers).first()?, carried(site, label, posture, protected)?))
        };
        self.book().forecast(seconds(now), of(protected), of(&without))
    }
}

/// Since 1970.
fn seconds(now: Time) -> u64 {
    now.since(Time::default()).as_secs()
}

/// How the packets of a session go whose tunnel must have this where this posture counts; `None`: its label's tunnels are of a kind that the laboratory
/// does not measure.
pub fn carried(
    site: &Site,
    label: &Label,
    posture: Option<&Posture>,
    protected: &Protected,
) -> Option<Carried> {
    let plain = !site.vault().has_second_tunnel()
        && site.vault_under(label, posture) == VaultKind::default()
        && !protected.aggfrag;
    plain.then(|| Carried::at(protected.interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::LabelName;
    use std::fs::File;

    const SITE: &str = include_str!("../../../conf/small/site.toml");

    fn file(here: &Host, gigabyte: u64) -> String {
        let Host { processor, processors, kernel, levee } = here;
        format!(
            "version = 1\nmeasured = 1000\n[host]\nprocessor = {processor:?}\nprocessors = {processors}\nkernel = {kernel:?}\nlevee = {levee:?}\n\
             [[price]]\ncipher = \"aes-256-gcm\"\ngigabyte = [{gigabyte}, {gigabyte}, {gigabyte}]\n"
        )
    }

    #[test]
    fn the_file_is_read_when_it_is_another_one_and_what_is_wrong_with_it_is_told() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FILE);
        let site = Site::parse(&SITE.replace("poll = \"0us\"", "")).unwrap();
        let label = site.label(&LabelName::new("SECRET//NATO,MED").unwrap()).unwrap();
        let mut prices = Prices::new(File::open(place.path()).unwrap().into(), here());
        let now = Time::default().after(std::time::Duration::from_secs(2_000));
        let none = Protected::default();
        let mut told = || {
            let told = prices.told(&site, &label, None, &none, now);
            told.map(|told| told.price.gigabyte.unwrap().middle())
        };
        assert_eq!(told(), Err(Unpriced::Absent));
        let new = place.path().join("new");
        let put = |text: &str| {
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
        };
        put(&file(&here(), 7_000));
        assert_eq!(told(), Ok(7_000));
        put(&file(&here(), 9_000));
        assert_eq!(told(), Ok(9_000));
        put("prices");
        assert_eq!(told(), Err(Unpriced::Damaged));
        put(&format!("{}#{}", file(&here(), 9_000), " ".repeat(MOST_OCTETS)));
        assert_eq!(told(), Err(Unpriced::Damaged));
        put(&file(&Host::of("", "another"), 9_000));
        assert_eq!(told(), Err(Unpriced::OtherHost));
        // A link, and what one would wait for, are no files of prices.
        let elsewhere = place.path().join("elsewhere");
        std::fs::write(&elsewhere, file(&here(), 9_000)).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(told(), Err(Unpriced::Damaged));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert_eq!(told(), Err(Unpriced::Damaged));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(told(), Err(Unpriced::Absent));
    }

    #[test]
    fn tunnels_unlike_the_laboratorys_have_no_price() {
        let label = LabelName::new("SECRET//NATO,MED").unwrap();
        let of = |keys: &str| {
            // The whole table, for the site's own has a time to look on before a vault sleeps.
            let (before, after) = SITE.split_once("[vault]").unwrap();
            let after = after.split_once("\n[").unwrap().1;
            let site = Site::parse(&format!("{before}[vault]\n{keys}\n[{after}"));
            let site = site.unwrap_or_else(|why| panic!("{why:?}"));
            let (known, posture) = (site.label(&label).unwrap(), site.postures().first());
            carried(&site, &known, posture, &site.protected_under(&known, &Protected::default(), posture))
        };
        assert_eq!(of(""), Some(Carried::Each));
        assert_eq!(of("constant-rate = [\"SECRET//NATO,MED\"]"), Some(Carried::Constant(4_000)));
        for other in [
            "workers = 2",
            "agree = [\"SECRET//NATO,MED\"]",
            "aggfrag = [\"SECRET//NATO,MED\"]",
            "aead = \"ring\"",
            "poll = \"0ms\"",
            "[[posture]]\nname = \"two\"\nagree = true",
            "[[posture]]\nname = \"calm\"\npoll = \"0us\"",
            "[[posture]]\nname = \"packed\"\naggfrag = true",
            "[[posture]]\nname = \"many\"\nworkers = 2",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
