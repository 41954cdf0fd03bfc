//! The ages at which knowledge about run times is kept: 70 bands, each a fifth longer than the one before.

/// How many bands there are; the last has no end.
pub const BANDS: usize = 70;

/// Below this a job's run time says little; the first band.
const FIRST_S: u64 = 20;

/// Four bands double an age.
const QUARTERS: [u64; 4] = [1000, 1189, 1414, 1682];

/// The age at which a band begins, in seconds of run time.
pub const fn start_s(band: usize) -> u64 {
    if band == 0 {
        return 0;
    }
    let step = band - 1;
    FIRST_S * QUARTERS[step % 4] * (1 << (step / 4)) / 1000
}

/// Where a band ends; the last is given the length the others would have.
pub const fn end_s(band: usize) -> u64 {
    start_s(band + 1)
}

const STARTS: [u64; BANDS] = {
    let mut starts = [0; BANDS];
    let mut band = 0;
    while band < BANDS {
        starts[band] = start_s(band);
        band += 1;
    }
    starts
};

/// The band an age falls into.
pub fn band_of(age_s: u64) -> usize {
    STARTS.partition_point(|&start| start <= age_s) - 1
}

/// When a job of this age should be ranked anew: at the end of its band, or past the twelfth of every second
/// one. None where nothing is learnt any more.
pub fn next_review_s(age_s: u64) -> Option<u64> {
    let next = band_of(age_s) + 1;
    let next = if next > 12 && next % 2 == 1 {
        next + 1
    } else {
        next
    };
    (next < BANDS).then(|| STARTS[next])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_follow_one_another_without_a_gap() {
        for band in 0..BANDS {
            assert!(start_s(band) < end_s(band));
            assert_eq!(band_of(start_s(band)), band);
            assert_eq!(band_of(end_s(band) - 1), band);
        }
        assert_eq!(band_of(u64::MAX), BANDS - 1);
        assert!(
            start_s(BANDS - 1) > 30 * 86_400,
            "a month is told apart from a week"
        );
    }

    #[test]
    fn a_review_lies_ahead() {
        for age in [0, 1, 19, 20, 3_600, 86_400, 1_000_000] {
            assert!(next_review_s(age).unwrap() > age);
        }
        assert_eq!(next_review_s(u64::MAX), None);
    }
}
