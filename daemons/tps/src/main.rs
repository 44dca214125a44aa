//! levee: the trusted path server, one sandboxed child per client

fn main() {}
