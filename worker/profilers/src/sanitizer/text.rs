//! Parses the output of compute-sanitizer: blocks of lines that begin with nine equals signs, and a summary.

use nightshift_protocol::profile::SanitizerIssue;

/// Before every line of the tool.
const PREFIX: &str = "=========";

/// Maximum number of different errors that are kept.
const MAX_ISSUES: usize = 50;

/// Maximum number of lines of detail of one thing, and the longest line that is kept, in characters.
const MAX_DETAILS: usize = 3;
const MAX_LINE_CHARS: usize = 300;

/// The parsed output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Said {
    /// The errors, without duplicates.
    pub(super) issues: Vec<Issue>,
    /// Errors by its summary; none without a summary.
    pub(super) errors: Option<u64>,
    /// Warnings by its summary that are not among the issues.
    pub(super) warnings: u64,
    /// The reason for which it could not check.
    pub(super) failure: Option<String>,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Issue {
    pub(super) kind: String,
    pub(super) is_error: bool,
    /// Whether a call of an interface failed, and no access was wrong.
    pub(super) is_api: bool,
    /// Blocks of lines about it.
    pub(super) records: u64,
    /// Single events about it, where the tool counts them.
    pub(super) events: u64,
    pub(super) kernel: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) size_bytes: Option<u64>,
    pub(super) address: Option<String>,
    pub(super) thread: Option<[u32; 3]>,
    pub(super) block: Option<[u32; 3]>,
    pub(super) details: Vec<String>,
}

impl Issue {
    fn is_like(&self, other: &Self) -> bool {
        (&self.kind, self.is_error, &self.kernel, &self.file, self.line, self.size_bytes)
            == (&other.kind, other.is_error, &other.kernel, &other.file, other.line, other.size_bytes)
    }

    /// As it is stored.
    pub(super) fn into_stored(self) -> SanitizerIssue {
        SanitizerIssue {
            kind: self.kind,
            is_error: self.is_error,
            count: self.events.max(self.records),
            kernel: self.kernel,
            file: self.file,
            line: self.line,
            size_bytes: self.size_bytes,
            address: self.address,
            thread: self.thread,
            block: self.block,
            details: self.details,
        }
    }
}

/// Reads what the tool printed. Lines of others are passed over.
pub(super) fn parse(text: &str) -> Said {
    let mut said = Said::default();
    let mut open: Option<Issue> = None;
    for line in text.lines() {
        let Some(line) = line.trim_end().strip_prefix(PREFIX) else { continue };
        let line: String = line.chars().take(MAX_LINE_CHARS).collect();
        let line = line.strip_prefix(' ').unwrap_or(&line);
        if line.starts_with(' ') {
            if let Some(issue) = open.as_mut() {
                detail(issue, line.trim());
            }
            continue;
        }
        keep(&mut said, open.take());
        let line = line.trim();
        if !line.is_empty() && line != "COMPUTE-SANITIZER" && !summary(&mut said, line) {
            open = head(&mut said, line);
        }
    }
    keep(&mut said, open);
    said
}

fn keep(said: &mut Said, issue: Option<Issue>) {
    let Some(issue) = issue else { return };
    let is_room = said.issues.len() < MAX_ISSUES;
    match said.issues.iter_mut().find(|known| known.is_like(&issue)) {
        Some(known) => {
            known.records = known.records.saturating_add(1);
            known.events = known.events.saturating_add(issue.events);
        }
        None if is_room => said.issues.push(issue),
        // It stays among those that are counted and not listed.
        None => {}
    }
}

/// Parses a line of the summary.
fn summary(said: &mut Said, line: &str) -> bool {
    if let Some(rest) = line.strip_prefix("ERROR SUMMARY:") {
        // The second summary line counts what was not printed, which the first one holds already.
        if !rest.contains("not printed")
            && let Some(count) = first_number(rest)
        {
            said.errors = Some(said.errors.unwrap_or(0).saturating_add(count));
        }
        return true;
    }
    if let Some(rest) = line.strip_prefix("RACECHECK SUMMARY:") {
        let counted = |word: &str| {
            let (before, _) = rest.split_once(word)?;
            number(before.trim_end().rsplit([' ', '(']).next()?)
        };
        let errors = counted("error");
        said.errors = errors.or_else(|| first_number(rest)).map(|count| said.errors.unwrap_or(0).saturating_add(count));
        return true;
    }
    line.contains("SUMMARY:")
}

/// The first line of a block.
fn head(said: &mut Said, line: &str) -> Option<Issue> {
    for (prefix, is_error) in [("Error: ", true), ("Warning: ", false)] {
        let Some(rest) = line.strip_prefix(prefix) else { continue };
        if !rest.starts_with("Race reported") && !rest.starts_with("Potential") {
            if is_error {
                said.failure.get_or_insert_with(|| rest.to_owned());
            }
            return None;
        }
        let mut issue = Issue { is_error, records: 1, ..Issue::default() };
        let (access, place) = rest.split_once(" at ").unwrap_or((rest, ""));
        issue.kind = lower_between(access);
        locate(&mut issue, place);
        return Some(issue);
    }
    let fatal = [
        "Internal Sanitizer Error",
        "Device not supported",
        "Target application terminated before",
        "No attachable process",
        "Failed to",
    ];
    if fatal.iter().any(|text| line.starts_with(text)) {
        said.failure.get_or_insert_with(|| line.to_owned());
        return None;
    }
    // Notes of the tool about itself and the program's end.
    if line.starts_with("Note:")
        || line.starts_with("Target application returned an error")
        || line.starts_with("This tool is")
    {
        return None;
    }
    let mut issue = Issue { is_error: true, records: 1, ..Issue::default() };
    if line.starts_with("Program hit ") {
        issue.is_api = true;
        "failed call of an interface".clone_into(&mut issue.kind);
        issue.details.push(line.to_owned());
        return Some(issue);
    }
    match line.split_once(" of size ") {
        Some((kind, size)) => {
            kind.clone_into(&mut issue.kind);
            issue.size_bytes = first_number(size);
        }
        None => issue.kind = without_numbers(line),
    }
    Some(issue)
}

/// A further line of a block.
fn detail(issue: &mut Issue, line: &str) {
    if let Some(place) = line.strip_prefix("at ") {
        if issue.kernel.is_none() {
            locate(issue, place);
        }
    } else if let Some(rest) = line.strip_prefix("by thread ") {
        let (thread, block) = rest.split_once(" in block ").unwrap_or((rest, ""));
        issue.thread = triple(thread);
        issue.block = triple(block);
    } else if line.starts_with("Saved host backtrace")
        || line.starts_with("Host Frame")
        || line.starts_with("Device Frame")
    {
        // Frames of the runner and of the driver say nothing about the program.
    } else if let Some(rest) = line.strip_prefix("Access to ").or_else(|| line.strip_prefix("Address ")) {
        issue.address = rest.split(' ').next().filter(|word| word.starts_with("0x")).map(str::to_owned);
        if let Some((_, what)) = rest.split_once(" is ") {
            issue.kind.extend([", ", what]);
        }
    } else if issue.details.len() < MAX_DETAILS {
        if let Some((access, count)) =
            line.strip_suffix("hazards]").or_else(|| line.strip_suffix("hazard]")).and_then(|l| l.rsplit_once('['))
        {
            issue.events = number(count.trim()).unwrap_or(0);
            issue.details.push(access.trim().to_owned());
        } else {
            issue.details.push(line.to_owned());
        }
    }
}

/// Parses `oob(float *, int)+0xb0 in oob.cu:3`.
fn locate(issue: &mut Issue, place: &str) {
    let (function, file) = match place.rsplit_once(" in ") {
        Some((function, file)) => (function, Some(file)),
        None => (place, None),
    };
    let function = function.rsplit_once("+0x").map_or(function, |(name, _)| name).trim();
    issue.kernel = (!function.is_empty()).then(|| function.to_owned());
    let Some(file) = file else { return };
    let (path, line) = match file.rsplit_once(':') {
        Some((path, line)) => (path, line.trim().parse().ok()),
        None => (file, None),
    };
    issue.file = path.rsplit('/').next().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    issue.line = line.filter(|line| *line > 0);
}

/// `Race reported between Write access` as it stands in a sentence.
fn lower_between(access: &str) -> String {
    access.replace("Write access", "write access").replace("Read access", "read access")
}

/// `(96,0,0)`.
fn triple(text: &str) -> Option<[u32; 3]> {
    let inner = text.trim().strip_prefix('(')?.split(')').next()?;
    let mut numbers = inner.split(',').map(|part| part.trim().parse::<u32>());
    let triple = [numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?];
    Some(triple)
}

/// `1,024` is one number.
fn number(word: &str) -> Option<u64> {
    let digits: String = word.chars().filter(|c| *c != ',').collect();
    digits.parse().ok()
}

fn first_number(text: &str) -> Option<u64> {
    let word = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    number(word.trim_end_matches(|c: char| !c.is_ascii_digit()))
}

/// Returns the line without addresses and numbers, to find equal errors.
fn without_numbers(line: &str) -> String {
    let words: Vec<&str> =
        line.split_whitespace().filter(|word| !word.starts_with("0x") && number(word).is_none()).collect();
    words.join(" ")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
