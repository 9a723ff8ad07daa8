//! Secret random numbers.

use rand::{Rng, RngExt, SeedableRng, TryRng};
use rand_chacha::ChaCha12Rng;

/// Random numbers that no program can predict: started from the randomness of the operating system for each step.
#[derive(Debug, Clone)]
pub struct SecretSeeds(ChaCha12Rng);

impl SecretSeeds {
    /// Starts from the randomness of the operating system.
    pub fn from_os() -> std::io::Result<Self> {
        let mut seed = [0_u8; 32];
        rand::rngs::SysRng.try_fill_bytes(&mut seed).map_err(std::io::Error::other)?;
        Ok(Self(ChaCha12Rng::from_seed(seed)))
    }

    /// Starts from a number: repeatable, for draws and tests.
    #[must_use]
    pub fn fixed(seed: u64) -> Self {
        Self(ChaCha12Rng::seed_from_u64(seed))
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below another one; 0 below 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.draw() >> 32).unwrap_or(0) % limit.max(1)
    }

    /// Returns true or false with equal probability.
    pub fn flip(&mut self) -> bool {
        self.0.random()
    }
}
