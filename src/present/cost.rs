//! What model calls cost, by the role that asked.

use nightshift_protocol::cost::RoleCost;
use nightshift_protocol::models::AgentRole;

use super::count;

/// One line for each role.
pub(crate) fn lines(costs: &[RoleCost]) -> Vec<String> {
    costs.iter().map(line).collect()
}

fn line(cost: &RoleCost) -> String {
    let role = cost.role.map_or("role unknown", AgentRole::as_str);
    let models = cost.models.keys().cloned().collect::<Vec<_>>().join(", ");
    let uncounted = match cost.uncounted_calls {
        0 => String::new(),
        number => format!(" ({} without a count)", calls(number)),
    };
    let priced = cost.calls.saturating_sub(cost.unpriced_calls);
    let price = match (priced, cost.unpriced_calls) {
        (0, _) => "price unknown".to_owned(),
        (_, 0) => dollars(cost.price_microusd),
        (_, unpriced) => format!("{}, and {} of unknown price", dollars(cost.price_microusd), calls(unpriced)),
    };
    let stood_in = match cost.fallback_calls {
        0 => String::new(),
        number => format!("; {} answered by a stand-in", calls(number)),
    };
    format!(
        "{role}: {} of {models}; {}{uncounted}; {price}{stood_in}",
        calls(cost.calls),
        tokens(cost.input_tokens, cost.cached_input_tokens, cost.output_tokens, cost.reasoning_tokens)
    )
}

/// Tokens in words; parts that no endpoint reported are left out.
pub(super) fn tokens(read: u64, cached: Option<u64>, written: u64, reasoning: Option<u64>) -> String {
    let part = |part: Option<u64>, what: &str| part.map_or_else(String::new, |part| format!(" ({part} {what})"));
    let (cached, reasoning) = (part(cached, "from the cache"), part(reasoning, "of reasoning"));
    format!("{read} tokens read{cached}, {written} written{reasoning}")
}

fn calls(number: u32) -> String {
    count(number, "call")
}

fn dollars(microusd: u64) -> String {
    format!("{}.{:06} USD", microusd / 1_000_000, microusd % 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_line_tells_what_is_known_and_what_is_not() {
        let cost = RoleCost {
            role: Some(AgentRole::Coder),
            calls: 3,
            input_tokens: 1_200,
            cached_input_tokens: Some(800),
            output_tokens: 340,
            reasoning_tokens: Some(0),
            uncounted_calls: 1,
            price_microusd: 12_000,
            unpriced_calls: 1,
            fallback_calls: 1,
            models: BTreeMap::from([("lab/a".to_owned(), 2), ("lab/b".to_owned(), 1)]),
        };
        assert_eq!(
            lines(std::slice::from_ref(&cost)),
            [
                "coder: 3 calls of lab/a, lab/b; 1200 tokens read (800 from the cache), 340 written (0 of reasoning) (1 call without a count); 0.012000 USD, and \
              1 call of unknown price; 1 call answered by a stand-in"
            ]
        );
        let unknown = RoleCost { role: None, calls: 1, unpriced_calls: 1, ..RoleCost::default() };
        assert!(lines(&[unknown])[0].ends_with("price unknown"));
    }
}
