//! Elements of a tensor, whose memory is taken again.
//!
//! A step draws, receives and drops tensors of hundreds of megabytes again and again. An allocator gives memory of that size
//! back to the kernel at once and asks for it anew, page by page: that takes five times as long as copying them. So it is kept
//! while steps are at work ([`InUse`]), for the next tensor of about the size.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Smallest memory that is kept, in bytes: for what is smaller it saves little.
const SMALLEST_BYTES: usize = 1 << 20;

/// What is kept may be longer than what is asked for by one part in so many.
const SPARE: usize = 4;

/// How long it is kept when nobody is at work.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// Most that is kept where nobody said how much, in bytes.
const DEFAULT_LIMIT_BYTES: usize = 1 << 30;

/// The types that tensors have elements of.
pub trait Element: bytemuck::Pod + Default + Debug + PartialEq + Send + Sync {
    /// What is kept of this type.
    #[doc(hidden)]
    fn idle() -> &'static Idle<Self>;
}

/// Memory that nobody uses, the oldest first.
#[derive(Debug)]
pub struct Idle<T>(Mutex<VecDeque<Vec<T>>>);

macro_rules! elements {
    ($($element:ty),*) => {
        $(impl Element for $element {
            fn idle() -> &'static Idle<Self> {
                static IDLE: Idle<$element> = Idle(Mutex::new(VecDeque::new()));
                &IDLE
            }
        })*

        /// Gives all of it back.
        fn clear() {
            $(<$element>::idle().clear();)*
        }
    };
}

elements!(f32, f64, i32, u16);

/// What is kept of all types, in bytes.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The most.
static LIMIT_BYTES: AtomicUsize = AtomicUsize::new(DEFAULT_LIMIT_BYTES);

/// Who is at work.
static USE: Mutex<Use> = Mutex::new(Use { users: 0, left: None, watched: false });

#[derive(Debug)]
struct Use {
    /// Steps.
    users: usize,
    /// When the last one was over.
    left: Option<Instant>,
    /// Whether somebody waits for the end of it.
    watched: bool,
}

fn in_use() -> MutexGuard<'static, Use> {
    USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says how much memory is kept at most, in bytes.
pub(crate) fn keep_at_most(bytes: usize) {
    LIMIT_BYTES.store(bytes, Ordering::SeqCst);
}

/// As long as one of these is there memory is kept, and for a moment more: the next step of an attempt comes at once.
#[derive(Debug)]
pub(crate) struct InUse(());

impl InUse {
    pub(crate) fn new() -> Self {
        in_use().users += 1;
        Self(())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = in_use();
        state.users -= 1;
        state.left = Some(Instant::now());
        if state.users > 0 || state.watched {
            return;
        }
        state.watched = std::thread::Builder::new().name("idle-memory".to_owned()).spawn(clear_when_over).is_ok();
        if !state.watched {
            drop(state);
            clear();
        }
    }
}

/// Waits until nobody was at work for a while, and gives all of it back.
fn clear_when_over() {
    loop {
        std::thread::sleep(KEPT_FOR);
        let mut state = in_use();
        if state.users == 0 && state.left.is_none_or(|left| left.elapsed() >= KEPT_FOR) {
            state.watched = false;
            drop(state);
            return clear();
        }
    }
}

impl<T: Element> Idle<T> {
    fn vectors(&self) -> MutexGuard<'_, VecDeque<Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        let mut vectors = self.vectors();
        let given_back = std::mem::take(&mut *vectors);
        BYTES.fetch_sub(given_back.iter().map(size_bytes).sum(), Ordering::SeqCst);
        drop(vectors);
    }

    /// Memory of that length, with anything in it.
    fn take(&self, length: usize) -> Vec<T> {
        if length.saturating_mul(size_of::<T>()) < SMALLEST_BYTES {
            return vec![T::default(); length];
        }
        let mut vectors = self.vectors();
        let fits = |vector: &Vec<T>| (length..=length + length / SPARE).contains(&vector.capacity());
        let best = vectors.iter().enumerate().filter(|(_, vector)| fits(vector)).min_by_key(|(_, one)| one.capacity());
        let Some(mut vector) = best.map(|(number, _)| number).and_then(|number| vectors.remove(number)) else {
            drop(vectors);
            return vec![T::default(); length];
        };
        BYTES.fetch_sub(size_bytes(&vector), Ordering::SeqCst);
        drop(vectors);
        vector.resize(length, T::default());
        vector
    }

    fn put(&self, vector: Vec<T>) {
        let bytes = size_bytes(&vector);
        let mut given_back = Vec::new();
        if bytes < SMALLEST_BYTES || bytes > LIMIT_BYTES.load(Ordering::SeqCst) {
            return;
        }
        let mut vectors = self.vectors();
        // Asked in here: who clears does so before this or after.
        if in_use().users == 0 {
            return;
        }
        vectors.push_back(vector);
        let mut kept = BYTES.fetch_add(bytes, Ordering::SeqCst) + bytes;
        while kept > LIMIT_BYTES.load(Ordering::SeqCst) {
            let Some(oldest) = vectors.pop_front() else { break };
            kept = BYTES.fetch_sub(size_bytes(&oldest), Ordering::SeqCst) - size_bytes(&oldest);
            given_back.push(oldest);
        }
        drop(vectors);
    }
}

fn size_bytes<T>(vector: &Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}

/// Elements that never change; a copy shares them.
#[derive(Debug, Clone, PartialEq)]
pub struct Values<T: Element>(Arc<Buffer<T>>);

#[derive(Debug, PartialEq)]
struct Buffer<T: Element>(Vec<T>);

impl<T: Element> Values<T> {
    /// So many, which `fill` writes: all of them, as anything may be in there.
    pub(super) fn filled(length: usize, fill: impl FnOnce(&mut [T])) -> Self {
        let mut values = T::idle().take(length);
        fill(&mut values);
        values.into()
    }

    /// Whether these are the same elements in memory.
    pub(super) fn shares_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: Element> From<Vec<T>> for Values<T> {
    fn from(values: Vec<T>) -> Self {
        Self(Arc::new(Buffer(values)))
    }
}

impl<T: Element> Deref for Values<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0.0
    }
}

impl<T: Element> Drop for Buffer<T> {
    fn drop(&mut self) {
        T::idle().put(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length that no other test has, as what is kept is everybody's.
    const LENGTH: usize = (SMALLEST_BYTES / 4) + 12_347;

    fn place(values: &Values<f32>) -> usize {
        values.as_ptr().addr()
    }

    fn of_length(length: usize) -> Values<f32> {
        Values::filled(length, |values| values.fill(1.0))
    }

    #[test]
    fn memory_is_taken_again_while_somebody_is_at_work() {
        let at_work = InUse::new();
        let first = of_length(LENGTH);
        let (address, shared) = (place(&first), first.clone());
        drop(first);
        let other = of_length(LENGTH);
        assert_ne!(place(&other), address, "somebody still has it");
        drop(shared);
        let again = of_length(LENGTH - 5);
        assert_eq!((place(&again), again.len()), (address, LENGTH - 5));
        assert!(again.iter().all(|value| (value - 1.0).abs() < f32::EPSILON));
        drop(again);
        assert_ne!(place(&of_length(LENGTH / 2)), address, "much too long");
        assert_eq!(of_length(LENGTH).len(), LENGTH);
        drop(at_work);
    }

    #[test]
    fn what_is_small_or_larger_than_the_limit_is_not_kept() {
        let _at_work = InUse::new();
        let idle = Idle(Mutex::new(VecDeque::new()));
        idle.put(vec![0_u16; 3]);
        assert!(idle.vectors().is_empty());
        // Nobody touches it, so that it takes no memory.
        idle.put(Vec::<u16>::with_capacity(LIMIT_BYTES.load(Ordering::SeqCst) / 2 + 1));
        assert!(idle.vectors().is_empty());
        idle.put(Vec::<u16>::with_capacity(SMALLEST_BYTES));
        assert_eq!(idle.vectors().len(), 1);
        assert_eq!(idle.take(SMALLEST_BYTES).len(), SMALLEST_BYTES);
        assert!(idle.vectors().is_empty());
    }
}
