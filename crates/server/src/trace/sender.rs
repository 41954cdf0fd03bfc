//! Sending: takes spans from the queue, some at a time, and stays with them until the collector took or refused them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::post::{Post, Said};
use super::queue::Queue;
use super::setting::TraceOptions;
use super::span;
use crate::keyring::random;
use crate::metrics::Metrics;

/// What a collector asks for is waited, but not for longer.
const LONGEST_ASKED: Duration = Duration::from_secs(300);
/// Between tries while the server ends.
const LAST_PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Sender {
    queue: Arc<Queue>,
    post: Post,
    options: TraceOptions,
    metrics: Arc<Metrics>,
    /// The collector takes nothing; said once, and once when it does again.
    failing: bool,
}

impl Sender {
    pub fn new(queue: Arc<Queue>, options: &TraceOptions, metrics: Arc<Metrics>) -> Sender {
        Sender {
            queue,
            post: Post::new(options),
            options: options.clone(),
            metrics,
            failing: false,
        }
    }

    /// Until told to stop; then what is left is sent, as far as there is patience.
    pub async fn run(mut self, stop: CancellationToken) {
        let (queue, patience) = (self.queue.clone(), self.options.patience);
        let patience_ends = async {
            stop.cancelled().await;
            sleep(patience).await;
        };
        tokio::select! {
            () = self.work(&stop) => {}
            () = patience_ends => {
                tracing::warn!(waiting = queue.len(), "the collector did not take all spans before the end");
            }
        }
    }

    async fn work(&mut self, stop: &CancellationToken) {
        let resource = span::resource(&self.options.resource);
        loop {
            if self.queue.len() == 0 {
                tokio::select! {
                    () = self.queue.grown.notified() => {}
                    () = stop.cancelled() => {}
                }
                if self.queue.len() == 0 && stop.is_cancelled() {
                    return;
                }
                continue;
            }
            self.gather(stop).await;
            self.send_some(&resource, stop).await;
        }
    }

    /// Others may come along.
    async fn gather(&self, stop: &CancellationToken) {
        let until = Instant::now() + self.options.delay;
        while self.queue.len() < self.options.batch {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.queue.grown.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn send_some(&mut self, resource: &str, stop: &CancellationToken) {
        let items = self.queue.take(self.options.batch);
        let mut tries = 0;
        loop {
            let body = span::body(resource, items.iter().map(|item| &*item.json));
            let said = self.post.send(body).await;
            let count = items.len() as u64;
            let metrics = &self.metrics.traces;
            metrics.asked(matches!(said, Said::Taken { .. }));
            match said {
                Said::Taken { rejected, why } => {
                    let rejected = rejected.min(count);
                    metrics.sent(count - rejected);
                    metrics.rejected(rejected);
                    if rejected > 0 || !why.is_empty() {
                        tracing::warn!(rejected, why, "the collector took spans with a remark");
                    }
                    if std::mem::take(&mut self.failing) {
                        tracing::info!("the collector takes spans again");
                    }
                    break;
                }
                Said::Refused { why } => {
                    metrics.rejected(count);
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::warn!(why, "the collector refuses spans; they are dropped and counted");
                    }
                    break;
                }
                Said::Again { why, after } => {
                    tries += 1;
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::warn!(why, "the collector takes no spans; trying again");
                    }
                    let pause = match stop.is_cancelled() {
                        false => self.pause(tries, after),
                        true => LAST_PAUSE.max(after.unwrap_or_default()),
                    };
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = stop.cancelled(), if !stop.is_cancelled() => {}
                    }
                }
            }
        }
        self.queue.done();
    }

    /// Longer each time; somewhere between half and all of it, so that many servers do not come back together.
    fn pause(&self, tries: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.options.first_pause.saturating_mul(1 << (tries - 1).min(20));
        let pause = doubled.min(self.options.longest_pause);
        let chance = f64::from(u32::from_le_bytes(random())) / f64::from(u32::MAX);
        let pause = pause.mul_f64(0.5 + chance / 2.0);
        asked.map_or(pause, |asked| pause.max(asked.min(LONGEST_ASKED)))
    }
}
