//! Bands: kept as often as they say, narrow where the estimate is certain, and corrected by what happens.

use super::*;
use crate::time::HOUR_MS;

fn tell(waits: &Waits, estimate: Estimate) -> Told {
    waits.tell(estimate, None, Time(0))
}

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
        let band = tell(waits, estimate).band;
        if n >= 500 {
            held += usize::from(band.holds(wait_s));
            width += band.width_s();
            all += 1;
        }
        waits.started(estimate, None, wait_s, Time(n as i64 * HOUR_MS as i64));
    }
    (
        held as f64 / f64::from(all),
        width / u64::try_from(all).unwrap_or(1),
    )
}

#[test]
fn bands_hold_most() {
    let told = stream(1_000)
        .take(2_000)
        .map(|x| (Estimate::rough(1_000), 500 + x));
    let (share, width_s) = kept(&mut Waits::default(), told);
    assert!(share > 0.8, "{share}");
    // Wider than all that was seen, which spans 1,000 s: what is assumed before anything was seen still weighs.
    assert!(width_s < 2_000, "{width_s}");
}

#[test]
fn estimates_that_are_always_wrong_alike_are_corrected() {
    let mut waits = Waits::default();
    assert!(!tell(&waits, Estimate::rough(1_000)).band.holds(3_600));
    let told = stream(200)
        .take(1_500)
        .map(|x| (Estimate::rough(1_000), 3_500 + x));
    let (share, width_s) = kept(&mut waits, told);
    assert!(share > 0.8, "{share}");
    assert!(width_s < 4_000, "{width_s}");
    let told = tell(&waits, Estimate::rough(1_000));
    assert!(told.band.holds(3_600) && told.seen == KEPT as u64, "{told:?}");
}

#[test]
fn what_is_certain_is_told_narrowly() {
    let waits = Waits::default();
    let (certain, rough) = (tell(&waits, CERTAIN), tell(&waits, Estimate::rough(1_000)));
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
        waits.started(
            Estimate::rough(60),
            None,
            30 + off,
            Time(n as i64 * HOUR_MS as i64),
        );
    }
    let (short, long) = (
        tell(&waits, Estimate::rough(60)),
        tell(&waits, Estimate::rough(100_000)),
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
    once.started(CERTAIN, None, 5_000, Time(0));
    for n in 0..300 {
        many.started(CERTAIN, None, 5_000, Time(n));
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
        let band = tell(&waits, estimate).band;
        assert!(band.from_s <= band.to_s);
        waits.started(estimate, None, u64::MAX, Time(0));
        waits.started(estimate, None, 0, Time(HOUR_MS as i64));
    }
    for n in 0..100 {
        waits.started(CERTAIN, None, u64::MAX, Time(n * HOUR_MS as i64));
    }
    let uncertain = Estimate {
        half_s: 0,
        twice_s: u64::MAX,
        ..CERTAIN
    };
    let band = tell(&waits, uncertain).band;
    assert!(band.from_s <= band.to_s && band.to_s <= 4 * LONGEST_S + 1);
    let text = serde_json::to_string(&waits).expect("text");
    assert_eq!(serde_json::from_str::<Waits>(&text).expect("waits"), waits);
}

#[test]
fn what_became_of_its_kind_in_the_last_half_hour_weighs_most_and_for_its_kind_alone() {
    let kind = |tenant| {
        Some(Alike {
            tenant: TenantId(tenant),
            gpus: 1,
        })
    };
    let (mut waits, estimate) = (Waits::default(), Estimate::rough(6_000));
    for n in 0..LATELY_COUNTED as i64 {
        waits.started(estimate, kind(1), 1_900 + 10 * n as u64, Time(n * 1_000));
    }
    let holds = |of, at| {
        let band = waits.tell(estimate, of, at).band;
        band.from_s <= 1_900 && band.to_s >= 1_990
    };
    let soon = Time(60_000);
    assert!(holds(kind(1), soon), "{:?}", waits.tell(estimate, kind(1), soon));
    assert!(!holds(kind(2), soon), "another kind");
    assert!(!holds(None, soon));
    assert!(
        !holds(kind(1), soon.plus_ms(2 * HOUR_MS)),
        "the burst is long over"
    );
    for n in 0..2 * LATELY as i64 {
        waits.started(estimate, kind(1), 1_900, Time(n));
    }
    assert_eq!(waits.lately.len(), LATELY, "memory is bounded");
}
