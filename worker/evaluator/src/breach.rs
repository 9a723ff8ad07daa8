//! Rules of the contract that a call can break, and the findings that follow.

use nightshift_protocol::verdict::{Finding, Severity};

/// Maximum number of findings of one step.
const MAX_FINDINGS: usize = 32;

/// A rule of the contract that a call broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Breach {
    /// An input or a weight has other bits than before the call.
    InputModified {
        /// The tensor.
        tensor: String,
    },
    /// Memory beside a buffer was written to.
    GuardOverwritten {
        /// The buffer.
        buffer: String,
    },
    /// Elements of an output still hold what was there before the call.
    OutputNotWritten {
        /// The tensor.
        tensor: String,
        /// Number of elements.
        elements: u64,
    },
}

impl Breach {
    /// Returns the finding.
    #[must_use]
    pub(crate) fn finding(&self) -> Finding {
        match self {
            Self::InputModified { tensor } => {
                violation("input_modified", format!("the call changed `{tensor}`, which it may only read"))
            }
            Self::GuardOverwritten { buffer } => {
                violation("canary_overwritten", format!("the call wrote outside of `{buffer}`"))
            }
            Self::OutputNotWritten { tensor, elements } => violation(
                "output_not_written",
                format!("{elements} elements of the output `{tensor}` were not written"),
            ),
        }
    }
}

/// Returns a finding that refuses the program.
pub(crate) fn violation(code: &str, message: String) -> Finding {
    Finding { code: code.to_owned(), severity: Severity::Violation, message, line: None }
}

/// Returns a finding that informs.
pub(crate) fn warning(code: &str, message: String) -> Finding {
    Finding { code: code.to_owned(), severity: Severity::Warning, message, line: None }
}

/// Adds a finding, unless the same rule and tensor were named before or there are enough: what a program does in one call it does in
/// every call.
pub(crate) fn note(findings: &mut Vec<Finding>, finding: Finding) {
    let subject = |message: &str| message.split('`').nth(1).map(str::to_owned);
    let known =
        findings.iter().any(|known| known.code == finding.code && subject(&known.message) == subject(&finding.message));
    if !known && findings.len() < MAX_FINDINGS {
        findings.push(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_breach_is_noted_once_for_each_tensor() {
        let mut findings = Vec::new();
        for elements in [3, 4] {
            for tensor in ["x", "y"] {
                note(&mut findings, Breach::OutputNotWritten { tensor: tensor.to_owned(), elements }.finding());
            }
        }
        assert_eq!(findings.len(), 2);
    }
}
