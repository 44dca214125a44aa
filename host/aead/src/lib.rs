//! AEAD implementations.
