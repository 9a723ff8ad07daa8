//! A source as lines, bounded in every direction, with its coloured pieces.

use std::ops::Range;

use nightshift_protocol::artifact::ArtifactHash;

use crate::markup::Markup;

/// Maximum number of lines that are shown.
pub(super) const MAX_LINES: usize = 20_000;
/// Longest part of a line that is shown, in bytes.
pub(super) const MAX_LINE_BYTES: usize = 2_000;

/// A coloured piece of a line: bytes of the line, and the class.
pub(super) type Piece = (Range<usize>, &'static str);

/// A line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its text, without its end; the beginning, when it is too long.
    pub(super) text: String,
    /// What was cut from its end: two lines with the same beginning and another rest differ in it.
    pub(super) rest: Option<String>,
    /// Coloured pieces, in order, without overlap.
    pub(super) pieces: Vec<Piece>,
}

/// A source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its lines.
    pub(super) lines: Vec<Line>,
    /// Lines that are not among them.
    pub(super) lines_left_out: usize,
}

impl Source {
    /// The lines of a text, without colours.
    pub(super) fn plain(text: &str) -> Self {
        let mut lines = Vec::new();
        let mut lines_left_out = 0;
        for line in text.lines() {
            if lines.len() < MAX_LINES {
                lines.push(Line::of(line));
            } else {
                lines_left_out += 1;
            }
        }
        Self { lines, lines_left_out }
    }

    /// Returns whether lines, or ends of lines, are not among what is shown.
    pub(super) fn is_cut(&self) -> bool {
        self.lines_left_out > 0 || self.lines.iter().any(|line| line.rest.is_some())
    }

    /// The text that is shown.
    pub(super) fn shown(&self) -> String {
        let mut text = String::with_capacity(self.lines.iter().map(|line| line.text.len() + 1).sum());
        for line in &self.lines {
            text.push_str(&line.text);
            text.push('\n');
        }
        text
    }

    /// How much memory it takes, roughly, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let of_line = |line: &Line| line.text.len() + line.pieces.len() * size_of::<Piece>() + size_of::<Line>();
        self.lines.iter().map(of_line).sum()
    }
}

impl Line {
    fn of(line: &str) -> Self {
        if line.len() <= MAX_LINE_BYTES {
            return Self { text: line.to_owned(), ..Self::default() };
        }
        let (shown, rest) = line.split_at(line.floor_char_boundary(MAX_LINE_BYTES));
        let hash = ArtifactHash::of(rest.as_bytes());
        Self {
            text: shown.to_owned(),
            rest: Some(format!("… {} more bytes, blake3 {}", rest.len(), hash.short())),
            pieces: Vec::new(),
        }
    }

    /// Writes the line: coloured, with some ranges of bytes emphasised.
    pub(super) fn write(&self, out: &mut Markup, emphasised: &[Range<usize>]) {
        let mut edges: Vec<usize> = vec![0, self.text.len()];
        edges.extend(self.pieces.iter().flat_map(|(range, _)| [range.start, range.end]));
        edges.extend(emphasised.iter().flat_map(|range| [range.start, range.end]));
        edges.retain(|edge| self.text.is_char_boundary(*edge));
        edges.sort_unstable();
        edges.dedup();
        let mut pieces = self.pieces.iter().peekable();
        for pair in edges.windows(2) {
            let [from, to] = *pair else { continue };
            while pieces.next_if(|(range, _)| range.end <= from).is_some() {}
            let class = pieces.peek().filter(|(range, _)| range.contains(&from)).map(|(_, class)| *class);
            let is_changed = emphasised.iter().any(|range| range.contains(&from));
            let text = self.text.get(from..to).unwrap_or_default();
            match (class, is_changed) {
                (None, false) => out.text(text),
                (Some(class), false) => out.tag("span").with("class", class).text(text),
                (None, true) => out.tag("mark").text(text),
                (Some(class), true) => out.tag("mark").with("class", class).text(text),
            }
        }
        if let Some(rest) = &self.rest {
            out.tag("span").with("class", "cut").text(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_changes_overlap_freely() {
        let line =
            Line { text: "int ééé = 1;".to_owned(), rest: None, pieces: vec![(0..3, "h-t"), (13..14, "h-n")] };
        let mut out = Markup::new();
        line.write(&mut out, &[1..6, 13..14]);
        assert_eq!(
            out.as_str(),
            "<span class=\"h-t\">i</span><mark class=\"h-t\">nt</mark><mark> é</mark>éé = <mark class=\"h-n\">1</mark>;"
        );
    }

    #[test]
    fn ten_megabytes_in_one_line_are_cut_and_their_rest_still_counts() {
        let long = "a".repeat(10 << 20);
        let (one, other) = (Source::plain(&long), Source::plain(&format!("{long}b")));
        assert!(one.shown().len() < 3_000 && one.is_cut() && !Source::plain("int x;").is_cut());
        assert_ne!(one.lines, other.lines);
        let mut out = Markup::new();
        one.lines[0].write(&mut out, &[]);
        assert!(out.as_str().contains("10483760 more bytes"), "{}", out.as_str());
    }

    #[test]
    fn a_million_lines_are_bounded() {
        let source = Source::plain(&"x\n".repeat(1_000_000));
        assert_eq!((source.lines.len(), source.lines_left_out), (MAX_LINES, 980_000));
    }

    #[test]
    fn hostile_text_is_shown_and_does_nothing() {
        let source = Source::plain("<script>alert(1)</script>\u{202e}\0\u{1b}[2J");
        let mut out = Markup::new();
        source.lines[0].write(&mut out, &[]);
        assert_eq!(out.as_str(), "&lt;script&gt;alert(1)&lt;/script&gt;[U+202E]\u{2400}\u{241b}[2J");
    }
}
