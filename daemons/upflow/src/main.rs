//! levee: copies a store to the labels that dominate it

fn main() {}
