//! How many replicas a load needs.
//!
//! Pure: what was measured comes in sample by sample, with its moment; the same samples give the same answer. More
//! replicas are wanted as soon as the last seconds say so. Fewer are wanted only when fewer would have done for the
//! whole of the service's quiet window: a load that comes and goes within it is served by as many as its peaks need,
//! and nothing flaps. Called by the server's loop over services, once a second.

use std::collections::VecDeque;

use super::{Replicas, Service};
use crate::time::Time;

/// Load is averaged over so long before it asks for more.
const FAST_MS: u64 = 4000;
/// Replicas are meant to be this full, in thousandths of what they work on at once: the rest is for the next requests
/// while another starts.
const FULL_PERMILLE: u64 = 800;
/// From here on a replica's slice has nothing left to give.
const BUSY_PERMILLE: u64 = 950;
/// Samples kept at most, whatever the window and the pace.
const MAX_SAMPLES: usize = 4096;

/// What was measured since the sample before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    pub at: Time,
    /// Requests that came.
    pub arrivals: u32,
    /// Requests in replicas and waiting for one, on average, in thousandths.
    pub demand_milli: u64,
    /// In replicas now.
    pub in_flight: u32,
    /// Waiting now.
    pub waiting: u32,
    /// Replicas that take requests.
    pub ready: u32,
    /// How much of what their slices are worth the ready replicas used, in thousandths; none where nothing was measured.
    pub busy_permille: Option<u16>,
}

/// What should be, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub replicas: u32,
    pub why: &'static str,
}

/// The past of one service, as long as its quiet window.
#[derive(Debug, Clone, Default)]
pub struct Scaler {
    begun: Option<Time>,
    /// Each sample with what it wanted then.
    past: VecDeque<(Sample, u32)>,
}

impl Scaler {
    /// Takes a sample in, and says how many replicas there should be where `now` are wanted already.
    pub fn wanted(&mut self, service: &Service, replicas: Replicas, now: u32, sample: Sample) -> Wanted {
        let begun = *self.begun.get_or_insert(sample.at);
        let (needed, why) = self.needed(service, now, &sample);
        self.past.push_back((sample, needed));
        let quiet_ms = u64::from(service.idle_s) * 1000;
        while self.past.len() > MAX_SAMPLES
            || self
                .past
                .front()
                .is_some_and(|(old, _)| sample.at.since_ms(old.at) > quiet_ms)
        {
            self.past.pop_front();
        }
        if replicas.clamp(needed) > now {
            return Wanted {
                replicas: replicas.clamp(needed),
                why,
            };
        }
        let enough = self
            .past
            .iter()
            .map(|(_, needed)| *needed)
            .max()
            .unwrap_or(needed);
        let enough = enough.max(self.kept_busy(&sample)).min(now);
        // A new leader knows nothing of the window before it.
        let known = sample.at.since_ms(begun) >= quiet_ms;
        let fewer = replicas.clamp(if known { enough } else { now });
        let why = match fewer {
            fewer if fewer > now => "more are always kept",
            fewer if fewer < now && now > replicas.max => "more than there may be",
            fewer if fewer < now => "fewer were enough for the whole quiet window",
            _ => "as many as are needed",
        };
        Wanted { replicas: fewer, why }
    }

    /// How many the last seconds needed.
    fn needed(&self, service: &Service, now: u32, sample: &Sample) -> (u32, &'static str) {
        let each = u64::from(service.in_flight);
        let recent = self.recent(sample);
        let average = mean(recent.clone().map(|it| it.demand_milli));
        let mut needed = (average.div_ceil(each * FULL_PERMILLE), "requests in flight");
        let mut ask = |replicas: u64, why| {
            if replicas > needed.0 {
                needed = (replicas, why);
            }
        };
        if sample.arrivals > 0 || sample.waiting > 0 || sample.in_flight > 0 {
            ask(1, "requests came");
        }
        // Waiting that one look finds gone is no reason: a place fell free meanwhile.
        let before = self.past.back().map_or(0, |(before, _)| before.waiting);
        let lasting = sample.waiting.min(before);
        if lasting > 0 {
            let all = u64::from(sample.in_flight) + u64::from(lasting);
            ask(all.div_ceil(each), "requests waited");
        }
        let busy = mean_known(recent.map(|it| it.busy_permille));
        let half_full = average * 2 >= each * 1000 * u64::from(sample.ready);
        if sample.ready > 0
            && sample.ready >= now
            && half_full
            && busy.is_some_and(|busy| busy >= BUSY_PERMILLE)
        {
            ask(u64::from(sample.ready) + 1, "the replicas' slices were used up");
        }
        (u32::try_from(needed.0).unwrap_or(u32::MAX), needed.1)
    }

    /// How many the measured work needs, whatever the requests say: fewer would be used up.
    fn kept_busy(&self, sample: &Sample) -> u32 {
        let busy = mean_known(self.recent(sample).map(|it| it.busy_permille)).unwrap_or(0);
        let work = busy * u64::from(sample.ready);
        u32::try_from(work.div_ceil(BUSY_PERMILLE)).unwrap_or(u32::MAX)
    }

    /// The samples of the last seconds, with this one, which may be among them.
    fn recent<'a>(&'a self, sample: &'a Sample) -> impl Iterator<Item = &'a Sample> + Clone {
        let past = self.past.iter().rev().map(|(old, _)| old);
        let past = past.take_while(|old| sample.at.since_ms(old.at) < FAST_MS);
        std::iter::once(sample).chain(past.filter(|old| old.at != sample.at))
    }
}

fn mean(values: impl Iterator<Item = u64>) -> u64 {
    let (sum, count) = values.fold((0u64, 0u64), |(sum, count), value| {
        (sum.saturating_add(value), count + 1)
    });
    // Upwards: the least of a load is a load.
    sum.div_ceil(count.max(1))
}

fn mean_known(values: impl Iterator<Item = Option<u16>>) -> Option<u64> {
    let (sum, count) = values.flatten().fold((0u64, 0u64), |(sum, count), value| {
        (sum + u64::from(value), count + 1)
    });
    (count > 0).then(|| sum / count)
}

#[cfg(test)]
mod tests;
