//! levee: agrees keys and hands each to the one vault of its label

fn main() {}
