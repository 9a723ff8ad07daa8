//! `GET /campaigns/{id}/archive` and `POST /import`: a campaign as one file, for backup or for another server.
//!
//! The export holds some rows and one artifact in memory; the import holds the rows and one artifact.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::stream;
use nightshift_engine::store::{CampaignArchive, StoreError};
use nightshift_protocol::api::CampaignCreated;
use nightshift_protocol::archive::{
    ARCHIVE_FORMAT, ARCHIVE_MEDIA_TYPE, ARCHIVE_VERSION, ArchiveError, ArchiveLine, ArchiveReader, ArtifactPart,
    Manifest,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::CampaignId;
use tokio::sync::mpsc;
use zstd::stream::write::Encoder;

use crate::actor::Actor;
use crate::api::archive_spool::{Spool, SpoolError, Spooled};
use crate::api::refused_file::refused;
use crate::api::unpack::{UnpackError, Unpacker};
use crate::attempt_index::Index;
use crate::error::ApiFailure;
use crate::extract::IdPath;
use crate::shared::Shared;

/// Maximum size of an imported archive, in bytes as sent.
pub const MAX_ARCHIVE_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// Timeout of an archive transfer.
pub const MAX_ARCHIVE_TIMEOUT: Duration = Duration::from_hours(1);
/// Maximum time without progress of the archive's reader.
const MAX_STALL: Duration = Duration::from_mins(1);
/// Compression level.
const LEVEL: i32 = 3;
/// Bytes collected per sent chunk.
const CHUNK_BYTES: usize = 256 * 1024;
/// Maximum number of chunks that wait for the reader.
const MAX_CHUNKS: usize = 8;
/// Size from which an artifact is written in parts of this size: earlier releases read none that are larger.
const ARTIFACT_PART_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of compressed rows read at a time.
const PART_BYTES: u64 = 256 * 1024;

/// Exports a snapshot of the campaign as an archive.
pub(crate) async fn export(
    State(shared): State<Arc<Shared>>,
    IdPath(id): IdPath<CampaignId>,
    actor: Actor,
) -> Result<Response, ApiFailure> {
    let (spooled, manifest, _) = collect(&shared, &id, &BTreeSet::new()).await?;
    let first = ArchiveLine::Manifest(manifest.clone()).to_text().map_err(|error| refused(&error.into()))?;
    tracing::info!(campaign.id = %id, by = actor.name(), "a campaign is exported");
    Ok(answer(shared, spooled, first, manifest.digest, &format!("{id}.nightshift.zst")))
}

/// Collects a snapshot of the campaign's rows into a file. Artifacts are read when they are sent.
///
/// Artifacts in `without` that the rows reference and the store has are omitted. The header lists them, because the
/// other machine does not return them.
pub(crate) async fn collect(
    shared: &Shared,
    id: &CampaignId,
    without: &BTreeSet<ArtifactHash>,
) -> Result<(Spooled, Manifest, Vec<ArtifactHash>), ApiFailure> {
    let spool = Arc::new(Spool::new(LEVEL).map_err(|error| unkept(&error))?);
    shared.store.archives.export_rows(id, spool.clone()).await?;
    let mut spooled = spool.finish().await.map_err(|error| unkept(&error))?;
    let left_out: Vec<ArtifactHash>;
    (left_out, spooled.artifacts) =
        stored(shared, spooled.artifacts).await?.into_iter().partition(|hash| without.contains(hash));
    for hash in &spooled.artifacts {
        spooled.digest.artifact(hash);
    }
    let manifest = Manifest {
        format: ARCHIVE_FORMAT.to_owned(),
        version: ARCHIVE_VERSION,
        campaign: id.clone(),
        exported_at: shared.clock.now(),
        rows: spooled.rows,
        artifacts: u64::try_from(spooled.artifacts.len()).unwrap_or(u64::MAX),
        digest: spooled.digest.text(),
    };
    Ok((spooled, manifest, left_out))
}

/// Sends the first lines, the rows, the artifacts and the last line while compressing them.
pub(crate) fn answer(shared: Arc<Shared>, spooled: Spooled, first: String, digest: String, name: &str) -> Response {
    let (chunks, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(MAX_CHUNKS);
    tokio::spawn(async move {
        if let Err(error) = write(&shared, spooled, first, digest, &chunks).await {
            tracing::warn!(error = %error, "an archive was cut off; its reader detects the missing end");
            // The reader may be gone.
            let _ = chunks.try_send(Err(std::io::Error::other(error)));
        }
    });
    let stream =
        stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|chunk| (chunk, receiver)) });
    let mut response = Body::from_stream(stream).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(ARCHIVE_MEDIA_TYPE));
    if let Ok(name) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(CONTENT_DISPOSITION, name);
    }
    response
}

/// Returns the stored ones among these artifacts. Rows may also name artifacts that a worker never uploaded, and hashes
/// of other things.
async fn stored(shared: &Shared, named: Vec<ArtifactHash>) -> Result<Vec<ArtifactHash>, StoreError> {
    let mut stored = Vec::with_capacity(named.len());
    for hash in named {
        match shared.store.artifacts.artifact_progress(&hash).await? {
            Some(progress) if progress.complete => stored.push(hash),
            _ => tracing::debug!(artifact.hash = %hash, "a row references a missing artifact; the archive omits it"),
        }
    }
    Ok(stored)
}

/// Why an archive was not written completely.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Format(#[from] ArchiveError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("it could not be compressed: {0}")]
    Compress(#[from] std::io::Error),
    #[error("its reader disconnected or stalled")]
    Gone,
}

type Chunks = mpsc::Sender<Result<Bytes, std::io::Error>>;

/// Writes three zstd frames, which readers treat as one: the first lines, the collected rows, and the rest.
async fn write(
    shared: &Shared,
    mut spooled: Spooled,
    first: String,
    digest: String,
    chunks: &Chunks,
) -> Result<(), WriteError> {
    let first = Packer::new()?.text(move || Ok(first), chunks).await?;
    send(first.finish().await?, chunks).await?;
    loop {
        let (rest, part) = spooled.part(PART_BYTES).await?;
        spooled = rest;
        if part.is_empty() {
            break;
        }
        send(part, chunks).await?;
    }
    let mut packer = Packer::new()?;
    for hash in spooled.artifacts {
        packer = write_artifact(shared, packer, hash, chunks).await?;
    }
    packer = packer.text(|| ArchiveLine::End { digest }.to_text(), chunks).await?;
    send(packer.finish().await?, chunks).await
}

/// Writes an artifact, in parts if it is large.
async fn write_artifact(
    shared: &Shared,
    mut packer: Packer,
    hash: ArtifactHash,
    chunks: &Chunks,
) -> Result<Packer, WriteError> {
    let size_bytes = shared.store.artifacts.artifact_progress(&hash).await?.map_or(0, |progress| progress.size_bytes);
    if size_bytes <= ARTIFACT_PART_BYTES {
        let bytes = shared.store.artifacts.get_artifact(&hash).await?;
        return packer.text(move || ArchiveLine::artifact(hash, &bytes).to_text(), chunks).await;
    }
    let mut offset = 0;
    while offset < size_bytes {
        let bytes = shared.store.artifacts.read_artifact(&hash, offset, ARTIFACT_PART_BYTES).await?;
        if bytes.is_empty() {
            return Err(StoreError::NotFound { noun: "artifact", id: hash.to_string() }.into());
        }
        let part = ArtifactPart { offset, size_bytes };
        offset += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let hash = hash.clone();
        packer = packer.text(move || ArchiveLine::artifact_part(hash, part, &bytes).to_text(), chunks).await?;
    }
    Ok(packer)
}

/// Compresses outside of the runtime's threads, because a large artifact takes long.
struct Packer {
    encoder: Encoder<'static, Vec<u8>>,
}

impl Packer {
    fn new() -> Result<Self, WriteError> {
        Ok(Self { encoder: Encoder::new(Vec::new(), LEVEL)? })
    }

    async fn finish(self) -> Result<Vec<u8>, WriteError> {
        Ok(tokio::task::spawn_blocking(move || self.encoder.finish()).await.map_err(|_| WriteError::Gone)??)
    }

    async fn text(
        mut self,
        text: impl FnOnce() -> Result<String, ArchiveError> + Send + 'static,
        chunks: &Chunks,
    ) -> Result<Self, WriteError> {
        let packing = tokio::task::spawn_blocking(move || {
            self.encoder.write_all(text()?.as_bytes())?;
            Ok::<_, WriteError>(self)
        });
        let mut packer = packing.await.map_err(|_| WriteError::Gone)??;
        if packer.encoder.get_ref().len() >= CHUNK_BYTES {
            send(std::mem::take(packer.encoder.get_mut()), chunks).await?;
        }
        Ok(packer)
    }
}

async fn send(bytes: Vec<u8>, chunks: &Chunks) -> Result<(), WriteError> {
    match tokio::time::timeout(MAX_STALL, chunks.send(Ok(Bytes::from(bytes)))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(WriteError::Gone),
    }
}

/// Rebuilds a campaign from its archive. Artifacts of a bad archive stay unreferenced and are pruned later.
pub(crate) async fn import(
    State(shared): State<Arc<Shared>>,
    State(index): State<Arc<Index>>,
    actor: Actor,
    body: Body,
) -> Result<(StatusCode, Json<CampaignCreated>), ApiFailure> {
    let unpacked =
        Unpacker::<ArchiveReader>::new(&shared, MAX_ARCHIVE_BYTES).unpack(body).await.map_err(not_unpacked)?;
    let archive = CampaignArchive { rows: unpacked.rows, artifacts: unpacked.artifacts };
    let result = shared.store.archives.import_campaign(archive, shared.clock.now()).await;
    shared.store_health.note_error(&result);
    let created = result?;
    index.inbox.look();
    tracing::info!(campaign.id = %created.id, existed = created.existed, by = actor.name(), "a campaign was imported");
    let status = if created.existed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(CampaignCreated { campaign: created.id, runs: created.runs, existed: created.existed })))
}

fn unkept(error: &SpoolError) -> ApiFailure {
    ApiFailure::new(StatusCode::INSUFFICIENT_STORAGE, "archive.not_kept", error.to_string())
}

/// Returns why the file was not read.
pub(crate) fn not_unpacked(error: UnpackError) -> ApiFailure {
    match error {
        UnpackError::File(error) => refused(&error),
        UnpackError::Store(error) => error.into(),
        UnpackError::Refused(failure) => failure,
        UnpackError::Incomplete => ApiFailure::bad("request.incomplete", "the body arrived incompletely"),
    }
}
