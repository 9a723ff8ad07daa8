//! A part of a run's state that clones of the state share until one of them changes it.

use std::io::{self, Write};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Memory that a value takes, as a multiple of its JSON text.
const MEMORY_PER_JSON_BYTE: usize = 2;

/// A shared value. It is stored as the value alone.
#[derive(Debug, Clone)]
pub(super) struct Shared<T> {
    value: Arc<T>,
    /// Length of the value as JSON text, in bytes; set when it is first asked for.
    json_bytes: OnceLock<usize>,
}

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Arc::new(value), json_bytes: OnceLock::new() }
    }

    /// Whether both are the same value, which neither has changed.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.value, &other.value)
    }
}

impl<T: Clone> Shared<T> {
    /// Returns the value to be changed: clones of the state keep theirs.
    pub(super) fn make_mut(&mut self) -> &mut T {
        self.json_bytes = OnceLock::new();
        Arc::make_mut(&mut self.value)
    }

    pub(super) fn into_inner(self) -> T {
        Arc::unwrap_or_clone(self.value)
    }
}

impl<T: Serialize> Shared<T> {
    /// Returns about how much memory the value takes, in bytes.
    pub(super) fn weight_bytes(&self) -> usize {
        let json_bytes = self.json_bytes.get_or_init(|| {
            let mut counter = Counter(0);
            // A value that is no JSON is found when it is written.
            let _counted = serde_json::to_writer(&mut counter, &*self.value);
            counter.0
        });
        json_bytes.saturating_mul(MEMORY_PER_JSON_BYTE)
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.value == other.value
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

/// Counts what is written.
struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_the_same_until_one_is_changed() {
        let mut one = Shared::new("a".to_owned());
        let other = one.clone();
        assert!(one.is(&other));
        one.make_mut().push('b');
        assert!(!one.is(&other));
        assert_eq!((one.as_str(), other.as_str()), ("ab", "a"));
    }

    #[test]
    fn the_weight_follows_a_change() {
        let mut text = Shared::new("a".to_owned());
        let before = text.weight_bytes();
        text.make_mut().push_str("0123456789");
        assert_eq!(text.weight_bytes(), before + 10 * MEMORY_PER_JSON_BYTE);
    }
}
