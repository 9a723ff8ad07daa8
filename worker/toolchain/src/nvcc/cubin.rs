//! Reads facts about kernels from a cubin that the report of ptxas lacks.

use std::collections::BTreeMap;

use object::{Object, ObjectSection};

/// Prefix of the section that holds a kernel's attributes.
const INFO: &str = ".nv.info.";
/// The value follows, its size stands in the head.
const SIZED: u8 = 4;
/// `__launch_bounds__`: three extents.
const MAX_THREADS: u8 = 0x05;
/// The block size that a kernel demands: three extents.
const REQUIRED_THREADS: u8 = 0x10;

/// The most threads that a block of each kernel may have, by symbol, where the source says it.
///
/// The layout of the attributes is what `cuobjdump -elf` prints: one byte for the format, one for the attribute, two
/// for a short value or the size of a long one. A section that does not follow it is passed over.
#[must_use]
pub(crate) fn max_block_threads(cubin: &[u8]) -> BTreeMap<String, u32> {
    let Ok(file) = object::File::parse(cubin) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for section in file.sections() {
        let (Ok(name), Ok(data)) = (section.name(), section.data()) else { continue };
        if let Some(symbol) = name.strip_prefix(INFO)
            && let Some(threads) = threads_in(data)
        {
            found.insert(symbol.to_owned(), threads);
        }
    }
    found
}

fn threads_in(mut attributes: &[u8]) -> Option<u32> {
    while let [format, attribute, low, high, rest @ ..] = attributes {
        let size = if *format == SIZED { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let (value, after) = rest.split_at_checked(size)?;
        if *format == SIZED && [MAX_THREADS, REQUIRED_THREADS].contains(attribute) {
            return product(value);
        }
        attributes = after;
    }
    None
}

/// Three extents of 4 bytes each.
fn product(extents: &[u8]) -> Option<u32> {
    let (extents, rest) = extents.as_chunks::<4>();
    if extents.len() != 3 || !rest.is_empty() {
        return None;
    }
    let threads = extents.iter().try_fold(1_u32, |product, extent| product.checked_mul(u32::from_le_bytes(*extent)))?;
    (threads > 0).then_some(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRIBUTES: [u8; 28] = [
        4, 0x37, 4, 0, 0x82, 0, 0, 0, // an attribute with a value of 4 bytes
        3, 0x1b, 0xff, 0, // one with its value in the head
        4, 0x05, 12, 0, 0, 1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0,
    ];

    #[test]
    fn the_bound_of_a_launch_is_the_product_of_its_extents() {
        assert_eq!(threads_in(&ATTRIBUTES), Some(512));
    }

    #[test]
    fn a_kernel_without_a_bound_has_none() {
        assert_eq!(threads_in(ATTRIBUTES.get(..12).unwrap_or_default()), None);
    }

    #[test]
    fn damage_gives_no_bound() {
        for end in 13..ATTRIBUTES.len() {
            assert_eq!(threads_in(ATTRIBUTES.get(..end).unwrap_or_default()), None, "{end}");
        }
        let mut huge = ATTRIBUTES;
        huge[16..28].fill(0xff);
        assert_eq!(threads_in(&huge), None);
        assert!(max_block_threads(b"no cubin").is_empty());
    }
}
