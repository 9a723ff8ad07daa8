//! Budgets.

use async_trait::async_trait;
use nightshift_engine::store::{BudgetStore, Reservation, StoreError};
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine};
use nightshift_protocol::id::{CampaignId, StepId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::budget;
use crate::store::SqlStore;

#[async_trait]
impl BudgetStore for SqlStore {
    async fn load_budget(&self, campaign: &CampaignId) -> Result<Vec<BudgetLine>, StoreError> {
        read!(self, |connection| budget::load(connection, campaign))
    }

    async fn set_budget(&self, campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> Result<(), StoreError> {
        let campaign = campaign.clone();
        transaction!(self, |tx, campaign, caps, at| budget::set_caps(tx, campaign, caps, *at))
    }

    async fn reserve(
        &self,
        step: &StepId,
        epoch: u64,
        amounts: &[Amount],
        at: TimestampMs,
    ) -> Result<Reservation, StoreError> {
        let (step, amounts) = (step.clone(), amounts.to_vec());
        transaction!(self, |tx, step, epoch, amounts, at| budget::reserve(tx, step, *epoch, amounts, *at))
    }

    async fn settle(
        &self,
        step: &StepId,
        epoch: u64,
        released: &[Amount],
        used: &[Amount],
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        let (step, released, used) = (step.clone(), released.to_vec(), used.to_vec());
        transaction!(self, |tx, step, epoch, released, used, at| budget::settle(tx, step, *epoch, released, used, *at))
    }
}
