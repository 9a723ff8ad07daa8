//! Annotations of people on campaigns, runs and attempts: notes, tags, pins, views, links.

use nightshift_protocol::api::{
    ChangeTags, CreateShare, EditRemark, NewRemark, Page, Pin, PutSavedView, Remark, SavedView, SetPin, Share,
    ShareCreated, Tag, TagCount, Target,
};
use nightshift_protocol::id::{RemarkId, SavedViewId, ShareId};
use reqwest::Method;

use crate::error::ClientError;
use crate::transport::Client;

/// The scope of a list: a target, and whether annotations of its runs and attempts count, too.
type About<'a> = Option<(&'a Target, bool)>;

fn about(target: About<'_>, limit: Option<u32>, before: Option<&str>) -> [(&'static str, Option<String>); 4] {
    [
        ("target", target.map(|(target, _)| target.to_string())),
        ("within", target.filter(|(_, within)| *within).map(|_| "true".to_owned())),
        ("limit", limit.map(|limit| limit.to_string())),
        ("before", before.map(str::to_owned)),
    ]
}

impl Client {
    /// Lists notes, newest first: all, or those about a target (with `true`, also about its runs and attempts).
    pub async fn notes(
        &self,
        target: About<'_>,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<Remark>, ClientError> {
        self.get(self.url(&["notes"], &about(target, limit, before))).await
    }

    /// Creates a note.
    pub async fn add_note(&self, note: &NewRemark) -> Result<Remark, ClientError> {
        self.post(self.url(&["notes"], &[]), note).await
    }

    /// Replaces the text of a note.
    pub async fn edit_note(&self, id: &RemarkId, edit: &EditRemark) -> Result<Remark, ClientError> {
        let url = self.url(&["notes", id.as_str()], &[]);
        self.json(self.request(Method::PUT, url).json(edit)).await
    }

    /// Deletes a note.
    pub async fn delete_note(&self, id: &RemarkId) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, self.url(&["notes", id.as_str()], &[]))).await?;
        Ok(())
    }

    /// Lists tags with their targets, newest first.
    pub async fn tags(
        &self,
        target: About<'_>,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<Tag>, ClientError> {
        self.get(self.url(&["tags"], &about(target, limit, before))).await
    }

    /// Lists the targets of this tag, newest first.
    pub async fn tagged(&self, tag: &str, limit: Option<u32>) -> Result<Page<Tag>, ClientError> {
        let query = [("tag", Some(tag.to_owned())), ("limit", limit.map(|limit| limit.to_string()))];
        self.get(self.url(&["tags"], &query)).await
    }

    /// Lists the existing tags, the most used first.
    pub async fn tag_names(&self) -> Result<Vec<TagCount>, ClientError> {
        let page: Page<TagCount> = self.get(self.url(&["tags", "names"], &[])).await?;
        Ok(page.items)
    }

    /// Adds and removes tags. Returns the target's tags.
    pub async fn change_tags(&self, change: &ChangeTags) -> Result<Vec<Tag>, ClientError> {
        let page: Page<Tag> = self.post(self.url(&["tags"], &[]), change).await?;
        Ok(page.items)
    }

    /// Lists pins, newest first.
    pub async fn pins(
        &self,
        target: About<'_>,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<Pin>, ClientError> {
        self.get(self.url(&["pins"], &about(target, limit, before))).await
    }

    /// Sets or removes a pin. Returns the target's pin.
    pub async fn set_pin(&self, pin: &SetPin) -> Result<Option<Pin>, ClientError> {
        let page: Page<Pin> = self.post(self.url(&["pins"], &[]), pin).await?;
        Ok(page.items.into_iter().next())
    }

    /// Lists the caller's views and shared views, newest first, optionally of one page.
    pub async fn saved_views(
        &self,
        of_page: Option<&str>,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Page<SavedView>, ClientError> {
        let query = [
            ("page", of_page.map(str::to_owned)),
            ("limit", limit.map(|limit| limit.to_string())),
            ("before", before.map(str::to_owned)),
        ];
        self.get(self.url(&["views"], &query)).await
    }

    /// Creates a view.
    pub async fn save_view(&self, view: &PutSavedView) -> Result<SavedView, ClientError> {
        self.post(self.url(&["views"], &[]), view).await
    }

    /// Changes a view.
    pub async fn edit_view(&self, id: &SavedViewId, view: &PutSavedView) -> Result<SavedView, ClientError> {
        let url = self.url(&["views", id.as_str()], &[]);
        self.json(self.request(Method::PUT, url).json(view)).await
    }

    /// Deletes a view.
    pub async fn delete_view(&self, id: &SavedViewId) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, self.url(&["views", id.as_str()], &[]))).await?;
        Ok(())
    }

    /// Lists links, newest first, including ended ones.
    pub async fn shares(&self, limit: Option<u32>, before: Option<&str>) -> Result<Page<Share>, ClientError> {
        let query = [("limit", limit.map(|limit| limit.to_string())), ("before", before.map(str::to_owned))];
        self.get(self.url(&["shares"], &query)).await
    }

    /// Creates a link to a campaign or a run. Only this answer contains its secret. Repeating the call with the same
    /// key creates no second one.
    pub async fn create_share(&self, share: &CreateShare, idempotency_key: &str) -> Result<ShareCreated, ClientError> {
        self.create(self.url(&["shares"], &[]), share, idempotency_key).await
    }

    /// Ends a link. Repeating it is safe.
    pub async fn revoke_share(&self, id: &ShareId) -> Result<Share, ClientError> {
        let url = self.url(&["shares", id.as_str(), "revoke"], &[]);
        self.json(self.request(Method::POST, url)).await
    }
}
