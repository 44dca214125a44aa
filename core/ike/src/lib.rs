//! IKEv2 (RFC 7296) without I/O.
