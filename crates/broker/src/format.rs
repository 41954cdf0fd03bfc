//! Pixels: how many bytes one takes, and which sides an image of a kind has.

use crate::abi::{
    MEM_OBJECT_IMAGE1D, MEM_OBJECT_IMAGE1D_ARRAY, MEM_OBJECT_IMAGE1D_BUFFER, MEM_OBJECT_IMAGE2D,
    MEM_OBJECT_IMAGE2D_ARRAY, MEM_OBJECT_IMAGE3D,
};

/// Bytes of a pixel; none for a format that is not known.
pub fn element_bytes(order: u32, channel: u32) -> Option<u64> {
    // CL_R, CL_A, CL_RG, CL_RA, CL_RGB, CL_RGBA, CL_BGRA, CL_ARGB, intensity, luminance, Rx, RGx, RGBx, depth,
    // depth-stencil, sRGB, sRGBx, sRGBA, sBGRA, ABGR.
    let channels = match order {
        0x10B0 | 0x10B1 | 0x10B8 | 0x10B9 | 0x10BD => 1,
        0x10B2 | 0x10B3 | 0x10BA => 2,
        0x10B4 | 0x10BC | 0x10BF => 3,
        0x10BB => 3,
        0x10B5 | 0x10B6 | 0x10B7 | 0x10C0 | 0x10C1 | 0x10C2 | 0x10C3 => 4,
        _ => return None,
    };
    Some(match channel {
        // 8-bit
        0x10D0 | 0x10D2 | 0x10D7 | 0x10DA => channels,
        // 16-bit and half
        0x10D1 | 0x10D3 | 0x10D8 | 0x10DB | 0x10DD => channels * 2,
        // 32-bit
        0x10D9 | 0x10DC | 0x10DE => channels * 4,
        // packed 565 and 555
        0x10D4 | 0x10D5 => 2,
        // packed 101010
        0x10D6 | 0x10E0 => 4,
        _ => return None,
    })
}

/// The sides of an image as regions see them. `shape`: kind, width, height, depth, array, ….
pub fn sides(shape: &[u64; 9]) -> Option<[u64; 3]> {
    let [kind, width, height, depth, array, ..] = *shape;
    let sides = match kind {
        MEM_OBJECT_IMAGE1D | MEM_OBJECT_IMAGE1D_BUFFER => [width, 1, 1],
        MEM_OBJECT_IMAGE2D => [width, height, 1],
        MEM_OBJECT_IMAGE3D => [width, height, depth],
        MEM_OBJECT_IMAGE1D_ARRAY => [width, array, 1],
        MEM_OBJECT_IMAGE2D_ARRAY => [width, height, array],
        _ => return None,
    };
    sides.iter().all(|side| *side > 0).then_some(sides)
}

/// Bytes of a packed block of pixels.
pub fn block_bytes(sides: &[u64; 3], element: u64) -> Option<u64> {
    sides.iter().try_fold(element, |all, side| all.checked_mul(*side))
}

/// Whether a region lies within sides.
pub fn within(origin: &[u64; 3], region: &[u64; 3], sides: &[u64; 3]) -> bool {
    (0..3).all(|axis| {
        region[axis] > 0
            && origin[axis]
                .checked_add(region[axis])
                .is_some_and(|end| end <= sides[axis])
    })
}

/// The bytes a block with pitches reaches, from the start of its buffer; none where the pitches make no block.
pub fn rect_reach(origin: &[u64; 3], region: &[u64; 3], row: u64, slice: u64) -> Option<u64> {
    if region.contains(&0) {
        return None;
    }
    let row = if row == 0 { region[0] } else { row };
    let slice = if slice == 0 {
        row.checked_mul(region[1])?
    } else {
        slice
    };
    if row < region[0] || slice < row.checked_mul(region[1])? || !slice.is_multiple_of(row) {
        return None;
    }
    let last = |axis: usize| origin[axis].checked_add(region[axis] - 1);
    let at = last(2)?
        .checked_mul(slice)?
        .checked_add(last(1)?.checked_mul(row)?)?;
    at.checked_add(origin[0])?.checked_add(region[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_reach_as_far_as_their_last_byte() {
        assert_eq!(rect_reach(&[0, 0, 0], &[4, 1, 1], 0, 0), Some(4));
        assert_eq!(rect_reach(&[2, 1, 0], &[4, 2, 1], 10, 0), Some(26));
        assert_eq!(rect_reach(&[0, 0, 1], &[4, 2, 2], 4, 8), Some(24));
        for (origin, region, row, slice) in [
            ([0, 0, 0], [0, 1, 1], 0, 0),
            ([0, 0, 0], [4, 1, 1], 3, 0),
            ([0, 0, 0], [4, 2, 1], 4, 7),
            ([u64::MAX, 0, 0], [4, 1, 1], 0, 0),
            ([0, u64::MAX, 0], [4, 2, 1], 8, 0),
            ([0, 0, 2], [4, 1, 2], 4, u64::MAX / 2),
        ] {
            assert_eq!(rect_reach(&origin, &region, row, slice), None);
        }
    }

    #[test]
    fn regions_lie_within_or_do_not() {
        assert!(within(&[0, 0, 0], &[4, 4, 1], &[4, 4, 1]));
        assert!(!within(&[1, 0, 0], &[4, 4, 1], &[4, 4, 1]));
        assert!(!within(&[0, 0, 0], &[4, 0, 1], &[4, 4, 1]));
        assert!(!within(&[u64::MAX, 0, 0], &[2, 1, 1], &[4, 4, 1]));
    }
}
