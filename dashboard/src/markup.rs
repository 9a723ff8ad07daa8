//! HTML and SVG as text, for parts with thousands of marks: there a tree of views costs more than it gives.
//!
//! Names of elements and attributes are those of this program. Everything else gets in through [`Markup::text`] and
//! [`Tag::with`], which escape, so that nothing that a model or a program wrote can become markup.

use std::borrow::Cow;
use std::fmt::Write as _;

use leptos::prelude::*;

/// A piece of markup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Markup {
    text: String,
}

impl Markup {
    /// Creates empty markup.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Begins a tag.
    pub(crate) fn tag(&mut self, name: &'static str) -> Tag<'_> {
        self.text.push('<');
        self.text.push_str(name);
        Tag { markup: self, name }
    }

    /// Ends an element that was opened.
    pub(crate) fn close(&mut self, name: &'static str) {
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// Adds text, with invisible characters made visible.
    pub(crate) fn text(&mut self, text: &str) {
        escape(&mut self.text, &visible(text));
    }

    /// Takes in another piece.
    pub(crate) fn append(&mut self, other: &Self) {
        self.text.push_str(&other.text);
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// The markup.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// As a view, in a block of that class.
    pub(crate) fn block(self, class: &'static str) -> AnyView {
        view! { <div class=class inner_html=self.text></div> }.into_any()
    }
}

/// A tag that is being written.
pub(crate) struct Tag<'a> {
    markup: &'a mut Markup,
    name: &'static str,
}

impl Tag<'_> {
    /// An attribute.
    pub(crate) fn with(self, name: &'static str, value: &str) -> Self {
        let text = &mut self.markup.text;
        text.push(' ');
        text.push_str(name);
        text.push_str("=\"");
        escape(text, &visible(value));
        text.push('"');
        self
    }

    /// An attribute that is there only with a value.
    pub(crate) fn with_some(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a coordinate or a length with two decimals; a value that is not finite is 0.
    pub(crate) fn at(self, name: &'static str, value: f64) -> Self {
        let text = &mut self.markup.text;
        let _ = write!(text, " {name}=\"{}\"", coordinate(value));
        self
    }

    /// Leaves the element open; [`Markup::close`] ends it.
    pub(crate) fn open(self) {
        self.markup.text.push('>');
    }

    /// An element without content.
    pub(crate) fn empty(self) {
        self.markup.text.push_str("/>");
    }

    /// An element with text.
    pub(crate) fn text(self, text: &str) {
        self.markup.text.push('>');
        self.markup.text(text);
        self.markup.close(self.name);
    }

    /// An element with other elements in it.
    pub(crate) fn around(self, content: impl FnOnce(&mut Markup)) {
        self.markup.text.push('>');
        content(self.markup);
        self.markup.close(self.name);
    }
}

/// A coordinate as SVG takes it.
pub(crate) fn coordinate(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{:.2}", value.clamp(-1e6, 1e6));
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

fn escape(out: &mut String, text: &str) {
    out.reserve(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
}

/// Returns whether a character can change how others are shown, or is not shown itself.
fn is_treacherous(character: char) -> bool {
    // Marks that change the direction of writing, characters without any width, and separators that break lines.
    let is_mark = matches!(
        character,
        '\u{00ad}'
            | '\u{061c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    );
    // Fillers that look like nothing, and marks for tools.
    let is_filler = matches!(
        character,
        '\u{034f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{180b}'..='\u{180f}'
            | '\u{3164}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
    );
    // Invisible copies of ASCII, which models read, and other hidden characters.
    let is_copy = matches!(character, '\u{e0000}'..='\u{e0fff}' | '\u{fffe}' | '\u{ffff}');
    is_mark || is_filler || is_copy || (character.is_control() && !matches!(character, '\n' | '\t'))
}

/// Returns the text with control characters as symbols and the names of invisible marks.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_treacherous) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\u{7f}' => shown.push('\u{2421}'),
            control if is_treacherous(control) && control < ' ' => {
                shown.push(char::from_u32(0x2400 + control as u32).unwrap_or('\u{fffd}'));
            }
            other if is_treacherous(other) => {
                let _ = write!(shown, "[U+{:04X}]", other as u32);
            }
            other => shown.push(other),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_cannot_become_markup() {
        let mut markup = Markup::new();
        markup.tag("a").with("href", "\" onclick='x'><script>").text("</a><script>alert(1)</script>&amp;");
        assert_eq!(
            markup.as_str(),
            "<a href=\"&quot; onclick=&#39;x&#39;&gt;&lt;script&gt;\">&lt;/a&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;</a>"
        );
    }

    #[test]
    fn what_cannot_be_seen_is_shown() {
        assert_eq!(visible("a\0b\u{1b}[31m\r\u{7f}\u{85}"), "a\u{2400}b\u{241b}[31m\u{240d}\u{2421}[U+0085]");
        assert_eq!(visible("if (\u{202e}admin\u{2066})\u{200b}"), "if ([U+202E]admin[U+2066])[U+200B]");
        assert_eq!(visible("\u{e0041}a\u{ad}b\u{2028}\u{3164}"), "[U+E0041]a[U+00AD]b[U+2028][U+3164]");
        assert!(matches!(visible("tabs\tand\nlines, עברית, é"), Cow::Borrowed(_)), "honest text stays as it is");
    }

    #[test]
    fn coordinates_are_always_numbers() {
        let given = [0.0, -0.001, 1.5, 2.0, f64::NAN, f64::INFINITY, -1e300, 1e300];
        let shown = given.map(coordinate);
        assert_eq!(shown, ["0", "0", "1.5", "2", "0", "0", "-1000000", "1000000"]);
    }
}
