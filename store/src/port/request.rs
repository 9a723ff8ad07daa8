//! Requests.

use async_trait::async_trait;
use nightshift_engine::store::{
    NewRequest, PageRequest, Placed, RequestAnswer, RequestFilter, RequestLease, RequestStanding, RequestStore,
    StoreError,
};
use nightshift_protocol::api::{LeasedRequest, RequestDetail, RequestView};
use nightshift_protocol::id::{RequestId, RunId};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::request;
use crate::store::SqlStore;

#[async_trait]
impl RequestStore for SqlStore {
    async fn open_request(&self, new: NewRequest) -> Result<RequestStanding, StoreError> {
        transaction!(self, |tx, new| request::open(tx, new))
    }

    async fn find_request(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<RequestStanding>, StoreError> {
        read!(self, |connection| request::find(connection, run, step_key, turn, request_hash))
    }

    async fn lease_request(
        &self,
        filter: RequestFilter,
        lease: RequestLease,
        at: TimestampMs,
    ) -> Result<Option<LeasedRequest>, StoreError> {
        transaction!(self, |tx, filter, lease, at| request::lease::take(tx, filter, lease, *at))
    }

    async fn answer_request(
        &self,
        id: &RequestId,
        lease: &str,
        answer: RequestAnswer,
        at: TimestampMs,
    ) -> Result<bool, StoreError> {
        let (id, lease) = (id.clone(), lease.to_owned());
        transaction!(self, |tx, id, lease, answer, at| request::answer::accept(tx, id, lease, answer, *at))
    }

    async fn extend_request(
        &self,
        id: &RequestId,
        lease: &str,
        until: TimestampMs,
        at: TimestampMs,
    ) -> Result<RequestView, StoreError> {
        let (id, lease) = (id.clone(), lease.to_owned());
        transaction!(self, |tx, id, lease, until, at| request::lease::extend(tx, id, lease, *until, *at))
    }

    async fn release_request(&self, id: &RequestId, lease: &str, at: TimestampMs) -> Result<(), StoreError> {
        let (id, lease) = (id.clone(), lease.to_owned());
        transaction!(self, |tx, id, lease, at| request::lease::release(tx, id, lease, *at))
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        waiting: bool,
        page: &PageRequest,
        at: TimestampMs,
    ) -> Result<Vec<Placed<RequestView>>, StoreError> {
        read!(self, |connection| request::list(connection, filter, waiting, page, at))
    }

    async fn load_request(&self, id: &RequestId, at: TimestampMs) -> Result<RequestDetail, StoreError> {
        read!(self, |connection| request::load(connection, id, at))
    }
}
