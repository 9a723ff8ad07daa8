//! What `ptxas -v` tells of each kernel.

use nightshift_protocol::cuda_build::KernelBuild;

use super::arch::Arch;
use super::needed::readable;
use super::occupancy;

/// Maximum number of kernels of one library that are kept.
pub const MAX_KERNELS: usize = 256;

/// The kernels in a compiler's output, in its order, with their symbols in place of names.
///
/// Lines that are not understood are passed over: what a kernel's lines do not say stays 0.
#[must_use]
pub fn kernels(output: &str) -> Vec<KernelBuild> {
    let mut kernels: Vec<KernelBuild> = Vec::new();
    let mut described = None;
    let mut full = false;
    for line in output.lines() {
        if let Some(symbol) = quoted_after(line, "Compiling entry function '") {
            described = None;
            full = kernels.len() >= MAX_KERNELS;
            if !full {
                kernels.push(KernelBuild {
                    name: symbol.to_owned(),
                    symbol: symbol.to_owned(),
                    ..KernelBuild::default()
                });
            }
        } else if let Some((_, symbol)) = line.split_once("Function properties for ") {
            described = Some(symbol.trim());
        } else if let Some(kernel) = kernels.last_mut().filter(|_| !full) {
            if let Some(properties) = line.strip_prefix("    ").filter(|line| line.contains("bytes stack frame")) {
                // A function that was not inlined has properties of its own.
                if described.is_none_or(|symbol| symbol == kernel.symbol) {
                    read_stack(kernel, properties);
                }
            } else if let Some((_, usage)) = line.split_once(": Used ") {
                read_usage(kernel, usage);
            }
        }
    }
    kernels
}

/// Names kernels, computes their occupancy, and sorts them by name.
pub(crate) fn describe(kernels: &mut [KernelBuild], arch: Arch) {
    let multiprocessor = arch.multiprocessor();
    for kernel in kernels.iter_mut() {
        kernel.name = readable(&kernel.symbol);
        kernel.occupancy = multiprocessor.as_ref().map(|multiprocessor| occupancy::limits(kernel, multiprocessor));
    }
    kernels.sort_by(|one, other| (&one.name, &one.symbol).cmp(&(&other.name, &other.symbol)));
}

fn quoted_after<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(before)?;
    rest.split_once('\'').map(|(quoted, _)| quoted)
}

/// `0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`
fn read_stack(kernel: &mut KernelBuild, properties: &str) {
    for (bytes, what) in quantities(properties) {
        match what {
            "bytes stack frame" => kernel.stack_bytes = bytes,
            "bytes spill stores" => kernel.spill_store_bytes = bytes,
            "bytes spill loads" => kernel.spill_load_bytes = bytes,
            _ => {}
        }
    }
}

/// `32 registers, used 1 barriers, 2080 bytes cumulative stack size, 2176 bytes smem, 380 bytes cmem[0]`
fn read_usage(kernel: &mut KernelBuild, usage: &str) {
    for (count, what) in quantities(usage) {
        match what {
            "registers" => kernel.registers = u32::try_from(count).unwrap_or(u32::MAX),
            "barriers" => kernel.barriers = u32::try_from(count).unwrap_or(u32::MAX),
            "bytes cumulative stack size" => kernel.stack_bytes = kernel.stack_bytes.max(count),
            "bytes smem" => kernel.shared_bytes = count,
            _ if what.starts_with("bytes cmem[") => kernel.constant_bytes = kernel.constant_bytes.saturating_add(count),
            _ => {}
        }
    }
}

/// The parts of a list, each a number and what it counts.
fn quantities(list: &str) -> impl Iterator<Item = (u64, &str)> {
    list.split(',').filter_map(|part| {
        let part = part.trim();
        let (number, what) = part.strip_prefix("used ").unwrap_or(part).split_once(' ')?;
        Some((number.parse().ok()?, what.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: &str = include_str!("../../tests/fixtures/nvcc_ptxas_v.txt");

    #[test]
    fn a_real_report_is_read() {
        let kernels = kernels(REAL);
        let read: Vec<_> =
            kernels.iter().map(|k| (k.symbol.as_str(), k.registers, k.barriers, k.shared_bytes)).collect();
        assert_eq!(read, [("_Z6matmulPKfS0_Pfi", 32, 1, 2176), ("_Z5saxpyPKfS0_Pfi", 12, 0, 0)]);
        assert!(kernels.iter().all(|kernel| !kernel.spills() && kernel.stack_bytes == 0));
    }

    #[test]
    fn a_damaged_report_gives_what_can_be_read_of_it() {
        // Cut anywhere, whole kernels stay what they were.
        for end in 0..REAL.len() {
            let read = kernels(REAL.get(..end).unwrap_or_default());
            assert!(read.len() <= 2);
            if read.len() == 2 {
                assert_eq!(read.first().map(|kernel| (kernel.registers, kernel.shared_bytes)), Some((32, 2176)));
            }
        }
        let lines: Vec<&str> = REAL.lines().rev().collect();
        assert_eq!(kernels(&lines.join("\n")).len(), 2);
        let garbled = REAL.replace("32 registers", "many registers").replace("Used 12", "Used -12");
        assert!(kernels(&garbled).iter().all(|kernel| kernel.registers == 0));
    }

    const SPILLS: &str = "\
ptxas info    : 0 bytes gmem, 24 bytes cmem[4]
ptxas info    : Compiling entry function '_Z5heavyPf' for 'sm_80'
ptxas info    : Function properties for _Z5heavyPf
    2080 bytes stack frame, 1432 bytes spill stores, 1840 bytes spill loads
ptxas info    : Function properties for _Z6helperf
    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 2096 bytes cumulative stack size, 48 bytes smem, 360 bytes cmem[0], 8 bytes cmem[2]
";

    #[test]
    fn spills_of_a_kernel_are_not_mixed_with_those_of_the_functions_it_calls() {
        assert_eq!(
            kernels(SPILLS),
            [KernelBuild {
                name: "_Z5heavyPf".to_owned(),
                symbol: "_Z5heavyPf".to_owned(),
                registers: 255,
                barriers: 0,
                shared_bytes: 48,
                stack_bytes: 2096,
                spill_store_bytes: 1432,
                spill_load_bytes: 1840,
                constant_bytes: 368,
                ..KernelBuild::default()
            }]
        );
    }

    #[test]
    fn an_older_report_without_barriers_is_read() {
        let output = "ptxas info    : Compiling entry function 'k' for 'sm_70'\n\
                      ptxas info    : Used 10 registers, 352 bytes cmem[0]\n";
        let kernels = kernels(output);
        assert_eq!(
            kernels.iter().map(|k| (k.registers, k.barriers, k.constant_bytes)).collect::<Vec<_>>(),
            [(10, 0, 352)]
        );
    }

    #[test]
    fn a_flood_of_kernels_is_cut_and_the_last_kept_one_is_not_overwritten() {
        let outputs: Vec<String> = (0..MAX_KERNELS + 10)
            .map(|n| {
                format!(
                    "ptxas info    : Compiling entry function 'k{n}' for 'sm_90'\n\
                     ptxas info    : Used {n} registers, used 0 barriers\n"
                )
            })
            .collect();
        let kernels = kernels(&outputs.concat());
        assert_eq!(kernels.len(), MAX_KERNELS);
        assert_eq!(kernels.last().map(|k| k.registers as usize), Some(MAX_KERNELS - 1));
    }
}
