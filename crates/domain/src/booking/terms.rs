//! The operator's terms for bookings: how far ahead, how long before its start a window is cleared, what grace and what
//! fees there are. They hold for the whole platform; what a booking was made under is not changed by new ones, but for
//! its fees and times, which are those of the day. Set by `decide/booking`.

use serde::{Deserialize, Serialize};

use crate::money::Micros;
use crate::refusal::Refusal;
use crate::time::SECOND_MS;

const DAY_S: u64 = 86_400;
const MAX_STEPS: usize = 16;

/// What cancelling costs with less notice than the step before asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelStep {
    /// With at least this much notice.
    pub notice_s: u64,
    /// Thousandths of the window's price.
    pub fee_permille: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Terms {
    /// Windows are held this far ahead; a series without an end goes on beyond as time passes.
    pub horizon_days: u32,
    /// Before its start, whoever is in a window's way is told to leave this early.
    pub lead_s: u64,
    /// At its end jobs get this much more time once, charged, where nobody else booked it.
    pub grace_s: u64,
    /// A window in which nothing ran for this long from its start is given up; zero for never.
    pub no_show_s: u64,
    /// Thousandths of what was left of the price of a window nobody came to.
    pub no_show_permille: u32,
    /// Longest notice first. With less notice than all of them the whole price is due.
    pub cancel: Vec<CancelStep>,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            horizon_days: 366,
            lead_s: 120,
            grace_s: 0,
            no_show_s: 1800,
            no_show_permille: 500,
            cancel: vec![
                CancelStep {
                    notice_s: DAY_S,
                    fee_permille: 0,
                },
                CancelStep {
                    notice_s: 3600,
                    fee_permille: 500,
                },
            ],
        }
    }
}

impl Terms {
    pub fn is_default(&self) -> bool {
        *self == Terms::default()
    }

    pub fn horizon_ms(&self) -> u64 {
        u64::from(self.horizon_days) * DAY_S * SECOND_MS
    }

    pub fn check(&self) -> Result<(), Refusal> {
        if !(1..=3660).contains(&self.horizon_days) {
            return Err(Refusal::invalid(
                "/horizon_days",
                "windows are held 1 to 3660 days ahead",
            ));
        }
        for (seconds, field) in [
            (self.lead_s, "/lead_s"),
            (self.grace_s, "/grace_s"),
            (self.no_show_s, "/no_show_s"),
        ] {
            if seconds > 7 * DAY_S {
                return Err(Refusal::invalid(field, "it is a week at most"));
            }
        }
        if self.no_show_permille > 1000 || self.cancel.iter().any(|step| step.fee_permille > 1000) {
            return Err(Refusal::invalid(
                "/cancel",
                "a fee is 0 to 1000 thousandths of the price",
            ));
        }
        let falls = |pair: &[CancelStep]| {
            pair[0].notice_s > pair[1].notice_s && pair[0].fee_permille <= pair[1].fee_permille
        };
        if self.cancel.len() > MAX_STEPS || !self.cancel.windows(2).all(falls) {
            return Err(Refusal::invalid(
                "/cancel",
                format!(
                    "at most {MAX_STEPS} steps, the longest notice first, and no less is due with less notice"
                ),
            ));
        }
        Ok(())
    }

    /// What is due of a price when it is cancelled so long before.
    pub fn cancel_fee(&self, price: Micros, notice_ms: u64) -> Micros {
        let step = self
            .cancel
            .iter()
            .find(|step| notice_ms >= step.notice_s * SECOND_MS);
        permille(price, step.map_or(1000, |step| step.fee_permille))
    }

    pub fn no_show_fee(&self, left: Micros) -> Micros {
        permille(left, self.no_show_permille)
    }
}

fn permille(price: Micros, permille: u32) -> Micros {
    let part = i128::from(price.0) * i128::from(permille) / 1000;
    Micros(i64::try_from(part).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_notice_costs_more() {
        let terms = Terms::default();
        let fee = |notice_s: u64| terms.cancel_fee(Micros(1_000_001), notice_s * SECOND_MS).0;
        assert_eq!(
            [fee(DAY_S), fee(DAY_S - 1), fee(3600), fee(3599), fee(0)],
            [0, 500_000, 500_000, 1_000_001, 1_000_001]
        );
    }
}
