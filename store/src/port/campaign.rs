//! Campaigns.

use async_trait::async_trait;
use nightshift_engine::store::{CampaignRecord, CampaignStore, CreatedCampaign, NewCampaign, PageRequest, StoreError};
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{campaign, ids, schedule};
use crate::store::SqlStore;

#[async_trait]
impl CampaignStore for SqlStore {
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError> {
        transaction!(self, |tx, new| campaign::create(tx, new))
    }

    async fn list_campaigns(&self, page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError> {
        read!(self, |connection| campaign::list(connection, &page))
    }

    async fn load_campaign(&self, id: &CampaignId) -> Result<CampaignRecord, StoreError> {
        read!(self, |connection| campaign::load(connection, id))
    }

    async fn set_schedule(
        &self,
        campaign: &CampaignId,
        schedule: Option<Schedule>,
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        let campaign = campaign.clone();
        transaction!(self, |tx, campaign, schedule, at| schedule::set_schedule(tx, campaign, schedule.as_ref(), *at))
    }

    async fn set_weight(&self, campaign: &CampaignId, weight: u32, _at: TimestampMs) -> Result<(), StoreError> {
        let campaign = campaign.clone();
        transaction!(self, |tx, campaign, weight| schedule::set_weight(tx, campaign, *weight))
    }

    async fn find_ids(&self, text: &str, limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError> {
        read!(self, |connection| ids::find(connection, text, limit))
    }
}
