//! Project tasks: `cargo xtask test` runs everything that has to hold before a change lands.
#![expect(clippy::print_stdout, reason = "a task's output is its purpose")]

mod api_test;
mod browser_tests;
mod command;
mod front;
mod licences;
mod nvcc;
#[path = "../../tests/testbed/src/postgres/programs.rs"]
mod postgres_programs;
mod prose;
mod scratch;
mod test;
mod test_programs;
mod tools;
mod wheel;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

tasks:
  test [--install] [FILTER]   formatting, prose, lints, licences, unused dependencies, then all tests (or those
                              that FILTER names); --install lets it install missing tools (apt-get, cargo, and
                              nvcc from Python's package index)
  front [--check] [--install] builds what browsers are sent into dashboard/dist; --check only compares it with what is
                              there; --install lets it install the compiler's target
  api [--install]             sends requests that schemathesis generates to a server of this build, and compares its answers
                              with docs/openapi.json; --install lets it install schemathesis
  prose                       checks the words of comments, names and documents
  licences                    checks every dependency's licence, name and source against deny.toml";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["test", rest @ ..] => test::run(rest),
        ["front", rest @ ..] if rest.iter().all(|arg| ["--check", "--install"].contains(arg)) => {
            let may_install = rest.contains(&"--install");
            if rest.contains(&"--check") {
                front::can_build(may_install).and_then(|possible| match possible {
                    Ok(()) => front::check(),
                    Err(missing) => anyhow::bail!(missing),
                })
            } else {
                front::write(may_install).map(|()| true)
            }
        }
        ["api", rest @ ..] if rest.iter().all(|arg| *arg == "--install") => api_test::run(!rest.is_empty()),
        ["prose"] => prose::check(),
        ["licences"] => licences::check().map(|count| {
            println!("licences: {count} packages, all allowed");
            true
        }),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
