//! Scores of attempts that are computed after the run.

use nightshift_protocol::id::RunId;
use nightshift_protocol::score::{Rescore, RewardFormula, RunScores};

use crate::error::ClientError;
use crate::transport::Client;

impl Client {
    /// Returns the scores of a run's attempts that were computed after the run.
    pub async fn run_scores(&self, id: &RunId) -> Result<RunScores, ClientError> {
        self.get(self.url(&["runs", id.as_str(), "scores"], &[])).await
    }

    /// Computes the scores of a run's attempts again with these formulas, or with all, and stores them.
    pub async fn rescore_run(&self, id: &RunId, formulas: &[RewardFormula]) -> Result<RunScores, ClientError> {
        let wish = Rescore { formulas: formulas.to_vec() };
        self.post(self.url(&["runs", id.as_str(), "scores"], &[]), &wish).await
    }
}
