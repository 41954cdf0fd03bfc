//! Bars drawn to scale: a device with its slices, a use against its limit, a past as a line of blocks.

use tenure_api::v1::gpu::SliceView;

/// The letter a slice goes by, in bars and beside its row.
pub fn letter(index: usize) -> char {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    LETTERS.get(index).map_or('#', |&letter| letter.into())
}

/// Slices beside one another, each as wide as its part of the whole and never narrower than one cell; what is free is
/// dots.
pub fn slices(slices: &[SliceView], part: impl Fn(&SliceView) -> u64, whole: u64, cells: usize) -> String {
    let mut bar = String::new();
    let (mut drawn, mut sum) = (0, 0u64);
    for (index, slice) in slices.iter().enumerate() {
        sum = sum.saturating_add(part(slice));
        // By the sum, so that roundings do not add up.
        let end = scaled(sum, whole, cells)
            .max(drawn + usize::from(part(slice) > 0))
            .min(cells);
        bar.extend(std::iter::repeat_n(letter(index), end - drawn));
        drawn = end;
    }
    bar.extend(std::iter::repeat_n('·', cells - drawn));
    bar
}

/// How full something is; something is seen of the least, and full only what is.
pub fn gauge(used: u64, limit: u64, cells: usize) -> String {
    let full = match limit {
        0 => cells,
        _ if used >= limit => cells,
        _ => scaled(used, limit, cells)
            .max(usize::from(used > 0))
            .min(cells.saturating_sub(1)),
    };
    let mut bar = "█".repeat(full);
    bar.push_str(&"░".repeat(cells - full));
    bar
}

fn scaled(part: u64, whole: u64, cells: usize) -> usize {
    if whole == 0 {
        return 0;
    }
    let rounded = (u128::from(part) * cells as u128 * 2 + u128::from(whole)) / (u128::from(whole) * 2);
    rounded.min(cells as u128) as usize
}

/// Shares over time; a space where nothing is known.
pub fn line(shares_permille: &[Option<u16>]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let block = |share: u16| BLOCKS[(usize::from(share.min(1000)) * 7).div_ceil(1000)];
    shares_permille
        .iter()
        .map(|share| share.map_or(' ', block))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(compute_permille: u16) -> SliceView {
        SliceView {
            vram_mib: 1,
            compute_permille,
            holder: None,
            used: None,
        }
    }

    fn drawn(permille: &[u16], cells: usize) -> String {
        let all: Vec<SliceView> = permille.iter().copied().map(slice).collect();
        slices(&all, |slice| slice.compute_permille.into(), 1000, cells)
    }

    #[test]
    fn slices_are_to_scale_and_none_is_lost() {
        assert_eq!(drawn(&[300, 500], 10), "aaabbbbb··");
        assert_eq!(drawn(&[1, 999], 10), "abbbbbbbbb");
        assert_eq!(drawn(&[333, 333, 334], 10), "aaabbbbccc");
        assert_eq!(drawn(&[], 4), "····");
        assert_eq!(drawn(&[10; 50], 3), "abc", "no wider than there is room");
        assert_eq!(drawn(&[500], 0), "");
    }

    #[test]
    fn only_what_is_full_looks_full() {
        assert_eq!(gauge(0, 10, 4), "░░░░");
        assert_eq!(gauge(1, 1000, 4), "█░░░");
        assert_eq!(gauge(999, 1000, 4), "███░");
        assert_eq!(gauge(1000, 1000, 4), "████");
        assert_eq!(gauge(u64::MAX, 1, 4), "████");
        assert_eq!(gauge(5, 0, 4), "████");
        assert_eq!(gauge(5, 10, 0), "");
    }

    #[test]
    fn a_past_has_holes_where_nothing_was_read() {
        assert_eq!(line(&[None, Some(0), Some(1), Some(500), Some(1000)]), " ▁▂▅█");
    }
}
