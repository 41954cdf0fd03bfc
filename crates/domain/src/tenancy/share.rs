//! A scope's share: its weight among its siblings, and what it is sure of of each GPU class.
//!
//! The weight divides what nobody is sure of, by past use; the nominal quota is there when it is wanted, borrowed by
//! others meanwhile. The platform's own share also says how fast use is forgiven and how long a job waits at most
//! before it goes ahead of fairness. Absent: hard limits (`quota`), and whose turn it is (`schedule/order`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scope::ScopeId;
use crate::name;
use crate::refusal::Refusal;
use crate::time::{HOUR_MS, SECOND_MS};

pub const DEFAULT_HALF_LIFE_S: u64 = 7 * 24 * 3_600;

/// A job that waited this long, in all, goes before every other that did not, whatever its priority class; so the wait of
/// a job is bounded by this plus the time that is needed for what is as old and older, or as old and of a higher class.
pub const DEFAULT_AGED_S: u64 = 60 * 24 * 3_600;

const MAX_WEIGHT: u32 = 1_000_000;
const MAX_CLASSES: usize = 200;
const MAX_GPU_MILLI: u64 = 1 << 40;
const MIN_SPAN_S: u64 = 60;
const MAX_SPAN_S: u64 = 366 * 24 * 3_600;

/// GPUs of one class, of one scope, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Nominal {
    pub gpu_milli: u64,
    /// At most this much above nominal; no limit if none is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrow_milli: Option<u64>,
    /// At most this much of what is idle goes to others; all of it if none is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend_milli: Option<u64>,
}

/// What a scope gets among its siblings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Share {
    /// Of what is left beyond nominal quotas it deserves this many parts.
    pub weight: u32,
    /// By GPU class. A class that is absent is neither lent nor borrowed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, Nominal>))]
    pub nominal: BTreeMap<Box<str>, Nominal>,
    /// Of the platform alone: after this long half of what was used is forgiven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life_s: Option<u64>,
    /// Of the platform alone: a job that waited this long goes first, whatever its priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aged_s: Option<u64>,
}

impl Default for Share {
    fn default() -> Self {
        Share {
            weight: 1,
            nominal: BTreeMap::new(),
            half_life_s: None,
            aged_s: None,
        }
    }
}

impl Share {
    pub fn is_default(&self) -> bool {
        *self == Share::default()
    }

    pub fn half_life_ms(&self) -> u64 {
        self.half_life_s.unwrap_or(DEFAULT_HALF_LIFE_S) * SECOND_MS
    }

    pub fn aged_ms(&self) -> u64 {
        self.aged_s.unwrap_or(DEFAULT_AGED_S) * SECOND_MS
    }

    pub(crate) fn check(&self, scope: ScopeId) -> Result<(), Refusal> {
        if self.weight == 0 || self.weight > MAX_WEIGHT {
            return Err(Refusal::invalid(
                "/weight",
                format!("a weight is 1 to {MAX_WEIGHT}"),
            ));
        }
        if self.nominal.len() > MAX_CLASSES {
            return Err(Refusal::invalid(
                "/nominal",
                format!("a share names at most {MAX_CLASSES} GPU classes"),
            ));
        }
        for (class, nominal) in &self.nominal {
            name::check(class, "/nominal")?;
            let amounts = [Some(nominal.gpu_milli), nominal.borrow_milli, nominal.lend_milli];
            if amounts.into_iter().flatten().any(|milli| milli > MAX_GPU_MILLI) {
                return Err(Refusal::invalid(
                    format!("/nominal/{class}"),
                    "more GPUs than any cell has",
                ));
            }
        }
        for (span_s, field) in [(self.half_life_s, "/half_life_s"), (self.aged_s, "/aged_s")] {
            let Some(span_s) = span_s else { continue };
            if scope != ScopeId::Platform {
                return Err(
                    Refusal::invalid(field, "only the platform's share says this, for everybody")
                        .hint("set it at the scope `platform`"),
                );
            }
            if !(MIN_SPAN_S..=MAX_SPAN_S).contains(&span_s) {
                return Err(Refusal::invalid(
                    field,
                    format!(
                        "it is {MIN_SPAN_S} s to {} days",
                        MAX_SPAN_S * SECOND_MS / (24 * HOUR_MS)
                    ),
                ));
            }
        }
        Ok(())
    }
}
