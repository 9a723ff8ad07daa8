//! A comparison as people read it: beside each other or one below the other, unchanged parts folded.

use super::diff::{Diff, Part, Row};
use super::text::Source;
use crate::markup::Markup;

/// Largest comparison, in bytes of markup.
const MAX_MARKUP_BYTES: usize = 500_000;
/// Folded lines beyond this are counted, not shown.
const MAX_FOLDED: usize = 400;

/// How a comparison is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum DiffView {
    /// One below the other.
    #[default]
    Inline,
    /// Beside each other.
    Split,
}

impl DiffView {
    /// Its name in an address.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Split => "split",
        }
    }

    /// The layout of that name; inline for every other.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        if text == Some("split") { Self::Split } else { Self::Inline }
    }
}

/// The comparison.
pub(crate) fn diff_view(diff: &Diff, view: DiffView) -> Markup {
    let mut out = Markup::new();
    let class = format!("diff {}", view.as_str());
    out.tag("div")
        .with("class", &class)
        .with("role", "group")
        .with("aria-label", "differences")
        .with("tabindex", "0")
        .open();
    let mut hidden = 0_usize;
    for part in &diff.parts {
        let (Part::Hunk(rows) | Part::Fold(rows)) = part;
        if out.len() > MAX_MARKUP_BYTES {
            hidden += rows.len();
            continue;
        }
        match part {
            Part::Hunk(rows) => {
                out.tag("p").with("class", "hunk").text(&place(rows));
                hidden += write_rows(&mut out, diff, rows, view);
            }
            Part::Fold(rows) => {
                let words = format!("{} unchanged lines", rows.len());
                if rows.len() > MAX_FOLDED {
                    out.tag("p").with("class", "fold").text(&words);
                } else {
                    out.tag("details").with("class", "fold").around(|out| {
                        out.tag("summary").text(&words);
                        hidden += write_rows(out, diff, rows, view);
                    });
                }
            }
        }
    }
    if hidden > 0 {
        out.tag("p").with("class", "quiet").text(&format!("{hidden} more lines are not shown."));
    }
    out.close("div");
    out
}

/// Where a hunk stands: its first lines on both sides, and how many there are.
fn place(rows: &[Row]) -> String {
    let left: Vec<usize> = rows.iter().filter_map(|row| sides(row).0).collect();
    let right: Vec<usize> = rows.iter().filter_map(|row| sides(row).1).collect();
    let side = |lines: &[usize]| match (lines.first(), lines.len()) {
        (Some(first), count) => format!("{},{count}", first + 1),
        (None, _) => "0,0".to_owned(),
    };
    format!("@@ -{} +{} @@", side(&left), side(&right))
}

fn sides(row: &Row) -> (Option<usize>, Option<usize>) {
    match row {
        Row::Same { old, new } | Row::Changed { old, new, .. } => (Some(*old), Some(*new)),
        Row::Removed { old } => (Some(*old), None),
        Row::Added { new } => (None, Some(*new)),
    }
}

/// Writes rows and gives how many had no room.
fn write_rows(out: &mut Markup, diff: &Diff, rows: &[Row], view: DiffView) -> usize {
    let mut written = 0_usize;
    match view {
        DiffView::Split => {
            for row in rows {
                if out.len() > MAX_MARKUP_BYTES {
                    break;
                }
                split_row(out, diff, row);
                written += 1;
            }
        }
        DiffView::Inline => {
            // What was removed comes before what was added: runs of changes are turned around.
            for run in rows.chunk_by(|a, b| is_change(a) == is_change(b)) {
                // Both sides of a run have room, or the rest of it is not shown.
                let middle = out.len() + MAX_MARKUP_BYTES.saturating_sub(out.len()) / 2;
                let mut shown = 0_usize;
                for row in run {
                    if out.len() > middle {
                        break;
                    }
                    inline_row(out, diff, row, true);
                    shown += 1;
                }
                for row in run.iter().take(shown).filter(|row| is_change(row)) {
                    inline_row(out, diff, row, false);
                }
                written += shown;
            }
        }
    }
    rows.len() - written
}

fn is_change(row: &Row) -> bool {
    !matches!(row, Row::Same { .. })
}

fn inline_row(out: &mut Markup, diff: &Diff, row: &Row, left: bool) {
    let (class, sign, (old, new)) = match (row, left) {
        (Row::Same { old, new }, true) => ("same", " ", (Some(*old), Some(*new))),
        (Row::Removed { old } | Row::Changed { old, .. }, true) => ("removed", "-", (Some(*old), None)),
        (Row::Added { new } | Row::Changed { new, .. }, false) => ("added", "+", (None, Some(*new))),
        (Row::Same { .. } | Row::Removed { .. }, false) | (Row::Added { .. }, true) => return,
    };
    out.tag("div").with("class", &format!("row {class}")).around(|out| {
        number(out, old);
        number(out, new);
        out.tag("span").with("class", "sign").text(sign);
        let emphasised = match (row, left) {
            (Row::Changed { old_words, .. }, true) => old_words.as_slice(),
            (Row::Changed { new_words, .. }, false) => new_words.as_slice(),
            _ => &[],
        };
        let (source, index): (&Source, _) = if new.is_some() { (&diff.new, new) } else { (&diff.old, old) };
        code(out, source, index, emphasised);
    });
}

fn split_row(out: &mut Markup, diff: &Diff, row: &Row) {
    let (old, new) = sides(row);
    let (old_words, new_words) = match row {
        Row::Changed { old_words, new_words, .. } => (old_words.as_slice(), new_words.as_slice()),
        _ => (&[][..], &[][..]),
    };
    let (left, right) = match row {
        Row::Same { .. } => ("same", "same"),
        Row::Removed { .. } => ("removed", "none"),
        Row::Added { .. } => ("none", "added"),
        Row::Changed { .. } => ("removed", "added"),
    };
    out.tag("div").with("class", "row").around(|out| {
        for (class, source, index, words) in [(left, &diff.old, old, old_words), (right, &diff.new, new, new_words)] {
            out.tag("div").with("class", &format!("side {class}")).around(|out| {
                number(out, index);
                code(out, source, index, words);
            });
        }
    });
}

fn number(out: &mut Markup, index: Option<usize>) {
    let number = index.map(|index| (index + 1).to_string());
    out.tag("span").with("class", "no").with_some("data-n", number.as_deref()).text("");
}

fn code(out: &mut Markup, source: &Source, index: Option<usize>, emphasised: &[std::ops::Range<usize>]) {
    out.tag("code").around(|out| {
        if let Some(line) = index.and_then(|index| source.lines.get(index)) {
            line.write(out, emphasised);
        }
        out.text("\n");
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn shown(old: &str, new: &str, view: DiffView) -> String {
        let diff = Diff::of(Arc::new(Source::plain(old)), Arc::new(Source::plain(new)));
        diff_view(&diff, view).as_str().to_owned()
    }

    #[test]
    fn inline_shows_what_was_removed_before_what_was_added() {
        let text = shown("int a = 1;\nint b = 2;\n", "int a = 3;\nint b = 4;\n", DiffView::Inline);
        let signs: Vec<&str> = text.split("class=\"sign\">").skip(1).map(|rest| &rest[..1]).collect();
        assert_eq!(signs, ["-", "-", "+", "+"]);
        assert!(text.contains("@@ -1,2 +1,2 @@") && text.contains("<mark>3</mark>"), "{text}");
    }

    #[test]
    fn split_shows_both_sides_of_a_changed_line() {
        let text = shown("int a = <1>;\n", "int a = <3>;\n", DiffView::Split);
        assert!(text.contains("side removed") && text.contains("side added"), "{text}");
        assert!(text.contains("int a = &lt;<mark>1</mark>&gt;;"), "{text}");
    }

    #[test]
    fn unchanged_lines_can_be_unfolded_and_a_great_many_are_counted() {
        let few = "x\n".repeat(30);
        assert!(shown(&few, &format!("{few}y\n"), DiffView::Inline).contains("<summary>27 unchanged lines</summary>"));
        let many = "x\n".repeat(3_000);
        assert!(!shown(&many, &format!("{many}y\n"), DiffView::Split).contains("<details"));
    }

    #[test]
    fn whatever_is_compared_is_bounded() {
        let lines = |word: &str| (0..19_000).map(|n| format!("{}{n}\n", word.repeat(200))).collect::<Vec<_>>().concat();
        let (old, new) = (lines("a+"), lines("b-"));
        for view in [DiffView::Inline, DiffView::Split] {
            let text = shown(&old, &new, view);
            assert!(text.len() < 1_100_000, "{view:?}: {}", text.len());
        }
    }
}
