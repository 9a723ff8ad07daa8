//! Waiting for a program's answer while its time, memory and output are watched, and finding out how it ended.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::{EndLimits, ProcessError, WATCH_INTERVAL, classify, receive, send};

use super::ProgramError;
use super::context::ExecutionContext;
use super::process::{CPU_LIMIT_S, OUTPUT_BYTES, Process};
use crate::lock::DeviceMode;
use crate::runner::message::{Message, Reply, Request};

/// Printed lines that a report keeps.
const PRINTED_LINES: usize = 20;

/// Printed bytes that a report keeps.
const PRINTED_BYTES: usize = 4096;

/// How long a process computes before other users of the device have their turn.
const TURN: Duration = Duration::from_secs(1);

/// How long kernels that a stopped process has launched may still run: a compiler that compares kernels launches many in a row.
const DRAIN: Duration = Duration::from_millis(100);

/// How long a process whose socket can be read without a request may take to turn out to have ended.
const ENDING_LIMIT: Duration = Duration::from_millis(100);

impl Process {
    /// Returns the last lines that the program printed, errors last.
    pub(crate) fn printed(&self) -> String {
        let mut text = String::from_utf8_lossy(self.jail.stdout.kept()).into_owned();
        text.push_str(&String::from_utf8_lossy(self.jail.stderr.kept()));
        last_lines(&self.without_path(&text))
    }

    /// Sends a request, with a descriptor where it needs one, and waits for the answer.
    pub(crate) fn ask(
        &mut self,
        request: Request,
        descriptor: Option<&std::os::fd::OwnedFd>,
        limit_ms: u64,
    ) -> Result<Reply, ProgramError> {
        let nonce = self.nonces.draw();
        let name = request.name();
        let started = Instant::now();
        self.send(&Message { nonce, request }, descriptor)?;
        let reply = self.receive(nonce, limit_ms)?;
        tracing::trace!(request = name, took_us = started.elapsed().as_micros(), "asked a program's process");
        self.without_fault(reply)
    }

    /// An answer, unless it tells of a fault of the device.
    fn without_fault(&mut self, reply: Reply) -> Result<Reply, ProgramError> {
        match reply.fault {
            None => Ok(reply),
            Some(fault) => Err(self.give_up(ProcessEnd::DeviceFault { error: fault.error, during: fault.during })),
        }
    }

    /// Sends a message without waiting for the answer.
    pub(super) fn send(
        &mut self,
        message: &Message,
        descriptor: Option<&std::os::fd::OwnedFd>,
    ) -> Result<(), ProgramError> {
        if self.channel_has_something()? {
            return Err(self.give_up_over_protocol("it wrote to the runner's socket without being asked"));
        }
        let descriptor = descriptor.map(AsFd::as_fd);
        if send(&self.channel, message, descriptor.as_slice()).is_err() {
            return Err(self.find_end());
        }
        Ok(())
    }

    /// Sends a request that takes minutes, mostly on the host, and waits for the answer. The process runs in turns: after each one
    /// it is stopped, and other users of the device have theirs. The time limit counts only turns of this process.
    pub(crate) fn ask_in_turns(
        &mut self,
        request: Request,
        limit_ms: u64,
        context: &ExecutionContext<'_>,
    ) -> Result<Reply, ProgramError> {
        let nonce = self.nonces.draw();
        let mut left = Duration::from_millis(limit_ms);
        let mut guard = context.lock(DeviceMode::Work)?;
        self.send(&Message { nonce, request }, None)?;
        loop {
            let began = self.jail.ran_for();
            if let Some(reply) = self.receive_within(nonce, TURN.min(left))? {
                return self.without_fault(reply);
            }
            left = left.saturating_sub(self.jail.ran_for().saturating_sub(began));
            if left.is_zero() {
                return Err(self.give_up(ProcessEnd::TimedOut { limit_ms }));
            }
            // A thread that the driver keeps busy cannot be stopped: then the process has the next turn, too.
            if self.freeze().is_ok() {
                std::thread::sleep(DRAIN);
                drop(guard);
                guard = context.lock(DeviceMode::Work)?;
                self.thaw()?;
            }
        }
    }

    /// Waits for the answer to a message.
    pub(super) fn receive(&mut self, nonce: u64, limit_ms: u64) -> Result<Reply, ProgramError> {
        match self.receive_within(nonce, Duration::from_millis(limit_ms))? {
            Some(reply) => Ok(reply),
            None => Err(self.give_up(ProcessEnd::TimedOut { limit_ms })),
        }
    }

    /// Waits for the answer to a message while the process may run for so long; returns nothing when there is none by then.
    fn receive_within(&mut self, nonce: u64, limit: Duration) -> Result<Option<Reply>, ProgramError> {
        let deadline = self.jail.ran_for() + limit;
        loop {
            let Some(left) = deadline.checked_sub(self.jail.ran_for()) else { return Ok(None) };
            if self.jail.pump(left.min(WATCH_INTERVAL), Some(self.channel.as_fd()))? {
                return match receive::<Reply>(&self.channel) {
                    Ok(Some(received)) if received.message.nonce == nonce => {
                        self.watch()?;
                        Ok(Some(received.message))
                    }
                    Ok(Some(_)) => Err(self.give_up_over_protocol("an answer to a question that was not asked")),
                    Ok(None) => Err(self.find_end()),
                    Err(error) => Err(self.give_up_over_protocol(&error.to_string())),
                };
            }
            if self.jail.has_ended() {
                return Err(self.find_end());
            }
            self.watch()?;
        }
    }

    /// Ends the process when it is cancelled, prints too much or uses too much memory.
    pub(super) fn watch(&mut self) -> Result<(), ProgramError> {
        if self.cancel.is_cancelled() {
            self.jail.kill();
            return Err(ProcessError::Cancelled.into());
        }
        if self.jail.output_exceeded() {
            let limit_bytes = u64::try_from(OUTPUT_BYTES).unwrap_or(u64::MAX);
            return Err(self.give_up(ProcessEnd::OutputExceeded { limit_bytes }));
        }
        if let Some(resident) = self.jail.memory() {
            // Memory that is shared with the evaluator does not count; other shared memory does.
            let total = resident.total.saturating_sub(self.base_total_bytes + self.shared_bytes);
            let own = resident.private.saturating_sub(self.base_private_bytes);
            self.peak_bytes = self.peak_bytes.max(own).max(total);
        }
        if self.peak_bytes > self.limits.memory_bytes {
            let (limit_bytes, peak_bytes) = (self.limits.memory_bytes, self.peak_bytes);
            return Err(self.give_up(ProcessEnd::MemoryExceeded { limit_bytes, peak_bytes }));
        }
        Ok(())
    }

    fn channel_has_something(&mut self) -> Result<bool, ProgramError> {
        // A closed channel can be read, too: then the process is over, which `send` finds out.
        if !self.jail.pump(Duration::ZERO, Some(self.channel.as_fd()))? {
            return Ok(false);
        }
        self.jail.wait_for_end_within(ENDING_LIMIT)?;
        Ok(!self.jail.has_ended())
    }

    /// Finds out how a process ended that is seen to be ending.
    pub(super) fn find_end(&mut self) -> ProgramError {
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
        let total = counted_bytes.saturating_sub(self.base_total_bytes + self.shared_bytes);
        let peak_bytes = self.peak_bytes.max(total);
        let limits = EndLimits { memory_bytes: self.limits.memory_bytes, cpu_ms: CPU_LIMIT_S * 1000 };
        let end = match classify(raw, peak_bytes, limits, self.jail.stderr.kept()) {
            // A runner only ends when the evaluator does: this one was ended from within.
            ProcessEnd::Finished => ProcessEnd::Exited { status: 0 },
            end => end,
        };
        if raw.is_fault_of_machine(&end) {
            return ProcessError::MachineFull.into();
        }
        ProgramError::Ended(end)
    }

    /// Ends the process, for a reason that is known.
    pub(crate) fn give_up(&mut self, end: ProcessEnd) -> ProgramError {
        self.jail.kill();
        ProgramError::Ended(end)
    }

    pub(super) fn give_up_over_protocol(&mut self, message: &str) -> ProgramError {
        self.give_up(ProcessEnd::ProtocolBroken { message: message.to_owned() })
    }

    /// Paths of this machine say nothing to the program's author.
    pub(super) fn without_path(&self, text: &str) -> String {
        text.replace(&*self.program.to_string_lossy(), "the program")
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
