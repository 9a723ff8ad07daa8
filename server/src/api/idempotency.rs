//! Idempotency keys: a request is carried out once per key, and a repetition gets the same answer.
//!
//! The key and the answer are stored in the transaction of the request. Answers may contain secrets, which the database
//! otherwise stores only as hashes. Therefore they are encrypted with the caller's credentials and the key.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nightshift_engine::store::{Creation, Once, StoreError};
use nightshift_protocol::api::IDEMPOTENCY_HEADER;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ApiFailure;
use crate::extract::Body;
use crate::shared::Shared;

/// Maximum length of an idempotency key.
const MAX_IDEMPOTENCY_KEY_CHARS: usize = 128;
/// Context for deriving the encryption keys of answers.
const SEAL_CONTEXT: &str = "nightshift 2026-11-26 answers of creating calls";

/// Returns the caller's key.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiFailure> {
    let Some(value) = headers.get(IDEMPOTENCY_HEADER) else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=MAX_IDEMPOTENCY_KEY_CHARS).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(ApiFailure::bad(
            "request.invalid_idempotency_key",
            format!("the idempotency key must have 1 to {MAX_IDEMPOTENCY_KEY_CHARS} printable ASCII characters"),
        )),
    }
}

/// Returns the digest of a request in canonical form, without differences in spaces and field order.
pub(crate) fn digest(request: &impl Serialize) -> Result<String, ApiFailure> {
    let canonical = serde_json::to_vec(request)
        .map_err(|error| ApiFailure::bad("request.invalid", format!("the request cannot be stored: {error}")))?;
    Ok(blake3::hash(&canonical).to_hex().to_string())
}

/// The JSON body of a creating call, with the caller's key.
pub(crate) struct Creating<T> {
    /// The request.
    pub(crate) wish: T,
    /// Creates it, once per key.
    pub(crate) creator: Creator,
}

/// Creates one record, once per key.
pub(crate) struct Creator(Option<Keyed>);

struct Keyed {
    key: String,
    digest: String,
    seal: [u8; 32],
}

impl<S: Send + Sync, T: DeserializeOwned + Serialize + 'static> FromRequest<S> for Creating<T> {
    type Rejection = ApiFailure;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiFailure> {
        let key = idempotency_key(request.headers())?;
        let seal = key.as_deref().map(|key| seal_of(request.headers(), key));
        let path = request.uri().path().to_owned();
        let Body(wish) = Body::<T>::from_request(request, state).await?;
        let keyed = match key.zip(seal) {
            None => None,
            Some((key, seal)) => Some(Keyed { key, digest: digest(&(path, &wish))?, seal }),
        };
        Ok(Self { wish, creator: Creator(keyed) })
    }
}

impl Creator {
    /// Creates the record and returns the answer, or the first answer if this key was used for the same request.
    pub(crate) async fn create<T: Serialize + DeserializeOwned>(
        self,
        shared: &Arc<Shared>,
        creation: Creation,
        answer: T,
    ) -> Result<(StatusCode, Json<T>), ApiFailure> {
        let once = match &self.0 {
            None => None,
            Some(keyed) => Some(Once {
                key: keyed.key.clone(),
                digest: keyed.digest.clone(),
                answer: keyed.seal(&answer)?,
                at: shared.clock.now(),
            }),
        };
        let result = shared.store.creations.create(creation, once).await;
        shared.store_health.note_error(&result);
        let answer = match (result?, self.0) {
            (Some(first), Some(keyed)) => keyed.open(&first)?,
            _ => answer,
        };
        Ok((StatusCode::CREATED, Json(answer)))
    }
}

impl Keyed {
    fn seal(&self, answer: &impl Serialize) -> Result<String, ApiFailure> {
        let mut text = serde_json::to_vec(answer).map_err(|error| unsealed(&error))?;
        let nonce = self
            .sealing_key()?
            .seal_in_place_append_tag(Aad::from(self.digest.as_bytes()), &mut text)
            .map_err(|error| unsealed(&error))?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut text);
        Ok(BASE64_STANDARD.encode(sealed))
    }

    /// Decrypts the first answer. The answer of another caller cannot be decrypted and counts as another request.
    fn open<T: DeserializeOwned>(&self, first: &str) -> Result<T, ApiFailure> {
        let conflict = || ApiFailure::from(StoreError::IdempotencyConflict { key: self.key.clone() });
        let sealed = BASE64_STANDARD.decode(first).map_err(|error| unsealed(&error))?;
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or_else(|| unsealed(&"it is cut off"))?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|error| unsealed(&error))?;
        let mut text = text.to_vec();
        let opened = self
            .sealing_key()?
            .open_in_place(nonce, Aad::from(self.digest.as_bytes()), &mut text)
            .map_err(|_| conflict())?;
        serde_json::from_slice(opened).map_err(|error| unsealed(&error))
    }

    fn sealing_key(&self) -> Result<RandomizedNonceKey, ApiFailure> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.seal).map_err(|error| unsealed(&error))
    }
}

/// Returns the encryption key of an answer. It cannot be derived from the database without the caller's credentials.
fn seal_of(headers: &HeaderMap, key: &str) -> [u8; 32] {
    let mut deriving = blake3::Hasher::new_derive_key(SEAL_CONTEXT);
    for shown in [headers.get(AUTHORIZATION), headers.get(COOKIE)] {
        let shown = shown.map(axum::http::HeaderValue::as_bytes).unwrap_or_default();
        deriving.update(&u64::try_from(shown.len()).unwrap_or(u64::MAX).to_le_bytes()).update(shown);
    }
    *deriving.update(key.as_bytes()).finalize().as_bytes()
}

fn unsealed(error: &dyn std::fmt::Display) -> ApiFailure {
    ApiFailure::internal("internal.unwritable", format!("an answer cannot be kept for its idempotency key: {error}"))
}
