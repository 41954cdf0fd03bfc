//! How fast one peer may speak: a bucket of frames that refills with time. A peer that speaks faster is
//! read more slowly, so it can hold back nobody but itself.

use std::time::Duration;

use tokio::time::Instant;

const BURST: f64 = 2000.0;
const PER_SECOND: f64 = 500.0;

pub(super) struct Pace {
    left: f64,
    at: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Pace {
            left: BURST,
            at: Instant::now(),
        }
    }

    /// Takes a frame of this weight from the bucket, waiting for it when it is empty.
    pub(super) async fn take(&mut self, weight: f64) {
        let now = Instant::now();
        self.left = (self.left + now.duration_since(self.at).as_secs_f64() * PER_SECOND).min(BURST);
        self.at = now;
        self.left -= weight;
        if self.left < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.left / PER_SECOND)).await;
        }
    }
}
