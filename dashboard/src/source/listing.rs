//! A source with its line numbers and what was said about its lines.

use std::collections::BTreeMap;

use super::text::Source;
use crate::markup::Markup;

/// Largest listing, in bytes of markup; the rest of the source is told of.
const MAX_MARKUP_BYTES: usize = 400_000;
/// Maximum number of notes of one line.
const MAX_NOTES: usize = 8;
/// Longest note, in characters.
const MAX_NOTE_CHARS: usize = 500;

/// Something that was said about a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineNote {
    /// The line, from 1.
    pub(crate) line: u32,
    /// The class: `note`, `warning`, `bad`.
    pub(crate) class: &'static str,
    /// What was said.
    pub(crate) words: String,
}

/// Returns the listing, and whether it shows the source whole. Its lines have the anchors `{anchor}1`, `{anchor}2`, ...
pub(crate) fn listing(source: &Source, anchor: &str, notes: &[LineNote]) -> (Markup, bool) {
    let mut by_line: BTreeMap<usize, Vec<&LineNote>> = BTreeMap::new();
    for note in notes {
        by_line.entry(usize::try_from(note.line).unwrap_or(0)).or_default().push(note);
    }
    let mut out = Markup::new();
    // A list of lines would be read out as one: the text is what matters.
    out.tag("pre").with("class", "listing").with("tabindex", "0").open();
    let mut shown = 0_usize;
    for (index, line) in source.lines.iter().enumerate() {
        if out.len() > MAX_MARKUP_BYTES {
            break;
        }
        shown += 1;
        let number = (index + 1).to_string();
        let id = format!("{anchor}{number}");
        let class = if by_line.contains_key(&(index + 1)) { "row noted" } else { "row" };
        out.tag("span").with("class", class).with("id", &id).around(|out| {
            // The number is drawn from the attribute, so that it is not copied with the text.
            out.tag("a")
                .with("href", &format!("#{id}"))
                .with("tabindex", "-1")
                .with("data-n", &number)
                .with("aria-label", &format!("line {number}"))
                .text("");
            line.write(out, &[]);
            out.text("\n");
        });
        for note in by_line.get(&(index + 1)).into_iter().flatten().take(MAX_NOTES) {
            let words: String = note.words.chars().take(MAX_NOTE_CHARS).collect();
            // Drawn from an attribute as well: who copies a source wants the source alone.
            let class = format!("line-note {}", note.class);
            let note = out.tag("span").with("class", &class).with("role", "note").with("aria-label", &words);
            note.with("data-words", &words).text("");
        }
    }
    out.close("pre");
    let left_out = source.lines.len() - shown + source.lines_left_out;
    if left_out > 0 {
        out.tag("p")
            .with("class", "quiet")
            .text(&format!("{left_out} more lines are not shown: download the source to read them."));
    }
    (out, left_out == 0 && !source.is_cut())
}

#[cfg(test)]
mod tests {
    use super::super::highlight::{Language, highlight};
    use super::*;

    #[test]
    fn lines_have_anchors_and_what_was_said_about_them() {
        let source = highlight("int x;\nint y;\n", Language::Cuda);
        let note = LineNote { line: 2, class: "bad", words: "forbidden_call: <b>".to_owned() };
        let (markup, is_whole) = listing(&source, "L", &[note]);
        assert!(is_whole);
        assert!(
            markup
                .as_str()
                .contains("<span class=\"row noted\" id=\"L2\"><a href=\"#L2\" tabindex=\"-1\" data-n=\"2\""),
            "{}",
            markup.as_str()
        );
        assert!(markup.as_str().contains("data-words=\"forbidden_call: &lt;b&gt;\"></span>"));
    }

    #[test]
    fn whatever_is_listed_is_bounded() {
        let dense = "a+b*c-d/e%f;".repeat(160);
        let source = highlight(&format!("{dense}\n").repeat(19_000), Language::Cuda);
        let (markup, is_whole) = listing(&source, "L", &[]);
        assert!(markup.as_str().len() < 450_000, "{}", markup.as_str().len());
        assert!(!source.is_cut() && !is_whole && markup.as_str().contains("more lines are not shown"));
        assert!(!listing(&Source::plain(&"x".repeat(3_000)), "L", &[]).1, "the end of a long line is missing");
    }
}
