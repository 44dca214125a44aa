//! `ppk` of a host: the post-quantum preshared key that it shares with the server (RFC 8784), by name.

use toml::Spanned;
use toml::de::DeValue;

use super::read::{At, Reader};
use super::reference;
use crate::names::PpkId;

/// What a host's IKE SAs have to do with a PPK. The key itself is in a file of the signer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPpk {
    id: PpkId,
    mandatory: bool,
}

impl HostPpk {
    /// PPK_ID_FIXED (RFC 8784 5.1). No two hosts of a site have the same.
    pub fn id(&self) -> &PpkId {
        &self.id
    }

    /// Whether the host is refused without it: so it is, unless the site says otherwise.
    pub fn is_mandatory(&self) -> bool {
        self.mandatory
    }

    /// Reads `ppk = { id = "…", mandatory = … }`; its place is the name's.
    pub(super) fn read(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<At<Self>> {
        const FORM: &str = "1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit";
        let keys = reader.subtable(value, "`ppk`", &reference::PPK.names())?;
        let id = reader.need(&keys, "id", "\"ws1-2026\"");
        let id = id.and_then(|value| reader.parsed::<PpkId>(value, "PPK_ID", FORM));
        let mandatory = match keys.get("mandatory") {
            Some(value) => reader.boolean(value, "mandatory"),
            None => Some(true),
        };
        let (id, mandatory) = (id?, mandatory?);
        Some(At::new(Self { id: id.value, mandatory }, id.span))
    }
}

impl AsRef<str> for HostPpk {
    fn as_ref(&self) -> &str {
        self.id.as_str()
    }
}
