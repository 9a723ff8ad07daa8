//! nightshift
fn main() {}
