//! The arithmetic of sharing, pure: virtual time, the token bucket, and the lease word.
//!
//! Start-time fair queueing: a slice that used `ns` of the device has its tag moved on by `ns / weight`; the waiting
//! slice with the lowest tag is next; the virtual clock follows the tags that were served. A slice that comes back
//! after being away for long starts at the virtual clock, less a small credit, so idleness is not saved up; a short
//! gap between two launches costs nothing, so a program's host part may be late. All comparisons wrap.

/// How long one turn lasts while others wait.
pub(crate) const QUANTUM_NS: u64 = 10_000_000;
/// A slice that is away for less keeps its place.
pub(crate) const ABSENT_NS: u64 = 50_000_000;
/// What a slice that was away for longer may keep, in device time.
pub(crate) const CREDIT_NS: u64 = 10_000_000;
/// What a capped slice may use at once after it was idle.
pub(crate) const BURST_NS: u64 = 10_000_000;

/// The later of two points on a wrapping clock.
pub(crate) fn later(a: u64, b: u64) -> u64 {
    if a.wrapping_sub(b) as i64 >= 0 { a } else { b }
}

/// `ns` of the device in the virtual time of a slice with this weight.
pub(crate) fn virtual_cost(ns: u64, weight_per_mille: u32) -> u64 {
    scaled(ns, weight_per_mille)
}

/// The tag of a slice that comes back after being away for long.
pub(crate) fn start_tag(tag: u64, virtual_now: u64, weight_per_mille: u32) -> u64 {
    later(
        tag,
        virtual_now.wrapping_sub(virtual_cost(CREDIT_NS, weight_per_mille)),
    )
}

/// Whether a capped slice may start work at `now`.
pub(crate) fn may_spend(bucket: u64, now: u64) -> bool {
    now.wrapping_sub(bucket) as i64 >= 0
}

/// The bucket as a turn begins at `now`: what was saved beyond the burst is lost. Done before the turn's spending is
/// added, and never between spending and adding, or the clipping would swallow what was spent.
pub(crate) fn bucket_floor(bucket: u64, now: u64, cap_per_mille: u32) -> u64 {
    later(bucket, now.wrapping_sub(scaled(BURST_NS, cap_per_mille)))
}

/// How far spending `ns` moves the bucket.
pub(crate) fn bucket_cost(ns: u64, cap_per_mille: u32) -> u64 {
    scaled(ns, cap_per_mille)
}

fn scaled(ns: u64, per_mille: u32) -> u64 {
    let scaled = u128::from(ns) * 1000 / u128::from(per_mille.clamp(1, 1000));
    // A single charge stays far below half the clock's range, whatever the page or a driver says.
    scaled.min(1 << 60) as u64
}

/// The lease in one word: `deadline in µs (32) | epoch (15) | accepted (1) | slot + 1 (16)`.
///
/// The low half is the futex; it changes with every grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub u64);

impl Word {
    pub fn holder(self) -> Option<usize> {
        (self.0 as u16 as usize).checked_sub(1)
    }

    pub fn accepted(self) -> bool {
        self.0 & (1 << 16) != 0
    }

    /// The half that names the grant, without its deadline.
    pub fn grant(self) -> u32 {
        self.0 as u32
    }

    fn deadline_us(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub fn expired(self, now: u64) -> bool {
        let now_us = (now / 1000) as u32;
        now_us.wrapping_sub(self.deadline_us()) as i32 >= 0
    }

    /// Nanoseconds until the deadline; at most `most`, so that no content of the page makes anyone sleep long.
    pub fn left_ns(self, now: u64, most: u64) -> u64 {
        let left = self.deadline_us().wrapping_sub((now / 1000) as u32) as i32;
        (left.max(0) as u64 * 1000).min(most)
    }

    /// The same grant with another deadline, accepted.
    pub fn renewed(self, deadline_ns: u64) -> Word {
        Word((self.0 & 0xffff_ffff) | (1 << 16) | deadline_half(deadline_ns))
    }

    /// The next grant.
    pub fn next(self, slot: usize, accepted: bool, deadline_ns: u64) -> Word {
        let epoch = (self.0 as u32 >> 17).wrapping_add(1) & 0x7fff;
        let low = (epoch << 17) | (u32::from(accepted) << 16) | (slot as u32 + 1);
        Word(u64::from(low) | deadline_half(deadline_ns))
    }

    /// Nobody's, with a new epoch.
    pub fn freed(self) -> Word {
        let epoch = (self.0 as u32 >> 17).wrapping_add(1) & 0x7fff;
        Word(u64::from(epoch << 17))
    }
}

fn deadline_half(deadline_ns: u64) -> u64 {
    u64::from((deadline_ns / 1000) as u32) << 32
}

#[cfg(test)]
mod tests;
