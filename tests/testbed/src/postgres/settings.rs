//! How a private cluster is set up.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The longest path of a Unix socket is 107 bytes, of which the name takes some.
const MAX_SOCKET_FOLDER_BYTES: usize = 80;

/// How a private cluster is set up. The default is as durable as a server in production: tests and figures that
/// concern commits mean something only with `fsync`.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether commits reach the disk before they are acknowledged.
    pub fsync: bool,
    /// Memory for pages, in MiB.
    pub shared_buffers_mib: u32,
    /// How many may be connected at a time.
    pub max_connections: u32,
    /// Where the cluster's folder is made; the folder for temporary files when `None`. Where the tests run as root it
    /// must be one that every user may enter.
    pub parent: Option<PathBuf>,
    /// Further lines of `postgresql.conf`: name and value.
    pub options: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { fsync: true, shared_buffers_mib: 32, max_connections: 200, parent: None, options: Vec::new() }
    }
}

impl Settings {
    /// The lines to add to `postgresql.conf`.
    pub(super) fn lines(&self, folder: &Path) -> String {
        let socket_folder = folder.to_str().filter(|path| path.len() <= MAX_SOCKET_FOLDER_BYTES).unwrap_or_default();
        let fixed = [
            ("listen_addresses", "127.0.0.1".to_owned()),
            // Where the path is too long for a socket there is none: the loopback address is always there.
            ("unix_socket_directories", socket_folder.to_owned()),
            ("fsync", if self.fsync { "on" } else { "off" }.to_owned()),
            ("shared_buffers", format!("{}MB", self.shared_buffers_mib)),
            ("max_connections", self.max_connections.to_string()),
        ];
        let mut text = String::from("\n");
        let further = self.options.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in fixed.iter().map(|(name, value)| (*name, value)).chain(further) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} = '{}'", value.replace('\'', "''"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_a_socket_is_left_out_where_its_path_would_be_too_long() {
        let settings = Settings {
            fsync: false,
            options: vec![("log_line_prefix".to_owned(), "it's %p ".to_owned())],
            ..Settings::default()
        };
        let lines = settings.lines(Path::new("/tmp/short"));
        assert!(lines.contains("unix_socket_directories = '/tmp/short'\n"), "{lines}");
        assert!(lines.contains("fsync = 'off'\n"), "{lines}");
        assert!(lines.ends_with("log_line_prefix = 'it''s %p '\n"), "{lines}");
        let lines = settings.lines(Path::new(&"/long".repeat(40)));
        assert!(lines.contains("unix_socket_directories = ''\n"), "{lines}");
    }
}
