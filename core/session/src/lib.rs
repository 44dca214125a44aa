//! Sessions and their revocation.
