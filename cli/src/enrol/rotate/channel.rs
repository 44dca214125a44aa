//! The key of a one-way channel from or to another host, followed by another. Both hosts are given the new one beside the one in use, in any
//! order: who receives takes both from then on, and who sends uses the old one until the operator ends it there. Nothing comes back from
//! who receives, so that nobody but the operator can know that it has the new one.

use super::super::{ChannelFacts, ChannelFault, EnrolError, Enroller, Facts, Files, Mode, files, pki};
use super::{Rotated, Rotation, Swap};
use levee_policy::ChannelName;
use ring::digest::{SHA256, digest};
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// Below the state directory.
const PLACE: &str = "channels";
/// Octets of a key.
const KEY: usize = 32;

/// The key in use, below the state directory.
pub fn current(channel: &ChannelName) -> String {
    format!("{PLACE}/{channel}.key")
}

/// The one that will follow it. No channel's name has a slash, so that it is no other channel's.
pub fn next(channel: &ChannelName) -> String {
    format!("{PLACE}/next/{channel}.key")
}

/// As the audit log calls it.
fn object(channel: &ChannelName) -> String {
    format!("key of the channel {channel}")
}

/// What a key's file has: 64 hexadecimal digits.
pub fn text(key: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(data_encoding::HEXLOWER.encode(key) + "\n")
}

/// A key as its file has it; `None` where there is none.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, EnrolError> {
    let text = match std::fs::read(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EnrolError::File(path.to_owned(), error)),
    };
    let digits = text.strip_suffix(b"\n").unwrap_or(&text);
    let key = data_encoding::HEXLOWER_PERMISSIVE.decode(digits).map(Zeroizing::new).ok();
    let key = key.filter(|key| key.len() == KEY);
    key.map(Some).ok_or_else(|| ChannelFault::NoKey(path.to_owned()).into())
}

/// What a key is known by, also in `levee status`: the first 16 digits of its SHA-256 digest.
fn fingerprint(key: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(digest(&SHA256, key).as_ref()).chars().take(16).collect()
}

impl Enroller<'_> {
    /// Makes the key that will follow a channel's, beside it. Where there is one already nothing is done: it may be at the other host.
    ///
    /// # Errors
    /// The site has no such channel, the channel no key, or something cannot be written.
    pub fn rotate_channel(&self, facts: &Facts, name: &str) -> Result<Rotated, EnrolError> {
        let _alone = self.alone()?;
        let ChannelFacts { name: channel, .. } = facts.channel(name)?;
        let old = self.channel_key(channel)?;
        if let Some(next) = read(&self.state.join(next(channel)))? {
            let (object, next) = (object(channel), fingerprint(&next));
            let said =
                format!("the {object}: its rotation was begun before, to {next}, and ends with --finish");
            return Ok(Rotated { written: Vec::new(), destroyed: Vec::new(), said });
        }
        let key = pki::ppk()?;
        let mut rotation = self.begin_channel()?;
        let place = rotation.files.directory.join("next");
        files::directory(&place).map_err(|error| EnrolError::File(place, error))?;
        rotation.files.put(&format!("next/{channel}.key"), text(&key).as_bytes(), Mode::Private)?;
        let reason = format!(
            "rotated: from {} to {}; who receives takes both until --finish",
            fingerprint(&old),
            fingerprint(&key[..])
        );
        self.finish(&object(channel), &reason, rotation)
    }

    /// Ends it at this host: the next key is the one in use, and the one before it is destroyed. `is_heard` says whether the server that
    /// runs here has opened anything with the key that is known by this: it is asked where the channel ends here, since until then who
    /// sends may use the old one.
    ///
    /// # Errors
    /// None was begun; nothing has come that was sealed with the next key, and it is not by force; or something cannot be written.
    pub fn finish_channel(
        &self,
        facts: &Facts,
        name: &str,
        is_heard: &dyn Fn(&str) -> Result<bool, String>,
    ) -> Result<Rotated, EnrolError> {
        let _alone = self.alone()?;
        let ChannelFacts { name: channel, sends } = facts.channel(name)?;
        let from = self.state.join(next(channel));
        let new = read(&from)?.ok_or(EnrolError::NotBegun)?;
        let old = self.channel_key(channel)?;
        if *old == *new {
            return Err(ChannelFault::Same(from).into());
        }
        let key = fingerprint(&new);
        if !sends && !self.force {
            match is_heard(&key) {
                Ok(true) => {}
                Ok(false) => return Err(ChannelFault::NotHeard(channel.clone(), key).into()),
                Err(why) => return Err(ChannelFault::Unknown(channel.clone(), why).into()),
            }
        }
        let rotation = self.begin_channel()?;
        let [from, to] =
            ["next/", ""].map(|place| rotation.swap.path().join(format!("{place}{channel}.key")));
        std::fs::rename(&from, &to).map_err(|error| EnrolError::File(from, error))?;
        let reason = format!("rotated: from {}; {key} alone is used from here on", fingerprint(&old));
        self.finish(&object(channel), &reason, rotation)
    }

    fn channel_key(&self, channel: &ChannelName) -> Result<Zeroizing<Vec<u8>>, EnrolError> {
        let path = self.state.join(current(channel));
        read(&path)?.ok_or_else(|| ChannelFault::NoneYet(path, channel.clone()).into())
    }

    fn begin_channel(&self) -> Result<Rotation, EnrolError> {
        let live = self.state.join(PLACE);
        let swap = Swap::begin(&live).map_err(|error| EnrolError::File(live, error))?;
        let directory = swap.path().to_owned();
        let files = Files { directory, force: true, passphrase: None, written: Vec::new() };
        Ok(Rotation { swap, files, said: Vec::new() })
    }
}

#[cfg(test)]
mod tests;
