//! Bands: kept as often as they say, narrow where the estimate is certain, and corrected by what happens.

use super::*;
use crate::time::HOUR_MS;

const CERTAIN: Estimate = Estimate {
    s: 1_000,
    half_s: 1_000,
    twice_s: 1_000,
};

/// A stream without chance: a linear congruence, from nought to `most`.
fn stream(most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(7_u64), |x| {
        Some((x * 1_103_515_245 + 12_345) % 2_147_483_648)
    })
    .map(move |x| (x >> 8) % most)
}

/// The share of bands that held, the latter half of them, and their mean width.
fn kept(waits: &mut Waits, told: impl Iterator<Item = (Estimate, u64)>) -> (f64, u64) {
    let (mut held, mut all, mut width) = (0, 0, 0);
    for (n, (estimate, wait_s)) in told.enumerate() {
        let band = waits.tell(estimate).band;
        if n >= 500 {
            held += usize::from(band.holds(wait_s));
            width += band.width_s();
            all += 1;
        }
        waits.started(estimate, wait_s, Time(n as i64 * HOUR_MS as i64));
    }
    (
        held as f64 / f64::from(all),
        width / u64::try_from(all).unwrap_or(1),
    )
}

#[test]
fn bands_hold_most_and_are_narrower_than_all_that_was_seen() {
    let told = stream(1_000)
        .take(2_000)
        .map(|x| (Estimate::rough(1_000), 500 + x));
    let (share, width_s) = kept(&mut Waits::default(), told);
    assert!(share > 0.8, "{share}");
    assert!(width_s < 1_000, "{width_s}");
}

#[test]
fn estimates_that_are_always_wrong_alike_are_corrected() {
    let mut waits = Waits::default();
    assert!(!waits.tell(Estimate::rough(1_000)).band.holds(3_600));
    let told = stream(200)
        .take(1_500)
        .map(|x| (Estimate::rough(1_000), 3_500 + x));
    let (share, width_s) = kept(&mut waits, told);
    assert!(share > 0.8, "{share}");
    assert!(width_s < 2_500, "{width_s}");
    let told = waits.tell(Estimate::rough(1_000));
    assert!(told.band.holds(3_600) && told.seen == KEPT as u64, "{told:?}");
}

#[test]
fn what_is_certain_is_told_narrowly() {
    let waits = Waits::default();
    let (certain, rough) = (waits.tell(CERTAIN), waits.tell(Estimate::rough(1_000)));
    assert!(certain.band.holds(1_000) && rough.band.holds(1_000));
    assert!(
        5 * certain.band.width_s() < rough.band.width_s(),
        "{certain:?} {rough:?}"
    );
    assert!(certain.permille >= rough.permille);
}

#[test]
fn a_long_wait_is_told_with_the_share_it_holds() {
    let mut waits = Waits::default();
    for (n, off) in stream(100).take(200).enumerate() {
        waits.started(Estimate::rough(60), 30 + off, Time(n as i64 * HOUR_MS as i64));
    }
    let (short, long) = (
        waits.tell(Estimate::rough(60)),
        waits.tell(Estimate::rough(100_000)),
    );
    assert!(short.permille > 700, "{short:?}");
    assert!(long.permille < short.permille, "{long:?}");
    assert!(
        long.band.width_s() < 20_000,
        "no wider than is worth it: {long:?}"
    );
}

#[test]
fn neighbours_in_the_queue_count_once() {
    let (mut many, mut once) = (Waits::default(), Waits::default());
    once.started(CERTAIN, 5_000, Time(0));
    for n in 0..300 {
        many.started(CERTAIN, 5_000, Time(n));
    }
    assert_eq!(many.off, once.off);
}

#[test]
fn bands_are_sound_at_the_ends_of_the_scale() {
    let mut waits = Waits::default();
    for s in [0, 1, u64::MAX] {
        let estimate = Estimate {
            s,
            half_s: 0,
            twice_s: u64::MAX,
        };
        let band = waits.tell(estimate).band;
        assert!(band.from_s <= band.to_s);
        waits.started(estimate, u64::MAX, Time(0));
        waits.started(estimate, 0, Time(HOUR_MS as i64));
    }
    let text = serde_json::to_string(&waits).expect("text");
    assert_eq!(serde_json::from_str::<Waits>(&text).expect("waits"), waits);
}
