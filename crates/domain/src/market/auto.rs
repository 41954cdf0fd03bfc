//! The standing order of a seller: offer what the forecast says lies idle, above a floor price, but for a reserve.
//!
//! The forecast is the seller's own week: for each hour of it the most GPUs of the class that were in use, older weeks
//! fading by a quarter each. An hour never seen is taken to be busy, so nothing is offered on a guess. Noted where quota is
//! taken and given back (`state/apply/market`), asked by `advance`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::fill::{own_milli, used_milli};
use super::offer::{MAX_GPU_MILLI, OfferSpec, Source, check_lengths, check_price};
use super::window::Windows;
use crate::id::{OfferId, TenantId};
use crate::money::Micros;
use crate::name;
use crate::refusal::Refusal;
use crate::state::State;
use crate::time::{HOUR_MS, SECOND_MS, Time};
use crate::workload::spec::Isolation;

const WEEK_HOURS: usize = 168;
/// How far ahead it looks.
const AHEAD_HOURS: u64 = 24;

/// What is offered, on what terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AutoSpec {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub class: Box<str>,
    /// For a whole GPU by the hour, at least; more where the class traded dearer lately.
    #[cfg_attr(feature = "schema", schema(value_type = i64))]
    pub floor: Micros,
    /// Kept free of offers, in thousandths of a GPU.
    pub reserve_milli: u64,
    pub min_lease_s: u64,
    pub max_lease_s: u64,
    pub notice_s: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BTreeSet<String>>))]
    pub buyers: Option<BTreeSet<TenantId>>,
    pub isolation: Isolation,
}

impl AutoSpec {
    pub fn check(&self) -> Result<(), Refusal> {
        name::check(&self.class, "/class")?;
        check_price(self.floor, "/floor")?;
        if self.reserve_milli > MAX_GPU_MILLI {
            return Err(Refusal::invalid("/reserve_milli", "more GPUs than any cell has"));
        }
        check_lengths(self.min_lease_s, self.max_lease_s, self.notice_s)
    }
}

/// A standing order and what it goes by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auto {
    pub seller: TenantId,
    pub spec: AutoSpec,
    pub made: Time,
    /// The offer it has made, if it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<OfferId>,
    week: Week,
}

/// The most that was in use, by hour of the week.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Week {
    peaks: Vec<Peak>,
    /// Since when it has watched, and until when.
    last: Option<Time>,
    used_milli: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Peak {
    /// When it was last seen, and before, faded.
    milli: u64,
    before_milli: u64,
    /// How often this hour was seen.
    seen: u32,
    /// Which hour since 1970 was seen last.
    hour: i64,
}

impl Peak {
    fn most(self) -> u64 {
        self.milli.max(self.before_milli)
    }
}

/// What the forecast says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    pub idle_milli: u64,
    pub until: Time,
    pub basis: String,
}

pub fn hour_of(at: Time) -> i64 {
    at.0.div_euclid(HOUR_MS as i64)
}

fn place(hour: i64) -> usize {
    hour.rem_euclid(WEEK_HOURS as i64) as usize
}

impl Week {
    /// From when it last looked until now so much was in use.
    fn note(&mut self, used_milli: u64, at: Time) {
        if self.peaks.is_empty() {
            self.peaks = vec![Peak::default(); WEEK_HOURS];
        }
        let (first, last) = (hour_of(self.last.unwrap_or(at)), hour_of(at));
        // A gap longer than a week says nothing more than the week before now.
        for hour in first.max(last - WEEK_HOURS as i64)..=last {
            self.see(hour, self.used_milli);
        }
        self.see(last, used_milli);
        (self.last, self.used_milli) = (Some(at), used_milli);
    }

    fn see(&mut self, hour: i64, milli: u64) {
        let peak = &mut self.peaks[place(hour)];
        if peak.seen == 0 || peak.hour != hour {
            *peak = Peak {
                milli: 0,
                before_milli: peak.milli.max(peak.before_milli - peak.before_milli / 4),
                seen: peak.seen.saturating_add(1),
                hour,
            };
        }
        peak.milli = peak.milli.max(milli);
    }

    /// The most that is expected in an hour; none where that was never seen.
    fn expected(&self, hour: i64) -> Option<Peak> {
        self.peaks.get(place(hour)).copied().filter(|peak| peak.seen > 0)
    }
}

impl Auto {
    pub fn new(seller: TenantId, spec: AutoSpec, used_milli: u64, made: Time) -> Auto {
        let mut week = Week {
            used_milli,
            ..Week::default()
        };
        week.note(used_milli, made);
        Auto {
            seller,
            spec,
            made,
            offer: None,
            week,
        }
    }

    pub(crate) fn note(&mut self, used_milli: u64, at: Time) {
        self.week.note(used_milli, at);
    }

    /// The same order on other terms; what was seen stays.
    pub(crate) fn with(&self, spec: AutoSpec) -> Auto {
        Auto { spec, ..self.clone() }
    }

    /// What lies idle from now on for at least the shortest lease, and until when.
    pub fn forecast(&self, state: &State, at: Time) -> Option<Forecast> {
        // Nothing was noted while nothing changed, which says as much.
        let mut week = self.week.clone();
        week.note(used_milli(state, self.seller, &self.spec.class), at);
        let own = own_milli(state, self.seller, &self.spec.class)?;
        let own = own.saturating_sub(self.spec.reserve_milli);
        let now = hour_of(at);
        let least_end = at.plus_ms(self.spec.min_lease_s * SECOND_MS);
        let needed = hour_of(Time(least_end.0 - 1)).max(now);
        let mut peak = used_milli(state, self.seller, &self.spec.class);
        let mut seen = u32::MAX;
        for hour in now..=needed {
            let expected = week.expected(hour)?;
            // The hour that is on has been seen before only if it was in another week.
            let before = expected.seen - u32::from(expected.hour == now);
            seen = seen.min(before);
            peak = peak.max(expected.most());
        }
        let idle_milli = own.checked_sub(peak).filter(|idle| *idle > 0 && seen > 0)?;
        let mut end = needed + 1;
        while end < now + AHEAD_HOURS as i64 {
            match week.expected(end) {
                Some(expected) if expected.most() <= peak => {
                    seen = seen.min(expected.seen);
                    end += 1;
                }
                _ => break,
            }
        }
        let until = Time(end.saturating_mul(HOUR_MS as i64));
        (until >= least_end).then(|| Forecast {
            idle_milli,
            until,
            basis: format!(
                "in these hours of the week at most {peak} gpu_milli of {} were in use, over {seen} weeks; {} are kept",
                self.spec.class, self.spec.reserve_milli
            ),
        })
    }

    /// The offer it would make.
    pub fn offer_spec(&self, forecast: &Forecast, price: Micros, at: Time) -> OfferSpec {
        let open_s = forecast.until.since_ms(at) / SECOND_MS;
        OfferSpec {
            class: self.spec.class.clone(),
            source: Source::Quota,
            gpu_milli: forecast.idle_milli,
            region: None,
            windows: Windows::Once {
                start: at,
                end: forecast.until,
            },
            price,
            min_lease_s: self.spec.min_lease_s,
            max_lease_s: self.spec.max_lease_s.min(open_s).max(self.spec.min_lease_s),
            notice_s: self.spec.notice_s,
            buyers: self.spec.buyers.clone(),
            isolation: self.spec.isolation,
        }
    }
}
