//! Programs that a test writes and then starts.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program that can be started at once, in the place of an earlier one.
///
/// Another process writes the file. If this process did, a child that another test starts at that moment would inherit
/// the open file, and until that child has replaced itself the kernel refuses to start the program (`ETXTBSY`).
///
/// # Panics
///
/// If the program cannot be written.
#[expect(clippy::expect_used, reason = "a test fails by panicking")]
#[expect(clippy::disallowed_methods, reason = "another process has to write; the ban is for the product")]
pub fn write_executable(path: &Path, text: &str) {
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell starts");
    let mut input = writer.stdin.take().expect("the shell has an input");
    input.write_all(text.as_bytes()).expect("the shell reads the program");
    drop(input);
    assert!(writer.wait().expect("the shell ends").success(), "{} is written", path.display());
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]
#[expect(clippy::disallowed_methods, reason = "the test starts what was written")]
mod tests {
    use super::*;

    #[test]
    fn a_program_starts_at_once_while_others_start_processes() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let program = folder.path().join(thread.to_string());
                scope.spawn(move || {
                    for round in 0..20 {
                        write_executable(&program, &format!("#!/bin/sh\nexit {round}\n"));
                        let status = Command::new(&program).status().unwrap();
                        assert_eq!(status.code(), Some(round));
                    }
                });
            }
        });
    }
}
