//! What the compiler and the disassembler made of it.

use leptos::prelude::*;
use nightshift_protocol::attempt::{Attempt, BuildReport};
use nightshift_protocol::cuda_build::{CudaBuild, KernelBuild, OccupancyLimiter, SassCounts};
use nightshift_protocol::measurement::{CompilerMessage, CompilerReport, LoopNote};

use super::material::{Material, Stored};
use crate::chart::{Unit, float_u64, show};
use crate::format::{bytes, count};
use crate::page::components::{Cell, artifact, facts, folded, isolation, milliseconds, sentences, table, verbatim};

/// Longest output of a compiler that is shown, in bytes.
const MAX_LOG_BYTES: usize = 128 << 10;

/// The section; none when nothing was built.
pub(super) fn section(attempt: &Attempt, material: &Material) -> Option<AnyView> {
    let build = attempt.build.as_ref()?;
    let sums = facts(&[
        ("The compiler", build.end.describe().into()),
        ("Toolchain", format!("{} ({})", build.toolchain.version, build.toolchain.path).into()),
        ("Program", build.toolchain.program.clone().into()),
        ("Took", milliseconds(float_u64(build.duration_ms)).into()),
        ("From the cache", if build.cached { "yes" } else { "no" }.into()),
        ("Library", build.library.as_ref().map_or_else(|| "none".into(), artifact)),
        ("Key of the build", Cell::Code(build.build_key.clone())),
        ("Fingerprint of the toolchain", Cell::Code(build.toolchain.fingerprint.clone())),
    ]);
    let flags = &build.toolchain.flags;
    let flags = (!flags.is_empty())
        .then(|| folded(format!("Flags ({})", flags.len()), verbatim(&flags.join(" "), MAX_LOG_BYTES)));
    let messages = messages(build);
    let cuda = build.cuda.as_ref().map(cuda);
    let log = match &material.build_log {
        Stored::Here(text) if !text.trim().is_empty() => folded("Compiler output", verbatim(text, MAX_LOG_BYTES)),
        Stored::Gone(why) => sentences(&[format!("The compiler's output cannot be shown: {why}")]),
        Stored::Here(_) | Stored::Never => ().into_any(),
    };
    let means = folded(format!("Isolation of the compiler: {}", build.sandbox.summary()), isolation(&build.sandbox));
    Some(view! { {sums}{flags}{messages}{cuda}{report(&build.report)}{log}{means} }.into_any())
}

fn messages(build: &BuildReport) -> AnyView {
    let rows: Vec<Vec<Cell>> = build
        .messages
        .iter()
        .map(|message| {
            let class = if message.severity == "error" { "problem" } else { "busy" };
            let place = format!("{}:{}:{}", message.file, message.line, message.column);
            vec![
                Cell::Tag(class.to_owned(), message.severity.clone()),
                match message.line {
                    0 => message.file.clone().into(),
                    line if is_of_program(message) => Cell::Link(format!("#L{line}"), place),
                    _ => place.into(),
                },
                message.message.clone().into(),
            ]
        })
        .collect();
    table(&["Severity", "Where", "Message"], &rows)
}

/// Returns whether a message is about the attempt's own source, and not about a header. Python programs have the same names.
pub(super) fn is_of_program(message: &CompilerMessage) -> bool {
    matches!(message.file.as_str(), "candidate.cu" | "candidate.cpp")
}

/// What the compiler and the disassembly tell of a library for processors.
pub(super) fn report(report: &CompilerReport) -> AnyView {
    let sums = facts(&[
        ("Instructions", count(report.instructions).into()),
        ("On wide vector registers", count(report.wide_vector_instructions).into()),
        ("Fused multiply-adds", count(report.fma_instructions).into()),
        ("Scalar mathematics called", report.scalar_math_calls.join(", ").into()),
        ("Size of the library", bytes(report.library_bytes).into()),
    ]);
    let loops = |notes: &[LoopNote], class: &str, what: &str| -> Vec<Vec<Cell>> {
        notes
            .iter()
            .map(|note| {
                let line = Cell::Link(format!("#L{}", note.line), format!("line {}", note.line));
                vec![Cell::Tag(class.to_owned(), what.to_owned()), line, note.message.clone().into()]
            })
            .collect()
    };
    let mut rows = loops(&report.missed_loops, "busy", "not vectorized");
    rows.extend(loops(&report.vectorized_loops, "good", "vectorized"));
    let loops = table(&["Loop", "Where", "The compiler says"], &rows);
    let inner_loop = report.inner_loop.as_ref().map(|found| {
        let counts = facts(&[
            ("Function", found.function.clone().into()),
            ("Instructions", count(found.instructions).into()),
            ("Floating-point arithmetic", count(found.arithmetic).into()),
            ("Loads", count(found.loads).into()),
            ("Stores", count(found.stores).into()),
            ("Shuffles", count(found.shuffles).into()),
            ("Accesses to the stack", count(found.stack_accesses).into()),
        ]);
        let assembly = found.assembly.join("\n");
        view! {
            <h3>"Inner loop with most arithmetic"</h3>
            <p class="quiet">"By its machine code; no profiler says that the time goes there."</p>
            {counts}
            <pre>{assembly}</pre>
        }
    });
    view! { <h3>"Compiler report"</h3>{sums}{loops}{inner_loop} }.into_any()
}

fn cuda(build: &CudaBuild) -> AnyView {
    let sums = facts(&[
        ("Architecture", build.arch.clone().into()),
        ("Libraries it needs", build.libraries.join(", ").into()),
        ("Instructions not counted", build.uncounted.clone().into()),
    ]);
    let rows: Vec<Vec<Cell>> = build.kernels.iter().map(kernel).collect();
    let head = [
        "Kernel",
        "Registers",
        "Spills out, in",
        "Shared",
        "Stack",
        "Constant",
        "Barriers",
        "Block at most",
        "Warps by registers",
        "Blocks by shared memory",
        "Occupancy",
        "Limited by",
    ];
    let kernels = table(&head, &rows);
    let counted: Vec<Vec<Cell>> =
        build.kernels.iter().filter_map(|kernel| kernel.sass.as_ref().map(|sass| instructions(kernel, sass))).collect();
    let names = instruction_names();
    let sass = (!counted.is_empty())
        .then(|| folded("Instructions by kind, as they stand in the machine code", table(&names, &counted)));
    view! { <h3 id="kernels-built">"Kernels as they were built"</h3>{sums}{kernels}{sass} }.into_any()
}

fn kernel(kernel: &KernelBuild) -> Vec<Cell> {
    let limits = kernel.occupancy.as_ref();
    let of_block = limits.and_then(|limits| limits.of_block.as_ref().map(|block| (block, block.share(limits))));
    let limited_by = of_block.map_or("", |(block, _)| match block.limited_by {
        OccupancyLimiter::Registers => "registers",
        OccupancyLimiter::SharedMemory => "shared memory",
        OccupancyLimiter::Warps => "warps",
        OccupancyLimiter::Blocks => "blocks",
    });
    let occupancy = of_block.map_or_else(String::new, |(block, share)| {
        format!(
            "{}: {} blocks of {}, {} warps",
            show(share, Unit::Share),
            block.blocks,
            block.block_threads,
            block.warps
        )
    });
    let spills = format!("{} B, {} B", kernel.spill_store_bytes, kernel.spill_load_bytes);
    let number = |count: String| Cell::Number(count);
    vec![
        Cell::Code(kernel.name.clone()),
        number(kernel.registers.to_string()),
        if kernel.spills() { Cell::Tag("problem".to_owned(), spills) } else { Cell::Quiet("none".to_owned()) },
        number(bytes(kernel.shared_bytes)),
        number(bytes(kernel.stack_bytes)),
        number(bytes(kernel.constant_bytes)),
        number(kernel.barriers.to_string()),
        number(kernel.max_block_threads.map_or_else(String::new, |threads| format!("{threads} threads"))),
        number(
            limits.map_or_else(String::new, |limits| format!("{} of {}", limits.warps_by_registers, limits.max_warps)),
        ),
        number(limits.map_or_else(String::new, |limits| limits.blocks_by_shared_memory.to_string())),
        occupancy.into(),
        limited_by.into(),
    ]
}

/// Names of the counted kinds, in the order of [`instructions`].
fn instruction_names() -> [&'static str; 25] {
    [
        "Kernel",
        "Symbol",
        "All",
        "Tensor cores",
        "By warp groups",
        "Global loads",
        "Global stores",
        "Shared loads",
        "Shared stores",
        "Loads of 16 B",
        "Loads of 8 B",
        "Stores of 16 B",
        "Stores of 8 B",
        "Async copies",
        "Bulk copies",
        "Atomics",
        "Local loads",
        "Local stores",
        "Barriers",
        "Shared barriers",
        "Warp exchanges",
        "FFMA",
        "HFMA",
        "DFMA",
        "Special functions",
    ]
}

fn instructions(kernel: &KernelBuild, sass: &SassCounts) -> Vec<Cell> {
    // Taken apart, so that a kind that is new to the protocol cannot be forgotten here.
    let SassCounts {
        instructions,
        tensor_core,
        tensor_core_group,
        global_loads,
        global_stores,
        shared_loads,
        shared_stores,
        loads_128,
        loads_64,
        stores_128,
        stores_64,
        async_copies,
        bulk_copies,
        atomics,
        local_loads,
        local_stores,
        barriers,
        shared_barriers,
        warp_exchanges,
        ffma,
        hfma,
        dfma,
        special_function,
    } = *sass;
    let counts = [
        instructions,
        tensor_core,
        tensor_core_group,
        global_loads,
        global_stores,
        shared_loads,
        shared_stores,
        loads_128,
        loads_64,
        stores_128,
        stores_64,
        async_copies,
        bulk_copies,
        atomics,
        local_loads,
        local_stores,
        barriers,
        shared_barriers,
        warp_exchanges,
        ffma,
        hfma,
        dfma,
        special_function,
    ];
    let names = [Cell::Code(kernel.name.clone()), Cell::Code(kernel.symbol.clone())];
    names.into_iter().chain(counts.map(|number| Cell::Number(count(number)))).collect()
}
