//! Excerpts: the lines around the first match, with the positions of the words.

use super::words::Term;

/// Bytes shown before the first match.
const BEFORE_BYTES: usize = 120;
/// Bytes shown from the first match on.
const AFTER_BYTES: usize = 240;
/// Maximum number of marked matches.
const MAX_MATCHES: usize = 32;

/// An excerpt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// Line of the first match, from 1.
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) matches: Vec<(u32, u32)>,
}

/// Returns the excerpt of a text in which a database found the terms. If the databases tokenize differently and no term
/// is found here, it shows the beginning of the text.
pub(crate) fn excerpt(body: &str, terms: &[Term]) -> Excerpt {
    let places = places(body, terms);
    let first = places.first().map_or(0, |place| place.0);
    let begin = boundary(body, line_before(body, first).max(first.saturating_sub(BEFORE_BYTES)));
    let end = boundary(body, line_after(body, first).min(first.saturating_add(AFTER_BYTES)));
    let text = &body[begin..end];
    let within = places.iter().filter(|(from, to)| *from >= begin && *to <= end).take(MAX_MATCHES);
    let offset = |at: usize| u32::try_from(at - begin).unwrap_or(u32::MAX);
    Excerpt {
        line: u32::try_from(body[..first].bytes().filter(|byte| *byte == b'\n').count() + 1).unwrap_or(u32::MAX),
        text: text.to_owned(),
        matches: within.map(|(from, to)| (offset(*from), offset(*to))).collect(),
    }
}

/// Returns the positions of the terms in order, limited to the range of an excerpt.
fn places(body: &str, terms: &[Term]) -> Vec<(usize, usize)> {
    let words = Words { body, at: 0 };
    // As many as the longest phrase has.
    let mut last: Vec<(usize, usize)> = Vec::new();
    let most = terms.iter().map(|term| term.words.len()).max().unwrap_or(0);
    let mut places: Vec<(usize, usize)> = Vec::new();
    for word in words {
        if places.first().is_some_and(|first| word.0 > first.0.saturating_add(AFTER_BYTES)) {
            break;
        }
        last.push(word);
        if last.len() > most {
            last.remove(0);
        }
        let found = terms.iter().filter_map(|term| {
            let begin = last.len().checked_sub(term.words.len())?;
            ends_with(body, &last[begin..], term).then(|| (last[begin].0, word.1))
        });
        if let Some(place) = found.min() {
            places.push(place);
        }
    }
    places
}

fn ends_with(body: &str, last: &[(usize, usize)], term: &Term) -> bool {
    let count = term.words.len();
    last.iter().zip(&term.words).enumerate().all(|(index, ((from, to), wanted))| {
        let word = body[*from..*to].to_lowercase();
        if term.is_prefix && index + 1 == count { word.starts_with(wanted.as_str()) } else { word == *wanted }
    })
}

/// Iterates over the ranges of words: sequences of letters and digits.
struct Words<'b> {
    body: &'b str,
    at: usize,
}

impl Iterator for Words<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let rest = self.body.get(self.at..)?;
        let from = self.at + rest.find(char::is_alphanumeric)?;
        let word = &self.body[from..];
        let to = from + word.find(|c: char| !c.is_alphanumeric()).unwrap_or(word.len());
        self.at = to;
        Some((from, to))
    }
}

/// Returns the start of the line before the line at `at`.
fn line_before(body: &str, at: usize) -> usize {
    let line = body[..at].rfind('\n').map_or(0, |end| end + 1);
    body[..line.saturating_sub(1)].rfind('\n').map_or(0, |end| end + 1)
}

/// Returns the end of the line after the line at `at`.
fn line_after(body: &str, at: usize) -> usize {
    let line = body[at..].find('\n').map_or(body.len(), |end| at + end);
    let next = line.saturating_add(1);
    match body.get(next..) {
        Some(rest) => rest.find('\n').map_or(body.len(), |end| next + end),
        None => body.len(),
    }
}

/// Returns `at`, or the nearest earlier character boundary.
fn boundary(body: &str, at: usize) -> usize {
    let mut at = at.min(body.len());
    while !body.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::words::terms;
    use super::*;

    fn marked(body: &str, text: &str) -> (u32, Vec<String>) {
        let found = excerpt(body, &terms(text));
        let at = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
        let words = found.matches.iter().map(|(from, to)| found.text[at(*from)..at(*to)].to_owned()).collect();
        (found.line, words)
    }

    #[test]
    fn the_first_place_says_the_line_and_every_word_of_the_excerpt_is_marked() {
        let body = "int a;\n// über Shared memory\n__shared__ float tile[32];\nint b;\nshared();\n";
        assert_eq!(marked(body, "shared"), (2, vec!["Shared".to_owned(), "shared".to_owned()]));
        assert_eq!(excerpt(body, &terms("shared")).text, "int a;\n// über Shared memory\n__shared__ float tile[32];");
        assert_eq!(marked(body, "\"float tile\""), (3, vec!["float tile".to_owned()]));
        assert_eq!(marked(body, "tile.32 til*"), (3, vec!["tile".to_owned(), "tile[32".to_owned()]));
    }

    #[test]
    fn a_line_of_megabytes_gives_a_short_excerpt() {
        let body = format!("{} needle {}", "é".repeat(1_000_000), "ü".repeat(1_000_000));
        let found = excerpt(&body, &terms("needle"));
        assert!(found.text.len() < 500 && found.text.contains("needle"), "{}", found.text.len());
        assert_eq!(marked(&body, "needle"), (1, vec!["needle".to_owned()]));
    }

    #[test]
    fn a_place_that_is_not_seen_is_the_beginning() {
        assert_eq!(
            excerpt("one\ntwo", &terms("three")),
            Excerpt { line: 1, text: "one\ntwo".to_owned(), matches: vec![] }
        );
        assert_eq!(excerpt("", &terms("three")).text, "");
    }
}
