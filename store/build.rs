//! Migrations are compiled in: a new file must lead to a new build.
#![expect(clippy::print_stdout, reason = "a build script speaks to cargo on standard output")]

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
}
