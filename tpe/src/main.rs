//! levee: the trusted path extension, on the workstation

fn main() {}
