//! From two looks at a slice's counters to shares of the time between them. Pure.

use tenure_api::channel::reading::SliceUse;
use tenure_limits::{Counter, SliceReading};

/// What grows, and when it was looked at.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    at_ns: u64,
    busy_ns: u64,
    throttled_ns: u64,
    waited_ns: u64,
    launches: u64,
}

impl Counts {
    pub fn of(slice: &SliceReading, at_ns: u64) -> Counts {
        Counts {
            at_ns,
            busy_ns: slice.counter(Counter::BusyNs),
            throttled_ns: slice.counter(Counter::ThrottledNs),
            waited_ns: slice.counter(Counter::WaitedNs),
            launches: slice.counter(Counter::Launches),
        }
    }
}

/// How a slice is used. Without an earlier look no share is known: after a restart all that was ever counted would
/// seem to have happened in one second. The same where a count went back: the slice is another, or was tampered with.
pub fn slice_use(slice: &SliceReading, before: Option<&Counts>, now: &Counts) -> SliceUse {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let grown = |of: fn(&Counts) -> u64| {
        let before = before?;
        let elapsed_ns = now.at_ns.checked_sub(before.at_ns).filter(|&ns| ns > 0)?;
        Some((of(now).checked_sub(of(before))?, elapsed_ns))
    };
    // A kernel is counted when it ends, and several processes wait at once: more than the whole is the whole.
    let permille = |of| {
        grown(of)
            .map(|(grown, elapsed_ns)| (u128::from(grown) * 1000 / u128::from(elapsed_ns)).min(1000) as u16)
    };
    SliceUse {
        used_vram_mib: mib(slice.used_bytes),
        peak_vram_mib: mib(slice.peak_bytes),
        limit_vram_mib: mib(slice.limit_bytes),
        processes: slice.processes,
        busy_permille: permille(|counts| counts.busy_ns),
        throttled_permille: permille(|counts| counts.throttled_ns),
        waited_permille: permille(|counts| counts.waited_ns),
        launches_per_s: grown(|counts| counts.launches).map(|(launches, elapsed_ns)| {
            (u128::from(launches) * 1_000_000_000 / u128::from(elapsed_ns)) as u64
        }),
        refusals: slice.counter(Counter::Refusals),
        denials: slice.counter(Counter::Denials),
    }
}
