//! The extensions of a `PyTorch` program behind its source, and the machine that they were compiled for: another machine compiles them
//! again.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::MAX_LIBRARY_BYTES;

/// Prefix of the line that names a built extension. The evaluator searches for the same prefix.
pub const EXTENSION_MARKER: &str = "#nightshift-extension ";

/// Prefix of the line before the extensions, which names the machine.
const MACHINE_MARKER: &str = "#nightshift-machine ";

/// An extension that the script built.
#[derive(Deserialize)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The lines in which ptxas says what each of its kernels uses.
    #[serde(default)]
    pub(super) usage: String,
}

/// Returns the source with its extensions behind it. `folder` is the folder of the build, and `machine` a fingerprint.
pub(super) fn append(source: &str, extensions: &[Extension], folder: &Path, machine: &str) -> Result<Vec<u8>, String> {
    if extensions.is_empty() {
        return Ok(source.as_bytes().to_vec());
    }
    let mut text = format!("{}\n{MACHINE_MARKER}{machine}\n", source.trim_end());
    for Extension { name, path, .. } in extensions {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let data = std::fs::symlink_metadata(path);
        let data = data.map_err(|error| format!("the extension `{name}` was not written: {error}"))?;
        // Never through a link: what the program names may lie outside of its folder.
        let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
        if !plain || !data.is_file() || !parent.is_some_and(|parent| parent.starts_with(folder)) {
            return Err(format!("the extension `{name}` is no library in the folder of the build"));
        }
        if data.len() > MAX_LIBRARY_BYTES {
            let size_bytes = data.len();
            return Err(format!(
                "the extension `{name}` has {size_bytes} bytes, more than the limit of {MAX_LIBRARY_BYTES}"
            ));
        }
        let bytes = std::fs::read(path).map_err(|error| format!("the extension `{name}` cannot be read: {error}"))?;
        text.push_str(EXTENSION_MARKER);
        text.push_str(name);
        text.push(' ');
        BASE64_STANDARD.encode_string(&bytes, &mut text);
        text.push('\n');
    }
    Ok(text.into_bytes())
}

/// Returns the source of a file with extensions, and the machine that they were compiled for. Returns `None` for a file without
/// extensions, or from an earlier version, which recorded no machine.
pub(super) fn provenance(file: &str) -> Option<(&str, &str)> {
    // The builder refuses sources that contain such a line, so that it wrote the line before the first one.
    let (head, _) = file.split_once(&format!("\n{EXTENSION_MARKER}"))?;
    let (source, last) = head.rsplit_once('\n')?;
    Some((source, last.strip_prefix(MACHINE_MARKER)?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_extensions_names_its_machine_and_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let path = folder.join("own.so");
        std::fs::write(&path, "library").unwrap();
        let built = |name: &str| Extension { name: name.to_owned(), path: path.clone(), usage: String::new() };
        let file = |source: &str, extensions: &[Extension]| {
            String::from_utf8(append(source, extensions, &folder, "ab12").unwrap()).unwrap()
        };
        let source = "text = '''\n#nightshift-machine other\n'''";
        let two = file(&format!("{source}\n\n"), &[built("one"), built("two")]);
        assert_eq!(provenance(&two), Some((source, "ab12")));
        assert_eq!(two.matches(EXTENSION_MARKER).count(), 2);
        assert_eq!(provenance(&file(source, &[])), None, "without extensions it runs everywhere");
        let earlier = two.replace("#nightshift-machine ab12\n", "");
        assert_eq!(provenance(&earlier), None, "an earlier version recorded no machine");
    }
}
