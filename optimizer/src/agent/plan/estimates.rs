//! How operators share the task's own counts of operations and bytes. The counts are no times: times that a
//! planner derives from them are estimates, and the plan labels them so.

use nightshift_protocol::gpu_text::significant;
use nightshift_protocol::task::{OperatorSpec, TaskSpec};

/// One line for each operator, where the task counts for every one of them; else nothing.
pub(super) fn lines(spec: &TaskSpec) -> Vec<String> {
    if spec.operators.len() < 2 {
        return Vec::new();
    }
    let counted = |of: fn(&OperatorSpec) -> Option<f64>| -> Option<(Vec<f64>, f64)> {
        let amounts: Vec<f64> = spec.operators.iter().map(of).collect::<Option<_>>()?;
        let sum: f64 = amounts.iter().sum();
        (sum > 0.0).then_some((amounts, sum))
    };
    let counts = [("operations", counted(|operator| operator.flops)), ("bytes", counted(|operator| operator.bytes))];
    if counts.iter().all(|(_, count)| count.is_none()) {
        return Vec::new();
    }
    let line = |(index, operator): (usize, &OperatorSpec)| {
        let said: Vec<String> = counts
            .iter()
            .filter_map(|(what, count)| {
                let (amounts, sum) = count.as_ref()?;
                let amount = amounts.get(index)?;
                Some(format!("{} {what} ({:.0} % of all)", significant(*amount), amount / sum * 100.0))
            })
            .collect();
        format!("`{}`: {}", operator.name, said.join(", "))
    };
    spec.operators.iter().enumerate().map(line).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    fn spec(operators: &serde_json::Value) -> TaskSpec {
        serde_json::from_value(serde_json::json!({
            "schema": 1, "name": "t", "title": "t", "description": "t", "target": "cpu", "reference": "r",
            "inputs": [], "outputs": [], "tolerance": {"atol": 0.1, "rtol": 0.1}, "operators": operators,
        }))
        .unwrap()
    }

    #[test]
    fn shares_are_told_of_what_is_counted_for_every_operator() {
        let both = serde_json::json!([
            {"name": "product", "class": "matmul", "flops": 3e6, "bytes": 1e6},
            {"name": "bias", "class": "elementwise", "flops": 1e6},
        ]);
        let expected = ["`product`: 3000000 operations (75 % of all)", "`bias`: 1000000 operations (25 % of all)"];
        assert_eq!(lines(&spec(&both)), expected);
        let partly = serde_json::json!([{"name": "a", "class": "c", "flops": 1.0}, {"name": "b", "class": "c"}]);
        assert!(lines(&spec(&partly)).is_empty(), "a share of a part of them would mislead");
        let alone = serde_json::json!([{"name": "a", "class": "c", "flops": 1.0}]);
        assert!(lines(&spec(&alone)).is_empty());
    }
}
