//! What tokens cost. An unknown price is unknown, never zero.

use std::collections::BTreeMap;

use serde::Deserialize;

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// `endpoint/model`.
    model: String,
    /// US dollars per million tokens of the prompt.
    input_usd: f64,
    /// US dollars per million tokens of the reply.
    output_usd: f64,
    /// When the price was looked up, for people.
    #[serde(default, rename = "as_of")]
    _as_of: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Price {
    input_usd: f64,
    output_usd: f64,
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
            let sane = |usd: f64| usd.is_finite() && (0.0..=MAX_USD_PER_MILLION).contains(&usd);
            if !sane(entry.input_usd) || !sane(entry.output_usd) {
                return Err(PriceError::NoPrice { model: entry.model });
            }
            self.prices.insert(entry.model, Price { input_usd: entry.input_usd, output_usd: entry.output_usd });
        }
        Ok(self)
    }

    /// The price of a call in millionths of a US dollar; none when the model or a number of tokens is unknown.
    #[must_use]
    pub fn price_microusd(&self, label: &str, input_tokens: Option<u64>, output_tokens: Option<u64>) -> Option<u64> {
        let price = self.prices.get(label)?;
        // Dollars per million tokens are millionths of a dollar per token.
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let exact = input_tokens? as f64 * price.input_usd + output_tokens? as f64 * price.output_usd;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative; a cast of a float saturates"
        )]
        let rounded = exact.round() as u64;
        Some(rounded)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    const LOCAL: &str = "[[price]]\nmodel = 'vllm/mine'\ninput_usd = 0\noutput_usd = 0\n";

    #[test]
    fn a_price_is_tokens_times_rate() {
        let table = PriceTable::empty()
            .with("[[price]]\nmodel = 'a/b'\ninput_usd = 1.25\noutput_usd = 10.0\nas_of = '2025-11-01'")
            .unwrap();
        assert_eq!(table.price_microusd("a/b", Some(1_000), Some(200)), Some(1_250 + 2_000));
    }

    #[test]
    fn an_unknown_price_or_count_is_unknown() {
        let table = PriceTable::built_in().unwrap();
        assert_eq!(table.price_microusd("vllm/mine", Some(1), Some(1)), None);
        assert_eq!(table.price_microusd("openai/gpt-5", None, Some(1)), None);
        assert!(table.price_microusd("openai/gpt-5", Some(1_000), Some(1)).is_some());
    }

    #[test]
    fn a_local_model_is_free_only_when_the_user_says_so() {
        let table = PriceTable::built_in().unwrap().with(LOCAL).unwrap();
        assert_eq!(table.price_microusd("vllm/mine", Some(1), Some(1)), Some(0));
    }

    #[test]
    fn a_table_with_a_negative_price_is_refused() {
        let error = PriceTable::empty().with("[[price]]\nmodel = 'a/b'\ninput_usd = -1\noutput_usd = 0").unwrap_err();
        assert!(matches!(error, PriceError::NoPrice { .. }));
    }
}
