//! Scores of attempts that are computed later.

use nightshift_protocol::id::RunId;
use nightshift_protocol::score::{Rescore, RewardFormula, RunScores};

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Scores of a run's attempts that were computed after the run had made its own.
    pub async fn run_scores(&self, id: &RunId) -> Result<RunScores, ClientError> {
        self.get(self.url(&["runs", id.as_str(), "scores"], &[])).await
    }

    /// Scores a run's attempts anew under these formulas, all of them when none is named, and keeps the result.
    pub async fn rescore_run(&self, id: &RunId, formulas: &[RewardFormula]) -> Result<RunScores, ClientError> {
        let wish = Rescore { formulas: formulas.to_vec() };
        self.post(self.url(&["runs", id.as_str(), "scores"], &[]), &wish).await
    }
}
