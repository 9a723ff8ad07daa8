//! What the machine code of kernels consists of: counts in a listing of `nvdisasm` or `cuobjdump`.

use std::collections::BTreeMap;

use nightshift_protocol::cuda_build::SassCounts;

/// Counts by the symbol of the function.
#[must_use]
pub fn count_in(listing: &str) -> BTreeMap<String, SassCounts> {
    let mut functions: BTreeMap<String, SassCounts> = BTreeMap::new();
    let mut current = None;
    for line in listing.lines() {
        if let Some(symbol) = heading(line) {
            current = Some(symbol.to_owned());
        } else if let Some((symbol, instruction)) = current.as_ref().zip(instruction(line)) {
            add(functions.entry(symbol.clone()).or_default(), instruction);
        }
    }
    functions
}

/// `.section .text.SYMBOL,"ax"` of nvdisasm, `Function : SYMBOL` of cuobjdump.
fn heading(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(symbol) = line.strip_prefix("Function : ") {
        return Some(symbol.trim());
    }
    let section = line.strip_prefix(".section")?.trim_start();
    // Any other section ends the code before it.
    let name = section.split(',').next().unwrap_or(section).trim().trim_matches('"');
    Some(name.strip_prefix(".text.").unwrap_or_default())
}

/// ``/*0140*/   @P0 BRA `(.L_x_1) ;``: the instruction with its modifiers.
fn instruction(line: &str) -> Option<&str> {
    let (address, text) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut text = text.trim_start();
    if let Some(guarded) = text.strip_prefix('@') {
        text = guarded.split_once(char::is_whitespace)?.1.trim_start();
    }
    let name = text.split(|c: char| c.is_whitespace() || c == ';').next()?;
    // Data of a listing begins with a dot; the second half of a code word stands alone in a comment.
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase());
    is_name.then_some(name)
}

fn add(counts: &mut SassCounts, instruction: &str) {
    let mut parts = instruction.split('.');
    let name = parts.next().unwrap_or_default();
    if name == "NOP" {
        return;
    }
    let modifiers: Vec<&str> = parts.collect();
    let has = |modifier: &str| modifiers.contains(&modifier);
    counts.instructions += 1;

    let is_group = name.ends_with("GMMA") || (name.starts_with("UTC") && name.ends_with("MMA"));
    let is_warp = ["HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA"].contains(&name);
    counts.tensor_core += u64::from(is_group || is_warp);
    counts.tensor_core_group += u64::from(is_group);

    let (global_load, global_store) = (["LDG", "LD"].contains(&name), ["STG", "ST"].contains(&name));
    let (shared_load, shared_store) = (["LDS", "LDSM"].contains(&name), ["STS", "STSM"].contains(&name));
    counts.global_loads += u64::from(global_load);
    counts.global_stores += u64::from(global_store);
    counts.shared_loads += u64::from(shared_load);
    counts.shared_stores += u64::from(shared_store);
    // A matrix load gives each thread 4 bytes of each of its matrices.
    let is_matrix = ["LDSM", "STSM"].contains(&name);
    let is_128 = has("128") || has("256") || (is_matrix && has("4"));
    let is_64 = has("64") || (is_matrix && has("2"));
    let (load, store) = (global_load || shared_load, global_store || shared_store);
    counts.loads_128 += u64::from(load && is_128);
    counts.loads_64 += u64::from(load && is_64);
    counts.stores_128 += u64::from(store && is_128);
    counts.stores_64 += u64::from(store && is_64);

    counts.async_copies += u64::from(name == "LDGSTS");
    counts.bulk_copies += u64::from(["UBLKCP", "UTMALDG", "UTMASTG"].contains(&name));
    let is_atomic = name.starts_with("ATOM")
        || ["RED", "REDG", "REDS", "REDAS", "SURED", "SUATOM", "UBLKRED", "UTMAREDG"].contains(&name);
    counts.atomics += u64::from(is_atomic);
    counts.local_loads += u64::from(name == "LDL");
    counts.local_stores += u64::from(name == "STL");
    counts.barriers += u64::from(name == "BAR" || name.starts_with("UCGABAR"));
    counts.shared_barriers += u64::from(name == "SYNCS");
    counts.warp_exchanges += u64::from(["SHFL", "REDUX", "CREDUX", "VOTE", "VOTEU", "MATCH"].contains(&name));
    counts.ffma += u64::from(["FFMA", "FFMA2", "FFMA32I"].contains(&name));
    counts.hfma += u64::from(["HFMA2", "HFMA2_MMA", "HFMA2_32I"].contains(&name));
    counts.dfma += u64::from(name == "DFMA");
    counts.special_function += u64::from(name == "MUFU");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
\t.target\tsm_90a

//--------------------- .text._Z1kPf --------------------------
\t.section\t.text._Z1kPf,\"ax\",@progbits
\t.align\t128
.text._Z1kPf:
        .type           _Z1kPf,@function
_Z1kPf:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0080*/                   LDG.E.128.CONSTANT R4, desc[UR6][R4.64] ;
        /*0090*/                   LDG.E.LTC128B R4, desc[UR6][R4.64] ;
        /*00a0*/              @!P0 LDG.E.64 R4, desc[UR6][R4.64] ;
        /*0110*/                   LDSM.16.M88.4 R8, [R2] ;
        /*0120*/                   STS.64 [R11], R0 ;
        /*0130*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0140*/               @P0 BRA `(.L_x_1) ;
        /*0150*/                   HFMA2.MMA R11, -RZ, RZ, 0.96, -0.002 ;
        /*0160*/                   HMMA.16816.F32 R4, R4, R8, R4 ;
        /*0170*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;
        /*0180*/                   LDGSTS.E.BYPASS.128 [R4], desc[UR6][R4.64] ;
        /*0190*/                   UTMALDG.2D [UR8], [UR4] ;
        /*01a0*/                   REDG.E.ADD.F32 desc[UR6][R2.64], R4 ;
        /*01b0*/                   ATOMS.ADD RZ, [R2], R4 ;
        /*01c0*/                   LDL.64 R2, [R1] ;
        /*01d0*/                   STL [R1], R2 ;
        /*01e0*/                   SYNCS.ARRIVE.TRANS64 RZ, [UR4], RZ ;
        /*01f0*/                   SHFL.BFLY PT, R4, R4, 0x10, 0x1f ;
        /*0200*/                   FFMA.FTZ R4, R4, R5, R6 ;
        /*0210*/                   MUFU.EX2 R15, R14 ;
        /*0280*/                   STG.E.128 desc[UR6][R12.64], R8 ;
        /*0290*/                   NOP ;
\t.section\t.nv.shared._Z1kPf,\"aw\",@nobits
        /*0000*/ \t.byte\t0xff, 0xff
\t.section\t.text._Z1gv,\"ax\",@progbits
        /*0000*/                   EXIT ;
";

    #[test]
    fn instructions_are_counted_by_kind_and_function() {
        let functions = count_in(LISTING);
        assert_eq!(functions.keys().collect::<Vec<_>>(), ["_Z1gv", "_Z1kPf"]);
        assert_eq!(functions.get("_Z1gv").map(|counts| counts.instructions), Some(1));
        assert_eq!(
            functions.get("_Z1kPf"),
            Some(&SassCounts {
                instructions: 22,
                tensor_core: 2,
                tensor_core_group: 1,
                global_loads: 3,
                global_stores: 1,
                shared_loads: 1,
                shared_stores: 1,
                loads_128: 2,
                loads_64: 1,
                stores_128: 1,
                stores_64: 1,
                async_copies: 1,
                bulk_copies: 1,
                atomics: 2,
                local_loads: 1,
                local_stores: 1,
                barriers: 1,
                shared_barriers: 1,
                warp_exchanges: 1,
                ffma: 1,
                hfma: 1,
                dfma: 0,
                special_function: 1,
            })
        );
    }

    #[test]
    fn the_other_disassemblers_listing_counts_the_same() {
        let listing = "\
\tcode for sm_90a
\t\tFunction : _Z1kPf
\t.headerflags\t@\"EF_CUDA_SM90\"
        /*0080*/                   LDG.E.128.CONSTANT R4, desc[UR6][R4.64] ;      /* 0x0000000604047981 */
                                                                                  /* 0x000ea2000c1e9d00 */
        /*0090*/                   UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8] ;    /* 0x0000000604047981 */
";
        let counts = count_in(listing).remove("_Z1kPf").unwrap_or_default();
        assert_eq!((counts.instructions, counts.loads_128, counts.tensor_core_group), (2, 1, 1));
    }

    #[test]
    fn a_text_that_is_no_listing_counts_nothing() {
        for text in ["", "nvdisasm fatal   : Cannot open object file x", "/*zz*/ LDG", "/*0000*/ LDG ;"] {
            assert!(count_in(text).is_empty(), "{text}");
        }
    }
}
