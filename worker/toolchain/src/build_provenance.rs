//! The provenance of libraries: every library names the machine that it was built for and the source that it was built
//! from, so that another machine builds it again instead of crashing in instructions that it does not have.

use nightshift_protocol::artifact::ArtifactHash;
use object::elf::DT_SONAME;
use object::read::elf::ElfFile64;
use object::{Endianness, ReadRef};

/// Prefix of the name of a library.
const PREFIX: &str = "nightshift";

/// The provenance of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildProvenance {
    /// Fingerprint of the toolchain, which covers the processor.
    pub toolchain: String,
    /// Hash of the source.
    pub source: ArtifactHash,
}

impl BuildProvenance {
    /// As the linker writes it into the library.
    #[must_use]
    pub fn to_name(&self) -> String {
        format!("{PREFIX}-{}-{}", self.toolchain, self.source)
    }

    fn parse(name: &str) -> Option<Self> {
        let (toolchain, source) = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split_once('-')?;
        Some(Self { toolchain: toolchain.to_owned(), source: source.parse().ok()? })
    }

    /// Reads the provenance of a library; `None` for one without it.
    pub fn read<'data>(library: impl ReadRef<'data>) -> Option<Self> {
        let file = ElfFile64::<Endianness, _>::parse(library).ok()?;
        let table = file.elf_dynamic_table().ok()?;
        // The first one: it is the linker's own.
        let name = table.iter().find(|entry| entry.tag == DT_SONAME)?;
        Self::parse(std::str::from_utf8(table.string(name).ok()?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back() {
        let origin = BuildProvenance { toolchain: "ab12".to_owned(), source: ArtifactHash::of(b"source") };
        assert_eq!(BuildProvenance::parse(&origin.to_name()), Some(origin));
    }

    #[test]
    fn what_names_no_origin_has_none() {
        for name in ["", "libm.so.6", "nightshift-ab12", "nightshift-ab12-source"] {
            assert_eq!(BuildProvenance::parse(name), None, "{name}");
        }
        assert_eq!(BuildProvenance::read(&b"no library"[..]), None);
    }
}
