//! Descriptions of changes: whether two of them describe the same change.

use std::borrow::Cow;

/// Share of words that two descriptions of the same change have in common.
const SAME_WORDS: f64 = 0.8;

/// Whether two texts describe the same change: by their words, whatever their order, case and punctuation.
#[must_use]
pub fn same_modification(one: &str, other: &str) -> bool {
    one == other || Words::of(one).describe(other)
}

/// The different words of a description in lower case, sorted.
pub(crate) struct Words<'t>(Vec<Cow<'t, str>>);

impl<'t> Words<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        let mut words: Vec<Cow<'t, str>> = words(text).collect();
        words.sort_unstable();
        words.dedup();
        Self(words)
    }

    /// Whether a text describes the same change. Most texts are other ones after a few words.
    pub(crate) fn describe(&self, text: &str) -> bool {
        let mut common = vec![false; self.0.len()];
        let mut others: Vec<Cow<'_, str>> = Vec::new();
        for word in words(text) {
            if let Some(is_common) = self.0.binary_search(&word).ok().and_then(|place| common.get_mut(place)) {
                *is_common = true;
            } else if !others.contains(&word) {
                others.push(word);
                if !is_same_share(self.0.len(), self.0.len() + others.len()) {
                    return false;
                }
            }
        }
        let count = common.into_iter().filter(|is_common| *is_common).count();
        is_same_share(count, self.0.len() + others.len())
    }
}

fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let between = |c: char| !c.is_alphanumeric() && c != '_';
    text.split(between).filter(|word| !word.is_empty()).map(|word| {
        let may_change = word.chars().any(|c| !c.is_ascii() || c.is_ascii_uppercase());
        if may_change { Cow::Owned(word.to_lowercase()) } else { Cow::Borrowed(word) }
    })
}

/// Whether so many common words of all words make two descriptions the same.
fn is_same_share(common: usize, all: usize) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "texts have fewer than 2^52 words")]
    let share = common as f64 / all as f64;
    all == 0 || share >= SAME_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_change_in_another_order_and_case_is_the_same() {
        let change = "Stage tiles of 64 by 64 of `w` in shared memory, two buffers deep";
        assert!(same_modification(change, "stage tiles of 64 by 64 of w in shared memory, two buffers deep."));
        assert!(same_modification("a b c d e f g h i j", "j i h g f e d c b"));
        assert!(same_modification("", " - "));
        assert!(same_modification("b b a c d e", "A B C D E"));
    }

    #[test]
    fn another_number_or_another_remedy_is_another_change() {
        assert!(!same_modification("modification 1", "modification 2"));
        assert!(!same_modification("unroll the loop four times", "vectorize the loop with loads of 16 bytes"));
    }
}
