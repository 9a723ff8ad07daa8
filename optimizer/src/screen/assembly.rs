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
