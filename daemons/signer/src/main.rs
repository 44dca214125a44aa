//! levee: holds the long-term private keys and signs one typed thing at a time

fn main() {}
