//! When a job must end: asked to, at its run-time limit, or with the node's lease. First a signal, then force.

use std::path::Path;

use rustix::time::Timespec;
use tenure_api::channel::Order;
use tenure_domain::workload::job::StopReason;

use crate::clock;
use crate::lease::Lease;

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    Terminate,
    Kill,
}

pub(super) struct Timer {
    run_time_ms: u64,
    grace_ms: u64,
    /// By the monotonic clock.
    run_until_ms: Option<u64>,
    /// By the boot clock, as all below.
    lease: Option<Lease>,
    stopping: Option<(StopReason, u64)>,
    told: bool,
    killed: bool,
}

impl Timer {
    pub(super) fn new(order: &Order) -> Self {
        Timer {
            run_time_ms: order.run_time_s.saturating_mul(1000),
            grace_ms: u64::from(order.grace_s) * 1000,
            run_until_ms: None,
            lease: None,
            stopping: None,
            told: false,
            killed: false,
        }
    }

    pub(super) fn set_running(&mut self, since_ms: u64) {
        self.run_until_ms = Some(since_ms.saturating_add(self.run_time_ms));
    }

    /// Its time does not run while it has no devices.
    pub(super) fn set_paused(&mut self) {
        self.run_until_ms = None;
    }

    /// Asked to end. The first reason stays; a later request can only shorten the patience.
    pub(super) fn stop(&mut self, reason: StopReason, grace_s: u32) {
        self.stop_by(reason, clock::boottime_ms() + u64::from(grace_s) * 1000);
    }

    fn stop_by(&mut self, reason: StopReason, kill_ms: u64) {
        self.stopping = Some(match self.stopping {
            Some((first, before)) => (first, before.min(kill_ms)),
            None => (reason, kill_ms),
        });
    }

    /// Who ended the job, where it was not the job itself.
    pub(super) fn reason(&self) -> Option<StopReason> {
        // Told nothing, it ended by itself.
        self.stopping.filter(|_| self.told).map(|(reason, _)| reason)
    }

    /// What is due by now.
    pub(super) fn due(&mut self, dir: &Path) -> Option<Act> {
        let now_ms = clock::boottime_ms();
        if self
            .run_until_ms
            .is_some_and(|until| clock::monotonic_ms() >= until)
            && self.stopping.is_none()
        {
            self.stop_by(StopReason::RunTime, now_ms + self.grace_ms);
        }
        if self
            .lease
            .is_none_or(|lease| now_ms >= lease.warn_ms(self.grace_ms))
        {
            // Renewed meanwhile, or not: the file knows. No file, no lease.
            self.lease = Some(Lease::read(&dir.join("../..")).unwrap_or_default());
            if let Some(lease) = self.lease
                && now_ms >= lease.warn_ms(self.grace_ms)
            {
                self.stop_by(StopReason::Evicted, lease.until_ms);
            }
        }
        let (_, kill_ms) = self.stopping?;
        if now_ms >= kill_ms && !self.killed {
            (self.told, self.killed) = (true, true);
            return Some(Act::Kill);
        }
        if !self.told {
            self.told = true;
            return Some(Act::Terminate);
        }
        None
    }

    /// How long nothing will be due, if nothing else happens.
    pub(super) fn until_next(&self) -> Timespec {
        let now_ms = clock::boottime_ms();
        let run = self
            .run_until_ms
            .filter(|_| self.stopping.is_none())
            .map(|until| until.saturating_sub(clock::monotonic_ms()));
        let kill = self
            .stopping
            .filter(|_| !self.killed)
            .map(|(_, kill_ms)| kill_ms.saturating_sub(now_ms));
        let lease = match self.lease {
            None => Some(0),
            Some(lease) if self.stopping.is_none() => {
                Some(lease.warn_ms(self.grace_ms).saturating_sub(now_ms))
            }
            Some(lease) => Some(lease.until_ms.saturating_sub(now_ms)).filter(|_| !self.killed),
        };
        // Asleep, the boot clock runs on and a poll does not: so look again now and then.
        let ms = [run, kill, lease]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(1000)
            .clamp(1, 1000);
        let ms = if self.lease.is_none() { 0 } else { ms };
        Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as i64,
        }
    }
}
