//! What differs between two sources: lines, and words within lines.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::text::Source;

/// Unchanged lines that are shown around a change.
const CONTEXT_LINES: usize = 3;
/// After this long, what is left is shown as replaced.
const PATIENCE: Duration = Duration::from_millis(400);
/// After this long, what differs within lines is not looked for any more.
const PATIENCE_FOR_WORDS: Duration = Duration::from_millis(300);
/// Maximum number of words of a line that are compared.
const MAX_WORDS: usize = 600;
/// Maximum number of pairs of lines whose words are compared.
const MAX_WORD_PAIRS: usize = 2_000;
/// Two lines of which less than this share of the words is equal are shown as replaced as a whole.
const MIN_EQUAL_WORDS: f64 = 0.3;

/// A line on both sides, on one, or another one on each. Numbers count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Row {
    /// The same on both sides.
    Same {
        /// On the left.
        old: usize,
        /// On the right.
        new: usize,
    },
    /// Only on the left.
    Removed {
        /// On the left.
        old: usize,
    },
    /// Only on the right.
    Added {
        /// On the right.
        new: usize,
    },
    /// Changed.
    Changed {
        /// On the left.
        old: usize,
        /// On the right.
        new: usize,
        /// Bytes of the left line that differ.
        old_words: Vec<Range<usize>>,
        /// Bytes of the right line that differ.
        new_words: Vec<Range<usize>>,
    },
}

/// A part of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Changes with what is around them.
    Hunk(Vec<Row>),
    /// Unchanged lines that are folded away.
    Fold(Vec<Row>),
}

/// A comparison.
#[derive(Debug, Clone)]
pub(crate) struct Diff {
    /// The left side.
    pub(super) old: Arc<Source>,
    /// The right side.
    pub(super) new: Arc<Source>,
    /// Its parts.
    pub(crate) parts: Vec<Part>,
    /// Lines that are only on the right, changed ones included.
    pub(crate) added: usize,
    /// Lines that are only on the left, changed ones included.
    pub(crate) removed: usize,
}

impl Diff {
    /// Compares two sources.
    pub(crate) fn of(old: Arc<Source>, new: Arc<Source>) -> Self {
        let deadline = Instant::now().checked_add(PATIENCE);
        let ops = capture_diff_slices_deadline(Algorithm::Patience, &keys(&old), &keys(&new), deadline);
        let mut rows = Vec::new();
        let mut search = WordSearch { pairs: 0, deadline: Instant::now().checked_add(PATIENCE_FOR_WORDS) };
        for op in ops {
            match op {
                DiffOp::Equal { old_index, new_index, len } => {
                    rows.extend((0..len).map(|n| Row::Same { old: old_index + n, new: new_index + n }));
                }
                DiffOp::Delete { old_index, old_len, .. } => {
                    rows.extend((0..old_len).map(|n| Row::Removed { old: old_index + n }));
                }
                DiffOp::Insert { new_index, new_len, .. } => {
                    rows.extend((0..new_len).map(|n| Row::Added { new: new_index + n }));
                }
                DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                    let (olds, news) = (old_index..old_index + old_len, new_index..new_index + new_len);
                    replaced(&old, &new, olds, news, &mut search, &mut rows);
                }
            }
        }
        let added = rows.iter().filter(|row| matches!(row, Row::Added { .. } | Row::Changed { .. })).count();
        let removed = rows.iter().filter(|row| matches!(row, Row::Removed { .. } | Row::Changed { .. })).count();
        Self { old, new, parts: folded(rows), added, removed }
    }

    /// Returns whether nothing differs.
    pub(crate) fn is_same(&self) -> bool {
        self.added == 0 && self.removed == 0
    }
}

/// What lines are compared by: all of them, also what is not shown.
fn keys(source: &Source) -> Vec<(&str, Option<&str>)> {
    source.lines.iter().map(|line| (line.text.as_str(), line.rest.as_deref())).collect()
}

/// Pairs replaced lines in their order. Where two resemble each other, the words that differ are named.
fn replaced(
    old: &Source,
    new: &Source,
    olds: Range<usize>,
    news: Range<usize>,
    search: &mut WordSearch,
    rows: &mut Vec<Row>,
) {
    let common = olds.len().min(news.len());
    for n in 0..common {
        let (left, right) = (olds.start + n, news.start + n);
        let words = search.goes_on().then(|| words_changed(old, left, new, right, search.deadline)).flatten();
        let (old_words, new_words) = words.unwrap_or_default();
        rows.push(Row::Changed { old: left, new: right, old_words, new_words });
    }
    rows.extend((olds.start + common..olds.end).map(|old| Row::Removed { old }));
    rows.extend((news.start + common..news.end).map(|new| Row::Added { new }));
}

/// How far the search for words has come.
struct WordSearch {
    pairs: usize,
    deadline: Option<Instant>,
}

impl WordSearch {
    /// Counts one more pair of lines. Returns whether there is time and room for it.
    fn goes_on(&mut self) -> bool {
        self.pairs += 1;
        self.pairs <= MAX_WORD_PAIRS && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }
}

type Words = (Vec<Range<usize>>, Vec<Range<usize>>);

/// The words that differ; none when the lines have little in common.
fn words_changed(old: &Source, left: usize, new: &Source, right: usize, deadline: Option<Instant>) -> Option<Words> {
    let (left, right) = (&old.lines.get(left)?.text, &new.lines.get(right)?.text);
    let (old_words, new_words) = (words(left), words(right));
    if old_words.len() > MAX_WORDS || new_words.len() > MAX_WORDS {
        return None;
    }
    let texts = |line: &str, words: &[Range<usize>]| -> Vec<String> {
        words.iter().map(|word| line.get(word.clone()).unwrap_or_default().to_owned()).collect()
    };
    let ops =
        capture_diff_slices_deadline(Algorithm::Myers, &texts(left, &old_words), &texts(right, &new_words), deadline);
    let (mut gone, mut come, mut equal) = (Vec::new(), Vec::new(), 0_usize);
    for op in ops {
        if let DiffOp::Equal { old_index, len, .. } = op {
            let same = old_words.get(old_index..old_index + len).unwrap_or_default();
            equal += same
                .iter()
                .filter(|word| left.get((*word).clone()).is_some_and(|word| !word.trim().is_empty()))
                .count();
            continue;
        }
        gone.extend(joined(old_words.get(op.old_range())));
        come.extend(joined(new_words.get(op.new_range())));
    }
    let solid = |line: &str, words: &[Range<usize>]| {
        words.iter().filter(|word| line.get((*word).clone()).is_some_and(|word| !word.trim().is_empty())).count()
    };
    let most = solid(left, &old_words).max(solid(right, &new_words)).max(1);
    let is_alike = crate::chart::float(equal) / crate::chart::float(most) >= MIN_EQUAL_WORDS;
    is_alike.then_some((gone, come))
}

fn joined(words: Option<&[Range<usize>]>) -> Option<Range<usize>> {
    let words = words?;
    Some(words.first()?.start..words.last()?.end)
}

/// Words, runs of blanks, and single other characters.
fn words(line: &str) -> Vec<Range<usize>> {
    #[derive(PartialEq, Clone, Copy)]
    enum Kind {
        Word,
        Blank,
        Other,
    }
    let kind = |character: char| match character {
        c if c.is_alphanumeric() || c == '_' => Kind::Word,
        c if c.is_whitespace() => Kind::Blank,
        _ => Kind::Other,
    };
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut last = Kind::Other;
    for (at, character) in line.char_indices() {
        let this = kind(character);
        let end = at + character.len_utf8();
        match words.last_mut() {
            Some(word) if this == last && this != Kind::Other => word.end = end,
            _ => words.push(at..end),
        }
        last = this;
    }
    words
}

/// Folds what is far from every change.
fn folded(rows: Vec<Row>) -> Vec<Part> {
    let is_change = |row: &Row| !matches!(row, Row::Same { .. });
    let mut near = vec![false; rows.len()];
    for (index, _) in rows.iter().enumerate().filter(|(_, row)| is_change(row)) {
        let from = index.saturating_sub(CONTEXT_LINES);
        let to = (index + CONTEXT_LINES + 1).min(rows.len());
        near.get_mut(from..to).into_iter().flatten().for_each(|near| *near = true);
    }
    let mut parts: Vec<Part> = Vec::new();
    for (row, near) in rows.into_iter().zip(near) {
        match (parts.last_mut(), near) {
            (Some(Part::Hunk(rows)), true) | (Some(Part::Fold(rows)), false) => rows.push(row),
            (_, true) => parts.push(Part::Hunk(vec![row])),
            (_, false) => parts.push(Part::Fold(vec![row])),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn diff(old: &str, new: &str) -> Diff {
        Diff::of(Arc::new(Source::plain(old)), Arc::new(Source::plain(new)))
    }

    #[test]
    fn words_that_differ_are_found_within_a_line() {
        let diff = diff("a\nint tile = 16; // rows\nz\n", "a\nint tile = 32; // rows\nz\n");
        let Some(Part::Hunk(rows)) = diff.parts.first() else { panic!("{diff:?}") };
        let words = || std::iter::once(11..13).collect();
        let changed = Row::Changed { old: 1, new: 1, old_words: words(), new_words: words() };
        assert_eq!(rows.as_slice(), [Row::Same { old: 0, new: 0 }, changed, Row::Same { old: 2, new: 2 }]);
        assert_eq!((diff.added, diff.removed), (1, 1));
    }

    #[test]
    fn lines_with_nothing_in_common_are_replaced_as_a_whole() {
        let diff = diff("for (int i = 0; i < n; ++i)\n", "return sqrtf(value);\n");
        let Some(Part::Hunk(rows)) = diff.parts.first() else { panic!("{diff:?}") };
        let replaced = Row::Changed { old: 0, new: 0, old_words: Vec::new(), new_words: Vec::new() };
        assert_eq!(rows.as_slice(), [replaced]);
    }

    #[test]
    fn what_is_far_from_a_change_is_folded() {
        let old = (0..40).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
        let diff = diff(&old, &old.replace("line 20\n", "line twenty\n"));
        let sizes: Vec<(bool, usize)> = diff
            .parts
            .iter()
            .map(|part| match part {
                Part::Hunk(rows) => (true, rows.len()),
                Part::Fold(rows) => (false, rows.len()),
            })
            .collect();
        assert_eq!(sizes, [(false, 17), (true, 7), (false, 16)]);
    }

    #[test]
    fn equal_sources_have_no_changes() {
        assert!(diff("a\nb\n", "a\nb\n").is_same());
        assert!(diff("", "").is_same());
    }

    #[test]
    fn two_large_sources_without_anything_in_common_are_compared_in_time() {
        let lines = |name: &str| (0..20_000).map(|n| format!("{name}{n}\n")).collect::<Vec<_>>().concat();
        let (old, new) = (lines("a"), lines("b"));
        let begun = Instant::now();
        let diff = diff(&old, &new);
        assert!(begun.elapsed() < Duration::from_mins(1));
        assert_eq!((diff.added, diff.removed), (20_000, 20_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn every_line_of_both_sides_is_there_once(old in "([ab ]{0,3}\n){0,12}", new in "([ab ]{0,3}\n){0,12}") {
            let diff = diff(&old, &new);
            let rows: Vec<&Row> = diff.parts.iter().flat_map(|part| match part { Part::Hunk(rows) | Part::Fold(rows) => rows }).collect();
            let left: Vec<usize> = rows.iter().filter_map(|row| match row {
                Row::Same { old, .. } | Row::Removed { old } | Row::Changed { old, .. } => Some(*old),
                Row::Added { .. } => None,
            }).collect();
            let right: Vec<usize> = rows.iter().filter_map(|row| match row {
                Row::Same { new, .. } | Row::Added { new } | Row::Changed { new, .. } => Some(*new),
                Row::Removed { .. } => None,
            }).collect();
            prop_assert_eq!(left, (0..old.lines().count()).collect::<Vec<_>>());
            prop_assert_eq!(right, (0..new.lines().count()).collect::<Vec<_>>());
        }
    }
}
