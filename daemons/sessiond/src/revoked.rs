//! The authority's revocation list (RFC 5280 5), as far as sessions end by it: the serial numbers that it names.
//!
//! It is the operator's file, from the warden. Whether it is the authority's own is checked by who believes certificates by it, the
//! trusted path and the keyer; a list that is not leaves nobody whom they believe. The list of the site's servers is checked here, since
//! nobody else believes their passports ([`signed`]).

use crate::known::{Digest, digest_of};
use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject as _;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

/// The serial numbers on the lists in a file that is positioned at its beginning, as they are encoded; and the file's digest.
///
/// # Errors
/// It cannot be read, or has something else in it.
pub fn serials(fd: &OwnedFd) -> Result<(BTreeSet<Vec<u8>>, Digest), String> {
    let text = levee_daemon::revocations(fd).map_err(|e| e.to_string())?;
    let mut serials = BTreeSet::new();
    for list in CertificateRevocationListDer::pem_slice_iter(&text) {
        let list = list.map_err(|e| e.to_string())?;
        let (_, list) = CertificateRevocationList::from_der(&list).map_err(|e| e.to_string())?;
        serials.extend(list.iter_revoked_certificates().map(|entry| entry.raw_serial().to_vec()));
    }
    Ok((serials, digest_of(&text)))
}

/// What a revocation list says that its authority has signed.
pub struct Listed {
    pub serials: BTreeSet<Vec<u8>>,
    /// Until when it is good, in seconds since 1970-01-01 UTC.
    pub until: u64,
}

/// The lists in a file that is positioned at its beginning, as one: there are two while an authority is followed by another.
///
/// # Errors
/// It cannot be read, has something else in it or nothing, or is not signed by whom `is_by` says.
pub fn signed(fd: &OwnedFd, is_by: impl Fn(&[u8], &[u8]) -> bool) -> Result<Listed, String> {
    let text = levee_daemon::revocations(fd).map_err(|e| e.to_string())?;
    let mut all: Option<Listed> = None;
    for list in CertificateRevocationListDer::pem_slice_iter(&text) {
        let list = list.map_err(|e| e.to_string())?;
        let (_, list) = CertificateRevocationList::from_der(&list).map_err(|e| e.to_string())?;
        if !is_by(list.tbs_cert_list.as_ref(), &list.signature_value.data) {
            return Err("its authority has not signed it".to_owned());
        }
        let until = list.next_update().and_then(|time| u64::try_from(time.timestamp()).ok());
        let until = until.ok_or("it does not say how long it is good")?;
        let one = all.get_or_insert(Listed { serials: BTreeSet::new(), until });
        one.until = one.until.min(until);
        one.serials.extend(list.iter_revoked_certificates().map(|entry| entry.raw_serial().to_vec()));
    }
    all.ok_or_else(|| "there is none in it".to_owned())
}
