//! The object store under the servers: S3's protocol over a folder, behind a proxy that breaks its messages.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

use super::proxy::Proxy;
use crate::node::{BUCKET, OBJECT_KEY, OBJECT_SECRET, PREFIX};

/// The object store.
pub(crate) struct ObjectStorage {
    folder: PathBuf,
    direct: String,
    pub(super) proxy: Proxy,
}

impl ObjectStorage {
    /// Starts it over an empty folder.
    pub(super) async fn start(folder: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder.join(BUCKET))?;
        let files = FileSystem::new(&folder).map_err(|error| anyhow::anyhow!("no object store: {error:?}"))?;
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(OBJECT_KEY, OBJECT_SECRET));
        let service = service.build();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let service = service.clone();
                tokio::spawn(async move {
                    // A connection that breaks is what the proxy is for.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(Self { folder, direct: format!("http://{addr}"), proxy: Proxy::start(addr).await? })
    }

    /// Returns the address that breaks messages.
    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.proxy.addr)
    }

    /// Returns the address that breaks nothing.
    pub(super) fn direct(&self) -> &str {
        &self.direct
    }

    /// Returns the names of all objects.
    pub(super) fn names(&self) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        let place = self.folder.join(BUCKET).join(PREFIX);
        if place.exists() {
            list(&place, &mut names).with_context(|| format!("{} cannot be read", place.display()))?;
        }
        Ok(names)
    }
}

fn list(folder: &Path, names: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, names)?;
        } else {
            names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}
