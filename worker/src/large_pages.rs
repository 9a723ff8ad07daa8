//! Memory for large tensors. By default it comes page by page, when it is first written to: for hundreds of megabytes that
//! takes several times as long as the writing, and threads wait for one another over it. In large pages it does not.

/// Memory from which on it is asked for, in bytes: a good part of it lies in whole large pages then.
const LEAST_BYTES: usize = 8 << 20;

/// So many values to be overwritten.
pub(crate) fn values<T: Copy + Default>(count: usize) -> Vec<T> {
    // The system's own zeros, which nobody has written to yet.
    let mut values = vec![T::default(); count];
    ask_for_large_pages(values.as_mut_ptr().cast(), count * size_of::<T>());
    values
}

/// Room for so many values.
pub(crate) fn with_capacity<T>(count: usize) -> Vec<T> {
    let mut values: Vec<T> = Vec::with_capacity(count);
    ask_for_large_pages(values.as_mut_ptr().cast(), count * size_of::<T>());
    values
}

/// Asks for the whole pages within this memory. Where the system does not give any, everything else is as it is.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "advice about memory is given by its address")]
fn ask_for_large_pages(start: *mut u8, size_bytes: usize) {
    if size_bytes < LEAST_BYTES {
        return;
    }
    let page = rustix::param::page_size();
    let skipped = start.align_offset(page);
    let Some(size) = size_bytes.checked_sub(skipped).map(|size| size - size % page) else { return };
    // SAFETY: the pages lie within memory that the caller has allocated and holds exclusively, and this advice changes
    // nothing about what it contains.
    let _ = unsafe { libc::madvise(start.wrapping_add(skipped).cast(), size, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages(_start: *mut u8, _size_bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_as_large_as_was_asked_for_and_holds_what_is_written() {
        for count in [0, 1, LEAST_BYTES / 4 - 1, LEAST_BYTES / 4, LEAST_BYTES / 4 + 4_099] {
            let mut zeros: Vec<u32> = values(count);
            assert!(zeros.len() == count && zeros.iter().all(|value| *value == 0), "{count}");
            zeros.iter_mut().zip(7..).for_each(|(place, value)| *place = value);
            let mut copy = with_capacity(count);
            copy.extend_from_slice(&zeros);
            assert!(copy == zeros && copy.iter().copied().eq((7..).take(count)), "{count}");
        }
    }
}
