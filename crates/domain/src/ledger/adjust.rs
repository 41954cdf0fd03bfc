//! Adjustments: credits, refunds and corrections. Each is a new posting with a reason; nothing is ever edited.

use serde::{Deserialize, Serialize};

use super::account::Posting;
use crate::id::{AdjustmentId, InvoiceId};
use crate::money::Micros;
use crate::tenancy::scope::ScopeId;

/// Why money is given or taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AdjustmentKind {
    /// Given for goodwill, or as a promise kept.
    Credit,
    /// Given back of an issued invoice, and never more than it was for.
    Refund,
    /// Something was charged wrongly, to whose harm it may be.
    Correction,
}

/// One of them, as decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjustment {
    pub id: AdjustmentId,
    /// The tenant or subscriber it is for.
    pub scope: ScopeId,
    pub kind: AdjustmentKind,
    /// What the scope gets; negative where it owes more.
    pub amount: Micros,
    /// Of a refund what it is of, and of a correction what was wrong, where that is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invoice: Option<InvoiceId>,
    pub reason: String,
    pub posting: Posting,
}
