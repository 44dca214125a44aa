//! levee: the IPsec stack of one label

fn main() {}
