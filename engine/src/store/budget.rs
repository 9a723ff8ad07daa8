//! Budgets of campaigns.

use async_trait::async_trait;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine};
use nightshift_protocol::id::{CampaignId, StepId};
use nightshift_protocol::time::TimestampMs;

use super::StoreError;

/// Outcome of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// The amount is reserved for the step.
    Granted,
    /// Other steps have reserved the rest. Some of it may be released.
    Wait(BudgetLine),
    /// The campaign's budget does not suffice.
    Exhausted(BudgetLine),
    /// The lease was lost.
    LeaseLost,
}

/// Budgets of campaigns, with reservations before the work and settlements after it.
#[async_trait]
pub trait BudgetStore: Send + Sync {
    /// Returns the budget of a campaign: one line per resource.
    async fn load_budget(&self, campaign: &CampaignId) -> Result<Vec<BudgetLine>, StoreError>;

    /// Changes the caps of a campaign. Steps that waited for a budget are admitted again.
    async fn set_budget(&self, campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> Result<(), StoreError>;

    /// Reserves an amount for a leased step, before the work that may use it up.
    async fn reserve(
        &self,
        step: &StepId,
        epoch: u64,
        amounts: &[Amount],
        at: TimestampMs,
    ) -> Result<Reservation, StoreError>;

    /// Releases a reservation of [`Self::reserve`] and records the used part. For work that
    /// [`super::ModelCallStore::record_model_call`] does not record.
    async fn settle(
        &self,
        step: &StepId,
        epoch: u64,
        released: &[Amount],
        used: &[Amount],
        at: TimestampMs,
    ) -> Result<(), StoreError>;
}
