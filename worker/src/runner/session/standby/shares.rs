//! What contexts take of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a process takes of a machine's and a device's memory, in shares, with what it holds for its tensors: on an H200 with 16
/// Pythons, `PyTorch` in each, they took 1.3 GiB of the machine each.
const NATIVE_SHARES: usize = 1;
const PYTHON_SHARES: usize = 2;

/// Shares of what people count as one context.
pub(crate) const SHARES_PER_CONTEXT: usize = 4;

/// Memory of the machine that a share is counted with, in bytes.
pub(crate) const SHARE_BYTES: u64 = 1 << 30;

/// Shares that questions leave free for the processes of the step that asks them: a program, and a Python.
pub(super) const SHARES_BESIDE_KNOWN: usize = NATIVE_SHARES + PYTHON_SHARES;

/// Shares that so much memory of the machine takes.
pub(super) fn shares_of(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(SHARE_BYTES)).unwrap_or(usize::MAX)
}

/// Shares of a context in a Python, or in a library's process.
pub(super) fn shares(python: bool) -> usize {
    if python { PYTHON_SHARES } else { NATIVE_SHARES }
}

/// The room of one context of those that a device has room for.
#[derive(Debug)]
pub struct Place {
    in_use: Arc<AtomicUsize>,
    shares: usize,
}

impl Place {
    /// Takes so many shares. Whoever does knows that they are there.
    pub(super) fn take(in_use: &Arc<AtomicUsize>, shares: usize) -> Self {
        in_use.fetch_add(shares, Ordering::SeqCst);
        Self { in_use: Arc::clone(in_use), shares }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.in_use.fetch_sub(self.shares, Ordering::SeqCst);
    }
}
