//! Elements of tensors as bytes in memory, little-endian; large ones on several threads.

use super::AT_A_TIME;
use super::values::{Element, Values};

/// Bytes that one thread sees to at least: below this starting another one takes longer.
const SHARE: usize = 8 << 20;

/// Most threads that see to one tensor: beside it others are seen to.
const MAX_THREADS: usize = 4;

/// Writes each element in its place.
pub(super) fn write<T: Copy + Sync, const WIDTH: usize>(
    values: &[T],
    bytes: &mut [u8],
    to_bytes: impl Fn(T) -> [u8; WIDTH] + Sync,
) {
    let (places, _) = bytes.as_chunks_mut::<WIDTH>();
    let one = |values: &[T], places: &mut [[u8; WIDTH]]| {
        for (place, value) in places.iter_mut().zip(values) {
            *place = to_bytes(*value);
        }
    };
    let share = share_of::<WIDTH>(values.len());
    if share >= values.len() {
        return one(values, places);
    }
    std::thread::scope(|scope| {
        for (values, places) in values.chunks(share).zip(places.chunks_mut(share)) {
            let one = &one;
            scope.spawn(move || one(values, places));
        }
    });
}

/// All elements that are there.
pub(super) fn read<T: Element, const WIDTH: usize>(
    bytes: &[u8],
    from_bytes: impl Fn([u8; WIDTH]) -> T + Sync,
) -> Values<T> {
    let (places, _) = bytes.as_chunks::<WIDTH>();
    let share = share_of::<WIDTH>(places.len());
    let one = |values: &mut [T], places: &[[u8; WIDTH]]| {
        for (value, place) in values.iter_mut().zip(places) {
            *value = from_bytes(*place);
        }
    };
    Values::filled(places.len(), |values| {
        if share >= places.len() {
            return one(values, places);
        }
        std::thread::scope(|scope| {
            for (values, places) in values.chunks_mut(share).zip(places.chunks(share)) {
                let one = &one;
                scope.spawn(move || one(values, places));
            }
        });
    })
}

/// Whether memory holds these elements and nothing else.
pub(super) fn equal<T: Copy + Sync, const WIDTH: usize>(
    values: &[T],
    bytes: &[u8],
    to_bytes: impl Fn(T) -> [u8; WIDTH] + Sync,
) -> bool {
    let (places, rest) = bytes.as_chunks::<WIDTH>();
    if places.len() != values.len() || !rest.is_empty() {
        return false;
    }
    // Of some at a time without a look at which, which is several times as fast.
    let some = |values: &[T], places: &[[u8; WIDTH]]| {
        places.iter().zip(values).fold(true, |so_far, (place, value)| so_far & (*place == to_bytes(*value)))
    };
    let one = |values: &[T], places: &[[u8; WIDTH]]| {
        places.chunks(AT_A_TIME).zip(values.chunks(AT_A_TIME)).all(|(places, values)| some(values, places))
    };
    let share = share_of::<WIDTH>(values.len());
    if share >= values.len() {
        return one(values, places);
    }
    std::thread::scope(|scope| {
        let shares = values.chunks(share).zip(places.chunks(share));
        let seen: Vec<_> = shares
            .map(|(values, places)| {
                let one = &one;
                scope.spawn(move || one(values, places))
            })
            .collect();
        seen.into_iter().all(|seen| seen.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Elements of one thread.
fn share_of<const WIDTH: usize>(count: usize) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let wanted = (count * WIDTH / SHARE).clamp(1, threads);
    count.div_ceil(wanted).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_threads_do_what_one_does() {
        // Not a multiple of anything.
        let values: Vec<i32> =
            (0..(4 * SHARE / 4 + 4_099)).map(|i| i32::try_from(i).unwrap_or(0).wrapping_mul(0x1E37_79B1)).collect();
        let mut bytes = vec![0_u8; values.len() * 4];
        write(&values, &mut bytes, i32::to_le_bytes);
        let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert!(bytes == expected);
        assert!(read(&bytes, i32::from_le_bytes)[..] == values);
        assert!(equal(&values, &bytes, i32::to_le_bytes));
        for changed in [0, bytes.len() / 2, bytes.len() - 1] {
            bytes[changed] ^= 1;
            assert!(!equal(&values, &bytes, i32::to_le_bytes), "{changed}");
            bytes[changed] ^= 1;
        }
        assert!(!equal(&values[1..], &bytes, i32::to_le_bytes));
        assert!(!equal(&values, &bytes[1..], i32::to_le_bytes));
    }

    #[test]
    fn nothing_is_nothing() {
        write::<u16, 2>(&[], &mut [], u16::to_le_bytes);
        assert!(read(&[], u16::from_le_bytes).is_empty());
        assert!(equal::<u16, 2>(&[], &[], u16::to_le_bytes));
    }
}
