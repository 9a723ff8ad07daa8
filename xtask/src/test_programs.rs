//! The test programs of the workspace, two of them at a time.
//!
//! `cargo test` runs one after the other. Most tests wait for a process, a socket or a time, and the last ones of a program
//! leave the cores idle.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{cargo, command, root};

/// The number of programs that run at the same time.
const PROGRAMS_AT_ONCE: usize = 2;

/// A compiled test program.
#[derive(Debug)]
struct Program {
    executable: PathBuf,
    /// The folder of its package, in which cargo runs it, too.
    folder: PathBuf,
}

impl Program {
    /// Reads one of cargo's messages. Returns nothing if it tells of something else.
    fn of_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if !message.pointer("/profile/test")?.as_bool()? {
            return None;
        }
        let executable = PathBuf::from(message.get("executable")?.as_str()?);
        let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?.to_path_buf();
        Some(Self { executable, folder })
    }

    fn name(&self) -> String {
        self.executable.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Builds the test programs. Returns nothing if one did not build.
fn build() -> Result<Option<VecDeque<Program>>> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        return Ok(None);
    }
    let mut programs: Vec<Program> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(Program::of_message).collect();
    if programs.is_empty() {
        bail!("cargo named no test program");
    }
    // Those of the whole program take the longest: begun first, none of them is alone at the end.
    programs.sort_by_key(|program| program.folder != root());
    Ok(Some(programs.into()))
}

/// Builds and runs all tests, with `prepare` applied to each command and `args` given to each program. Shows the output of a
/// program when it ends, and hands each line to `line`. Returns whether all tests passed.
pub(crate) fn run(prepare: impl Fn(&mut Command) + Sync, args: &[&str], mut line: impl FnMut(&str)) -> Result<bool> {
    let Some(programs) = build()? else { return Ok(false) };
    let (waiting, prepare) = (&Mutex::new(programs), &prepare);
    let (sender, ended) = mpsc::channel();
    let mut all_passed = true;
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..PROGRAMS_AT_ONCE {
            let sender = sender.clone();
            scope.spawn(move || {
                // The lock must not be held while the program runs.
                let next = || lock(waiting).pop_front();
                while let Some(program) = next() {
                    if sender.send(run_one(&program, prepare, args)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for result in ended {
            let (text, passed) = result?;
            text.lines().for_each(|text| {
                println!("{text}");
                line(text);
            });
            all_passed &= passed;
        }
        Ok(())
    })?;
    let mut documented = cargo();
    documented.args(["test", "--workspace", "--locked", "--no-fail-fast", "--doc", "--"]).args(args);
    prepare(&mut documented);
    Ok(crate::command::for_each_line(&mut documented, line)? && all_passed)
}

/// Returns what a program printed, and whether all of its tests passed.
fn run_one(program: &Program, prepare: impl Fn(&mut Command), args: &[&str]) -> Result<(String, bool)> {
    println!("     Running {}", program.name());
    let mut run = command(&program.executable);
    run.args(args).current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    prepare(&mut run);
    let output = run.output().with_context(|| format!("cannot run {}", program.executable.display()))?;
    let text = format!(
        "\n     Output of {}, {}:\n{}{}",
        program.name(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((text, output.status.success()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn only_programs_with_tests_are_taken_from_the_messages_of_cargo() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/store/Cargo.toml","profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let program = Program::of_message(&message(true, r#""/w/target/debug/deps/suite-1""#)).unwrap();
        assert_eq!((program.folder.to_str(), program.name().as_str()), (Some("/w/store"), "suite-1"));
        assert!(Program::of_message(&message(false, r#""/w/target/debug/nightshift""#)).is_none());
        assert!(Program::of_message(&message(true, "null")).is_none());
        assert!(Program::of_message(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(Program::of_message("not JSON").is_none());
    }

    #[test]
    fn the_output_of_a_program_that_fails_is_kept() {
        let program = Program { executable: "/bin/sh".into(), folder: std::env::temp_dir() };
        let (text, passed) = run_one(&program, |_| {}, &["-c", "echo out; echo error >&2; exit 3"]).unwrap();
        assert!(!passed);
        assert!(text.contains("out\nerror\n") && text.contains("exit status: 3"), "{text}");
        assert!(run_one(&program, |_| {}, &["-c", "exit 0"]).unwrap().1);
    }
}
