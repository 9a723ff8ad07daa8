//! Finds the runs of steps and of campaigns.

use crate::failure::Failure;
use crate::transaction::Transaction;
use crate::value::values;

/// Returns the runs of steps, each once.
pub(crate) async fn runs_of(transaction: &mut Transaction<'_>, step_ids: &[i64]) -> Result<Vec<i64>, Failure> {
    let sql = crate::sql::any_of!("SELECT DISTINCT run_id FROM step WHERE id", "$1", " ORDER BY run_id");
    let rows = transaction.connection.fetch_all(sql, values![step_ids.to_vec()]).await?;
    rows.iter().map(|row| row.i64(0)).collect()
}

/// Returns the runs of a campaign. Its creation stores them all, so none is added later.
pub(crate) async fn runs_of_campaign(transaction: &mut Transaction<'_>, campaign_id: i64) -> Result<Vec<i64>, Failure> {
    let rows =
        transaction.connection.fetch_all("SELECT id FROM run WHERE campaign_id = $1", values![campaign_id]).await?;
    rows.iter().map(|row| row.i64(0)).collect()
}
