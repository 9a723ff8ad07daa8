//! The meaning of the driver's numbered errors (Xid) for a GPU, by NVIDIA's catalogue.

/// The consequence of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A program caused it. The GPU is tested after the step.
    Program,
    /// The GPU may be faulty and is tested at once.
    Doubtful,
    /// The GPU needs a reset or repair, even if it passes a test.
    Broken,
    /// The GPU is lost.
    Gone,
}

/// Returns the consequence of an error.
pub(super) fn meaning(xid: u64) -> Meaning {
    match xid {
        // Exceptions of a program on the GPU: faults of memory accesses, illegal instructions, a channel that was reset
        // or cleaned up after its process ended, a contained memory error.
        13 | 31 | 32 | 43 | 45 | 68 | 69 | 94 | 137 => Meaning::Program,
        // Fell off the bus.
        79 => Meaning::Gone,
        // Uncorrectable memory that is not contained, rows that cannot be replaced, halted controllers, a system
        // processor that does not answer, an initialization that failed.
        48 | 61 | 62 | 64 | 95 | 119 | 120 | 140 | 143 => Meaning::Broken,
        _ => Meaning::Doubtful,
    }
}

/// Describes an error in a few words.
pub(super) fn describe(xid: u64) -> String {
    let words = match xid {
        13 => "exception of a program",
        31 => "memory access of a program that faulted",
        43 | 45 => "channel reset after a program",
        48 => "memory error that cannot be corrected",
        61 | 62 => "internal controller halted",
        64 => "row of memory that cannot be replaced",
        74 => "error of a link between GPUs",
        79 => "fell off the bus",
        94 => "memory error that was contained",
        95 => "memory error that was not contained",
        109 => "context that could not be switched",
        119 | 120 => "system processor that does not answer",
        140 => "memory error that was not recovered",
        143 => "initialization that failed",
        154 => "recovery is asked for",
        _ => "see NVIDIA's catalogue of Xid errors",
    };
    format!("Xid {xid}: {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_does_is_told_from_what_breaks() {
        assert_eq!(meaning(31), Meaning::Program);
        assert_eq!(meaning(13), Meaning::Program);
        assert_eq!(meaning(79), Meaning::Gone);
        assert_eq!(meaning(119), Meaning::Broken);
        assert_eq!(meaning(109), Meaning::Doubtful);
        assert_eq!(meaning(4_711), Meaning::Doubtful);
    }
}
