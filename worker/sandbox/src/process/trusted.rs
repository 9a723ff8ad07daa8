//! Programs that the operator named, outside of any jail: installers, which need the network and write where the operator may.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use super::CancelFlag;
use super::helper_process::kill;
use super::watched::{capture, reap, watch};

/// Captured bytes of each output stream. A program that writes more gets a closed pipe.
const OUTPUT_BYTES: usize = 1 << 20;

/// Runs a program to its end with the environment of this process, for a limited time. Returns its status and output. Blocks.
///
/// # Errors
/// `TimedOut` or `Interrupted` when the program was killed because its time was over or the work was cancelled, and what keeps it
/// from starting.
pub fn run_trusted<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(
    program: &Path,
    args: I,
    limit: Duration,
    cancel: &CancelFlag,
) -> std::io::Result<Output> {
    let deadline = Instant::now() + limit;
    #[expect(clippy::disallowed_methods, reason = "this crate starts the worker's processes")]
    let mut command = std::process::Command::new(program);
    // A group of its own, so that what it starts ends with it.
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let captured = capture(child.stdout.take(), OUTPUT_BYTES)
        .and_then(|stdout| Ok([stdout, capture(child.stderr.take(), OUTPUT_BYTES)?]));
    let ended = captured.and_then(|mut outputs| {
        let status = watch(&mut child, &mut outputs, deadline, cancel)?;
        Ok((status, outputs))
    });
    match ended {
        Ok((Some(status), [mut stdout, mut stderr])) => {
            Ok(Output { status, stdout: stdout.take(), stderr: stderr.take() })
        }
        other => {
            kill(&mut child);
            reap(child);
            other?;
            let (program, seconds) = (program.display(), limit.as_secs());
            Err(if cancel.is_cancelled() {
                Error::new(ErrorKind::Interrupted, format!("{program} was killed because the work was cancelled"))
            } else {
                Error::new(ErrorKind::TimedOut, format!("{program} was still running after {seconds} s and was killed"))
            })
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Long enough for any program of these tests, on any machine.
    const LONG: Duration = Duration::from_mins(10);

    fn shell(script: &str, limit: Duration, cancel: &CancelFlag) -> std::io::Result<Output> {
        run_trusted(Path::new("/bin/sh"), ["-c", script], limit, cancel)
    }

    #[test]
    fn status_and_both_outputs_are_returned_also_when_they_are_long() {
        let script = "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; echo no >&2; exit 3";
        let output = shell(script, LONG, &CancelFlag::default()).unwrap();
        assert_eq!((output.status.code(), output.stdout.len(), output.stderr), (Some(3), 220_000, b"no\n".to_vec()));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_at_its_limit() {
        let error = shell("exec sleep 600", Duration::from_millis(100), &CancelFlag::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("/bin/sh was still running"), "{error}");
    }

    #[test]
    fn a_cancelled_program_is_killed() {
        let cancel = CancelFlag::default();
        let ended = std::thread::scope(|scope| {
            let running = scope.spawn(|| shell("exec sleep 600", LONG, &cancel));
            cancel.cancel();
            running.join().unwrap()
        });
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Interrupted);
    }

    #[test]
    fn a_program_that_left_another_one_with_its_output_behind_has_ended() {
        let output = shell("sleep 600 & echo $!", LONG, &CancelFlag::default()).unwrap();
        assert!(output.status.success());
        let left: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(left).unwrap(), rustix::process::Signal::KILL)
            .unwrap();
    }
}
