//! The authority's revocation list (RFC 5280 5), as far as sessions end by it: the serial numbers that it names.
//!
//! It is the operator's file, from the warden. Whether it is the authority's own is checked by who believes certificates by it, the
//! trusted path and the keyer; a list that is not leaves nobody whom they believe.

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
