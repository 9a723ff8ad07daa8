//! Hand-overs.

use async_trait::async_trait;
use nightshift_engine::store::{
    FinishedHandover, HandoverRecord, HandoverStore, NewHandover, ReturnedHandover, StoreError,
};
use nightshift_protocol::id::{CampaignId, HandoverId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::handover;
use crate::store::SqlStore;

#[async_trait]
impl HandoverStore for SqlStore {
    async fn begin_handover(&self, new: NewHandover) -> Result<HandoverRecord, StoreError> {
        transaction!(self, |tx, new| handover::begin(tx, new))
    }

    async fn check_out(&self, id: &HandoverId, by_force: bool, at: TimestampMs) -> Result<HandoverRecord, StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, by_force, at| handover::check_out(tx, id, *by_force, *at))
    }

    async fn load_handover(&self, id: &HandoverId) -> Result<HandoverRecord, StoreError> {
        read!(self, |connection| handover::load(connection, id))
    }

    async fn open_handovers(&self, campaign: Option<&CampaignId>) -> Result<Vec<HandoverRecord>, StoreError> {
        read!(self, |connection| handover::open(connection, campaign))
    }

    async fn cancel_handover(
        &self,
        campaign: &CampaignId,
        by: &str,
        at: TimestampMs,
    ) -> Result<HandoverRecord, StoreError> {
        let (campaign, by) = (campaign.clone(), by.to_owned());
        transaction!(self, |tx, campaign, by, at| handover::cancel(tx, campaign, by, *at))
    }

    async fn finish_handover(&self, returned: ReturnedHandover) -> Result<FinishedHandover, StoreError> {
        transaction!(self, |tx, returned| handover::finish::finish(tx, returned))
    }
}
