//! `cargo xtask test`: what has to hold before a change lands.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::command::{cargo, succeeds};
use crate::tools::MACHETE;
use crate::{api_test, browser_tests, front, licences, nvcc, prose, scratch, test_programs, tools, wheel};

/// The least number of tests of one program that run at the same time. Most of them wait for a process.
const MIN_TEST_THREADS: usize = 3;

/// Sum over all test programs.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// Adds a line such as `test result: ok. 12 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        for part in rest.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(count), Some(what)) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }
}

/// Runs the task. Returns whether everything held.
pub(crate) fn run(args: &[&str]) -> Result<bool> {
    let may_install = args.contains(&"--install");
    let filter: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--install").collect();
    tools::ensure(may_install)?;
    browser_tests::ensure(may_install)?;

    let mut failed_checks: Vec<&str> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    if filter.is_empty() {
        check("formatting", &mut failed_checks, || succeeds(cargo().args(["fmt", "--all", "--", "--check"])))?;
        check("prose", &mut failed_checks, prose::check)?;
        check("lints", &mut failed_checks, || {
            succeeds(cargo().args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
        })?;
        check("licences", &mut failed_checks, || match licences::check() {
            Ok(count) => {
                println!("licences: {count} packages, all allowed");
                Ok(true)
            }
            Err(error) => {
                eprintln!("{error:#}");
                Ok(false)
            }
        })?;
        if MACHETE.is_there(may_install)? {
            check(MACHETE.program, &mut failed_checks, || succeeds(cargo().args(MACHETE.args)))?;
        } else {
            notes.push(format!("skipped: {} is not installed (`{}`)", MACHETE.program, MACHETE.install()));
        }
        match front::can_build(may_install)? {
            Ok(()) => {
                check("lints of the pages' program", &mut failed_checks, front::lints)?;
                check("bundle of the pages", &mut failed_checks, front::check)?;
            }
            Err(missing) => notes.push(format!("skipped: the bundle of the pages was not built again: {missing}")),
        }
    }

    if let Some(note) = nvcc::ensure(may_install)? {
        notes.push(note);
    }
    let mut tally = Tally::default();
    let began = Instant::now();
    let in_memory = scratch::in_memory();
    if let Some(folder) = in_memory {
        println!("xtask: temporary files of the tests: {folder}");
    }
    let prepare = |program: &mut Command| {
        // With random cases, a rare failure would be blamed on an unrelated change.
        program.env("PROPTEST_RNG_SEED", "20260101");
        // Where tests wait for a disk, more of them at a time wait longer for each other.
        if let Some(folder) = in_memory {
            let threads = std::thread::available_parallelism().map_or(1, usize::from).max(MIN_TEST_THREADS);
            program.env("TMPDIR", folder).env("RUST_TEST_THREADS", threads.to_string());
        }
    };
    let tests_held = test_programs::run(prepare, &filter, |line| tally.add(line))?;
    println!("\nxtask: tests took {} s", began.elapsed().as_secs());
    if filter.is_empty() {
        match wheel::maturin(may_install)? {
            Some(maturin) => check("the wheel for Python", &mut failed_checks, || wheel::check(&maturin))?,
            None => {
                notes
                    .push("skipped: the wheel for Python: maturin is not installed (`pip install maturin`)".to_owned());
            }
        }
        let name = "requests from the API's description";
        // An error of the surroundings must not hide what the tests found.
        match api_test::schemathesis(may_install) {
            Ok(Some(program)) => check(name, &mut failed_checks, || {
                api_test::check(&program).or_else(|error| {
                    eprintln!("{error:#}");
                    Ok(false)
                })
            })?,
            Ok(None) => notes.push(format!(
                "skipped: {name}: schemathesis is not installed (`cargo xtask test --install` installs {})",
                api_test::SCHEMATHESIS
            )),
            Err(error) => {
                eprintln!("{error:#}");
                failed_checks.push(name);
            }
        }
    }
    for note in &notes {
        println!("xtask: {note}");
    }
    if !tests_held && tally.failed == 0 {
        failed_checks.push("tests (a test program did not build or did not finish)");
    }
    for name in &failed_checks {
        println!("xtask: FAILED: {name}");
    }
    let failed = tally.failed + u64::try_from(failed_checks.len())?;
    println!("{} passed, {failed} failed, {} skipped", tally.passed, tally.skipped);
    Ok(failed == 0)
}

fn check(name: &'static str, failed: &mut Vec<&'static str>, body: impl FnOnce() -> Result<bool>) -> Result<()> {
    println!("xtask: {name}");
    let began = Instant::now();
    if !body()? {
        failed.push(name);
    }
    println!("xtask: {name} took {} s", began.elapsed().as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lines_of_all_test_programs_are_added_up() {
        let mut tally = Tally::default();
        tally.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s");
        tally.add("test result: FAILED. 2 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.01s");
        tally.add("running 4 tests");
        assert_eq!((tally.passed, tally.failed, tally.skipped), (14, 4, 1));
    }
}
