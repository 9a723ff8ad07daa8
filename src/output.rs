//! The only place that writes to standard output and standard error.

use std::io::{IsTerminal, Write};
use std::sync::LazyLock;

use comfy_table::{Cell, Color, ContentArrangement, Table, TableStyle, presets};
use indicatif::MultiProgress;
use nightshift_protocol::error::ApiErrorBody;
use serde::Serialize;

use crate::environment::Environment;
use crate::failure::{Failure, Result};

/// Terminals that claim to be narrower are not believed.
const MIN_WIDTH_CHARS: u16 = 40;
/// Width of tables for such a terminal.
const FALLBACK_WIDTH_CHARS: u16 = 120;

/// Where and how a command writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    color: bool,
    bars: bool,
}

/// The bars of this process: one screen, so everything that writes to it between them has to know.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Standard error for the log, above the bars.
pub(crate) struct LogLine;

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        BARS.suspend(|| std::io::stderr().lock().write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
}

/// How a word is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Went well.
    Good,
    /// Look at it.
    Caution,
    /// Went wrong.
    Bad,
    /// Nothing special.
    Plain,
}

impl Output {
    /// Chooses the output style from the flags, the environment, and whether standard output is a terminal.
    pub(crate) fn new(json: bool, no_color: bool, environment: &Environment) -> Self {
        let dumb = environment.get("TERM") == Some("dumb");
        let plain = no_color || dumb || environment.get("NO_COLOR").is_some();
        Self {
            json,
            color: !json && !plain && std::io::stdout().is_terminal(),
            bars: !dumb && std::io::stderr().is_terminal(),
        }
    }

    /// Returns whether standard output carries JSON only.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Returns whether progress is shown as bars: standard error is a terminal.
    pub(crate) fn shows_bars(self) -> bool {
        self.bars
    }

    /// Writes text for people to standard output, which they do not have when it is for JSON only.
    pub(crate) fn text(self, text: &str) -> Result<()> {
        if self.json {
            self.note(text);
            return Ok(());
        }
        write_line(&mut std::io::stdout().lock(), text)
    }

    /// Writes bytes as they are to standard output.
    #[expect(clippy::unused_self, reason = "callers need an `Output` to write")]
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
    }

    /// Writes one JSON document as one line to standard output.
    #[expect(clippy::unused_self, reason = "callers need an `Output` to write")]
    pub(crate) fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::new("output.failed", format!("the answer cannot be written as JSON: {error}")))?;
        write_line(&mut std::io::stdout().lock(), &text)
    }

    /// Writes a message for people to standard error, above the bars. A closed standard error is no reason to end the
    /// work.
    #[expect(clippy::unused_self, reason = "callers need an `Output` to write")]
    pub(crate) fn note(self, text: &str) {
        let _ = BARS.suspend(|| write_line(&mut std::io::stderr().lock(), text));
    }

    /// The bars of this process.
    #[expect(clippy::unused_self, reason = "callers need an `Output` to write")]
    pub(crate) fn bars(self) -> &'static MultiProgress {
        &BARS
    }

    /// Reports a failure: as text on standard error, or as the API's error object on standard output.
    pub(crate) fn failure(self, failure: &Failure) {
        if failure.is_closed_output() {
            return;
        }
        if self.json {
            let mut error = failure.error.clone();
            if let Some(hint) = &failure.hint {
                error.message = format!("{} ({hint})", error.message);
            }
            // A closed standard output cannot show the error.
            let _ = self.json(&ApiErrorBody { error });
            return;
        }
        for line in failure_lines(failure) {
            self.note(&line);
        }
    }

    /// A table with these headings, one line for each row where there is room.
    pub(crate) fn table(self, headings: &[&str]) -> Table {
        self.styled(presets::UTF8_FULL_CONDENSED, headings)
    }

    /// A table with these headings, for rows of several lines.
    pub(crate) fn rows(self, headings: &[&str]) -> Table {
        self.styled(presets::UTF8_HORIZONTAL_ONLY, headings)
    }

    fn styled(self, style: TableStyle, headings: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(style);
        // A program that reads a pipe finds each value whole, in one line.
        if std::io::stdout().is_terminal() {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            // A terminal that does not know its size says zero.
            if table.width().is_none_or(|width| width < MIN_WIDTH_CHARS) {
                table.set_width(FALLBACK_WIDTH_CHARS);
            }
        }
        if !self.color {
            table.force_no_tty();
        }
        table.set_header(headings.to_vec());
        table
    }

    /// A cell of such a table.
    pub(crate) fn cell(self, text: impl ToString, tone: Tone) -> Cell {
        let cell = Cell::new(text);
        match (self.color, tone) {
            (true, Tone::Good) => cell.fg(Color::Green),
            (true, Tone::Caution) => cell.fg(Color::Yellow),
            (true, Tone::Bad) => cell.fg(Color::Red),
            _ => cell,
        }
    }

    /// A word in running text.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        let color = match (self.color, tone) {
            (true, Tone::Good) => 32,
            (true, Tone::Caution) => 33,
            (true, Tone::Bad) => 31,
            _ => return text.to_owned(),
        };
        format!("\u{1b}[{color}m{text}\u{1b}[0m")
    }
}

/// A failure for people. What it says may quote files, programs and models.
fn failure_lines(failure: &Failure) -> Vec<String> {
    let mut lines = vec![printable(&format!("error[{}]: {}", failure.error.code, failure.error.message))];
    lines.extend(failure.hint.as_ref().map(|hint| printable(&format!("  hint: {hint}"))));
    lines
}

/// Text that came from a program or a model, without characters that would steer the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

fn write_line(to: &mut impl Write, text: &str) -> Result<()> {
    writeln!(to, "{}", text.trim_end_matches('\n')).and_then(|()| to.flush()).map_err(|error| Failure::output(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_program_printed_steers_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r\n\tc"), "a\u{fffd}[2Jb\u{fffd}\n\tc");
    }

    #[test]
    fn nor_does_what_a_failure_quotes() {
        let failure = Failure::new("task.model_fails", "it says \u{1b}]0;x\u{7}").hint("see \u{1b}[2J");
        assert_eq!(
            failure_lines(&failure),
            ["error[task.model_fails]: it says \u{fffd}]0;x\u{fffd}", "  hint: see \u{fffd}[2J"]
        );
    }
}
