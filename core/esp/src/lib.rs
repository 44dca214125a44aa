//! ESP (RFC 4303) without I/O.
