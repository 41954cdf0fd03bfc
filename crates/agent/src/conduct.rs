//! The record of what an allocation did at its devices' boundary, put together once, when it has ended.
//!
//! From its slices' counts, the tally of denied system calls, and what was seen done to its limits. What is seen while
//! it runs is written into its directory, so that an agent started anew knows of it. Signed when it is sent
//! (`channel/session.rs`). Deliberately absent: judging it, which is the server's.

use std::collections::BTreeSet;
use std::path::Path;

use tenure_domain::audit::conduct::{Conduct, DeniedCall, KernelHash, KernelUse, Tampering};
use tenure_limits::{Counter, SliceReading};

use crate::exec::tally;
use crate::record::{Phase, Record, write_whole};
use crate::share::Ended;

/// What was seen done to the limits of a run that goes on.
const TAMPERING: &str = "tampering.json";

/// Keeps what was seen, beside what was seen before.
pub fn keep_tampering(dir: &Path, seen: &BTreeSet<Tampering>) -> std::io::Result<()> {
    let mut all = kept_tampering(dir);
    all.extend(seen);
    write_whole(dir, TAMPERING, &serde_json::to_vec(&all)?)
}

fn kept_tampering(dir: &Path) -> BTreeSet<Tampering> {
    let bytes = std::fs::read(dir.join(TAMPERING)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// The conduct of a run that has ended; none of what never ran.
pub fn of(
    record: &Record,
    dir: &Path,
    ended: Option<&Ended>,
    tampering: BTreeSet<Tampering>,
) -> Option<Conduct> {
    let subject = record.subject.as_ref()?;
    let Phase::Exited { ran_ms, .. } = record.phase else {
        return None;
    };
    let mut conduct = Conduct {
        ran_ms,
        devices: subject.devices,
        ..Conduct::new(record.allocation, subject.job)
    };
    for slice in ended.into_iter().flat_map(|ended| &ended.slices) {
        add(&mut conduct, slice);
    }
    if let Some(ended) = ended {
        conduct.busy_ms = ended.usage.busy_ms;
        conduct.throttled_ms = ended.usage.throttled_ms;
        conduct.waited_ms = ended.usage.waited_ms;
    }
    if let Some((calls, others)) = tally::read(dir) {
        let denied = calls.into_iter().map(|(call, times)| DeniedCall { call, times });
        conduct.set_denied_calls(denied.collect());
        conduct.other_denied_calls = conduct.other_denied_calls.saturating_add(others);
    }
    conduct.tampering = tampering;
    conduct.tampering.extend(kept_tampering(dir));
    Some(conduct)
}

fn add(conduct: &mut Conduct, slice: &SliceReading) {
    let mut count = |to: fn(&mut Conduct) -> &mut u64, counter| {
        let sum = to(conduct);
        *sum = sum.saturating_add(slice.counter(counter));
    };
    count(|conduct| &mut conduct.opens, Counter::Opens);
    count(|conduct| &mut conduct.allocations, Counter::Allocations);
    count(|conduct| &mut conduct.allocated_bytes, Counter::AllocatedBytes);
    count(|conduct| &mut conduct.launches, Counter::Launches);
    count(|conduct| &mut conduct.other_launches, Counter::OtherKernels);
    count(|conduct| &mut conduct.bytes_in, Counter::BytesIn);
    count(|conduct| &mut conduct.bytes_out, Counter::BytesOut);
    count(|conduct| &mut conduct.refusals, Counter::Refusals);
    count(|conduct| &mut conduct.denials, Counter::Denials);
    count(|conduct| &mut conduct.malformed, Counter::Malformed);
    conduct.devices_opened += u32::from(slice.counter(Counter::Opens) > 0);
    conduct.peak_bytes = conduct.peak_bytes.max(slice.peak_bytes);
    conduct.add_kernels(slice.kernels.iter().map(|(hash, launches)| KernelUse {
        hash: KernelHash(*hash),
        launches: *launches,
    }));
}
