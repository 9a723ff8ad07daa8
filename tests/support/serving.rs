//! A server that a test looks at with a browser.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::binary::nightshift;

/// How long it may take until it says its address.
const MAX_START: Duration = Duration::from_secs(30);

/// A server that ends with the test.
pub(crate) struct Serving {
    child: Child,
    /// Where it listens, as `http://…`.
    pub(crate) address: String,
}

impl Serving {
    /// On this data folder, with these further arguments of `serve`.
    pub(crate) fn on(data_dir: &Path, further: &[&str]) -> Self {
        let mut child = nightshift(data_dir)
            .args(["serve", "--bind", "127.0.0.1:0"])
            .args(further)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (found, address) = std::sync::mpsc::channel();
        let streams: [Option<Box<dyn std::io::Read + Send>>; 2] =
            [stdout.map(|stream| Box::new(stream) as _), stderr.map(|stream| Box::new(stream) as _)];
        for stream in streams.into_iter().flatten() {
            let found = found.clone();
            // Reads to the end, so that the server never waits for a full pipe.
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if let Some(address) = line.split_whitespace().find(|word| word.starts_with("http://")) {
                        let _ = found.send(address.to_owned());
                    }
                }
            });
        }
        let address = address.recv_timeout(MAX_START).expect("the server says its address");
        Self { child, address }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The browser of this machine.
#[expect(clippy::disallowed_methods, reason = "the test looks for a browser")]
pub(crate) fn browser() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|candidate| candidate.is_file())
        .expect("no browser: install one with `apt-get install chromium`, or run `cargo xtask test --install`")
}
