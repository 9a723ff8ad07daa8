//! Annotations of people.

use async_trait::async_trait;
use nightshift_engine::store::{Among, PageRequest, Placed, StoreError, TeamStore};
use nightshift_protocol::api::{Pin, Remark, SavedView, Share, Tag, Target};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RemarkId, SavedViewId, ShareId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::team::{self, pin, remark, share, tag, view};
use crate::store::SqlStore;

#[async_trait]
impl TeamStore for SqlStore {
    async fn list_remarks(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Remark>>, StoreError> {
        read!(self, |connection| remark::list(connection, among, page))
    }

    async fn load_remark(&self, id: &RemarkId) -> Result<Remark, StoreError> {
        read!(self, |connection| remark::load(connection, id))
    }

    async fn edit_remark(&self, id: &RemarkId, text: &str, at: TimestampMs) -> Result<(), StoreError> {
        let (id, text) = (id.clone(), text.to_owned());
        transaction!(self, |tx, id, text, at| remark::edit(tx, id, text, *at))
    }

    async fn delete_remark(&self, id: &RemarkId) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id| remark::delete(tx, id))
    }

    async fn change_tags(&self, add: Vec<Tag>, remove: Vec<(Target, String)>, limit: u32) -> Result<(), StoreError> {
        transaction!(self, |tx, add, remove, limit| tag::change(tx, add, remove, *limit))
    }

    async fn list_tags(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Tag>>, StoreError> {
        read!(self, |connection| tag::list(connection, among, page))
    }

    async fn tag_names(&self, limit: u32) -> Result<Vec<(String, u64)>, StoreError> {
        read!(self, |connection| tag::names(connection, limit))
    }

    async fn set_pin(&self, pin: Pin) -> Result<(), StoreError> {
        transaction!(self, |tx, pin| pin::set(tx, pin))
    }

    async fn remove_pin(&self, target: &Target) -> Result<(), StoreError> {
        let target = target.clone();
        transaction!(self, |tx, target| pin::remove(tx, target))
    }

    async fn list_pins(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Pin>>, StoreError> {
        read!(self, |connection| pin::list(connection, among, page))
    }

    async fn list_views(
        &self,
        owner: &str,
        of_page: Option<&str>,
        page: &PageRequest,
    ) -> Result<Vec<Placed<SavedView>>, StoreError> {
        read!(self, |connection| view::list(connection, owner, of_page, page))
    }

    async fn load_view(&self, id: &SavedViewId) -> Result<SavedView, StoreError> {
        read!(self, |connection| view::load(connection, id))
    }

    async fn edit_view(&self, view: SavedView) -> Result<(), StoreError> {
        transaction!(self, |tx, view| view::edit(tx, view))
    }

    async fn delete_view(&self, id: &SavedViewId) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id| view::delete(tx, id))
    }

    async fn list_shares(&self, page: &PageRequest) -> Result<Vec<Placed<Share>>, StoreError> {
        read!(self, |connection| share::list(connection, page))
    }

    async fn load_share(&self, id: &ShareId) -> Result<Share, StoreError> {
        read!(self, |connection| share::load(connection, id))
    }

    async fn find_share(&self, secret_hash: &str) -> Result<Option<Share>, StoreError> {
        read!(self, |connection| share::find(connection, secret_hash))
    }

    async fn revoke_share(&self, id: &ShareId, at: TimestampMs) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, at| share::revoke(tx, id, *at))
    }

    async fn names_artifact(&self, target: &Target, hash: &ArtifactHash) -> Result<bool, StoreError> {
        read!(self, |connection| team::names_artifact(connection, target, hash))
    }

    async fn campaign_of(&self, target: &Target) -> Result<CampaignId, StoreError> {
        read!(self, |connection| team::campaign_of(connection, target))
    }
}
