//! Elements of tensors as bytes in memory, little-endian; large ones on several threads.

use super::AT_A_TIME;
use super::values::{Element, Values};

// Where an element keeps its width, its bytes are copied as they lie here.
const _: () = assert!(cfg!(target_endian = "little"), "tensors lie in memory in little-endian order");

/// Bytes that one thread sees to at least: below this starting another one takes longer.
const SHARE: usize = 8 << 20;

/// Most threads that see to one tensor: beside it others are seen to.
const MAX_THREADS: usize = 4;

/// Elements that are copied out of memory before they are looked at: they are still in a cache then.
const COPIED_AT_A_TIME: usize = 64 << 10;

/// Writes the elements as they are.
pub(super) fn copy<T: Element>(values: &[T], bytes: &mut [u8]) {
    let given: &[u8] = bytemuck::cast_slice(values);
    let share = share_of(given.len(), 1);
    if share >= given.len() {
        return copy_front(given, bytes);
    }
    std::thread::scope(|scope| {
        for (given, place) in given.chunks(share).zip(bytes.chunks_mut(share)) {
            scope.spawn(move || copy_front(given, place));
        }
    });
}

/// Copies as much as both have.
fn copy_front(given: &[u8], place: &mut [u8]) {
    let length = given.len().min(place.len());
    place[..length].copy_from_slice(&given[..length]);
}

/// Writes each element in another form.
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
    let share = share_of(values.len(), WIDTH);
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

/// All elements that are there. `seen` is shown each of them once, many at a time, an even number but for the last ones, and what it
/// says is added up.
pub(super) fn read<T: Element>(bytes: &[u8], seen: impl Fn(&[T]) -> u64 + Sync) -> (Values<T>, u64) {
    let length = bytes.len() / size_of::<T>();
    let share = share_of(length, size_of::<T>()).next_multiple_of(2);
    let one = |values: &mut [T], bytes: &[u8]| -> u64 {
        let parts = values.chunks_mut(COPIED_AT_A_TIME).zip(bytes.chunks(COPIED_AT_A_TIME * size_of::<T>()));
        let of_part = |(values, bytes): (&mut [T], &[u8])| {
            copy_front(bytes, bytemuck::cast_slice_mut(values));
            seen(values)
        };
        parts.map(of_part).sum()
    };
    let mut said = 0;
    let values = Values::filled(length, |values| {
        if share >= length {
            said = one(values, bytes);
            return;
        }
        said = std::thread::scope(|scope| {
            let shares = values.chunks_mut(share).zip(bytes.chunks(share * size_of::<T>()));
            let started: Vec<_> = shares
                .map(|(values, bytes)| {
                    let one = &one;
                    scope.spawn(move || one(values, bytes))
                })
                .collect();
            started.into_iter().map(joined).sum()
        });
    });
    (values, said)
}

/// Whether memory holds these elements as they are and nothing else.
pub(super) fn same<T: Element>(values: &[T], bytes: &[u8]) -> bool {
    let wanted: &[u8] = bytemuck::cast_slice(values);
    let share = share_of(wanted.len(), 1);
    if share >= wanted.len() || wanted.len() != bytes.len() {
        return wanted == bytes;
    }
    std::thread::scope(|scope| {
        let shares = wanted.chunks(share).zip(bytes.chunks(share));
        let started: Vec<_> = shares.map(|(wanted, bytes)| scope.spawn(move || wanted == bytes)).collect();
        started.into_iter().all(joined)
    })
}

/// Whether memory holds these elements in another form and nothing else.
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
    let share = share_of(values.len(), WIDTH);
    if share >= values.len() {
        return one(values, places);
    }
    std::thread::scope(|scope| {
        let shares = values.chunks(share).zip(places.chunks(share));
        let started: Vec<_> = shares
            .map(|(values, places)| {
                let one = &one;
                scope.spawn(move || one(values, places))
            })
            .collect();
        started.into_iter().all(joined)
    })
}

fn joined<T>(started: std::thread::ScopedJoinHandle<'_, T>) -> T {
    started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Elements of one thread, each so many bytes wide.
fn share_of(count: usize, width: usize) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let wanted = (count * width / SHARE).clamp(1, threads);
    count.div_ceil(wanted).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a multiple of anything.
    fn many() -> Vec<i32> {
        (0..(4 * SHARE / 4 + 4_099)).map(|i| i32::try_from(i).unwrap_or(0).wrapping_mul(0x1E37_79B1)).collect()
    }

    #[test]
    fn several_threads_do_what_one_does() {
        let values = many();
        let mut bytes = vec![0_u8; values.len() * 4];
        copy(&values, &mut bytes);
        let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert!(bytes == expected);
        let odd = |part: &[i32]| part.iter().map(|value| u64::from(value & 1 == 1)).sum();
        let (read, seen) = read(&bytes, odd);
        assert!(read[..] == values);
        assert_eq!(seen, odd(&values));
        assert!(same(&values, &bytes) && equal(&values, &bytes, i32::to_le_bytes));
        for changed in [0, bytes.len() / 2, bytes.len() - 1] {
            bytes[changed] ^= 1;
            assert!(!same(&values, &bytes) && !equal(&values, &bytes, i32::to_le_bytes), "{changed}");
            bytes[changed] ^= 1;
        }
        assert!(!same(&values[1..], &bytes) && !equal(&values[1..], &bytes, i32::to_le_bytes));
        assert!(!same(&values, &bytes[1..]) && !equal(&values, &bytes[1..], i32::to_le_bytes));
    }

    #[test]
    fn another_form_is_written_by_several_threads_too() {
        let values = many();
        let wide = |value: i32| i64::from(value).to_le_bytes();
        let mut bytes = vec![0_u8; values.len() * 8];
        write(&values, &mut bytes, wide);
        assert!(bytes == values.iter().flat_map(|value| wide(*value)).collect::<Vec<u8>>());
        assert!(equal(&values, &bytes, wide));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(!equal(&values, &bytes, wide));
    }

    #[test]
    fn what_is_looked_at_begins_at_an_even_place() {
        let values = many();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let position = |part: &[i32]| values.iter().position(|value| *value == part[0]).unwrap_or(1);
        let (_, odd) = read(&bytes, |part: &[i32]| u64::from(position(part) % 2 == 1));
        assert_eq!(odd, 0);
    }

    #[test]
    fn what_one_side_has_more_of_stays_as_it_is() {
        let mut bytes = [7_u8; 6];
        copy(&[1_u16, 2], &mut bytes);
        assert_eq!(bytes, [1, 0, 2, 0, 7, 7]);
        copy(&[3_u16, 4, 5, 6], &mut bytes);
        assert_eq!(bytes, [3, 0, 4, 0, 5, 0]);
    }

    #[test]
    fn nothing_is_nothing() {
        copy::<u16>(&[], &mut []);
        write::<u16, 4>(&[], &mut [], |bits| u32::from(bits).to_le_bytes());
        let (values, seen) = read::<u16>(&[], |_| 1);
        assert!(values.is_empty() && seen == 0);
        assert!(same::<u16>(&[], &[]));
    }
}
