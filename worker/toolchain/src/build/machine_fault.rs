//! Tells faults of the machine from faults of the program in the log of a compiler.

use std::path::Path;

use nightshift_protocol::task::PYTHON_EXTENSION;

use crate::build_cache::CachedBuild;
use crate::compiler_output;

/// The message of compilers and linkers for a full disk, in the locale of builds.
const NO_SPACE: &str = "No space left on device";

/// The messages of GCC, its linker driver, Clang and nvcc for a process of theirs that was killed. The compiler itself then exits.
const KILLED: [&str; 4] = [
    "Killed signal terminated program",
    "terminated with signal 9",
    "unable to execute command: Killed",
    "died due to signal 9",
];

/// Parts of the lines with which Clang and GCC's linker close a log: they follow other errors.
const CLOSING: [&str; 3] = ["command failed due to signal", "command failed with exit code", "returned 1 exit status"];

/// A fault of the machine that a compiler reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineFault {
    /// The disk is full.
    NoSpace,
    /// The kernel killed a process of the compiler.
    Killed,
}

impl MachineFault {
    /// Returns the fault that a line of a log reports. Lines that repeat text of the source report none.
    fn of_line(line: &str) -> Option<Self> {
        const QUOTING: [&str; 6] = ["#error", "#warning", "#pragma", "static assertion", "static_assert", " | "];
        if QUOTING.iter().any(|quoting| line.contains(quoting)) {
            return None;
        }
        if line.trim_end().ends_with(NO_SPACE) {
            return Some(Self::NoSpace);
        }
        KILLED.iter().any(|message| line.contains(message)).then_some(Self::Killed)
    }

    /// Returns the fault that ended a compiler which exited by itself. `file` is the name of the build's result. A source can print lines
    /// that imitate a fault. Such a program has an error of its own, which is among the messages.
    pub(super) fn of(built: &CachedBuild, file: &str) -> Option<Self> {
        let messages = &built.report.messages;
        // The first message of a build of Python is Python's, whatever stopped its extensions.
        let is_python = Path::new(file).extension().is_some_and(|name| name == PYTHON_EXTENSION);
        let of_compilers = messages.iter().skip(usize::from(is_python)).filter(|message| message.severity == "error");
        let errors: Vec<&str> = of_compilers.map(|message| &*message.message).collect();
        let is_closing = |error: &str| CLOSING.iter().any(|closing| error.contains(closing));
        let is_of_program =
            |error: &str| Self::of_line(error).is_none() && !error.starts_with(NO_MESSAGE) && !is_closing(error);
        if messages.len() >= compiler_output::MAX_MESSAGES || errors.iter().any(|error| is_of_program(error)) {
            return None;
        }
        String::from_utf8_lossy(&built.log).lines().find_map(Self::of_line)
    }
}

/// How the message begins that stands for an error of which the compiler said nothing.
pub(super) const NO_MESSAGE: &str = "the compiler ended without an error message";
