//! The controller's clock and ids: where time and identity enter the platform.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_domain::Time;
use tenure_domain::id::Ids;

const SEQUENCE_BITS: u32 = 22;

/// The wall clock.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Moments that never go backwards and id blocks that are never given twice, across restarts too.
pub struct Clock {
    last: Time,
    next_id: u64,
}

impl Clock {
    pub fn after(last: Time, last_id: u64) -> Clock {
        Clock {
            last,
            next_id: last_id.saturating_add(Ids::BLOCK),
        }
    }

    /// The moment and the id block of the next command.
    pub fn tick(&mut self) -> (Time, u64) {
        self.last = self.last.max(now());
        let by_time = u64::try_from(self.last.0).unwrap_or(0) << SEQUENCE_BITS;
        let ids = self.next_id.max(by_time);
        self.next_id = ids + Ids::BLOCK;
        (self.last, ids)
    }
}
