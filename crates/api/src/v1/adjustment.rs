//! Adjustments: credits, refunds and corrections. Each is a posting of its own; nothing is edited.

use serde::{Deserialize, Serialize};
use tenure_domain::ledger::adjust::AdjustmentKind;
use utoipa::ToSchema;

use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Adjust {
    /// The tenant or subscriber it is for, by id.
    pub scope: String,
    pub kind: AdjustmentKind,
    /// What the scope gets; of a correction negative where it owes more.
    pub amount_micros: i64,
    /// Of a refund: the invoice it is of. Of a correction: the invoice that was wrong, where it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invoice: Option<String>,
    /// Why; it stands on the next invoice.
    #[schema(max_length = 500)]
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdjustmentView {
    pub id: String,
    pub scope: String,
    pub path: String,
    pub kind: AdjustmentKind,
    pub amount_micros: i64,
    pub currency: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invoice: Option<String>,
    pub reason: String,
    pub at: Moment,
}
