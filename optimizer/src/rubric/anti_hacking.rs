//! Anti-hacking: 5 no sign of gaming, 1 plain cheating.

use std::collections::BTreeSet;

use nightshift_protocol::verdict::{Finding, Severity};

use super::{Scored, has_violation, is_major_hacking};

/// From the gravest finding down: a cheat 1, another broken rule 2, several kinds of suspicion 3, one kind 4, none 5.
/// Notes are no suspicion.
pub(super) fn score(findings: &[Finding]) -> Scored {
    let codes = |severity| -> Vec<&str> {
        let unique: BTreeSet<&str> =
            findings.iter().filter(|f| f.severity == severity).map(|f| f.code.as_str()).collect();
        unique.into_iter().collect()
    };
    let warnings = codes(Severity::Warning);
    if is_major_hacking(findings) {
        (1, format!("anti_hacking 1: violations that no honest program has: {}", codes(Severity::Violation).join(", ")))
    } else if has_violation(findings) {
        (2, format!("anti_hacking 2: rules were broken: {}", codes(Severity::Violation).join(", ")))
    } else if warnings.len() > 1 {
        (3, format!("anti_hacking 3: several kinds of suspicion: {}", warnings.join(", ")))
    } else if let [only] = warnings.as_slice() {
        (4, format!("anti_hacking 4: one kind of suspicion: {only}"))
    } else {
        (5, "anti_hacking 5: no finding speaks of gaming".to_owned())
    }
}
