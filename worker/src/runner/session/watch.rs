//! Waiting for a program's answer while its time, memory and output are watched, and finding out how it ended.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nightshift_protocol::verdict::ProcessEnd;

use super::{CPU_LIMIT_S, Session, SessionError};
use crate::runner::message::{Fault, Reply, Request};
use nightshift_sandbox::process::{EndLimits, ProcessError, WATCH_INTERVAL, classify, receive, send};

/// Captured output of a runner in bytes; more ends it.
pub(super) const OUTPUT_BYTES: usize = 256 * 1024;

/// Printed lines that a report keeps.
const PRINTED_LINES: usize = 20;

/// Printed bytes that a report keeps.
const PRINTED_BYTES: usize = 4096;

/// How long a program whose socket can be read without a question may take to turn out to have ended.
const ENDING_LIMIT: Duration = Duration::from_millis(100);

impl Session {
    /// The last lines that the program printed, errors last.
    #[must_use]
    pub fn printed(&self) -> String {
        let mut text = String::from_utf8_lossy(self.jail.stdout.kept()).into_owned();
        text.push_str(&String::from_utf8_lossy(self.jail.stderr.kept()));
        last_lines(&self.without_path(&text))
    }

    /// Sends a request and waits for its answer, watching time, memory and output.
    pub(in crate::runner) fn ask(
        &mut self,
        request: &Request,
        limit_ms: u64,
    ) -> Result<(Reply, Duration), SessionError> {
        self.ask_beside(request, false, limit_ms)
    }

    /// The same, of a request that the arena goes with.
    pub(super) fn ask_with_arena(
        &mut self,
        request: &Request,
        limit_ms: u64,
    ) -> Result<(Reply, Duration), SessionError> {
        self.ask_beside(request, true, limit_ms)
    }

    fn ask_beside(
        &mut self,
        request: &Request,
        arena_too: bool,
        limit_ms: u64,
    ) -> Result<(Reply, Duration), SessionError> {
        let nonce = request.nonce();
        // Without a device programs work in the arena itself.
        if !self.plan.on_device || !request.leaves_what_is_given() {
            self.arena.forget();
        }
        if self.channel_has_something()? {
            return Err(self.give_up_over_protocol("it wrote to the runner's socket without being asked"));
        }
        let started = Instant::now();
        let deadline = started + Duration::from_millis(limit_ms);
        let arena = arena_too.then(|| self.arena.descriptor());
        if send(&self.channel, request, arena.as_slice()).is_err() {
            return Err(self.find_out_how_it_ended());
        }
        loop {
            let now = Instant::now();
            let Some(left) = deadline.checked_duration_since(now) else {
                return Err(self.give_up(ProcessEnd::TimedOut { limit_ms }));
            };
            if self.jail.pump(left.min(WATCH_INTERVAL), Some(self.channel.as_fd()))? {
                let outside = started.elapsed();
                tracing::trace!(
                    program = ?self.library.file_name().unwrap_or_default(),
                    request = request.kind(),
                    answered_us = outside.as_micros(),
                    "asked a runner"
                );
                return match receive::<Reply>(&self.channel) {
                    Ok(Some(received)) if received.message.nonce == nonce => {
                        // On a device its own clock tells more, and asking the kernel takes longer than many a call.
                        if !self.plan.on_device {
                            self.settled_ns = self.jail.processor_ns();
                        }
                        self.watch()?;
                        if let Some(fault) = received.message.fault {
                            let Fault { error, during } = fault;
                            return Err(self.give_up(ProcessEnd::DeviceFault { error, during }));
                        }
                        Ok((received.message, outside))
                    }
                    Ok(Some(_)) => Err(self.give_up_over_protocol("an answer to a question that was not asked")),
                    Ok(None) => Err(self.find_out_how_it_ended()),
                    Err(error) => Err(self.give_up_over_protocol(&error.to_string())),
                };
            }
            if self.jail.has_ended() {
                return Err(self.find_out_how_it_ended());
            }
            self.watch()?;
        }
    }

    /// Ends the program when it is cancelled, prints too much or eats memory.
    fn watch(&mut self) -> Result<(), SessionError> {
        if self.cancel.is_cancelled() {
            self.jail.kill();
            return Err(ProcessError::Cancelled.into());
        }
        if self.jail.output_exceeded() {
            let limit_bytes = u64::try_from(OUTPUT_BYTES).unwrap_or(u64::MAX);
            return Err(self.give_up(ProcessEnd::OutputExceeded { limit_bytes }));
        }
        if let Some(resident) = self.jail.memory() {
            // The arena is shared and does not count; other shared memory does.
            let beside_arena = resident.total.saturating_sub(self.base_total_bytes + self.plan.arena_bytes());
            let own = resident.private.saturating_sub(self.base_private_bytes);
            self.peak_bytes = self.peak_bytes.max(own).max(beside_arena);
        }
        if self.peak_bytes > self.memory_bytes {
            let (limit_bytes, peak_bytes) = (self.memory_bytes, self.peak_bytes);
            return Err(self.give_up(ProcessEnd::MemoryExceeded { limit_bytes, peak_bytes }));
        }
        Ok(())
    }

    fn channel_has_something(&mut self) -> Result<bool, SessionError> {
        // A closed channel can be read, too: then the program is over, which `send` finds out.
        let ready = self.jail.pump(Duration::ZERO, Some(self.channel.as_fd()))?;
        if !ready {
            return Ok(false);
        }
        self.jail.wait_for_end_within(ENDING_LIMIT)?;
        Ok(!self.jail.has_ended())
    }

    fn find_out_how_it_ended(&mut self) -> SessionError {
        let raw = match self.jail.wait_for_end() {
            Ok(raw) => raw,
            Err(error) => return error.into(),
        };
        self.jail.kill();
        let Some(raw) = raw else {
            return self.give_up_over_protocol("it closed the runner's socket");
        };
        // What the kernel counts of one process cannot be compared with what it counts of a cgroup.
        let counted_bytes = if self.jail.counts_memory() { 0 } else { raw.peak_bytes };
        let beside_arena = counted_bytes.saturating_sub(self.base_total_bytes + self.plan.arena_bytes());
        let peak_bytes = self.peak_bytes.max(beside_arena);
        let limits = EndLimits { memory_bytes: self.memory_bytes, cpu_ms: CPU_LIMIT_S * 1000 };
        let end = match classify(raw, peak_bytes, limits, self.jail.stderr.kept()) {
            // A runner only ends when its parent does: this one was ended from within.
            ProcessEnd::Finished => ProcessEnd::Exited { status: 0 },
            end => end,
        };
        SessionError::Ended(end)
    }

    pub(in crate::runner) fn give_up(&mut self, end: ProcessEnd) -> SessionError {
        self.jail.kill();
        SessionError::Ended(end)
    }

    fn give_up_over_protocol(&mut self, message: &str) -> SessionError {
        self.give_up(ProcessEnd::ProtocolBroken { message: message.to_owned() })
    }

    /// Paths of this machine say nothing to the program's author.
    pub(super) fn without_path(&self, text: &str) -> String {
        text.replace(&*self.library.to_string_lossy(), "the library")
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let kept = lines.get(lines.len().saturating_sub(PRINTED_LINES)..).unwrap_or_default().join("\n");
    let start = kept.len().saturating_sub(PRINTED_BYTES);
    let start = (start..kept.len()).find(|index| kept.is_char_boundary(*index)).unwrap_or(0);
    kept.get(start..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn only_the_last_lines_are_kept() {
        let text: String = (0..100).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n");
        let kept = last_lines(&text);
        assert!(kept.starts_with("line 80") && kept.ends_with("line 99"));
        assert!(last_lines(&"é".repeat(PRINTED_BYTES)).len() <= PRINTED_BYTES);
    }
}
