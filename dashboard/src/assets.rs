//! The assets of pages: stylesheet, icon, and browser program.
//!
//! Each is served under a name that holds the hash of its content, so that browsers keep it for good and a new release
//! is never mixed with an old one. The program is kept as it was compressed when it was built.

mod encoding;

use std::borrow::Cow;
use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};

use axum::extract::Path;
use axum::http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, VARY};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use nightshift_protocol::artifact::ArtifactHash;

pub(crate) use encoding::{Encodings, gzip};

use crate::style;

/// Cache time of files with their hash in the name.
const CACHE_FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// Largest file of the bundle after decompression.
const MAX_ASSET_BYTES: u64 = 8 * 1024 * 1024;

const SCRIPT: &[u8] = include_bytes!("../dist/app.js.br");
const PROGRAM: &[u8] = include_bytes!("../dist/app_bg.wasm.br");
/// The loader of the program, and the handlers of the pointer.
const BOOT: &str = concat!(include_str!("boot.js"), include_str!("pointing.js"));
const ICON: &str = include_str!("icon.svg");

/// A file.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Path of the file.
    pub(crate) path: String,
    content_type: &'static str,
    plain: Cow<'static, [u8]>,
    brotli: Option<&'static [u8]>,
    gzip: OnceLock<Option<Vec<u8>>>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Assets {
    pub(crate) style: Asset,
    pub(crate) icon: Asset,
    pub(crate) bundle: Option<Bundle>,
}

/// The browser program and its loader.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(crate) boot: Asset,
    pub(crate) script: Asset,
    pub(crate) program: Asset,
}

/// The files, decoded at the first use.
pub(crate) static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: Asset::plain("style", "css", "text/css; charset=utf-8", style::SHEET),
    icon: Asset::plain("icon", "svg", "image/svg+xml", ICON),
    bundle: bundle(),
});

/// Returns `None` when a file of the bundle is damaged, because pages are readable without it.
fn bundle() -> Option<Bundle> {
    Some(Bundle {
        boot: Asset::plain("boot", "js", "text/javascript; charset=utf-8", BOOT),
        script: Asset::compressed("app", "js", "text/javascript; charset=utf-8", SCRIPT)?,
        program: Asset::compressed("app", "wasm", "application/wasm", PROGRAM)?,
    })
}

impl Asset {
    fn plain(name: &str, ending: &str, content_type: &'static str, text: &'static str) -> Self {
        Self::new(name, ending, content_type, Cow::Borrowed(text.as_bytes()), None)
    }

    fn compressed(name: &str, ending: &str, content_type: &'static str, brotli: &'static [u8]) -> Option<Self> {
        let mut plain = Vec::new();
        let mut reader = brotli_decompressor::Decompressor::new(brotli, 4096).take(MAX_ASSET_BYTES);
        reader.read_to_end(&mut plain).ok()?;
        Some(Self::new(name, ending, content_type, Cow::Owned(plain), Some(brotli)))
    }

    fn new(
        name: &str,
        ending: &str,
        content_type: &'static str,
        plain: Cow<'static, [u8]>,
        brotli: Option<&'static [u8]>,
    ) -> Self {
        let path = format!("/pkg/{name}-{}.{ending}", ArtifactHash::of(&plain).short());
        Self { path, content_type, plain, brotli, gzip: OnceLock::new() }
    }

    /// Returns the content and its encoding for a client that accepts these encodings.
    pub(crate) fn body(&self, encodings: Encodings) -> (Option<&'static str>, &[u8]) {
        if encodings.brotli
            && let Some(brotli) = self.brotli
        {
            return (Some("br"), brotli);
        }
        if encodings.gzip
            && let Some(packed) = self.gzip.get_or_init(|| gzip(&self.plain))
        {
            return (Some("gzip"), packed);
        }
        (None, &self.plain)
    }

    fn answer(&'static self, encodings: Encodings) -> Response {
        let (encoding, body) = self.body(encodings);
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CACHE_CONTROL, CACHE_FOR_GOOD);
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if let Some(encoding) = encoding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        response
    }
}

impl Assets {
    fn all(&self) -> impl Iterator<Item = &Asset> {
        let bundle = self.bundle.iter().flat_map(|bundle| [&bundle.boot, &bundle.script, &bundle.program]);
        [&self.style, &self.icon].into_iter().chain(bundle)
    }
}

/// `GET /pkg/{name}`.
pub(crate) async fn serve(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let found = ASSETS.all().find(|asset| asset.path.strip_prefix("/pkg/") == Some(name.as_str()));
    match found {
        Some(asset) => asset.answer(accepted(&headers)),
        None => (StatusCode::NOT_FOUND, "this file belongs to another release: load the page again").into_response(),
    }
}

/// Answers `GET /favicon.ico`, for clients that have not read a page.
pub(crate) async fn serve_icon(headers: HeaderMap) -> Response {
    let mut response = ASSETS.icon.answer(accepted(&headers));
    // Its name holds no hash.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

fn accepted(headers: &HeaderMap) -> Encodings {
    Encodings::accepted(headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum number of bytes of the first page with everything that it needs, compressed.
    const MAX_FIRST_LOAD_BYTES: usize = 150_000;
    /// What is set aside for the page itself. The test of the demo holds the same limit with each of its pages.
    const PAGE_BYTES: usize = 20_000;

    #[test]
    fn the_first_load_stays_small() {
        let encodings = Encodings { brotli: true, gzip: true };
        let sizes: Vec<(&str, usize)> =
            ASSETS.all().map(|asset| (asset.path.as_str(), asset.body(encodings).1.len())).collect();
        let sum: usize = sizes.iter().map(|(_, size)| size).sum();
        assert!(ASSETS.bundle.is_some(), "the bundle can be decoded");
        assert!(sum + PAGE_BYTES <= MAX_FIRST_LOAD_BYTES, "{sum}: {sizes:?}");
    }

    #[test]
    fn what_a_browser_does_not_accept_is_not_sent() {
        let program = &ASSETS.bundle.as_ref().map(|bundle| &bundle.program);
        let Some(program) = program else { panic!("the bundle can be decoded") };
        assert_eq!(program.body(Encodings { brotli: true, gzip: true }).0, Some("br"));
        assert_eq!(program.body(Encodings { brotli: false, gzip: true }).0, Some("gzip"));
        let (encoding, plain) = program.body(Encodings { brotli: false, gzip: false });
        assert_eq!((encoding, &plain[..4]), (None, &b"\0asm"[..]));
    }

    #[test]
    fn the_name_of_a_file_holds_the_hash_of_its_content() {
        let one = Asset::plain("a", "css", "text/css", "a{}");
        let other = Asset::plain("a", "css", "text/css", "b{}");
        assert_ne!(one.path, other.path);
        assert!(one.path.starts_with("/pkg/a-") && one.path.split('.').next_back() == Some("css"), "{}", one.path);
    }
}
