//! Windows on a full fleet that breaks. `TENURE_BOOKING_WINDOWS` says how many, `TENURE_BOOKING_SEED` which.

use super::windows;

fn from_env(name: &str, or: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(or, |text| text.parse().expect("a number"))
}

#[test]
fn windows_begin_in_time_or_are_refunded_and_cost_little() {
    let count = from_env("TENURE_BOOKING_WINDOWS", 150) as usize;
    let outcome = windows::run(count, (count / 200).max(5), from_env("TENURE_BOOKING_SEED", 1));
    assert_eq!(outcome.opened + outcome.not_had, outcome.windows, "{outcome:?}");
    assert_eq!(outcome.late_without_refund, 0, "{outcome:?}");
    assert!(outcome.held_idle_percent < 3.0, "{outcome:?}");
    assert!(outcome.faults > 0 && outcome.evictions > 0, "{outcome:?}");
}
