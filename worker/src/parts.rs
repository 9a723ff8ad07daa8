//! Long rows of elements, seen to part by part on several threads.

use std::ops::Range;

/// Elements of one part.
pub(crate) const PART: usize = 1 << 18;

/// Most threads that see to one row: beside it others are seen to.
const MAX_THREADS: usize = 8;

/// Sees to a row of that length part by part. Gives what came of the parts, in their order.
pub(crate) fn in_parts<T: Send>(length: usize, see_to: impl Fn(Range<usize>) -> T + Sync) -> Vec<T> {
    let starts: Vec<usize> = (0..length).step_by(PART).collect();
    let part = |start: usize| see_to(start..(start + PART).min(length));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(starts.len());
    if threads < 2 {
        return starts.into_iter().map(part).collect();
    }
    let part = &part;
    std::thread::scope(|scope| {
        let shares = starts.chunks(starts.len().div_ceil(threads));
        let workers: Vec<_> = shares
            .map(|share| scope.spawn(move || share.iter().map(|start| part(*start)).collect::<Vec<_>>()))
            .collect();
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.flat_map(|found| found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Whether something holds for all parts.
pub(crate) fn in_all_parts(length: usize, holds: impl Fn(Range<usize>) -> bool + Sync) -> bool {
    in_parts(length, holds).into_iter().all(|holds| holds)
}
