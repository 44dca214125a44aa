//! A program, by what is really linked into it; and a certificate.

use goblin::elf::Elf;
use levee_policy::audit::hex;
use levee_policy::layers::{Evidence, Layer, Part, Seen};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::collections::BTreeSet;
use std::path::Path;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// Cryptographic libraries that are linked statically, by what the names of their symbols have and no others'.
const SYMBOLS: [(&str, &str); 21] = [
    ("ring_core_0_", "ring"),
    ("aws_lc_0_", "aws-lc"),
    ("8graviola", "graviola"),
    ("7aes_gcm", "RustCrypto"),
    ("3aes4soft", "RustCrypto"),
    ("16chacha20poly1305", "RustCrypto"),
    ("4sha2", "RustCrypto"),
    ("4p256", "RustCrypto"),
    ("4p384", "RustCrypto"),
    ("12x25519_dalek", "RustCrypto"),
    ("16curve25519_dalek", "RustCrypto"),
    ("13ed25519_dalek", "RustCrypto"),
    ("6ml_kem", "RustCrypto"),
    ("OPENSSL_init_crypto\0", "OpenSSL"),
    ("mbedtls_", "Mbed TLS"),
    ("gnutls_", "GnuTLS"),
    ("gcry_", "Libgcrypt"),
    ("wolfSSL_", "wolfSSL"),
    ("crypto_aead_", "libsodium"),
    ("NSS_Init", "NSS"),
    ("SymCrypt", "SymCrypt"),
];

/// The same of shared libraries, by how their names begin.
const SHARED: [(&str, &str); 12] = [
    ("libcrypto.", "OpenSSL"),
    ("libssl.", "OpenSSL"),
    ("libgnutls.", "GnuTLS"),
    ("libnettle.", "Nettle"),
    ("libhogweed.", "Nettle"),
    ("libgcrypt.", "Libgcrypt"),
    ("libsodium.", "libsodium"),
    ("libmbedcrypto.", "Mbed TLS"),
    ("libwolfssl.", "wolfSSL"),
    ("libnss3.", "NSS"),
    ("libfreebl", "NSS"),
    ("libsymcrypt.", "SymCrypt"),
];

/// Shared libraries in which there is no cryptography.
const PLAIN: [&str; 10] = [
    "libc.",
    "libm.",
    "libgcc_s.",
    "ld-linux",
    "linux-vdso.",
    "linux-gate.",
    "libpthread.",
    "libdl.",
    "librt.",
    "libz.",
];

/// Adds a program's libraries and compiler to a layer; what cannot be read is unknown.
pub fn add(layer: &mut Layer, path: &Path, place: &str, seen: Seen) {
    match std::fs::read(path).map_err(|e| e.to_string()).and_then(|bytes| read(&bytes)) {
        Ok((libraries, compilers)) => {
            layer.add(Part::Library, Evidence::found(libraries, place, seen));
            layer.add(Part::Compiler, Evidence::found(compilers, place, seen));
        }
        Err(why) => {
            let unknown = Evidence::Unknown(format!("{place}: {why}"));
            [Part::Library, Part::Compiler].into_iter().for_each(|part| layer.add(part, unknown.clone()));
        }
    }
}

/// The cryptographic library that a shared library is; `None` if it is none.
///
/// # Errors
/// It is not known.
pub fn shared(file: &str) -> Result<Option<&'static str>, String> {
    if let Some((_, library)) = SHARED.iter().find(|(begin, _)| file.starts_with(begin)) {
        return Ok(Some(library));
    }
    if PLAIN.iter().any(|begin| file.starts_with(begin)) {
        return Ok(None);
    }
    Err(format!("it links {file}, of which nothing is known"))
}

/// Libraries and compilers.
fn read(bytes: &[u8]) -> Result<(BTreeSet<String>, BTreeSet<String>), String> {
    let elf = Elf::parse(bytes).map_err(|e| format!("it is no program: {e}"))?;
    let section = |name: &str| {
        let found = elf.section_headers.iter().find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(name))?;
        bytes.get(found.file_range()?)
    };
    let mut libraries = BTreeSet::new();
    for needed in &elf.libraries {
        libraries.extend(shared(needed)?.map(str::to_owned));
    }
    // Without names of functions nobody sees what is linked into it.
    let names = section(".strtab").filter(|_| elf.syms.len() > 100);
    let names = names.ok_or("its symbols are stripped, so that nobody sees what is linked into it")?;
    let names = String::from_utf8_lossy(names);
    let known = SYMBOLS.iter().filter(|(marker, _)| names.contains(marker));
    libraries.extend(known.map(|(_, library)| (*library).to_owned()));
    if libraries.is_empty() {
        return Err("no cryptographic library that is known is linked into it".to_owned());
    }
    let comment = section(".comment").map(String::from_utf8_lossy).unwrap_or_default();
    let compilers = comment.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    Ok((libraries, compilers))
}

/// What of a certificate is compared.
pub struct Certificate {
    /// SHA-256 of its public key, in hexadecimal digits.
    pub key: String,
    /// The kind of key.
    pub kind: String,
}

/// Reads a certificate in PEM.
///
/// # Errors
/// There is none: why.
pub fn certificate(path: &Path) -> Result<Certificate, String> {
    let fault = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let pem = std::fs::read(path).map_err(|e| fault(&e))?;
    let der = CertificateDer::from_pem_slice(&pem).map_err(|e| fault(&e))?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| fault(&e))?;
    let spki = certificate.public_key();
    let sum = ring::digest::digest(&ring::digest::SHA256, spki.raw);
    let key = hex(sum.as_ref().get(..8).unwrap_or_default());
    let kind = match spki.algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.10045.2.1" => "EC".to_owned(),
        "1.3.101.112" => "Ed25519".to_owned(),
        "1.2.840.113549.1.1.1" => "RSA".to_owned(),
        other => format!("OID {other}"),
    };
    Ok(Certificate { key: format!("key {key}…"), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_what_is_linked_into_it_and_one_without_names_is_unknown() {
        // This very test: ring signs in it, p384 verifies.
        let own = std::fs::read("/proc/self/exe").unwrap();
        let (libraries, compilers) = read(&own).unwrap();
        assert!(libraries.contains("ring"), "{libraries:?}");
        assert!(!libraries.contains("OpenSSL") && !libraries.contains("aws-lc"), "{libraries:?}");
        assert!(compilers.iter().any(|compiler| compiler.contains("rustc")), "{compilers:?}");
        assert!(read(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn of_a_shared_library_that_nobody_knows_nothing_is_said() {
        assert_eq!(shared("libcrypto.so.3"), Ok(Some("OpenSSL")));
        assert_eq!(shared("libc.so.6"), Ok(None));
        assert!(shared("libfast.so").is_err());
    }
}
