//! Tests of artifacts in S3: a server of S3 in this process, reached as any other one.

use hyper_util::rt::TokioIo;
use nightshift_engine::store::{ArtifactStore, RetentionStore};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_store::{ArtifactOptions, Objects};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::bench::Bench;

const BUCKET: &str = "artifacts";
const KEY: &str = "the-key";
const SECRET: &str = "the-secret";

crate::bench::on_both!(
    artifacts_in_s3_are_stored_in_parts_read_in_ranges_and_pruned,
    artifacts_of_the_database_are_moved_to_s3,
    s3_with_other_credentials_or_without_an_answer_is_said,
);

/// The server.
struct S3 {
    endpoint: String,
    folder: TempDir,
    /// Whether connections are accepted and closed at once.
    is_down: watch::Sender<bool>,
}

impl S3 {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let mut service = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (is_down, down) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if *down.borrow() {
                    continue;
                }
                let (service, mut down) = (service.clone(), down.clone());
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    // A connection that was kept open ends with the server.
                    tokio::select! {
                        biased;
                        _ = down.wait_for(|is_down| *is_down) => {}
                        _ = connection => {}
                    }
                });
            }
        });
        Self { endpoint, folder, is_down }
    }

    fn options(&self, secret: &str) -> ArtifactOptions {
        let settings = [
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ALLOW_HTTP", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let objects = Objects::open(&format!("s3://{BUCKET}/nightshift"), &settings).unwrap();
        ArtifactOptions { objects: Some(objects), ..ArtifactOptions::default() }
    }

    /// Returns the number of objects.
    fn count(&self) -> usize {
        fn files(folder: &std::path::Path) -> usize {
            let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
            entries.map(|entry| entry.unwrap().path()).map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
        }
        files(&self.folder.path().join(BUCKET).join("nightshift"))
    }
}

fn bytes(seed: usize, count: usize) -> Vec<u8> {
    (0..count).map(|n| u8::try_from((n * 31 + n / 251 + seed) % 256).unwrap()).collect()
}

async fn artifacts_in_s3_are_stored_in_parts_read_in_ranges_and_pruned(mut bench: Bench) {
    let s3 = S3::start().await;
    bench.reopen_with(s3.options(SECRET)).await;
    let (whole, small) = (bytes(1, 9_000_000), bytes(2, 100));
    let hash = ArtifactHash::of(&whole);
    for (from, to) in [(0, 4_000_000), (4_000_000, 8_000_000), (8_000_000, 9_000_000)] {
        let part = &whole[from..to];
        let offset = u64::try_from(from).unwrap();
        bench.store.append_artifact(&hash, 9_000_000, offset, part, bench.now()).await.unwrap();
    }
    bench.store.put_artifact(&ArtifactHash::of(&small), &small, bench.now()).await.unwrap();
    assert_eq!(s3.count(), 3, "the small one is a row");
    assert!(bench.store.get_artifact(&hash).await.unwrap() == whole);
    let read = bench.store.read_artifact(&hash, 3_999_990, 4_000_020).await.unwrap();
    assert!(read == whole[3_999_990..8_000_010]);
    assert_eq!(bench.store.examine_artifact_place().await.unwrap(), None);
    bench.assert_sound().await;
    bench.clock.forward(1);
    assert_eq!(bench.store.prune_artifacts(bench.now(), 9).await.unwrap().artifacts, 2);
    assert_eq!(s3.count(), 0);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap_err().code(), "artifact.not_found");
}

async fn artifacts_of_the_database_are_moved_to_s3(mut bench: Bench) {
    let inside = ArtifactOptions { max_piece_bytes: usize::MAX, ..ArtifactOptions::default() };
    bench.reopen_with(inside).await;
    let wholes: Vec<Vec<u8>> = (0..5).map(|seed| bytes(seed, 300_000)).collect();
    for whole in &wholes {
        bench.store.put_artifact(&ArtifactHash::of(whole), whole, bench.now()).await.unwrap();
    }
    let s3 = S3::start().await;
    bench.reopen_with(s3.options(SECRET)).await;
    assert_eq!(bench.store.move_artifacts(None, bench.now()).await.unwrap().artifacts, 5);
    assert_eq!(s3.count(), 5);
    for whole in &wholes {
        assert!(bench.store.get_artifact(&ArtifactHash::of(whole)).await.unwrap() == *whole);
    }
    bench.assert_sound().await;
}

async fn s3_with_other_credentials_or_without_an_answer_is_said(mut bench: Bench) {
    let s3 = S3::start().await;
    let whole = bytes(1, 10_000);
    let hash = ArtifactHash::of(&whole);
    bench.reopen_with(s3.options("another-secret")).await;
    let error = bench.store.put_artifact(&hash, &whole, bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "store.unreachable", "{error}");
    assert!(error.to_string().contains("s3://artifacts/nightshift"), "{error}");
    assert!(!error.to_string().contains("another-secret"), "{error}");
    assert_eq!(bench.store.artifact_progress(&hash).await.unwrap(), None);

    bench.reopen_with(s3.options(SECRET)).await;
    bench.store.put_artifact(&hash, &whole, bench.now()).await.unwrap();
    s3.is_down.send_replace(true);
    let error = bench.store.get_artifact(&hash).await.unwrap_err();
    assert!(error.code() == "store.unreachable" && error.is_transient(), "{error}");
    s3.is_down.send_replace(false);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), whole);
}
