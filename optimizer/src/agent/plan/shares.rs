//! How much of the reference's time each operator takes, as far as its kernels tell.
//!
//! A kernel belongs to the operators of the task whose names its own name is made of, when nothing else is in it:
//! `gelu` to `gelu`, `bias_relu` to `bias` and `relu`. What is named otherwise is not guessed: it may belong to any.

use std::collections::BTreeSet;

use nightshift_protocol::profile::{KernelTime, Profile};
use nightshift_protocol::task::TaskSpec;

/// Shares of a call of the reference, 0 to 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Shares {
    /// Time of kernels by the operators that they belong to.
    parts: Vec<(Vec<String>, f64)>,
    /// Time of kernels that may belong to any operator.
    unknown: f64,
    /// Every operator of the task.
    operators: BTreeSet<String>,
}

/// Between what a share has to lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Range {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Range {
    /// Whether the profile leaves nothing open.
    pub(super) fn is_decided(self) -> bool {
        self.high - self.low < 1e-3
    }
}

impl Shares {
    /// Without a timeline nothing is known.
    pub(super) fn of(spec: &TaskSpec, profile: Option<&Profile>) -> Self {
        let Some(timeline) = profile.and_then(|profile| profile.timeline.as_ref()) else { return Self::default() };
        let on_device = (1.0 - timeline.host_share).clamp(0.0, 1.0);
        let mut shares = Self {
            operators: spec.operators.iter().map(|operator| operator.name.clone()).collect(),
            ..Self::default()
        };
        for kernel in &timeline.kernels {
            let share = kernel.share * on_device;
            let owners = owners(kernel, &shares.operators);
            if owners.is_empty() {
                shares.unknown += share;
            } else if let Some((_, sum)) = shares.parts.iter_mut().find(|(known, _)| *known == owners) {
                *sum += share;
            } else {
                shares.parts.push((owners, share));
            }
        }
        shares
    }

    #[cfg(test)]
    pub(super) fn from_parts(parts: Vec<(Vec<String>, f64)>, unknown: f64) -> Self {
        let operators = parts.iter().flat_map(|(owners, _)| owners.clone()).collect();
        Self { parts, unknown, operators }
    }

    /// Between what the share of a scope lies; none when nothing is known, or the scope names something else.
    pub(super) fn of_scope(&self, scope: &[String]) -> Option<Range> {
        let is_known = !self.parts.is_empty() && scope.iter().all(|name| self.operators.contains(name));
        if !is_known || scope.is_empty() {
            return None;
        }
        let within = |owners: &[String]| owners.iter().filter(|owner| scope.contains(owner)).count();
        let all: f64 = self.parts.iter().filter(|(owners, _)| within(owners) == owners.len()).map(|(_, s)| s).sum();
        let some: f64 = self.parts.iter().filter(|(owners, _)| within(owners) > 0).map(|(_, s)| s).sum();
        Some(Range { low: all, high: (some + self.unknown).min(1.0) })
    }

    /// The shares in words, largest first; nothing when nothing is known.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut parts: Vec<&(Vec<String>, f64)> = self.parts.iter().collect();
        parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let named = |owners: &[String]| owners.iter().map(|o| format!("`{o}`")).collect::<Vec<_>>().join(" with ");
        let mut lines: Vec<String> = parts
            .into_iter()
            .map(|(owners, share)| format!("{}: {:.0} % of a call", named(owners), share * 100.0))
            .collect();
        if !lines.is_empty() && self.unknown > 0.005 {
            lines.push(format!("kernels that name no operator: {:.0} % of a call", self.unknown * 100.0));
        }
        lines
    }
}

/// The operators of which the kernel's name is made, in order; none when something else is in it.
fn owners(kernel: &KernelTime, operators: &BTreeSet<String>) -> Vec<String> {
    let bare = kernel.name.strip_prefix("void ").unwrap_or(&kernel.name);
    let bare = bare.split(['(', '<']).next().unwrap_or(bare);
    let words = words(bare.rsplit("::").next().unwrap_or(bare));
    let in_kernel = |operator: &&String| {
        let own = self::words(operator);
        !own.is_empty() && own.is_subset(&words)
    };
    let owners: Vec<String> = operators.iter().filter(in_kernel).cloned().collect();
    let covered: BTreeSet<String> = owners.iter().flat_map(|owner| self::words(owner)).collect();
    if covered == words { owners } else { Vec::new() }
}

/// The words of a name, in lower case and in the singular.
fn words(name: &str) -> BTreeSet<String> {
    let mut spaced = String::with_capacity(name.len() + 8);
    let mut was_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && was_lower {
            spaced.push('_');
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        spaced.extend(c.to_lowercase());
    }
    let plain = |word: &str| word.strip_suffix('s').filter(|rest| rest.len() > 2).unwrap_or(word).to_owned();
    let noise = ["kernel", "forward", "fwd"];
    spaced.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty() && !noise.contains(w)).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::profile::{KernelTime, Timeline};
    use nightshift_protocol::task::OperatorSpec;

    use super::*;

    fn names(operators: &[&str]) -> BTreeSet<String> {
        operators.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_kernel_belongs_to_the_operators_that_its_name_is_made_of() {
        let operators = names(&["scores", "softmax", "weighted_sum", "bias", "relu"]);
        let of = |name: &str| owners(&KernelTime { name: name.to_owned(), ..KernelTime::default() }, &operators);
        assert_eq!(of("score(float const*, long)"), ["scores"]);
        assert_eq!(of("void ns::BiasReluKernel<4, float>(float*)"), ["bias", "relu"]);
        assert_eq!(of("weighted_sum(float*)"), ["weighted_sum"]);
        // There is more in it than an operator of that name.
        assert!(of("linear_relu(float*)").is_empty() && of("weigh(float*)").is_empty());
    }

    #[test]
    fn a_share_lies_between_what_is_certain_and_what_is_possible() {
        let time = |name: &str, share| KernelTime { name: name.to_owned(), share, ..KernelTime::default() };
        let timeline = Timeline {
            host_share: 0.5,
            kernels: vec![time("softmax()", 0.5), time("gelu_bias()", 0.25), time("helper()", 0.25)],
            ..Timeline::default()
        };
        let profile = Profile { timeline: Some(timeline), ..Profile::default() };
        let mut spec: TaskSpec = serde_json::from_value(serde_json::json!({
            "schema": 1, "name": "t", "title": "t", "description": "t", "target": "cuda", "reference": "r.cu",
            "inputs": [], "outputs": [], "tolerance": {"atol": 0.1, "rtol": 0.1},
        }))
        .unwrap_or_else(|error| panic!("{error}"));
        spec.operators = ["softmax", "gelu", "bias"]
            .map(|name| OperatorSpec { name: name.to_owned(), ..OperatorSpec::default() })
            .to_vec();
        let shares = Shares::of(&spec, Some(&profile));
        let range = |scope: &[&str]| shares.of_scope(&scope.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(range(&["softmax"]), Some(Range { low: 0.25, high: 0.375 }));
        assert_eq!(range(&["gelu"]), Some(Range { low: 0.0, high: 0.25 }));
        assert_eq!(range(&["gelu", "bias"]), Some(Range { low: 0.125, high: 0.25 }));
        assert_eq!(range(&["conv"]), None);
        assert_eq!(Shares::of(&spec, None).of_scope(&["gelu".to_owned()]), None);
        assert_eq!(
            shares.lines(),
            [
                "`softmax`: 25 % of a call",
                "`bias` with `gelu`: 12 % of a call",
                "kernels that name no operator: 12 % of a call"
            ]
        );
    }
}
