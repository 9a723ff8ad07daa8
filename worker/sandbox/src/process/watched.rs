//! Watches a process outside of any jail until it ends, its deadline passes or the work is cancelled.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use super::capture::Capture;
use super::jail::timespec;
use super::{CancelFlag, WATCH_INTERVAL};

/// Captures an output stream of a process.
pub(super) fn capture(stream: Option<impl Into<OwnedFd>>, limit_bytes: usize) -> std::io::Result<Capture<File>> {
    let stream = stream.ok_or_else(|| std::io::Error::other("the process has no output stream"))?;
    Capture::new(File::from(stream.into()), limit_bytes)
}

/// Reads the output of a process until its end, the deadline or the cancellation. Returns its status; none while it still runs.
pub(super) fn watch(
    child: &mut Child,
    outputs: &mut [Capture<File>],
    deadline: Instant,
    cancel: &CancelFlag,
) -> std::io::Result<Option<ExitStatus>> {
    loop {
        // Before the look at the output: what it wrote until its end is read then.
        let ended = child.try_wait();
        outputs.iter_mut().for_each(Capture::pump);
        if !matches!(ended, Ok(None)) || Instant::now() >= deadline || cancel.is_cancelled() {
            return ended;
        }
        let mut open: Vec<PollFd<'_>> = outputs
            .iter()
            .filter_map(Capture::descriptor)
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
            .collect();
        if open.is_empty() {
            std::thread::park_timeout(WATCH_INTERVAL);
        } else {
            // Errors and the end of the process are seen by the next look.
            let _ = poll(&mut open, Some(&timespec(WATCH_INTERVAL)));
        }
    }
}

/// Waits for the end of a killed process on a thread of its own: it is a zombie until then, and may hang in a driver.
pub(super) fn reap(mut child: Child) {
    let _ = std::thread::Builder::new().name("reap".to_owned()).spawn(move || child.wait());
}
