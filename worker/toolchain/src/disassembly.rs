//! Counts the instructions of a library with `objdump`, if it is installed.

use std::path::{Path, PathBuf};

use nightshift_protocol::measurement::InnerLoop;
use nightshift_protocol::verdict::ProcessEnd;

use self::inner_loop::{Function, Instruction};
use crate::toolchain::{Run, readable_folders};
use nightshift_sandbox::process::{JailedCommand, Limits};

mod inner_loop;

/// Maximum number of bytes of a disassembly that are read.
const MAX_LISTING_BYTES: usize = 64 << 20;

const LIMITS: Limits = Limits {
    wall_ms: 30_000,
    cpu_s: 30,
    memory_bytes: 1 << 30,
    file_bytes: 1 << 20,
    processes: 8,
    output_bytes: MAX_LISTING_BYTES,
};

/// Functions that the linker adds to every library.
const START_UP: [&str; 7] = [
    "_init",
    "_fini",
    "frame_dummy",
    "call_weak_fn",
    "register_tm_clones",
    "deregister_tm_clones",
    "__do_global_dtors_aux",
];

/// Counts over the program's own functions, and their busiest loop.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// All instructions, without padding.
    pub instructions: u64,
    /// Of these, on vector registers wider than 16 bytes.
    pub wide_vector: u64,
    /// Of these, fused multiply-adds.
    pub fma: u64,
    /// The inner loop that does most of the arithmetic, as far as the machine code tells.
    pub inner_loop: Option<InnerLoop>,
}

/// `objdump`, when one of these folders has it.
#[must_use]
pub fn locate(folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join("objdump")).find(|path| path.is_file())
}

/// Counts the instructions of a library; none when the disassembly failed or was too long.
#[must_use]
pub fn count(objdump: &Path, library: &Path, scratch: &Path, run: &Run<'_>) -> Option<Counts> {
    let mut read_only = readable_folders(objdump);
    if !library.starts_with(scratch) {
        read_only.push(library.to_path_buf());
    }
    let command = JailedCommand {
        program: objdump.to_path_buf(),
        args: ["--disassemble", "--no-show-raw-insn", "--section=.text"]
            .into_iter()
            .map(Into::into)
            .chain([library.as_os_str().to_owned()])
            .collect(),
        read_only,
        scratch: scratch.to_path_buf(),
        env: vec![("LC_ALL".to_owned(), "C".to_owned())],
        limits: LIMITS,
    };
    match run(&command) {
        Ok(result) if result.end == ProcessEnd::Finished => Some(count_in(&String::from_utf8_lossy(&result.stdout))),
        Ok(result) => {
            tracing::warn!(end = result.end.code(), "a library could not be disassembled");
            None
        }
        Err(error) => {
            tracing::warn!(error = %error, "the disassembler could not be run");
            None
        }
    }
}

/// Counts in the text of a disassembly.
#[must_use]
pub fn count_in(listing: &str) -> Counts {
    let mut counts = Counts::default();
    let mut functions: Vec<Function<'_>> = Vec::new();
    let mut counted = false;
    for line in listing.lines() {
        if let Some(name) = heading(line) {
            counted = !START_UP.contains(&name);
            if counted {
                functions.push(Function { name, instructions: Vec::new() });
            }
        } else if counted && let Some(instruction) = instruction(line) {
            counts.instructions += 1;
            counts.wide_vector += u64::from(is_wide(instruction.operands));
            counts.fma += u64::from(is_fma(instruction.mnemonic));
            if let Some(function) = functions.last_mut() {
                function.instructions.push(instruction);
            }
        }
    }
    counts.inner_loop = inner_loop::busiest(&functions);
    counts
}

/// `0000000000001110 <ns_run>:`
fn heading(line: &str) -> Option<&str> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    address.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(name)
}

/// `    1208:<tab>call   1030 <expf@plt>`: mnemonic and operands, padding left out.
fn instruction(line: &str) -> Option<Instruction<'_>> {
    let (address, text) = line.split_once(":\t")?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let whole = text.trim();
    let mut text = whole;
    while let Some(rest) = ["bnd ", "rep ", "repz ", "lock ", "notrack ", "data16 ", "cs "]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
    {
        text = rest.trim_start();
    }
    let (mnemonic, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let is_padding =
        mnemonic.is_empty() || mnemonic.starts_with("nop") || mnemonic == "int3" || text.starts_with("xchg   %ax,%ax");
    (!is_padding).then_some(Instruction { address, mnemonic, operands: operands.trim(), text: whole })
}

/// Registers of AVX and AVX-512, and the scalable ones of Arm.
fn is_wide(operands: &str) -> bool {
    operands.contains("%ymm") || operands.contains("%zmm") || has_scalable_register(operands)
}

/// `z12.s` as a word of its own.
fn has_scalable_register(operands: &str) -> bool {
    operands.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).any(|word| {
        word.strip_prefix('z').and_then(|rest| rest.split_once('.')).is_some_and(|(number, kind)| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && kind.len() == 1
        })
    })
}

fn is_fma(mnemonic: &str) -> bool {
    const FUSED: [&str; 11] =
        ["vfmadd", "vfmsub", "vfnmadd", "vfnmsub", "fmadd", "fmsub", "fnmadd", "fnmsub", "fmla", "fmls", "fmad"];
    FUSED.iter().any(|prefix| mnemonic.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
candidate.so:     file format elf64-x86-64

Disassembly of section .text:

0000000000001050 <deregister_tm_clones>:
    1050:\tlea    0x2fb9(%rip),%rdi        # 4010 <completed.0>
    1057:\tret

0000000000001110 <ns_run>:
    1110:\tpush   %rbp
    1111:\tvmovups (%rax),%zmm0
    1117:\tvfmadd231ps (%rdx),%zmm1,%zmm0
    111d:\tvfmadd132ss %xmm2,%xmm1,%xmm0
    1122:\tvaddps %ymm1,%ymm0,%ymm0
    1126:\tcall   1030 <expf@plt>
    112b:\tbnd jmp 1110 <ns_run>
    112f:\tret
    1130:\tnopw   0x0(%rax,%rax,1)
    1139:\tcs nopw 0x0(%rax,%rax,1)
    113e:\txchg   %ax,%ax
";

    #[test]
    fn instructions_of_the_program_are_counted_and_padding_and_start_up_code_are_not() {
        let counts = count_in(LISTING);
        assert_eq!((counts.instructions, counts.wide_vector, counts.fma), (8, 3, 2));
    }

    #[test]
    fn arm_registers_and_instructions_are_known() {
        let listing = "0000000000000710 <ns_run>:\n     710:\tld1w\t{z0.s}, p0/z, [x1]\n     \
                       714:\tfmla\tz0.s, p0/m, z1.s, z2.s\n     718:\tfmla\tv0.4s, v1.4s, v2.4s\n     71c:\tret\n";
        assert_eq!(count_in(listing), Counts { instructions: 4, wide_vector: 2, fma: 2, inner_loop: None });
    }

    #[test]
    fn a_text_that_is_no_listing_counts_nothing() {
        assert_eq!(count_in("objdump: candidate.so: file format not recognized\n"), Counts::default());
    }
}
