//! CUDA C++ in a form that a grammar of C++ can read, and what only the written form tells.
//!
//! Every word is replaced by one of the same length, so that a place in the tree is the same place in the source.

use nightshift_protocol::verdict::{Finding, Severity};

use super::finding;
use super::lexer::{self, Lexeme};

/// Words that say where a function runs or a variable lives, each with a word of C++ that may stand in the same place.
const PLACES: [&str; 13] = [
    "__global__",
    "__device__",
    "__host__",
    "__managed__",
    "__constant__",
    "__forceinline__",
    "__noinline__",
    "CUTE_DEVICE",
    "CUTE_HOST_DEVICE",
    "CUTLASS_DEVICE",
    "CUTLASS_HOST_DEVICE",
    "CUTLASS_GLOBAL",
    "CUTLASS_HOST",
];
/// Words without which the declaration means the same to the screening.
const BLANKED: [&str; 5] = ["__shared__", "__grid_constant__", "__nv_pure__", "CUTE_UNROLL", "CUTLASS_PRAGMA_UNROLL"];
/// Words with arguments in parentheses, which go with them.
const BLANKED_WITH_ARGUMENTS: [&str; 6] =
    ["__launch_bounds__", "__maxnreg__", "__cluster_dims__", "__block_size__", "__align__", "__annotate__"];

/// A source in CUDA C++ as C++: as long as it was, with the same lines. And what launches look like.
pub(super) fn as_cpp(canonical: &str) -> (String, Vec<Finding>) {
    let code_only = without_texts(canonical);
    let mut out = canonical.as_bytes().to_vec();
    let bytes = code_only.as_bytes();
    let mut launches = Vec::new();
    let mut open_launch: Option<usize> = None;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &code_only[at..];
        let begins_line = at == 0 || bytes[at - 1] == b'\n';
        if begins_line && rest.trim_start_matches([' ', '\t']).starts_with('#') {
            // The grammar reads a directive as it is.
            at += rest.find('\n').map_or(rest.len(), |end| end + 1);
            continue;
        }
        if rest.starts_with("<<<") && open_launch.is_none() {
            out[at..at + 3].copy_from_slice(b" ((");
            open_launch = Some(at + 3);
            at += 3;
        } else if let Some(start) = open_launch.filter(|_| rest.starts_with(">>>")) {
            out[at..at + 3].copy_from_slice(b")) ");
            launches.extend(on_the_default_stream(&code_only[start..at], line_at(&code_only, at)));
            open_launch = None;
            at += 3;
        } else if starts_word(bytes, at) {
            let word = word_at(rest);
            let end = if BLANKED_WITH_ARGUMENTS.contains(&word) {
                at + word.len() + arguments_length(&rest[word.len()..])
            } else {
                at + word.len()
            };
            if PLACES.contains(&word) {
                out[at..end].fill(b' ');
                // Between the captures of a lambda and its parameters, no word of C++ may stand.
                if !code_only[..at].trim_end().ends_with(']') {
                    out[at..at + b"inline".len()].copy_from_slice(b"inline");
                }
            } else if BLANKED.contains(&word) || BLANKED_WITH_ARGUMENTS.contains(&word) {
                for byte in out[at..end].iter_mut().filter(|byte| **byte != b'\n') {
                    *byte = b' ';
                }
            }
            at = end.max(at + 1);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    // Only whole words of ASCII were written over.
    (String::from_utf8(out).unwrap_or_else(|_| canonical.to_owned()), launches)
}

/// Whether what stands before a body says that it runs on a device, and there alone.
pub(super) fn is_for_device(head: &str) -> bool {
    let says = |words: &[&str]| words.iter().any(|word| head.contains(word));
    says(&["__global__", "__device__", "CUTE_DEVICE", "CUTLASS_DEVICE", "CUTLASS_GLOBAL"]) && !head.contains("__host__")
}

/// The source with spaces in place of comments and literals, byte for byte.
fn without_texts(canonical: &str) -> String {
    let mut out = String::with_capacity(canonical.len());
    for (lexeme, text) in lexer::lexemes(canonical) {
        if lexeme == Lexeme::Code {
            out.push_str(text);
        } else {
            out.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        }
    }
    out
}

fn starts_word(bytes: &[u8], at: usize) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    is_word(bytes[at]) && at.checked_sub(1).is_none_or(|before| !is_word(bytes[before]))
}

fn word_at(rest: &str) -> &str {
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    &rest[..end]
}

/// Length of what stands in parentheses behind a word, blanks before it included; nothing when there are none.
fn arguments_length(rest: &str) -> usize {
    let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    if !rest[blanks..].starts_with('(') {
        return 0;
    }
    let mut depth = 0_usize;
    for (at, c) in rest.char_indices().skip(blanks) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 && c == ')' {
            return at + 1;
        }
    }
    0
}

/// A launch says its stream as the fourth part of its configuration.
fn on_the_default_stream(configuration: &str, line: u32) -> Option<Finding> {
    let mut depth = 0_i32;
    let mut parts = vec![String::new()];
    for c in configuration.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let stream = parts.get(3).map(|part| part.trim());
    if stream.is_some_and(|stream| !matches!(stream, "" | "0" | "nullptr" | "NULL")) {
        return None;
    }
    let message = "a kernel is launched on the default stream: all work goes to `stream`".to_owned();
    Some(finding("default_stream", Severity::Note, message, line))
}

fn line_at(text: &str, at: usize) -> u32 {
    let before = text.get(..at).unwrap_or(text).matches('\n').count();
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves() {
        let source = "template <int N>\n__global__ void __launch_bounds__(256,\n 2) k(const float *__restrict__ x) {\n  __shared__ float s[N];\n}\nvoid f(cudaStream_t st) { k<4><<<dim3(1, 2), 32, 0, st>>>(nullptr); /* <<< */ }\n";
        let (cpp, launches) = as_cpp(source);
        assert_eq!(cpp.len(), source.len());
        assert_eq!(cpp.lines().count(), source.lines().count());
        assert!(launches.is_empty(), "{launches:?}");
        assert!(cpp.contains("inline     void") && cpp.contains("k<4> ((dim3(1, 2), 32, 0, st)) (nullptr)"), "{cpp}");
        assert!(!cpp.contains("__launch_bounds__") && !cpp.contains("256") && cpp.contains("/* <<< */"), "{cpp}");
    }

    #[test]
    fn a_launch_that_names_no_stream_is_noted() {
        for (launch, noted) in [
            ("k<<<1, 2>>>()", true),
            ("k<<<dim3(1, 2, 3), 2>>>()", true),
            ("k<<<1, 2, 0, 0>>>()", true),
            ("k<<<1, 2, 0, s>>>()", false),
            ("k<<<dim3(a[i, j], 2), 2, f(1, 2), streams[i]>>>()", false),
        ] {
            assert_eq!(as_cpp(&format!("void f() {{\n {launch}; }}")).1.len(), usize::from(noted), "{launch}");
        }
        let (_, found) = as_cpp("\n\nvoid f() { k<<<1, 2>>>(); }");
        assert_eq!(found[0].line, Some(3));
    }

    #[test]
    fn what_runs_on_the_host_as_well_is_not_for_the_device_alone() {
        for (head, for_device) in [
            ("__global__ void k()", true),
            ("template <int N> static __device__ __forceinline__ float f()", true),
            ("__host__ __device__ float f()", false),
            ("CUTE_HOST_DEVICE float f()", false),
            ("CUTLASS_DEVICE float f()", true),
            ("float f()", false),
        ] {
            assert_eq!(is_for_device(head), for_device, "{head}");
        }
    }

    #[test]
    fn broken_text_is_passed_through() {
        for source in
            ["<<<", ">>>", "<<< <<< >>>", "__launch_bounds__(", "__launch_bounds__", "é__global__é", "\"<<<\""]
        {
            assert_eq!(as_cpp(source).0.len(), source.len(), "{source}");
        }
    }
}
