//! "Did you mean": the known name that is nearest to an unknown one.

/// The nearest candidate, when it is near enough to be a slip of the pen.
pub(super) fn nearest<'a>(unknown: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (unknown.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(unknown, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `: did you mean ...?`, or nothing.
pub(super) fn hint<'a>(unknown: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(unknown, candidates).map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

/// Insertions, deletions, substitutions and swaps of neighbours that lead from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substituted = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substituted.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognized_and_another_word_is_not() {
        let known = ["tolerance", "operators", "outputs", "inputs"];
        assert_eq!(nearest("tolerence", known), Some("tolerance"));
        assert_eq!(nearest("ouptuts", known), Some("outputs"));
        assert_eq!(nearest("colour", known), None);
    }
}
