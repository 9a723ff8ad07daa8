//! Coloured sources, kept by the hash of their text: a page that is looked at again costs nothing.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use nightshift_protocol::artifact::ArtifactHash;

use super::highlight::{Language, highlight};
use super::text::Source;

/// Maximum number of sources that are kept.
const MAX_ENTRIES: usize = 256;
/// Most memory that they take, in bytes.
const MAX_BYTES: usize = 32 << 20;

type Key = (ArtifactHash, Language);

/// The sources, those that were asked for last at the back.
#[derive(Default)]
struct Cache {
    entries: VecDeque<(Key, Arc<Source>, usize)>,
    size_bytes: usize,
}

impl Cache {
    fn get(&mut self, key: &Key) -> Option<Arc<Source>> {
        let place = self.entries.iter().position(|(known, ..)| known == key)?;
        let entry = self.entries.remove(place)?;
        let found = Arc::clone(&entry.1);
        self.entries.push_back(entry);
        Some(found)
    }

    fn put(&mut self, key: Key, source: Arc<Source>) {
        let size_bytes = source.size_bytes();
        if size_bytes > MAX_BYTES || self.entries.iter().any(|(known, ..)| *known == key) {
            return;
        }
        self.entries.push_back((key, source, size_bytes));
        self.size_bytes += size_bytes;
        while self.entries.len() > MAX_ENTRIES || self.size_bytes > MAX_BYTES {
            let Some((.., gone_bytes)) = self.entries.pop_front() else { break };
            self.size_bytes -= gone_bytes;
        }
    }
}

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

/// The source with its colours.
pub(crate) fn highlighted(text: &str, language: Language) -> Arc<Source> {
    let key = (ArtifactHash::of(text.as_bytes()), language);
    // A panic while the lock was held leaves a consistent cache: each change is one operation.
    let found = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get(&key);
    found.unwrap_or_else(|| {
        let source = Arc::new(highlight(text, language));
        CACHE.lock().unwrap_or_else(PoisonError::into_inner).put(key, Arc::clone(&source));
        source
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        (ArtifactHash::of(&number.to_le_bytes()), Language::Cuda)
    }

    #[test]
    fn the_same_text_is_coloured_once() {
        let (one, other) = (highlighted("int x;", Language::Cuda), highlighted("int x;", Language::Cuda));
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn what_was_not_asked_for_the_longest_goes_first() {
        let mut cache = Cache::default();
        for number in 0..MAX_ENTRIES {
            cache.put(key(number), Arc::new(Source::plain("x")));
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(key(MAX_ENTRIES), Arc::new(Source::plain("x")));
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(1)).is_none());
        assert_eq!(cache.size_bytes, cache.entries.iter().map(|(.., bytes)| bytes).sum::<usize>());
    }

    #[test]
    fn memory_is_bounded_too() {
        let mut cache = Cache::default();
        let large =
            Arc::new(Source::plain(&"x".repeat(1_000).lines().cycle().take(15_000).collect::<Vec<_>>().join("\n")));
        for number in 0..8 {
            cache.put(key(number), Arc::clone(&large));
        }
        assert!(cache.size_bytes <= MAX_BYTES && !cache.entries.is_empty(), "{}", cache.size_bytes);
    }
}
