//! Which shared libraries a built library leaves to its loader, told from the symbols that nothing defines.

use std::collections::BTreeSet;
use std::fmt;

use nightshift_protocol::task::CudaLibrary;
use object::Endianness;
use object::elf::{STB_WEAK, VER_NDX_GLOBAL};
use object::read::elf::{ElfFile64, FileHeader, Sym as _};

/// Most undefined symbols that a message names.
const MAX_NAMED: usize = 8;

/// Major versions of the libraries that a toolkit goes with: they are part of a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryVersions {
    /// Of cuBLAS and cuBLASLt: the toolkit's own.
    pub cuda: u32,
    /// Of cuDNN.
    pub cudnn: u32,
}

/// File names of the libraries that have to be loaded for all to see before this one, in their order; or what is wrong,
/// for the Coder.
pub fn libraries(
    library: &[u8],
    allowed: &BTreeSet<CudaLibrary>,
    versions: LibraryVersions,
) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    for symbol in unresolved(library) {
        let Some((owner, files)) = owner(&symbol, versions) else {
            unknown.push(readable(&symbol));
            continue;
        };
        if let Some(owner) = owner.filter(|owner| !allowed.contains(owner)) {
            return Err(format!(
                "{symbol} belongs to {}, which this task does not allow: write this part yourself",
                title(owner)
            ));
        }
        for file in files {
            if !names.contains(&file) {
                names.push(file);
            }
        }
    }
    if unknown.is_empty() {
        // cuBLAS needs cuBLASLt: it has to come first.
        names.sort_by_key(|name| !name.starts_with("libcublasLt"));
        return Ok(names);
    }
    let more = unknown.len().saturating_sub(MAX_NAMED);
    unknown.truncate(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(format!("undefined reference to {}{more}: declared, but defined nowhere", unknown.join(", ")))
}

/// The name of a library as its makers write it.
#[must_use]
pub fn title(library: CudaLibrary) -> &'static str {
    match library {
        CudaLibrary::Cublas => "cuBLAS",
        CudaLibrary::CublasLt => "cuBLASLt",
        CudaLibrary::Cudnn => "cuDNN",
        CudaLibrary::Cccl => "CCCL",
        CudaLibrary::Cutlass => "CUTLASS",
    }
}

/// Whose symbol it is, and the files that define it. The driver belongs to everyone.
fn owner(symbol: &str, versions: LibraryVersions) -> Option<(Option<CudaLibrary>, Vec<String>)> {
    let LibraryVersions { cuda, cudnn } = versions;
    let lt = format!("libcublasLt.so.{cuda}");
    if symbol.starts_with("cublasLt") {
        Some((Some(CudaLibrary::CublasLt), vec![lt]))
    } else if symbol.starts_with("cublas") {
        Some((Some(CudaLibrary::Cublas), vec![lt, format!("libcublas.so.{cuda}")]))
    } else if symbol.starts_with("cudnn") {
        Some((Some(CudaLibrary::Cudnn), vec![format!("libcudnn.so.{cudnn}")]))
    } else if symbol.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())) {
        Some((None, vec!["libcuda.so.1".to_owned()]))
    } else {
        None
    }
}

/// Symbols that are needed and that none of the libraries of the link has: those carry its version. Weak ones may be
/// missing.
fn unresolved(library: &[u8]) -> Vec<String> {
    let read = || -> object::read::Result<Vec<String>> {
        let file = ElfFile64::<Endianness>::parse(library)?;
        let endian = file.endian();
        let sections = file.elf_header().sections(endian, library)?;
        let versions = sections.versions(endian, library)?;
        let table = sections.symbols(endian, library, object::elf::SHT_DYNSYM)?;
        let mut names = Vec::new();
        for (index, symbol) in table.enumerate() {
            let is_needed = symbol.is_undefined(endian) && index.0 != 0 && symbol.st_bind() != STB_WEAK;
            let has_version =
                versions.as_ref().is_some_and(|table| table.version_index(endian, index).index() > VER_NDX_GLOBAL);
            if is_needed && !has_version {
                names.push(String::from_utf8_lossy(table.symbol_name(endian, symbol)?).into_owned());
            }
        }
        Ok(names)
    };
    read().unwrap_or_else(|error| {
        tracing::warn!(error = %error, "the symbols of a library could not be read");
        Vec::new()
    })
}

/// Longest name that is made of a symbol, in bytes: what a short symbol stands for may be as long as a power of two.
const MAX_NAME_BYTES: usize = 4096;

/// Text of a limited length: more fails.
#[derive(Default)]
struct Limited(String);

impl cpp_demangle::DemangleWrite for Limited {
    fn write_string(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A C++ symbol as a person writes it; the symbol where that is too long.
#[must_use]
pub fn readable(symbol: &str) -> String {
    let Ok(parsed) = cpp_demangle::Symbol::new(symbol) else { return symbol.to_owned() };
    let mut name = Limited::default();
    match parsed.structured_demangle(&mut name, &cpp_demangle::DemangleOptions::default()) {
        Ok(()) => without_module(&name.0),
        Err(_) => symbol.to_owned(),
    }
}

/// `_GLOBAL__N__54d14d9e_12_candidate_cu_ns_run::softmax` is in the anonymous namespace.
fn without_module(name: &str) -> String {
    const MODULE: &str = "_GLOBAL__N_";
    let mut rest = name;
    let mut readable = String::new();
    while let Some((before, module)) = rest.split_once(MODULE) {
        let end = module.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(module.len());
        readable.push_str(before);
        readable.push_str("(anonymous namespace)");
        rest = module.get(end..).unwrap_or_default();
    }
    readable.push_str(rest);
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: LibraryVersions = LibraryVersions { cuda: 13, cudnn: 9 };

    #[test]
    fn a_symbol_tells_which_library_defines_it() {
        let owner = |symbol| owner(symbol, VERSIONS);
        assert_eq!(owner("cublasLtCreate"), Some((Some(CudaLibrary::CublasLt), vec!["libcublasLt.so.13".to_owned()])));
        let blas = vec!["libcublasLt.so.13".to_owned(), "libcublas.so.13".to_owned()];
        assert_eq!(owner("cublasCreate_v2"), Some((Some(CudaLibrary::Cublas), blas)));
        assert_eq!(owner("cudnnCreate"), Some((Some(CudaLibrary::Cudnn), vec!["libcudnn.so.9".to_owned()])));
        assert_eq!(owner("cuTensorMapEncodeTiled"), Some((None, vec!["libcuda.so.1".to_owned()])));
        assert_eq!(owner("cudaMalloc"), None, "the runtime is linked into the library");
        assert_eq!(owner("_Z9elsewherei"), None);
    }

    #[test]
    fn names_are_readable() {
        assert_eq!(
            readable("_ZN43_GLOBAL__N__54d14d9e_12_candidate_cu_ns_run7softmaxEPKfPfi"),
            "(anonymous namespace)::softmax(float const*, float*, int)"
        );
        assert_eq!(readable("_Z6matmulPKfS0_Pfi"), "matmul(float const*, float const*, float*, int)");
        assert_eq!(readable("ns_run"), "ns_run");
        assert_eq!(readable("_Z"), "_Z");
    }

    #[test]
    fn a_symbol_of_an_endless_name_stays_a_symbol() {
        // Each parameter is a template of twice the one before it.
        let of = |levels: usize| {
            let digits = ('1'..='9').chain('A'..='Z').take(levels);
            let doubled: Vec<String> = digits.map(|digit| format!("S0_IS{digit}_S{digit}_E")).collect();
            format!("_Z1f1x1aIS_S_E{}", doubled.concat())
        };
        assert_eq!(readable(&of(1)), "f(x, a<x, x>, a<a<x, x>, a<x, x> >)");
        assert_eq!(readable(&of(24)), of(24));
    }

    #[test]
    fn what_is_no_library_needs_nothing() {
        assert_eq!(libraries(b"text", &BTreeSet::new(), VERSIONS), Ok(Vec::new()));
    }
}
