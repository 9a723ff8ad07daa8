//! Tokens of a call.

/// Tokens of a call, as far as its endpoint reports them. An unknown count is none, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    /// Tokens of the prompt, those of the provider's cache included.
    pub input: Option<u64>,
    /// Tokens of the prompt that were read from the provider's cache.
    pub cached_input: Option<u64>,
    /// Tokens of the prompt that were written to the provider's cache.
    pub cache_write: Option<u64>,
    /// Tokens of the reply, those of the reasoning included.
    pub output: Option<u64>,
    /// Tokens of the reasoning.
    pub reasoning: Option<u64>,
}

impl TokenUsage {
    /// Takes every count that `later` knows. Reports within a stream are cumulative: the last one counts.
    pub(super) fn update(&mut self, later: Self) {
        self.input = later.input.or(self.input);
        self.cached_input = later.cached_input.or(self.cached_input);
        self.cache_write = later.cache_write.or(self.cache_write);
        self.output = later.output.or(self.output);
        self.reasoning = later.reasoning.or(self.reasoning);
    }
}
