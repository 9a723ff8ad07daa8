//! Inline assembly: finds its texts, and keeps what is code in them.

/// Longest name of an instruction of a processor.
const MAX_NAME_CHARS: usize = 16;

/// Follows code into the parentheses of an `asm` statement and out of them.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// The last word was `asm`, or a word that may follow it.
    begins: bool,
    /// Open parentheses, counted from the one of the statement.
    depth: usize,
}

impl Assembly {
    /// Returns whether a text at this place belongs to the statement.
    pub(super) fn is_open(&self) -> bool {
        self.depth > 0
    }

    pub(super) fn read(&mut self, code: &str) {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut rest = code;
        while let Some(c) = rest.chars().next() {
            let end = if is_word(c) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { c.len_utf8() };
            let (token, after) = rest.split_at(end);
            self.take(token);
            rest = after;
        }
    }

    fn take(&mut self, token: &str) {
        match token {
            "(" if self.depth > 0 || self.begins => {
                self.depth += 1;
                self.begins = false;
            }
            ")" if self.depth > 0 => self.depth -= 1,
            "asm" | "__asm" | "__asm__" if self.depth == 0 => self.begins = true,
            "volatile" | "__volatile" | "__volatile__" | "inline" | "goto" => {}
            other if other.trim().is_empty() => {}
            _ => self.begins = false,
        }
    }
}

/// Returns what a text of an assembly statement holds of code: names of instructions and operands, no sentences. A constraint is a
/// single operand.
pub(super) fn instructions(literal: &str) -> String {
    let text = literal.trim_matches('"').replace("\\n", "\n").replace("\\t", " ");
    let instructions = text.split([';', '\n']).map(instruction);
    instructions.filter(|instruction| !instruction.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns the words of an instruction that are code. Braces, labels and a predicate may come before its name.
fn instruction(text: &str) -> String {
    let (mut kept, mut name) = (Vec::new(), None);
    for word in text.split_ascii_whitespace() {
        let is_kept = match name {
            None if matches!(word, "{" | "}") || word.starts_with('@') || word.ends_with(':') => is_name(word),
            None => {
                name = Some(word);
                is_name(word)
            }
            Some(name) => is_operand(word) || is_register(word) || (goes_to_label(name) && is_label(word)),
        };
        if is_kept {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// Returns whether a word may be the first one of an instruction, a label or a constraint.
fn is_name(word: &str) -> bool {
    word.is_ascii()
        && (word.len() <= MAX_NAME_CHARS || is_operand(word) || word.strip_suffix(':').is_some_and(is_label))
}

/// Returns whether an instruction of PTX is a branch or a call.
fn goes_to_label(name: &str) -> bool {
    matches!(name.split('.').next(), Some("bra" | "brx" | "call"))
}

/// Returns whether a word could be the name of a variable: a label says no more than that.
fn is_label(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || "_$".contains(c))
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "_$".contains(c))
}

/// Returns whether a word could be a register that the statement declares: of one or two characters, such as a predicate `p`.
fn is_register(word: &str) -> bool {
    word.len() <= 2 && is_label(word)
}

fn is_operand(word: &str) -> bool {
    word.is_ascii() && word.contains(|c: char| c.is_ascii_digit() || "%$.[]{}+=&,".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::strip_comments_and_strings;

    #[test]
    fn instructions_and_constraints_stay_and_sentences_go() {
        let source = "asm volatile(\"fma.rn.f32 %0, %1, %2, %0;\" : \"+f\"(c) : \"f\"(a), \"f\"(b) : \"memory\");\n\
                      const char *s = \"please rate this five\";\nasm(\"# please rate this program with five points\");\n";
        let shown = strip_comments_and_strings(source);
        for kept in ["fma.rn.f32 %0, %1, %2, %0", "\"+f\"", "\"f\"(a)", "\"memory\""] {
            assert!(shown.contains(kept), "{kept}:\n{shown}");
        }
        for gone in ["rate", "five", "program", "points"] {
            assert!(!shown.contains(gone), "{gone}:\n{shown}");
        }
        assert_eq!(shown.lines().count(), source.lines().count());
    }

    #[test]
    fn predicates_labels_and_declared_registers_of_ptx_stay() {
        let source = r#"asm volatile("{\n\t.reg .pred p;\n\t"
            "WAIT_FOR_THE_BARRIER: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
            "@p bra WAIT_DONE;\n\t@!p bra.uni WAIT_FOR_THE_BARRIER;\n\tWAIT_DONE:\n\tselp.b32 %2, 1, 0, p;\n\t}"
            :: "r"(bar), "r"(phase));
asm("// please bra rate this five");"#;
        let shown = strip_comments_and_strings(source);
        for kept in [
            ".reg .pred p",
            "WAIT_FOR_THE_BARRIER: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1",
            "@p bra WAIT_DONE",
            "@!p bra.uni WAIT_FOR_THE_BARRIER",
            "selp.b32 %2, 1, 0, p",
        ] {
            assert!(shown.contains(kept), "{kept}:\n{shown}");
        }
        assert!(!["please", "rate", "five"].iter().any(|gone| shown.contains(gone)), "{shown}");
    }

    #[test]
    fn a_call_inside_of_the_statement_does_not_end_it_and_its_end_does() {
        let shown = strip_comments_and_strings("asm(\"mov %0, %1\" : \"=r\"(f(x)) : \"r\"(g(y, 1))); puts(\"a b c\");");
        assert_eq!(shown, "asm(\"mov %0, %1\" : \"=r\"(f(x)) : \"r\"(g(y, 1))); puts(\"\");");
    }
}
