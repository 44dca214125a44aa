//! levee: credentials, sessions, audit log

fn main() {}
