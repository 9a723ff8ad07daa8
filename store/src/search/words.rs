//! Parses search texts.

/// Maximum number of search terms. Further ones are ignored.
const MAX_TERMS: usize = 16;
/// Maximum number of words per phrase.
const MAX_WORDS_PER_TERM: usize = 16;

/// Words that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    /// Lower-case words.
    pub(crate) words: Vec<String>,
    /// Whether the last word is a prefix.
    pub(crate) is_prefix: bool,
}

/// Parses the terms of a text: words, and phrases in quotation marks. A word with other characters (`cp.async`, `a_b`)
/// is a phrase of its parts.
pub(crate) fn terms(text: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            terms.extend(term(part));
        } else {
            terms.extend(part.split_whitespace().filter_map(term));
        }
    }
    terms.truncate(MAX_TERMS);
    terms
}

fn term(text: &str) -> Option<Term> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.take(MAX_WORDS_PER_TERM).map(str::to_lowercase).collect();
    (!words.is_empty()).then(|| Term { words, is_prefix: text.trim_end().ends_with('*') })
}

/// Returns the query for FTS5. Words are letters and digits, which have no special meaning there.
pub(crate) fn for_fts5(terms: &[Term]) -> String {
    let terms = terms.iter().map(|term| {
        let star = if term.is_prefix { " *" } else { "" };
        format!("\"{}\"{star}", term.words.join(" "))
    });
    terms.collect::<Vec<_>>().join(" AND ")
}

/// Returns the query for `to_tsquery`.
pub(crate) fn for_tsquery(terms: &[Term]) -> String {
    let terms = terms.iter().map(|term| {
        let star = if term.is_prefix { ":*" } else { "" };
        format!("({}{star})", term.words.join(" <-> "))
    });
    terms.collect::<Vec<_>>().join(" & ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_phrases_and_prefixes_are_distinguished() {
        let terms = terms("  Shared \"Bank conflict\" cp.async* ->  \"\"");
        assert_eq!(for_fts5(&terms), "\"shared\" AND \"bank conflict\" AND \"cp async\" *");
        assert_eq!(for_tsquery(&terms), "(shared) & (bank <-> conflict) & (cp <-> async:*)");
    }

    #[test]
    fn nothing_in_a_text_means_anything_to_a_database() {
        let terms = terms("a' OR 1=1; NOT x:y | (z");
        assert_eq!(for_tsquery(&terms), "(a) & (or) & (1 <-> 1) & (not) & (x <-> y) & (z)");
        assert!(super::terms(&"x ".repeat(100)).len() <= MAX_TERMS);
    }
}
