//! Inline assembly: what its text may not contain.

/// Instructions that leave the program or read the time.
const FORBIDDEN_INSTRUCTIONS: &[&str] = &[
    "syscall", "sysenter", "sysexit", "int", "int3", "svc", "swi", "hvc", "vmcall", "rdtsc", "rdtscp", "rdpmc", "call",
    "callq", "lcall", "ljmp", "iret", "iretq", "wrfsbase", "wrgsbase", "rdfsbase", "rdgsbase", "wrpkru", "hlt", "mrs",
];

/// Directives that hide instructions or data, or touch symbols and sections.
const FORBIDDEN_DIRECTIVES: &[&str] = &[
    ".byte",
    ".word",
    ".hword",
    ".short",
    ".value",
    ".long",
    ".int",
    ".quad",
    ".octa",
    ".2byte",
    ".4byte",
    ".8byte",
    ".inst",
    ".ascii",
    ".asciz",
    ".string",
    ".incbin",
    ".include",
    ".section",
    ".pushsection",
    ".popsection",
    ".previous",
    ".globl",
    ".global",
    ".weak",
    ".symver",
    ".set",
    ".equ",
    ".macro",
    ".type",
    ".text",
    ".data",
    ".org",
];

/// What forbidden thing the text of an assembly statement contains.
pub(super) fn forbidden(text: &str) -> Option<String> {
    // Escapes separate statements in the literal: `\n`, `\t`.
    let text = text.replace("\\n", "\n").replace("\\t", " ").to_ascii_lowercase();
    for statement in text.split(['\n', ';', '|', '{', '}']) {
        let statement = statement.split('#').next().unwrap_or(statement);
        for word in statement.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_')) {
            let mnemonic = FORBIDDEN_INSTRUCTIONS.contains(&word);
            if mnemonic || FORBIDDEN_DIRECTIVES.contains(&word) {
                return Some(word.to_owned());
            }
        }
    }
    None
}

/// Of these, what no assembly of any processor contains but that of a host.
const HOST_ONLY: &[&str] = &["syscall", "sysenter", "sysexit", "int3", "rdtsc", "rdtscp", "rdpmc", "vmcall", "wrpkru"];
/// Registers of a device that count time.
const DEVICE_CLOCKS: &[&str] = &["clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"];

/// What forbidden thing of a host the text of an assembly statement contains, wherever it runs.
pub(super) fn forbidden_anywhere(text: &str) -> Option<String> {
    words(text).find(|word| HOST_ONLY.contains(&word.as_str()))
}

/// The clock of a device that the text of an assembly statement reads.
pub(super) fn device_clock(text: &str) -> Option<String> {
    words(text).find(|word| DEVICE_CLOCKS.contains(&word.as_str()))
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let text = text.replace("\\n", "\n").replace("\\t", " ").to_ascii_lowercase();
    let words: Vec<String> =
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map(str::to_owned).collect();
    words.into_iter()
}

/// Whether the statement does nothing but bind the compiler: an empty text.
pub(super) fn is_barrier(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_is_found_in_any_dress() {
        for text in ["syscall", "mov $1, %%rax\\n\\tSYSCALL\\n", "nop; int $0x80", ".byte 0x0f, 0x05", "call *%0"] {
            assert!(forbidden(text).is_some(), "{text}");
        }
    }

    #[test]
    fn vector_code_is_not_forbidden() {
        for text in ["vfmadd231ps %1, %2, %0", "prefetcht0 (%0)", ".p2align 4\\n1: vmovaps (%0), %%ymm0\\n jnz 1b", ""]
        {
            assert_eq!(forbidden(text), None, "{text}");
        }
    }
}
