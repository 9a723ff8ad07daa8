//! What was freed is given back to the system.
//!
//! A server needs megabytes for milliseconds to answer a page, and then is idle. Allocators keep freed memory for later
//! allocations. With a hundred thousand attempts that was a third of the server's memory.

use std::ffi::{c_int, c_long};

/// `mi_option_purge_delay`: the delay in milliseconds before empty pages are returned. The allocator checks it only when
/// other memory is freed, so an idle server kept all pages.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

/// Sets it for the whole process, for the program's own allocator and for that of its C libraries.
pub(crate) fn keep_little() {
    // SAFETY: it writes a number that the allocator reads whenever it frees; the option is one of its own.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
    system::keep_little();
}

/// The C library's allocator: SQLite, parsers of sources and compression are its users.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod system {
    use std::ffi::c_int;

    /// `M_TRIM_THRESHOLD`: free bytes at the end of the heap from which on they are given back.
    const TRIM_THRESHOLD: c_int = -1;
    /// `M_MMAP_THRESHOLD`: bytes from which on a piece has pages of its own. Named, because it otherwise grows with what was
    /// freed, and the first threshold with it.
    const MMAP_THRESHOLD: c_int = -3;
    /// `M_ARENA_MAX`: heaps. Each thread would have one, with holes of its own.
    const ARENA_MAX: c_int = -8;

    const BYTES: c_int = 128 * 1024;

    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }

    pub(super) fn keep_little() {
        for (parameter, value) in [(ARENA_MAX, 1), (TRIM_THRESHOLD, BYTES), (MMAP_THRESHOLD, BYTES)] {
            // SAFETY: documented parameters with values in their range. What is refused stays as it was.
            let _ = unsafe { mallopt(parameter, value) };
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod system {
    pub(super) fn keep_little() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    /// The numbers of options are the allocator's own: its default tells that this one is still the one that is meant.
    #[test]
    fn the_option_is_the_delay_of_purging() {
        // SAFETY: it reads a number.
        let get = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(get(), 1_000);
        keep_little();
        assert_eq!(get(), 0);
    }
}
