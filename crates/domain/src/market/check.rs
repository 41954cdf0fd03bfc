//! Whether a listed GPU is what it is said to be: its identity, its memory and its speed are measured by its node before it
//! is first let, and again at moments nobody can guess but everybody can work out from ids.
//!
//! The claim is the node's inventory; the report is the answer to a numbered question. A GPU that somebody works on is asked
//! again later, for nobody is disturbed; one that nobody can measure is not let. Absent: how it is measured (the agent's
//! matter). Decided in `decide/market`, asked again by `advance`.

use serde::{Deserialize, Serialize};

use super::terms::MarketTerms;
use crate::id::{GpuId, NodeId};
use crate::schedule::fleet::GpuFacts;
use crate::state::State;
use crate::time::{SECOND_MS, Time};

/// Of the memory it claims a GPU shows at least this much, in thousandths: drivers keep some.
const LEAST_MEMORY_PERMILLE: u64 = 900;
const MAX_TEXT: usize = 200;

/// A question to a node, and by when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub number: u64,
    pub due: Time,
}

/// What is known of a GPU on offer or let.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCheck {
    pub node: NodeId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Question>,
    /// When it was last what it claims; none once it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<Time>,
    /// When it is asked again.
    pub next: Time,
}

/// Why a GPU's memory and speed were not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Untried {
    /// Somebody's work is on it, and is not disturbed.
    InUse,
    /// Nothing on the node can, or it failed.
    Because(String),
}

/// What a node measured of one of its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuReport {
    pub uuid: String,
    pub memory_mib: u64,
    /// In the units of `MarketTerms::least_speed`.
    pub speed: u64,
    /// Memory and speed were not tried: what is said of memory is its driver's word, and of speed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untried: Option<Untried>,
}

/// What a report comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It is what it claims.
    Passed,
    /// What of it is not as claimed.
    Lie(String),
    /// So far it is what it claims, and the rest is asked once nobody's work is on it.
    PutOff,
    /// Nobody can say whether it is, so it is not let.
    Unknown(String),
}

impl GpuReport {
    pub fn check(&self) -> Result<(), crate::refusal::Refusal> {
        crate::name::check_text(&self.uuid, MAX_TEXT, "/uuid")?;
        match &self.untried {
            Some(Untried::Because(why)) => crate::name::check_text(why, MAX_TEXT, "/untried"),
            _ => Ok(()),
        }
    }

    pub fn finding(&self, claim: &GpuFacts, terms: &MarketTerms) -> Finding {
        match (self.contradicts(claim, terms), &self.untried) {
            (Some(lie), _) => Finding::Lie(lie),
            (None, None) => Finding::Passed,
            (None, Some(Untried::InUse)) => Finding::PutOff,
            (None, Some(Untried::Because(why))) => Finding::Unknown(why.clone()),
        }
    }

    /// What in it is not as claimed. Of what was not tried a figure of zero says nothing.
    fn contradicts(&self, claim: &GpuFacts, terms: &MarketTerms) -> Option<String> {
        if self.uuid != claim.uuid {
            return Some(format!("it is {} and not {}", self.uuid, claim.uuid));
        }
        let least_mib = claim.vram_mib.saturating_mul(LEAST_MEMORY_PERMILLE) / 1000;
        let tried = self.untried.is_none();
        if self.memory_mib < least_mib && (tried || self.memory_mib > 0) {
            return Some(format!(
                "it has {} MiB of memory and not {}",
                self.memory_mib, claim.vram_mib
            ));
        }
        let least = terms.least_speed.get(&claim.class).copied().unwrap_or(1);
        (tried && self.speed < least).then(|| {
            format!(
                "it does {} where a GPU of class {} does {least}",
                self.speed, claim.class
            )
        })
    }
}

/// It passed, and nothing is being asked of it just now.
pub fn is_checked(state: &State, gpu: GpuId) -> bool {
    let check = state.market.gpu_check(gpu);
    check.is_some_and(|check| check.passed.is_some() && check.open.is_none())
}

/// Whether it has to be asked before it is let: nothing is known of it, or nothing recent, or it did not answer.
pub fn is_to_be_asked(check: Option<&GpuCheck>, at: Time) -> bool {
    check.is_none_or(|check| match check.open {
        Some(question) => question.due <= at,
        None => check.passed.is_none() || check.next <= at,
    })
}

/// What a check is of: another device, or the same with more said of it, has yet to show it.
pub fn is_same_claim(one: &GpuFacts, other: &GpuFacts) -> bool {
    let claim = |facts: &GpuFacts| (facts.uuid.clone(), facts.class.clone(), facts.vram_mib);
    claim(one) == claim(other)
}

/// When a GPU in use is asked again.
pub fn put_off(terms: &MarketTerms, at: Time) -> Time {
    at.plus_ms(terms.check_answer_s * SECOND_MS)
}

/// When it is asked again after it passed: between once and twice the operator's time, by the ids alone.
pub fn again(terms: &MarketTerms, gpu: GpuId, number: u64, at: Time) -> Time {
    let spread_s = scatter(gpu.0 ^ scatter(number)) % terms.check_again_s.max(1);
    at.plus_ms((terms.check_again_s + spread_s) * SECOND_MS)
}

/// Spreads a number over all 64 bits (the finisher of splitmix64).
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
