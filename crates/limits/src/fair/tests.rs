//! Virtual time and bucket against a naive model, and the lease word's packing.

use proptest::prelude::*;

use super::*;

/// Serves turns the way the page does: lowest start tag first, actual time charged afterwards.
fn shares(weights: &[u32], kernels_ns: &[u64], total_ns: u64, origin: u64) -> Vec<u64> {
    let mut tags = vec![origin; weights.len()];
    let mut virtual_now = origin;
    let mut used = vec![0u64; weights.len()];
    let mut now = 0;
    while now < total_ns {
        let next = (0..weights.len())
            .min_by_key(|i| tags[*i].wrapping_sub(virtual_now) as i64)
            .unwrap();
        virtual_now = later(virtual_now, tags[next]);
        let mut spent = 0;
        while spent < QUANTUM_NS {
            spent += kernels_ns[next];
        }
        tags[next] = tags[next].wrapping_add(virtual_cost(spent, weights[next]));
        used[next] += spent;
        now += spent;
    }
    used
}

proptest! {
    /// Every slice gets its weight's part, to within a few of the longest turns, whatever the kernels' lengths and
    /// wherever the clocks stand (they wrap).
    #[test]
    fn shares_follow_weights(
        weights in prop::collection::vec(20u32..=1000, 2..9),
        seed in prop::collection::vec(50_000u64..24_000_000, 9),
        origin in any::<u64>(),
    ) {
        let total = 10_000_000_000;
        let used = shares(&weights, &seed, total, origin);
        let sum: u32 = weights.iter().sum();
        let all: u64 = used.iter().sum();
        let longest = seed.iter().max().unwrap() + QUANTUM_NS;
        for (used, weight) in used.iter().zip(&weights) {
            let fair = (u128::from(all) * u128::from(*weight) / u128::from(sum)) as u64;
            prop_assert!(used.abs_diff(fair) <= 3 * longest, "{used} against {fair} of {all}");
        }
    }

    /// The bucket lets through what a simulated counter of tokens would, to within one kernel and the burst.
    #[test]
    fn bucket_equals_tokens(
        cap in 10u32..=1000,
        steps in prop::collection::vec((10_000u64..30_000_000, 0u64..200_000_000), 1..200),
        origin in any::<u64>(),
    ) {
        let mut now = origin;
        let mut bucket = origin;
        // The naive model: tokens in ns·‰, refilled to the instant, never above the burst.
        let mut tokens: i128 = 0;
        for (step, (spend, idle)) in steps.into_iter().enumerate() {
            let wait = if may_spend(bucket, now) { 0 } else { bucket.wrapping_sub(now) };
            let model_wait = if tokens >= 0 { 0 } else { ((-tokens) as u128).div_ceil(u128::from(cap)) as u64 };
            // Each charge may be rounded by one nanosecond.
            prop_assert!(wait.abs_diff(model_wait) <= 2 + step as u64, "waits {wait} against {model_wait}");
            let pass = wait.max(model_wait);
            now = now.wrapping_add(pass);
            tokens += i128::from(pass) * i128::from(cap);
            bucket = bucket_floor(bucket, now, cap);
            tokens = tokens.min(i128::from(BURST_NS) * 1000);
            // Charge for the time it ran, then refill for that time: never the other way round.
            bucket = bucket.wrapping_add(bucket_cost(spend, cap));
            tokens -= i128::from(spend) * 1000;
            now = now.wrapping_add(spend + idle);
            tokens += i128::from(spend + idle) * i128::from(cap);
        }
    }

    #[test]
    fn words_keep_their_parts(slot in 0usize..SLOTS_FOR_TEST, old: u64, now: u64, ahead in 1_000u64..100_000_000) {
        let word = Word(old).next(slot, false, now.wrapping_add(ahead));
        prop_assert_eq!(word.holder(), Some(slot));
        prop_assert!(!word.accepted());
        prop_assert_ne!(word.grant(), old as u32);
        prop_assert!(word.left_ns(now, u64::MAX) <= ahead + 1000);
        let renewed = word.renewed(now.wrapping_add(2 * ahead));
        prop_assert!(renewed.accepted());
        prop_assert_eq!(renewed.holder(), Some(slot));
        prop_assert_eq!(renewed.freed().holder(), None);
    }
}

const SLOTS_FOR_TEST: usize = crate::layout::SLOTS;

#[test]
fn idleness_is_not_saved_up() {
    let virtual_now = 1_000_000_000_000;
    let tag = start_tag(5, virtual_now, 500);
    assert_eq!(virtual_now - tag, virtual_cost(CREDIT_NS, 500));
}

#[test]
fn a_long_kernel_is_paid_with_turns() {
    // One slice runs 200 ms kernels, the other 1 ms ones: equal weights, equal time.
    let used = shares(&[500, 500], &[200_000_000, 1_000_000], 10_000_000_000, 7);
    assert!(used[0].abs_diff(used[1]) <= 210_000_000, "{used:?}");
}

#[test]
fn deadlines_pass_and_wrap() {
    let word = Word(0).next(3, true, 5_000_000);
    assert!(!word.expired(4_999_000));
    assert!(word.expired(5_000_000));
    let wrap = (u64::from(u32::MAX) + 10) * 1000;
    let word = Word(0).next(3, true, wrap);
    assert!(!word.expired(wrap - 20_000));
    assert!(word.expired(wrap + 20_000));
}
