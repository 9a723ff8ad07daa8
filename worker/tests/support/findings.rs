//! What a measurement holds against a program.

use nightshift_protocol::verdict::{Finding, Severity};

/// Returns the codes of the findings that accuse the program. Warnings say how the machine was meanwhile, and a test does not
/// know which other work it had.
pub(crate) fn violations(findings: &[Finding]) -> Vec<&str> {
    let accusing = findings.iter().filter(|finding| finding.severity == Severity::Violation);
    accusing.map(|finding| finding.code.as_str()).collect()
}
