//! How findings are made, ordered and bounded.

use nightshift_protocol::verdict::{Finding, Severity};

/// Maximum number of findings for one source; the gravest are kept.
pub(super) const MAX_FINDINGS: usize = 50;

/// Makes a finding at a line of the source.
pub(super) fn finding(code: &str, severity: Severity, message: impl Into<String>, line: u32) -> Finding {
    Finding { code: code.to_owned(), severity, message: message.into(), line: Some(line) }
}

/// Makes a finding that refuses the program.
pub(super) fn violation(code: &str, message: impl Into<String>, line: u32) -> Finding {
    finding(code, Severity::Violation, message, line)
}

/// Makes a finding that readers and the judge see and that refuses nothing.
pub(super) fn warning(code: &str, message: impl Into<String>, line: u32) -> Finding {
    finding(code, Severity::Warning, message, line)
}

/// Sorts findings by severity and line. A repeated observation keeps its first line only.
pub(super) fn ordered(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort_by(|a, b| (&a.code, &a.message, a.line).cmp(&(&b.code, &b.message, b.line)));
    found.dedup_by(|later, first| (&later.code, &later.message) == (&first.code, &first.message));
    found.sort_by(|a, b| (b.severity, a.line, &a.code).cmp(&(a.severity, b.line, &b.code)));
    found.truncate(MAX_FINDINGS);
    found
}
