//! levee: the operator's command

fn main() {}
