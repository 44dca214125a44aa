//! levee: starts, supervises, hands out descriptors

fn main() {}
