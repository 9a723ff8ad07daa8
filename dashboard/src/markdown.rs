//! Notes are Markdown that people wrote: shown as such, and never as the markup that they may have written into it.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Longest address of a link.
const MAX_ADDRESS_BYTES: usize = 2_000;

/// Maximum number of quotes and lists in one another.
const MAX_DEPTH: usize = 8;
/// The element around a table.
const TABLE_BOX: &str = "<div class=\"scroll\" tabindex=\"0\">";

/// As HTML: markup in the text is shown as text, pictures are links, and links lead to the web or to this server.
pub(crate) fn to_html(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut shown = String::new();
    let mut depth = 0;
    let shallow = Parser::new_ext(text, options).filter_map(|event| not_too_deep(event, &mut depth));
    html::push_html(&mut shown, shallow.map(harmless).flat_map(in_a_box));
    shown
}

/// Drops the starts and ends of lists and quotes that are nested too deep; their content stays.
fn not_too_deep<'a>(event: Event<'a>, depth: &mut usize) -> Option<Event<'a>> {
    match event {
        Event::Start(Tag::List(_) | Tag::BlockQuote(_)) => *depth += 1,
        Event::End(TagEnd::List(_) | TagEnd::BlockQuote(_)) => {
            *depth = depth.saturating_sub(1);
            return (*depth < MAX_DEPTH).then_some(event);
        }
        _ => {}
    }
    match event {
        Event::Start(Tag::List(_) | Tag::BlockQuote(_)) | Event::End(TagEnd::Item) if *depth > MAX_DEPTH => None,
        Event::Start(Tag::Item) if *depth > MAX_DEPTH => Some(Event::HardBreak),
        other => Some(other),
    }
}

/// Wraps a table in a scrolling element, so that the page does not scroll sideways.
fn in_a_box(event: Event<'_>) -> impl Iterator<Item = Event<'_>> {
    let before = matches!(event, Event::Start(Tag::Table(_))).then(|| Event::Html(TABLE_BOX.into()));
    let after = matches!(event, Event::End(TagEnd::Table)).then(|| Event::Html("</div>\n".into()));
    before.into_iter().chain([event]).chain(after)
}

fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Image { dest_url, title, id, .. } | Tag::Link { dest_url, title, id, .. }) => {
            let dest_url = if is_harmless(&dest_url) { dest_url } else { "#".into() };
            Event::Start(Tag::Link { link_type: pulldown_cmark::LinkType::Inline, dest_url, title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        Event::Start(Tag::Heading { level, classes, attrs, .. }) => {
            Event::Start(Tag::Heading { level: below(level), id: None, classes, attrs })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(below(level))),
        other => other,
    }
}

/// Returns the heading level of a note's heading, below those of the page and its section.
fn below(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

/// Returns whether an address leads to the web or to this server.
fn is_harmless(address: &str) -> bool {
    let begins = ["https://", "http://", "/", "#"].iter().any(|scheme| address.starts_with(scheme));
    begins && !address.starts_with("//") && address.len() <= MAX_ADDRESS_BYTES && !address.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_looks_as_it_was_meant() {
        let shown = to_html("**Faster**, see [the run](/runs/run_1).\n\n| a | b |\n|---|---|\n| 1 | 2 |\n");
        assert!(shown.contains("<strong>Faster</strong>"), "{shown}");
        assert!(shown.contains("<a href=\"/runs/run_1\">the run</a>"), "{shown}");
        assert!(shown.contains("tabindex=\"0\"><table>") && shown.contains("</table>\n</div>"), "{shown}");
        assert_eq!(
            to_html("# a\n## b\n##### c"),
            "<h3>a</h3>\n<h4>b</h4>\n<h6>c</h6>\n",
            "the page has a title of its own"
        );
    }

    #[test]
    fn what_is_very_deep_is_shown_less_deep() {
        let quotes = to_html(&format!("{} deep\n\nafter", ">".repeat(200)));
        assert_eq!(quotes.matches("<blockquote>").count(), MAX_DEPTH, "{quotes}");
        assert_eq!(quotes.matches("</blockquote>").count(), MAX_DEPTH, "{quotes}");
        assert!(quotes.contains("deep") && quotes.ends_with("<p>after</p>\n"), "{quotes}");
        let lines: Vec<String> = (0..12).map(|level| format!("{}- level {level}", "  ".repeat(level))).collect();
        let list = lines.join("\n");
        let shown = to_html(&list);
        assert_eq!(shown.matches("<ul>").count(), MAX_DEPTH, "{shown}");
        assert_eq!((shown.matches("<li>").count(), shown.matches("</li>").count()), (MAX_DEPTH, MAX_DEPTH), "{shown}");
        assert!((0..12).all(|level| shown.contains(&format!("level {level}"))), "{shown}");
        assert!(shown.contains("level 8<br />"), "{shown}");
    }

    #[test]
    fn markup_in_a_note_is_text() {
        let hostile = [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<div onclick='alert(1)'>\n\n**bold**\n\n</div>",
            "![x](javascript:alert(1))",
            "[x](javascript:alert(1)) [y](JAVASCRIPT:alert(1)) [z](data:text/html,x) [w](//evil.example)",
            "<javascript:alert(1)>",
            "[x]( \u{1}javascript:alert(1))",
        ];
        for text in hostile {
            let shown = to_html(text);
            let lower = shown.to_ascii_lowercase();
            assert!(!lower.contains("<script") && !lower.contains("<img") && !lower.contains("<div"), "{shown}");
            assert!(!lower.contains("href=\"javascript") && !lower.contains("href=\"data"), "{shown}");
            assert!(!lower.contains("href=\"//"), "{shown}");
        }
    }
}
