//! Model calls.

use async_trait::async_trait;
use nightshift_engine::store::{ModelCallRecord, ModelCallStore, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::artifact::{self, Whole};
use crate::catalog::model_call;
use crate::catalog::piece::{NewPiece, length};
use crate::store::SqlStore;

#[async_trait]
impl ModelCallStore for SqlStore {
    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError> {
        read!(self, |connection| model_call::find(connection, run, step_key, turn, request_hash))
    }

    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let mut wholes = Vec::with_capacity(artifacts.len());
        for (hash, bytes) in artifacts {
            artifact::check_size(length(&bytes), self.artifacts.max_artifact_bytes)?;
            artifact::check(&hash, &bytes)?;
            // Prompts repeat: the object of a stored one is not written again.
            let is_outside = self.belongs_outside(bytes.len());
            let head = if is_outside { self.renew_row(&hash, call.at).await? } else { None };
            // An object store that does not answer must not lose a reply, which was paid.
            let lost = self.find_lost(head).await.unwrap_or_default();
            let is_stored = lost.is_none() && head.is_some_and(|head| head.progress.complete);
            let piece = if is_stored { None } else { Some(self.piece_or_chunk(&hash, bytes, call.at).await) };
            wholes.push(Whole { hash, piece, lost });
        }
        let loose: Vec<i64> =
            wholes.iter().filter_map(|whole| whole.piece.as_ref().and_then(NewPiece::object)).collect();
        let stored = transaction!(self, |tx, call, wholes| model_call::record(tx, call, wholes));
        self.give_up_unless(stored, &loose).await
    }
}

impl SqlStore {
    /// Prepares the bytes of a reply, which was paid. When the object store does not take them, the database does; they are moved at the
    /// next start.
    async fn piece_or_chunk(&self, hash: &ArtifactHash, bytes: Vec<u8>, at: TimestampMs) -> NewPiece {
        match self.new_piece(hash, 0, &bytes, at).await {
            Ok(piece) => piece,
            Err(error) => {
                tracing::warn!(error = %error, artifact.hash = %hash, "the database keeps a reply that the object store did not take");
                NewPiece::Chunk(bytes)
            }
        }
    }
}
