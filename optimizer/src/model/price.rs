//! What tokens cost. An unknown price is unknown, never zero.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::TokenUsage;

const BUILT_IN: &str = include_str!("../../prices.toml");

/// Largest believable price of a million tokens, in US dollars: a guard against a slipped decimal point.
const MAX_USD_PER_MILLION: f64 = 100_000.0;

/// A price table that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// Not TOML, or not of the right shape. The message has line and column.
    #[error("the price table cannot be read")]
    Unreadable(#[source] Box<toml::de::Error>),
    /// A number that is no price.
    #[error("the price of `{model}` is not a number from 0 to {MAX_USD_PER_MILLION} US dollars per million tokens")]
    NoPrice {
        /// The model.
        model: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    #[serde(default)]
    price: Vec<Entry>,
}

/// Prices in US dollars per million tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// `endpoint/model`.
    model: String,
    /// Of the prompt.
    input_usd: f64,
    /// Of the prompt, as far as it is read from the provider's cache; none for the price of other input.
    cached_input_usd: Option<f64>,
    /// Of the prompt, as far as it is written to the provider's cache; none for the price of other input.
    cache_write_usd: Option<f64>,
    /// Of the reply.
    output_usd: f64,
    /// Prices of calls with a long prompt.
    long: Option<LongEntry>,
    /// When the price was looked up, for people.
    #[serde(default, rename = "as_of")]
    _as_of: Option<String>,
    /// The page that lists it, for people.
    #[serde(default, rename = "source")]
    _source: Option<String>,
}

/// Prices in US dollars per million tokens of all tokens of a call whose prompt is long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongEntry {
    /// A prompt with more tokens than this is long.
    above_input_tokens: u64,
    input_usd: f64,
    cached_input_usd: Option<f64>,
    cache_write_usd: Option<f64>,
    output_usd: f64,
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rates {
    input: f64,
    cached_input: f64,
    cache_write: f64,
    output: f64,
}

impl Rates {
    fn new(input: f64, cached_input: Option<f64>, cache_write: Option<f64>, output: f64) -> Self {
        let (cached_input, cache_write) = (cached_input.unwrap_or(input), cache_write.unwrap_or(input));
        Self { input, cached_input, cache_write, output }
    }

    fn are_sane(&self) -> bool {
        let sane = |usd: f64| usd.is_finite() && (0.0..=MAX_USD_PER_MILLION).contains(&usd);
        [self.input, self.cached_input, self.cache_write, self.output].into_iter().all(sane)
    }

    /// The price in millionths of a US dollar: dollars per million tokens are millionths of a dollar per token.
    fn microusd(&self, input: u64, cached_input: u64, cache_write: u64, output: u64) -> f64 {
        // No endpoint is believed that reports more tokens of the cache than of the whole prompt.
        let cached_input = cached_input.min(input);
        let cache_write = cache_write.min(input - cached_input);
        let rest = input - cached_input - cache_write;
        count(rest) * self.input
            + count(cached_input) * self.cached_input
            + count(cache_write) * self.cache_write
            + count(output) * self.output
    }

    /// The highest price that so many tokens may have.
    fn most_microusd(&self, input: u64, output: u64) -> f64 {
        let rate = self.input.max(self.cached_input).max(self.cache_write);
        count(input) * rate + count(output) * self.output
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Price {
    usual: Rates,
    /// The number of tokens above which a prompt is long, and the prices of such a call.
    long: Option<(u64, Rates)>,
}

/// Prices by `endpoint/model`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PriceTable {
    prices: BTreeMap<String, Price>,
}

impl PriceTable {
    /// A table without any price.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// The prices that ship with the program.
    pub fn built_in() -> Result<Self, PriceError> {
        Self::empty().with(BUILT_IN)
    }

    /// Adds the prices of a TOML text, replacing those of the same name.
    pub fn with(mut self, toml_text: &str) -> Result<Self, PriceError> {
        let file: TableFile = toml::from_str(toml_text).map_err(|error| PriceError::Unreadable(Box::new(error)))?;
        for entry in file.price {
            let usual = Rates::new(entry.input_usd, entry.cached_input_usd, entry.cache_write_usd, entry.output_usd);
            let long = entry.long.map(|long| {
                let rates = Rates::new(long.input_usd, long.cached_input_usd, long.cache_write_usd, long.output_usd);
                (long.above_input_tokens, rates)
            });
            if !usual.are_sane() || long.is_some_and(|(_, rates)| !rates.are_sane()) {
                return Err(PriceError::NoPrice { model: entry.model });
            }
            self.prices.insert(entry.model, Price { usual, long });
        }
        Ok(self)
    }

    /// The price of a call in millionths of a US dollar; none when the model, or the number of tokens of prompt or reply,
    /// is unknown. Tokens that the endpoint does not report as cached have the price of other input.
    #[must_use]
    pub fn price_microusd(&self, label: &str, tokens: &TokenUsage) -> Option<u64> {
        let price = self.prices.get(label)?;
        let input = tokens.input?;
        let rates = match price.long {
            Some((above, long)) if input > above => long,
            _ => price.usual,
        };
        let (read, written) = (tokens.cached_input.unwrap_or(0), tokens.cache_write.unwrap_or(0));
        Some(rounded(rates.microusd(input, read, written, tokens.output?)))
    }

    /// The highest price in millionths of a US dollar of a call with at most so many tokens, whatever the provider's cache
    /// holds; none when the model is unknown.
    #[must_use]
    pub fn most_microusd(&self, label: &str, input_tokens: u64, output_tokens: u64) -> Option<u64> {
        let price = self.prices.get(label)?;
        let long = price.long.filter(|(above, _)| input_tokens > *above).map(|(_, rates)| rates);
        let most =
            [Some(price.usual), long].into_iter().flatten().map(|r| r.most_microusd(input_tokens, output_tokens));
        Some(rounded(most.fold(0.0, f64::max)))
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn count(tokens: u64) -> f64 {
    tokens as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative; a cast of a float saturates"
)]
fn rounded(microusd: f64) -> u64 {
    microusd.round() as u64
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    const LOCAL: &str = "[[price]]\nmodel = 'vllm/mine'\ninput_usd = 0\noutput_usd = 0\n";

    const CACHED: &str = "[[price]]\nmodel = 'a/b'\ninput_usd = 2\ncached_input_usd = 0.2\ncache_write_usd = 2.5\n\
        output_usd = 10\nas_of = '2026-11-01'\nsource = 'https://prices.example'\n[price.long]\nabove_input_tokens = 1000\n\
        input_usd = 4\ncached_input_usd = 0.4\ncache_write_usd = 5\noutput_usd = 15\n";

    fn usage(input: u64, output: u64) -> TokenUsage {
        TokenUsage { input: Some(input), output: Some(output), ..TokenUsage::default() }
    }

    #[test]
    fn a_price_is_tokens_times_rate() {
        let table = PriceTable::empty()
            .with("[[price]]\nmodel = 'a/b'\ninput_usd = 1.25\noutput_usd = 10.0\nas_of = '2025-11-01'")
            .unwrap();
        assert_eq!(table.price_microusd("a/b", &usage(1_000, 200)), Some(1_250 + 2_000));
        let cached = TokenUsage { cached_input: Some(800), ..usage(1_000, 200) };
        assert_eq!(table.price_microusd("a/b", &cached), Some(1_250 + 2_000), "without a price for cached tokens");
    }

    #[test]
    fn cached_tokens_have_prices_of_their_own() {
        let table = PriceTable::empty().with(CACHED).unwrap();
        let tokens = TokenUsage { cached_input: Some(500), cache_write: Some(300), ..usage(1_000, 100) };
        assert_eq!(table.price_microusd("a/b", &tokens), Some(400 + 100 + 750 + 1_000));
        let reasoned = TokenUsage { reasoning: Some(60), ..tokens };
        assert_eq!(table.price_microusd("a/b", &reasoned), table.price_microusd("a/b", &tokens));
        let wrong = TokenUsage { cached_input: Some(5_000), cache_write: Some(9), ..usage(1_000, 100) };
        assert_eq!(table.price_microusd("a/b", &wrong), Some(200 + 1_000));
    }

    #[test]
    fn a_long_prompt_has_prices_of_its_own() {
        let table = PriceTable::empty().with(CACHED).unwrap();
        let tokens = TokenUsage { cached_input: Some(1_000), ..usage(1_001, 100) };
        assert_eq!(table.price_microusd("a/b", &tokens), Some(4 + 400 + 1_500));
    }

    #[test]
    fn the_highest_price_is_that_of_a_prompt_that_is_written_to_the_cache() {
        let table = PriceTable::empty().with(CACHED).unwrap();
        assert_eq!(table.most_microusd("a/b", 1_000, 100), Some(2_500 + 1_000));
        assert_eq!(table.most_microusd("a/b", 2_000, 100), Some(10_000 + 1_500));
        assert_eq!(table.most_microusd("a/c", 1, 1), None);
    }

    #[test]
    fn an_unknown_price_or_count_is_unknown() {
        let table = PriceTable::built_in().unwrap();
        assert_eq!(table.price_microusd("vllm/mine", &usage(1, 1)), None);
        assert_eq!(table.price_microusd("openai/gpt-5", &TokenUsage { input: None, ..usage(1, 1) }), None);
        assert!(table.price_microusd("openai/gpt-5", &usage(1_000, 1)).is_some());
    }

    #[test]
    fn every_built_in_price_says_when_and_where_it_was_looked_up() {
        let file: toml::Table = toml::from_str(BUILT_IN).unwrap();
        let entries = file["price"].as_array().unwrap();
        for entry in entries {
            let source = entry.get("source").and_then(toml::Value::as_str).unwrap_or_default();
            assert!(entry.get("as_of").is_some() && source.starts_with("https://"), "{entry}");
        }
        let table = PriceTable::built_in().unwrap();
        assert_eq!(table.prices.len(), entries.len(), "a model is listed twice");
        for (model, price) in &table.prices {
            for rates in [Some(price.usual), price.long.map(|(_, rates)| rates)].into_iter().flatten() {
                assert!(rates.cached_input <= rates.input && rates.input <= rates.cache_write, "{model}");
            }
        }
    }

    #[test]
    fn a_local_model_is_free_only_when_the_user_says_so() {
        let table = PriceTable::built_in().unwrap().with(LOCAL).unwrap();
        assert_eq!(table.price_microusd("vllm/mine", &usage(1, 1)), Some(0));
    }

    #[test]
    fn a_table_with_a_negative_price_is_refused() {
        for line in ["input_usd = -1", "input_usd = 1\ncached_input_usd = -1"] {
            let error = PriceTable::empty().with(&format!("[[price]]\nmodel = 'a/b'\noutput_usd = 0\n{line}"));
            assert!(matches!(error, Err(PriceError::NoPrice { .. })), "{error:?}");
        }
    }
}
