//! The page through which timed calls are started: a message over a socket takes longer than many a call.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapMut;

use crate::memory::{anonymous_memory, map_shared};

/// Size of the page in bytes.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Places of the numbers on the page, in words of four bytes. Each side writes to cache lines of its own.
const COMMAND: usize = 0;
const KIND: usize = 1;
const COUNT: usize = 2;
const DONE: usize = 16;
const STATUS: usize = 17;
const EVENTS_LOW: usize = 18;
const EVENTS_HIGH: usize = 19;

/// What a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowKind {
    /// Calls of the program.
    Calls,
    /// One call, of whose outputs only what is complete in the order of the stream counts. For libraries on a device.
    CallInOrder,
    /// The same without the program: the smallest operation, and for a Python process the delivery of a result.
    Empty,
    /// The same as a call in order without the program.
    EmptyInOrder,
    /// The end of the windows.
    Leave,
}

impl WindowKind {
    fn code(self) -> u32 {
        match self {
            Self::Calls => 1,
            Self::Empty => 2,
            Self::Leave => 3,
            Self::CallInOrder => 4,
            Self::EmptyInOrder => 5,
        }
    }

    /// Returns whether the program is called.
    pub(crate) fn calls_program(self) -> bool {
        matches!(self, Self::Calls | Self::CallInOrder)
    }

    /// Returns the kind that has everything of this one but the program.
    pub(crate) fn without_program(self) -> Self {
        match self {
            Self::Calls | Self::Empty => Self::Empty,
            Self::CallInOrder | Self::EmptyInOrder => Self::EmptyInOrder,
            Self::Leave => Self::Leave,
        }
    }

    /// Returns the kind of window that a Python process carries out: it delivers every result in the order of the stream.
    pub(crate) fn for_python(self) -> Self {
        match self {
            Self::CallInOrder => Self::Calls,
            Self::EmptyInOrder => Self::Empty,
            other => other,
        }
    }
}

/// What a runner finds on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command {
    /// What to do.
    pub(crate) kind: WindowKind,
    /// How many calls.
    pub(crate) count: usize,
}

/// What the evaluator finds on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    /// What the entry point returned; negative for a fault of the device.
    pub(crate) status: i32,
    /// Time between the device's events around the calls, in nanoseconds.
    pub(crate) events_ns: u64,
}

/// Waits without sleeping, and lets others have the core now and then: they may be what is waited for.
#[derive(Debug, Default)]
pub(crate) struct Spin(u32);

impl Spin {
    /// Looks away for a moment.
    pub(crate) fn once(&mut self) {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(256) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// One side's view of the page.
#[derive(Debug)]
pub(crate) struct ControlPage {
    map: MmapMut,
    sequence: u32,
}

impl ControlPage {
    /// Makes a page, and returns its descriptor for the runner.
    pub(crate) fn new() -> std::io::Result<(Self, OwnedFd)> {
        let descriptor = anonymous_memory("nightshift-control", PAGE_BYTES)?;
        Ok((Self::open(&descriptor)?, descriptor))
    }

    /// Maps a page that was received.
    pub(crate) fn open(descriptor: &OwnedFd) -> std::io::Result<Self> {
        Ok(Self { map: map_shared(descriptor, PAGE_BYTES)?, sequence: 0 })
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a page is aligned for every word")]
    fn word(&self, place: usize) -> &AtomicU32 {
        debug_assert!(place < PAGE_BYTES / 4);
        // SAFETY: the page is mapped as long as this lives, aligned, and longer than the place; atomic words allow the other
        // process to write at any time.
        unsafe { &*self.map.as_ptr().cast::<AtomicU32>().add(place) }
    }

    /// Starts a window.
    pub(crate) fn start(&mut self, command: Command) {
        self.sequence = self.sequence.wrapping_add(1);
        self.word(KIND).store(command.kind.code(), Ordering::Relaxed);
        self.word(COUNT).store(u32::try_from(command.count).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.word(COMMAND).store(self.sequence, Ordering::Release);
    }

    /// Returns the answer to the window that was started last, once it is there.
    pub(crate) fn answer(&self) -> Option<Answer> {
        if self.word(DONE).load(Ordering::Acquire) != self.sequence {
            return None;
        }
        let word = |place| self.word(place).load(Ordering::Relaxed);
        let events_ns = u64::from(word(EVENTS_LOW)) | u64::from(word(EVENTS_HIGH)) << 32;
        Some(Answer { status: word(STATUS).cast_signed(), events_ns })
    }

    /// Waits for the next window, on the runner's side.
    pub(crate) fn wait(&mut self) -> Command {
        let mut spin = Spin::default();
        while self.word(COMMAND).load(Ordering::Acquire) == self.sequence {
            spin.once();
        }
        self.sequence = self.word(COMMAND).load(Ordering::Acquire);
        let kind = match self.word(KIND).load(Ordering::Relaxed) {
            1 => WindowKind::Calls,
            2 => WindowKind::Empty,
            4 => WindowKind::CallInOrder,
            5 => WindowKind::EmptyInOrder,
            _ => WindowKind::Leave,
        };
        Command { kind, count: usize::try_from(self.word(COUNT).load(Ordering::Relaxed)).unwrap_or(0) }
    }

    /// Answers the window, on the runner's side.
    pub(crate) fn finish(&self, answer: Answer) {
        self.word(STATUS).store(answer.status.cast_unsigned(), Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
        let (low, high) = (answer.events_ns as u32, (answer.events_ns >> 32) as u32);
        self.word(EVENTS_LOW).store(low, Ordering::Relaxed);
        self.word(EVENTS_HIGH).store(high, Ordering::Relaxed);
        self.word(DONE).store(self.sequence, Ordering::Release);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_answered_once_and_in_its_turn() {
        let (mut ours, descriptor) = ControlPage::new().unwrap();
        let mut theirs = ControlPage::open(&descriptor).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    let command = theirs.wait();
                    let status = i32::try_from(command.count).unwrap();
                    theirs.finish(Answer { status, events_ns: u64::MAX - 1 });
                    if command.kind == WindowKind::Leave {
                        break;
                    }
                }
            });
            for (kind, count) in [(WindowKind::Calls, 3), (WindowKind::Empty, 0), (WindowKind::Leave, 7)] {
                ours.start(Command { kind, count });
                let answer = loop {
                    if let Some(answer) = ours.answer() {
                        break answer;
                    }
                    std::thread::yield_now();
                };
                let status = i32::try_from(count).unwrap();
                assert_eq!(answer, Answer { status, events_ns: u64::MAX - 1 });
            }
        });
    }
}
