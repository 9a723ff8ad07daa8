//! What a live call may cost at most, set aside before it is made and settled when it is over.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use nightshift_protocol::budget::{Amount, BudgetLine, Resource};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::step::StepFailure;

use super::{AgentPorts, AgentStep};
use crate::model::{Meter, ModelError, ModelRequest, PriceTable};

/// Code of the fatal failure of a step whose campaign cannot afford its call. The run ends with its best result.
pub const BUDGET_EXHAUSTED: &str = "budget.exhausted";
/// Code of the passing failure of a step while parallel work has set aside what is left.
pub const BUDGET_WAIT: &str = "budget.wait";

/// Code of the failure that keeps a try from beginning when its answer is there already. No step fails of it.
const ANSWERED_MEANWHILE: &str = "agent.answered_meanwhile";

/// When a step asks again for what parallel work has set aside, in milliseconds: about as long as a call takes.
const WAIT_MS: u64 = 15_000;

/// Tokens that the framing of one message takes, beyond its text.
const MESSAGE_TOKENS: u64 = 16;

/// The failure of a step whose call does not fit under the cap, whatever parallel work gives back.
#[must_use]
pub fn budget_exhausted(line: &BudgetLine) -> StepFailure {
    // The resource comes first: that is where it is read from.
    let message = format!(
        "`{}` of the campaign does not suffice for the next model call: {} of {} are used up; raise the cap to go on",
        line.resource.as_str(),
        line.used,
        line.cap.unwrap_or(u64::MAX)
    );
    StepFailure::fatal(BUDGET_EXHAUSTED, message)
}

/// The failure of a step whose call has to wait for what parallel work has set aside.
#[must_use]
pub fn budget_wait(line: &BudgetLine) -> StepFailure {
    let message = format!(
        "`{}` of the campaign is set aside by parallel work: {} of {} are used up, {} set aside",
        line.resource.as_str(),
        line.used,
        line.cap.unwrap_or(u64::MAX),
        line.reserved
    );
    let mut failure = StepFailure::retriable(BUDGET_WAIT, message);
    failure.retry_after_ms = Some(WAIT_MS);
    failure
}

/// What is used up, when a step failed with [`budget_exhausted`].
#[must_use]
pub fn exhausted_resource(failure: &StepFailure) -> Option<Resource> {
    if failure.code != BUDGET_EXHAUSTED {
        return None;
    }
    // Money is what most budgets are about, should the message come from somewhere else.
    Some(failure.message.split('`').nth(1).and_then(Resource::parse).unwrap_or(Resource::CostMicrousd))
}

/// What a call may use up at most: tokens always, money when the price is known. A reply has `output_limit` tokens at most.
pub(super) fn estimate(prices: &PriceTable, label: &str, request: &ModelRequest, output_limit: u32) -> Vec<Amount> {
    let schema = request.json_schema.as_ref().map(ToString::to_string).unwrap_or_default();
    let functions: Vec<String> = request.functions.iter().map(|function| function.parameters.to_string()).collect();
    let turns = request.earlier.iter().flat_map(|(assistant, user)| [assistant.as_str(), user.as_str()]);
    let texts = [request.system.as_str(), request.user.as_str(), schema.as_str()].into_iter().chain(turns);
    let described = request.functions.iter().flat_map(|function| [function.name, function.description]);
    let texts = texts.chain(functions.iter().map(String::as_str)).chain(described);
    let input: u64 = texts.map(|text| most_tokens(text).saturating_add(MESSAGE_TOKENS)).sum();
    let output = u64::from(output_limit);
    let mut amounts = vec![Amount { resource: Resource::Tokens, amount: input.saturating_add(output) }];
    if let Some(price) = prices.most_microusd(label, input, output) {
        amounts.push(Amount { resource: Resource::CostMicrousd, amount: price });
    }
    amounts
}

/// What an answered call used up. What the endpoint did not say counts as the whole estimate.
pub(super) fn used(estimate: &[Amount], summary: &ModelCallSummary) -> Vec<Amount> {
    let tokens = summary.input_tokens.zip(summary.output_tokens).map(|(input, output)| input.saturating_add(output));
    estimate
        .iter()
        .map(|reserved| {
            let known = match reserved.resource {
                Resource::Tokens => tokens,
                Resource::CostMicrousd => summary.price_microusd,
                Resource::DeviceMs | Resource::Attempts | Resource::WallMs => None,
            };
            Amount { resource: reserved.resource, amount: known.unwrap_or(reserved.amount) }
        })
        .collect()
}

/// More tokens than a text has by any tokenizer in use: those join letters and spaces, while digits, signs and bytes of
/// other scripts may be tokens of their own.
fn most_tokens(text: &str) -> u64 {
    let joined = text.bytes().filter(|byte| byte.is_ascii_alphabetic() || *byte == b' ').count();
    let alone = text.len() - joined;
    u64::try_from(alone + joined.div_ceil(2)).unwrap_or(u64::MAX)
}

/// Sets the estimate aside before each try of a call, and looks once more whether the request was answered by then:
/// by an earlier try of the step, which may finish under a lease that it lost. The try that is answered leaves the
/// estimate set aside: it is settled when the answer is committed.
pub(super) struct CallBudget<'a> {
    pub(super) ports: &'a dyn AgentPorts,
    pub(super) step: AgentStep<'a>,
    pub(super) turn: u32,
    pub(super) request_hash: &'a str,
    pub(super) estimate: &'a [Amount],
    found: Mutex<Option<ModelCallSummary>>,
}

impl<'a> CallBudget<'a> {
    pub(super) fn new(
        ports: &'a dyn AgentPorts,
        step: AgentStep<'a>,
        (turn, request_hash): (u32, &'a str),
        estimate: &'a [Amount],
    ) -> Self {
        Self { ports, step, turn, request_hash, estimate, found: Mutex::default() }
    }

    /// The committed answer, when one was found in place of a try.
    pub(super) fn into_found(self) -> Option<ModelCallSummary> {
        self.found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    async fn settle(&self, used: &[Amount]) {
        if let Err(failure) = self.ports.settle_call(self.estimate, used).await {
            // It stays set aside until the try of the step ends, and counts as used then.
            tracing::warn!(error.code = failure.code, error = %failure, "a model call could not be settled");
        }
    }
}

#[async_trait]
impl Meter for CallBudget<'_> {
    async fn begin(&self) -> Result<(), StepFailure> {
        self.ports.reserve_call(self.estimate).await?;
        let AgentStep { run, step_key, .. } = self.step;
        let why_not = match self.ports.find_call(run, step_key, self.turn, self.request_hash).await {
            Ok(None) => return Ok(()),
            Ok(Some(answered)) => {
                *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(answered);
                StepFailure::retriable(ANSWERED_MEANWHILE, "the request was answered meanwhile: nothing is asked")
            }
            Err(failure) => failure,
        };
        self.settle(&[]).await;
        Err(why_not)
    }

    async fn failed(&self, error: &ModelError) {
        let used = if error.may_be_billed() { self.estimate } else { &[] };
        self.settle(used).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(resource: Resource) -> BudgetLine {
        BudgetLine { resource, cap: Some(10), used: 7, reserved: 2 }
    }

    #[test]
    fn what_is_used_up_is_read_from_the_failure() {
        for resource in Resource::ALL {
            assert_eq!(exhausted_resource(&budget_exhausted(&line(resource))), Some(resource));
            assert_eq!(exhausted_resource(&budget_wait(&line(resource))), None);
        }
        assert_eq!(exhausted_resource(&StepFailure::fatal("model.auth", "`tokens`")), None);
    }

    #[test]
    fn waiting_may_help_and_exhaustion_does_not_pass() {
        let wait = budget_wait(&line(Resource::Tokens));
        assert_eq!(
            (wait.class, wait.retry_after_ms),
            (nightshift_protocol::step::FailureClass::Retriable, Some(WAIT_MS))
        );
        let class = budget_exhausted(&line(Resource::Tokens)).class;
        assert_eq!(class, nightshift_protocol::step::FailureClass::Fatal);
    }

    #[test]
    fn no_text_has_more_tokens_than_it_is_said_to_have() {
        assert_eq!(most_tokens("a word"), 3);
        assert_eq!(most_tokens("3.1415"), 6, "each digit may be a token");
        assert_eq!(most_tokens("é"), 2, "each byte may be a token");
        assert_eq!(most_tokens(""), 0);
    }

    fn request() -> ModelRequest {
        ModelRequest {
            functions: Vec::new(),
            system: "12".to_owned(),
            user: "345".to_owned(),
            earlier: vec![("6".to_owned(), "7".to_owned())],
            ..ModelRequest::example()
        }
    }

    #[test]
    fn an_unknown_price_sets_aside_tokens_alone() {
        let tokens = Amount { resource: Resource::Tokens, amount: 7 + 5 * MESSAGE_TOKENS + 1_000 };
        assert_eq!(estimate(&PriceTable::empty(), "a/b", &request(), 1_000), [tokens]);
        let table = "[[price]]\nmodel = 'a/b'\ninput_usd = 1\noutput_usd = 2\n";
        let Ok(prices) = PriceTable::empty().with(table) else { panic!("no table") };
        let cost = Amount { resource: Resource::CostMicrousd, amount: 7 + 5 * MESSAGE_TOKENS + 2_000 };
        assert_eq!(estimate(&prices, "a/b", &request(), 1_000), [tokens, cost]);
    }

    #[test]
    fn what_the_endpoint_did_not_say_counts_as_the_whole_estimate() {
        let estimate = [
            Amount { resource: Resource::Tokens, amount: 100 },
            Amount { resource: Resource::CostMicrousd, amount: 50 },
        ];
        let hash = nightshift_protocol::artifact::ArtifactHash::of(b"x");
        let mut summary = ModelCallSummary {
            model: "a/b".to_owned(),
            scripted: false,
            prompt_version: String::new(),
            prompt: hash.clone(),
            reply: hash,
            input_tokens: Some(3),
            output_tokens: Some(4),
            price_microusd: Some(9),
            reasoning: None,
            cached_input_tokens: None,
            cache_write_tokens: None,
            reasoning_tokens: None,
            latency_ms: 1,
            turn: 1,
            stop: nightshift_protocol::model_call::StopCause::End,
            role: None,
            fell_back: Vec::new(),
        };
        let amounts =
            |summary: &ModelCallSummary| used(&estimate, summary).iter().map(|a| a.amount).collect::<Vec<_>>();
        assert_eq!(amounts(&summary), [7, 9]);
        summary.output_tokens = None;
        summary.price_microusd = None;
        assert_eq!(amounts(&summary), [100, 50]);
    }
}
