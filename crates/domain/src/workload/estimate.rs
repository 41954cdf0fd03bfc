//! Estimates: what a workload needs, in named terms that add up, each with its formula in words.
//!
//! Integers only, rounded up. Absent: the formulas themselves (`inference`, `train`, `picture`), what was measured
//! (`learnt`), and which GPUs would do (`schedule/fit`).

use serde::{Deserialize, Serialize};

pub const MIB: u128 = 1 << 20;

/// What a part of device memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TermName {
    Weights,
    KvCache,
    Activations,
    Gradients,
    Optimizer,
    Adapters,
    /// What is fetched from the other ranks while it is needed.
    Gathered,
    /// A frame or a segment at work.
    Picture,
    Overhead,
}

impl TermName {
    pub fn as_str(self) -> &'static str {
        match self {
            TermName::Weights => "weights",
            TermName::KvCache => "KV cache",
            TermName::Activations => "activations",
            TermName::Gradients => "gradients",
            TermName::Optimizer => "optimizer",
            TermName::Adapters => "adapters",
            TermName::Gathered => "gathered",
            TermName::Picture => "picture",
            TermName::Overhead => "overhead",
        }
    }
}

/// One part of what each GPU needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Term {
    pub name: TermName,
    pub bytes: u64,
    /// The formula, with its figures.
    pub words: String,
}

impl Term {
    pub(super) fn new(name: TermName, bytes: u128, words: impl Into<String>) -> Term {
        Term {
            name,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
            words: words.into(),
        }
    }
}

/// What a workload needs, by rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Estimate {
    /// What it is of, in a line.
    pub title: String,
    /// Device memory of each GPU; none where the workload does not say enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<Term>,
    /// GPUs in all.
    pub gpus: u32,
    /// GPUs that belong on one node, as they speak with one another in every layer.
    pub together: u32,
    /// How long it runs; none where the workload does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<u64>,
    /// What one more token of context takes on each GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_bytes: Option<u64>,
    /// What else one should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Estimate {
    pub fn bytes(&self) -> u64 {
        let all = self.terms.iter().map(|term| term.bytes);
        all.fold(0, u64::saturating_add)
    }

    /// Device memory of each GPU.
    pub fn vram_mib(&self) -> u64 {
        // INVARIANT: 64 bits divided.
        u128::from(self.bytes()).div_ceil(MIB) as u64
    }

    pub fn bytes_of(&self, name: TermName) -> u64 {
        let all = self.terms.iter().filter(|term| term.name == name);
        all.map(|term| term.bytes).fold(0, u64::saturating_add)
    }

    /// Tokens of context a GPU with this much memory has room for, as servers fill it: nine tenths of the card.
    pub fn tokens_within(&self, vram_mib: u64) -> Option<u64> {
        let token = self.token_bytes.filter(|&token| token > 0)?;
        let usable = vram_mib.saturating_mul(1 << 20) / 10 * 9;
        let fixed = self.bytes().saturating_sub(self.bytes_of(TermName::KvCache));
        Some(usable.saturating_sub(fixed) / token)
    }
}

/// A number as people read it: `13,015,864,320`.
pub(super) fn grouped(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let grouped = [0_u64, 12, 123, 1234, 123_456, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }

    #[test]
    fn terms_add_up_and_never_wrap() {
        let mut estimate = Estimate::default();
        assert_eq!((estimate.vram_mib(), estimate.tokens_within(1000)), (0, None));
        estimate.terms = vec![
            Term::new(TermName::Weights, 10 * MIB + 1, ""),
            Term::new(TermName::KvCache, 5 * MIB, ""),
        ];
        assert_eq!(estimate.vram_mib(), 16);
        estimate.token_bytes = Some(1 << 20);
        assert_eq!(estimate.tokens_within(100), Some(79));
        estimate.terms.push(Term::new(TermName::Overhead, u128::MAX, ""));
        assert_eq!(estimate.bytes(), u64::MAX);
        assert_eq!(estimate.tokens_within(100), Some(0));
    }
}
