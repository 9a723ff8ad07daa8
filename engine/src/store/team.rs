//! The part of the port about what people leave beside campaigns, runs and attempts. Nothing here decides about a run.
//!
//! What belongs to a campaign or run that does not exist is refused; with its campaign or run it is deleted. Whether a
//! run has an attempt of some number is not known here.

use async_trait::async_trait;
use nightshift_protocol::api::{Pin, Remark, SavedView, Share, Tag, Target};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RemarkId, SavedViewId, ShareId};
use nightshift_protocol::time::TimestampMs;

use super::{PageRequest, StoreError};

/// What a list is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Among {
    /// Only what is about this; about everything without it.
    pub target: Option<Target>,
    /// Whether what is about the runs and attempts of the target counts, too.
    pub within: bool,
    /// Only this tag.
    pub tag: Option<String>,
}

/// An entry of a list with its place there, which is the cursor of what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// Its place.
    pub place: u64,
    /// The entry.
    pub item: T,
}

/// A link, when its secret is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRecord {
    /// As in a list.
    pub view: Share,
    /// blake3 of the secret, as hexadecimal digits.
    pub secret_hash: String,
}

/// Notes, tags, pins, views and links. Lists are newest first.
#[async_trait]
pub trait TeamStore: Send + Sync {
    /// Notes.
    async fn list_remarks(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Remark>>, StoreError>;

    /// One note.
    async fn load_remark(&self, id: &RemarkId) -> Result<Remark, StoreError>;

    /// Changes the text of a note.
    async fn edit_remark(&self, id: &RemarkId, text: &str, at: TimestampMs) -> Result<(), StoreError>;

    /// Deletes a note; deleting it again is fine.
    async fn delete_remark(&self, id: &RemarkId) -> Result<(), StoreError>;

    /// Puts tags there, all by one author, and takes others away. Refuses (`tag.too_many`) to leave a target with more
    /// than `limit`.
    async fn change_tags(&self, add: Vec<Tag>, remove: Vec<(Target, String)>, limit: u32) -> Result<(), StoreError>;

    /// Tags.
    async fn list_tags(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Tag>>, StoreError>;

    /// Every tag with the number of its targets, the most used first.
    async fn tag_names(&self, limit: u32) -> Result<Vec<(String, u64)>, StoreError>;

    /// Pins something, or changes its label. The campaign of the pin is found by its target.
    async fn set_pin(&self, pin: Pin) -> Result<(), StoreError>;

    /// Lets something go; letting it go again is fine.
    async fn remove_pin(&self, target: &Target) -> Result<(), StoreError>;

    /// Pins.
    async fn list_pins(&self, among: &Among, page: &PageRequest) -> Result<Vec<Placed<Pin>>, StoreError>;

    /// Views of this owner, and those that are shared; of one page.
    async fn list_views(
        &self,
        owner: &str,
        of_page: Option<&str>,
        page: &PageRequest,
    ) -> Result<Vec<Placed<SavedView>>, StoreError>;

    /// One view.
    async fn load_view(&self, id: &SavedViewId) -> Result<SavedView, StoreError>;

    /// Changes name, page, query and whether it is shared.
    async fn edit_view(&self, view: SavedView) -> Result<(), StoreError>;

    /// Deletes a view; deleting it again is fine.
    async fn delete_view(&self, id: &SavedViewId) -> Result<(), StoreError>;

    /// Links, those that are over, too.
    async fn list_shares(&self, page: &PageRequest) -> Result<Vec<Placed<Share>>, StoreError>;

    /// One link, also when it is over.
    async fn load_share(&self, id: &ShareId) -> Result<Share, StoreError>;

    /// The link of this secret, also when it is over.
    async fn find_share(&self, secret_hash: &str) -> Result<Option<Share>, StoreError>;

    /// Ends a link; ending it again is fine.
    async fn revoke_share(&self, id: &ShareId, at: TimestampMs) -> Result<(), StoreError>;

    /// Whether a run of this campaign, or this very run, names the artifact.
    async fn names_artifact(&self, target: &Target, hash: &ArtifactHash) -> Result<bool, StoreError>;

    /// The campaign of a target that exists.
    async fn campaign_of(&self, target: &Target) -> Result<CampaignId, StoreError>;
}
