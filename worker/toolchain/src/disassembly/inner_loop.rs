//! The inner loop of a program that does most of the arithmetic, as far as its machine code tells: no profiler says that the time
//! goes there.

use nightshift_protocol::measurement::InnerLoop;

/// Maximum number of instructions of a loop that are shown.
const MAX_SHOWN: usize = 64;

/// A function of the program.
#[derive(Debug)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) instructions: Vec<Instruction<'a>>,
}

/// An instruction, without padding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction<'a> {
    pub(super) address: u64,
    pub(super) mnemonic: &'a str,
    pub(super) operands: &'a str,
    pub(super) text: &'a str,
}

/// Returns the loop that has most arithmetic on vectors, of those that have no loop inside.
pub(super) fn busiest(functions: &[Function<'_>]) -> Option<InnerLoop> {
    let loops = functions.iter().flat_map(|function| inner_loops(function).map(|body| (function.name, body)));
    let rated = loops.map(|(name, body)| {
        let operations: usize = body.iter().filter(|one| is_arithmetic(one)).map(lanes).sum();
        (operations, name, body)
    });
    let (arithmetic, name, body) = rated.max_by_key(|(arithmetic, _, body)| (*arithmetic, body.len()))?;
    (arithmetic > 0).then(|| told(name, body))
}

/// Runs of instructions that end with a jump back to their first one, and hold no other such run.
fn inner_loops<'a, 'b>(function: &'b Function<'a>) -> impl Iterator<Item = &'b [Instruction<'a>]> {
    let all = &function.instructions;
    let runs = all.iter().enumerate().filter_map(|(end, jump)| {
        let begin = all[..=end].binary_search_by_key(&target(jump)?, |one| one.address).ok()?;
        Some((begin, end))
    });
    let runs: Vec<(usize, usize)> = runs.collect();
    let holds =
        |outer: (usize, usize), inner: (usize, usize)| outer != inner && outer.0 <= inner.0 && inner.1 <= outer.1;
    let inner: Vec<_> = runs.iter().copied().filter(|run| !runs.iter().any(|other| holds(*run, *other))).collect();
    inner.into_iter().map(|(begin, end)| &all[begin..=end])
}

/// Returns the address that a jump names; nothing of calls and other instructions.
fn target(instruction: &Instruction<'_>) -> Option<u64> {
    let is_jump = ["j", "b.", "cbz", "cbnz", "tbz", "tbnz"].iter().any(|name| instruction.mnemonic.starts_with(name))
        || instruction.mnemonic == "b";
    let (before, _) = instruction.operands.split_once('<').filter(|_| is_jump)?;
    let address = before.rsplit([',', ' ', '\t']).find(|word| !word.is_empty())?;
    u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()
}

fn told(function: &str, body: &[Instruction<'_>]) -> InnerLoop {
    let count =
        |is: fn(&Instruction<'_>) -> bool| u64::try_from(body.iter().filter(|one| is(one)).count()).unwrap_or(0);
    InnerLoop {
        function: function.to_owned(),
        instructions: body.len() as u64,
        arithmetic: count(is_arithmetic),
        loads: count(loads),
        stores: count(stores),
        shuffles: count(is_shuffle),
        stack_accesses: count(touches_stack),
        assembly: body
            .iter()
            .take(MAX_SHOWN)
            .map(|one| one.text.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect(),
    }
}

/// Arithmetic of floating-point numbers, on vectors or single ones.
fn is_arithmetic(one: &Instruction<'_>) -> bool {
    let name = one.mnemonic.strip_prefix('v').unwrap_or(one.mnemonic);
    let of_x86 = ["fmadd", "fmsub", "fnmadd", "fnmsub", "add", "sub", "mul", "div", "max", "min", "sqrt", "dp"];
    let is_float = ["ps", "pd", "ss", "sd", "ph", "bf16"].iter().any(|kind| name.ends_with(kind));
    let of_arm = ["fmla", "fmls", "fmadd", "fmsub", "fadd", "fsub", "fmul", "fdiv", "fmax", "fmin", "fsqrt", "bfmmla"];
    (is_float && of_x86.iter().any(|prefix| name.starts_with(prefix)))
        || of_arm.iter().any(|prefix| one.mnemonic.starts_with(prefix))
}

/// Returns the numbers that an arithmetic instruction computes. Vectors of unknown length count as the shortest ones.
fn lanes(one: &Instruction<'_>) -> usize {
    if one.operands.contains('%') {
        let ends_with = |kinds: &[&str]| kinds.iter().any(|kind| one.mnemonic.ends_with(kind));
        let bits = if one.operands.contains("%zmm") {
            512
        } else if one.operands.contains("%ymm") {
            256
        } else {
            128
        };
        return match () {
            () if ends_with(&["ss", "sd"]) => 1,
            () if ends_with(&["pd"]) => bits / 64,
            () if ends_with(&["ph"]) => bits / 16,
            () => bits / 32,
        };
    }
    // On Arm, `v0.4s` and `z0.s` are vectors, and `s0` is a number.
    let Some((_, arrangement)) = one.operands.split_once('.') else { return 1 };
    let digits: String = arrangement.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(match arrangement.as_bytes().first() {
        Some(b'd') => 2,
        Some(b'h') => 8,
        _ => 4,
    })
}

fn is_shuffle(one: &Instruction<'_>) -> bool {
    let name = one.mnemonic.strip_prefix('v').unwrap_or(one.mnemonic);
    let of_x86 = ["perm", "shuf", "unpck", "punpck", "pshuf", "palignr", "align", "insert", "extract", "pack", "blend"];
    let of_arm = ["zip", "uzp", "trn", "ext", "tbl", "rev"];
    of_x86.iter().any(|prefix| name.starts_with(prefix)) || of_arm.iter().any(|prefix| one.mnemonic.starts_with(prefix))
}

/// Memory is written as `8(%rax)` on x86, where the last operand is what is written to, and as `[x1]` on Arm.
fn loads(one: &Instruction<'_>) -> bool {
    if one.operands.contains('[') {
        return one.mnemonic.starts_with("ld");
    }
    let is_address = one.mnemonic.starts_with("lea") || one.mnemonic.starts_with("prefetch");
    !is_address && one.operands.contains('(') && (!one.operands.ends_with(')') || one.mnemonic.starts_with("cmp"))
}

fn stores(one: &Instruction<'_>) -> bool {
    if one.operands.contains('[') {
        return one.mnemonic.starts_with("st");
    }
    let is_move = one.mnemonic.contains("mov") || one.mnemonic.starts_with("vextract");
    is_move && one.operands.contains(',') && one.operands.ends_with(')')
}

/// Returns whether an instruction accesses the stack, as it does for values that did not fit into registers.
fn touches_stack(one: &Instruction<'_>) -> bool {
    one.operands.contains("(%rsp") || one.operands.contains("[sp")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::super::count_in;

    const LISTING: &str = "\
0000000000001110 <ns_run>:
    1110:\tpush   %rbp
    1111:\tvmovups (%rsi),%ymm0
    1115:\tvmovups 0x20(%rsp),%ymm3
    1119:\tvfmadd231ps (%rdx),%ymm1,%ymm0
    111d:\tvpermilps $0x0,%ymm0,%ymm2
    1121:\tvmovups %ymm0,(%rdi)
    1125:\tadd    $0x20,%rsi
    1129:\tcmp    %rcx,%rsi
    112c:\tjne    1111 <ns_run+0x1>
    112e:\taddss  %xmm1,%xmm0
    1132:\tjb     112e <ns_run+0x1e>
    1134:\tjne    1110 <ns_run>
    1136:\tret
";

    #[test]
    fn the_loop_with_most_arithmetic_is_shown_and_loops_around_it_are_not() {
        let found = count_in(LISTING).inner_loop.unwrap();
        assert_eq!((found.function.as_str(), found.instructions), ("ns_run", 8));
        assert_eq!((found.arithmetic, found.loads, found.stores), (1, 3, 1));
        assert_eq!((found.shuffles, found.stack_accesses), (1, 1));
        assert_eq!(found.assembly.first().map(String::as_str), Some("vmovups (%rsi),%ymm0"));
        assert_eq!(found.assembly.last().map(String::as_str), Some("jne 1111 <ns_run+0x1>"));
    }

    #[test]
    fn a_vector_counts_as_the_numbers_that_it_holds() {
        let listing = |vector: &str, scalar: &str| {
            let rest: Vec<String> = (0..6).map(|n| format!("    {:x}:\t{scalar}\n", 0x1120 + 4 * n)).collect();
            let rest = rest.concat();
            format!(
                "0000000000001110 <ns_run>:\n    1110:\t{vector}\n    1114:\tjne    1110 <ns_run>\n{rest}    \
                 1138:\tjb     1120 <ns_run+0x10>\n"
            )
        };
        for (vector, scalar, is_vector) in [
            ("vfmadd231ps (%rdx),%zmm1,%zmm0", "vfmadd231ss (%rdx),%xmm1,%xmm0", true),
            ("vmulpd %zmm1,%zmm0,%zmm0", "vaddsd %xmm1,%xmm0,%xmm0", true),
            ("vmulps %ymm1,%ymm0,%ymm0", "vaddss %xmm1,%xmm0,%xmm0", true),
            ("mulps  %xmm1,%xmm0", "addss  %xmm1,%xmm0", false),
        ] {
            let found = count_in(&listing(vector, scalar)).inner_loop.unwrap();
            assert_eq!(found.arithmetic == 1, is_vector, "{vector}: {found:?}");
        }
    }

    #[test]
    fn loops_of_arm_are_known() {
        let listing = "0000000000000710 <ns_run>:\n     710:\tldr\tq0, [x1], #16\n     714:\tfmla\tv0.4s, v1.4s, v2.4s\n     \
                       718:\tstr\tq0, [x2], #16\n     71c:\tcmp\tx1, x3\n     720:\tb.ne\t710 <ns_run>  // b.any\n     724:\tret\n";
        let found = count_in(listing).inner_loop.unwrap();
        assert_eq!((found.instructions, found.arithmetic, found.loads, found.stores), (5, 1, 1, 1));
    }

    #[test]
    fn a_program_without_a_loop_that_computes_has_none() {
        let listing =
            "0000000000001110 <ns_run>:\n    1110:\tdec    %rcx\n    1112:\tjne    1110 <ns_run>\n    1114:\tret\n";
        assert_eq!(count_in(listing).inner_loop, None);
    }
}
