//! What model calls cost, by the role that asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model_call::ModelCallSummary;
use crate::models::AgentRole;

/// What one role asked and used up. What an endpoint did not say is counted as unknown, never as zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoleCost {
    /// Who asked; none for calls that were stored before roles were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<AgentRole>,
    /// Answered calls.
    pub calls: u32,
    /// Tokens of the prompts, as far as they are known.
    pub input_tokens: u64,
    /// Tokens of the prompts that came from the providers' caches; none when no call's endpoint said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Tokens of the replies, as far as they are known.
    pub output_tokens: u64,
    /// Tokens of the replies that were reasoning; none when no call's endpoint said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Calls whose endpoint did not say how many tokens they took; those of a script take none.
    pub uncounted_calls: u32,
    /// Price in millionths of a US dollar, as far as it is known.
    pub price_microusd: u64,
    /// Calls whose price is unknown.
    pub unpriced_calls: u32,
    /// Calls that another model answered than the one that was asked first.
    pub fallback_calls: u32,
    /// Answered calls by model.
    pub models: BTreeMap<String, u32>,
}

impl RoleCost {
    fn add(&mut self, call: &ModelCallSummary) {
        self.calls = self.calls.saturating_add(1);
        self.input_tokens = self.input_tokens.saturating_add(call.input_tokens.unwrap_or(0));
        self.output_tokens = self.output_tokens.saturating_add(call.output_tokens.unwrap_or(0));
        self.cached_input_tokens = known_sum(self.cached_input_tokens, call.cached_input_tokens);
        self.reasoning_tokens = known_sum(self.reasoning_tokens, call.reasoning_tokens);
        let uncounted = !call.scripted && (call.input_tokens.is_none() || call.output_tokens.is_none());
        self.uncounted_calls = self.uncounted_calls.saturating_add(u32::from(uncounted));
        self.price_microusd = self.price_microusd.saturating_add(call.price_microusd.unwrap_or(0));
        self.unpriced_calls = self.unpriced_calls.saturating_add(u32::from(call.price_microusd.is_none()));
        self.fallback_calls = self.fallback_calls.saturating_add(u32::from(!call.fell_back.is_empty()));
        let of_model = self.models.entry(call.model.clone()).or_default();
        *of_model = of_model.saturating_add(1);
    }
}

/// Adds counts of which either may be unknown; none when both are.
fn known_sum(sum: Option<u64>, count: Option<u64>) -> Option<u64> {
    match (sum, count) {
        (Some(sum), Some(count)) => Some(sum.saturating_add(count)),
        (known, None) | (None, known) => known,
    }
}

/// The cost of calls by role, in the order of the loop; roles that asked nothing are left out.
#[must_use]
pub fn by_role<'a>(calls: impl IntoIterator<Item = &'a ModelCallSummary>) -> Vec<RoleCost> {
    let mut costs: BTreeMap<(bool, Option<AgentRole>), RoleCost> = BTreeMap::new();
    for call in calls {
        let cost = costs.entry((call.role.is_none(), call.role)).or_default();
        cost.role = call.role;
        cost.add(call);
    }
    costs.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::ArtifactHash;
    use crate::model_call::{FellBack, StopCause};

    fn call(role: Option<AgentRole>, price_microusd: Option<u64>, output_tokens: Option<u64>) -> ModelCallSummary {
        ModelCallSummary {
            model: "lab/a".to_owned(),
            scripted: false,
            prompt_version: String::new(),
            prompt: ArtifactHash::of(b"p"),
            reply: ArtifactHash::of(b"r"),
            input_tokens: Some(10),
            output_tokens,
            price_microusd,
            reasoning: None,
            cached_input_tokens: None,
            cache_write_tokens: None,
            reasoning_tokens: None,
            latency_ms: 1,
            turn: 1,
            stop: StopCause::End,
            role,
            fell_back: Vec::new(),
        }
    }

    #[test]
    fn calls_are_added_up_by_role_and_what_is_unknown_is_counted_as_unknown() {
        let coder = Some(AgentRole::Coder);
        let mut stood_in = call(coder, None, None);
        stood_in.fell_back.push(FellBack { model: "lab/b".to_owned(), code: "model.quota".to_owned() });
        let costs =
            by_role(&[call(coder, Some(7), Some(5)), stood_in, call(Some(AgentRole::Planner), Some(1), Some(1))]);
        assert_eq!(costs.len(), 2);
        assert_eq!((costs[0].cached_input_tokens, costs[0].reasoning_tokens), (None, None), "unknown is not zero");
        assert_eq!((costs[0].role, costs[0].calls, costs[0].price_microusd), (Some(AgentRole::Planner), 1, 1));
        let coder = &costs[1];
        assert_eq!((coder.calls, coder.input_tokens, coder.output_tokens), (2, 20, 5));
        assert_eq!((coder.price_microusd, coder.unpriced_calls, coder.uncounted_calls), (7, 1, 1));
        assert_eq!((coder.fallback_calls, coder.models.get("lab/a")), (1, Some(&2)));
    }

    #[test]
    fn cached_and_reasoning_tokens_are_summed_where_they_are_known() {
        let known =
            ModelCallSummary { cached_input_tokens: Some(4), reasoning_tokens: Some(3), ..call(None, None, Some(5)) };
        let costs = by_role(&[call(None, None, Some(5)), known.clone(), known]);
        assert_eq!((costs[0].cached_input_tokens, costs[0].reasoning_tokens), (Some(8), Some(6)));
    }

    #[test]
    fn a_call_that_was_stored_before_these_counts_has_unknown_ones() {
        let mut stored = serde_json::to_value(call(None, None, Some(5))).unwrap_or_default();
        let fields = ["reasoning", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens"];
        assert!(fields.iter().all(|field| stored.get(field).is_none()), "unknown counts are not written");
        assert_eq!(serde_json::from_value::<ModelCallSummary>(stored.take()).ok(), Some(call(None, None, Some(5))));
    }

    #[test]
    fn calls_of_unknown_roles_come_last() {
        let costs = by_role(&[call(None, Some(1), None), call(Some(AgentRole::Judge), Some(1), None)]);
        assert_eq!(costs.iter().map(|cost| cost.role).collect::<Vec<_>>(), [Some(AgentRole::Judge), None]);
    }
}
