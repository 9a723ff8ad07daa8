//! Annotations of people on campaigns, runs and attempts. Nothing here decides about a run.
//!
//! An annotation of a missing campaign or run is refused. Deleting a campaign or run deletes its annotations. The store
//! does not check whether a run has an attempt of some number.

use async_trait::async_trait;
use nightshift_protocol::api::{Pin, Remark, SavedView, Share, Tag, Target};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RemarkId, SavedViewId, ShareId};
use nightshift_protocol::time::TimestampMs;

use super::{PageRequest, StoreError};

/// The scope of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Among {
    /// Only annotations of this target. None for all targets.
    pub target: Option<Target>,
    /// Whether annotations of the runs and attempts of the target count, too.
    pub within: bool,
    /// Only this tag.
    pub tag: Option<String>,
}

/// An entry of a list with its place, which is the cursor for the following entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// Its place.
    pub place: u64,
    /// The entry.
    pub item: T,
}

/// A link with the hash of its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRecord {
    /// The view in lists.
    pub view: Share,
    /// blake3 of the secret, as hexadecimal digits.
    pub secret_hash: String,
}

/// Notes, tags, pins, views and links. Lists are newest first.
#[async_trait]
pub trait TeamStore: Send + Sync {
    /// Lists notes.
    async fn list_remarks(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Remark>>, StoreError>;

    /// Loads one note.
    async fn load_remark(&self, id: &RemarkId) -> Result<Remark, StoreError>;

    /// Changes the text of a note.
    async fn edit_remark(&self, id: &RemarkId, text: &str, at: TimestampMs) -> Result<(), StoreError>;

    /// Deletes a note. Repeating it changes nothing.
    async fn delete_remark(&self, id: &RemarkId) -> Result<(), StoreError>;

    /// Adds tags, all by one author, and removes others. Refuses (`tag.too_many`) to leave a target with more than
    /// `limit` tags.
    async fn change_tags(&self, add: Vec<Tag>, remove: Vec<(Target, String)>, limit: u32) -> Result<(), StoreError>;

    /// Lists tags.
    async fn list_tags(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Tag>>, StoreError>;

    /// Lists every tag with the number of its targets, the most used first.
    async fn tag_names(&self, limit: u32) -> Result<Vec<(String, u64)>, StoreError>;

    /// Pins a target, or changes the label of its pin. The store finds the campaign of the pin by its target.
    async fn set_pin(&self, pin: Pin) -> Result<(), StoreError>;

    /// Removes a pin. Repeating it changes nothing.
    async fn remove_pin(&self, target: &Target) -> Result<(), StoreError>;

    /// Lists pins.
    async fn list_pins(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Pin>>, StoreError>;

    /// Lists the views of this owner and shared views, optionally of one page.
    async fn list_views(
        &self,
        owner: &str,
        of_page: Option<&str>,
        page: &PageRequest,
    ) -> Result<Vec<Placed<SavedView>>, StoreError>;

    /// Loads one view.
    async fn load_view(&self, id: &SavedViewId) -> Result<SavedView, StoreError>;

    /// Changes name, page, query and sharing of a view.
    async fn edit_view(&self, view: SavedView) -> Result<(), StoreError>;

    /// Deletes a view. Repeating it changes nothing.
    async fn delete_view(&self, id: &SavedViewId) -> Result<(), StoreError>;

    /// Lists links, including ended ones.
    async fn list_shares(&self, page: &PageRequest) -> Result<Vec<Placed<Share>>, StoreError>;

    /// Loads one link, including an ended one.
    async fn load_share(&self, id: &ShareId) -> Result<Share, StoreError>;

    /// Finds the link of this secret, including an ended one.
    async fn find_share(&self, secret_hash: &str) -> Result<Option<Share>, StoreError>;

    /// Ends a link. Repeating it changes nothing.
    async fn revoke_share(&self, id: &ShareId, at: TimestampMs) -> Result<(), StoreError>;

    /// Returns whether the run, or any run of the campaign, references the artifact.
    async fn names_artifact(&self, target: &Target, hash: &ArtifactHash) -> Result<bool, StoreError>;

    /// Returns the campaign of an existing target.
    async fn campaign_of(&self, target: &Target) -> Result<CampaignId, StoreError>;
}
