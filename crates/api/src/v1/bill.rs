//! Bill rows: every change of what somebody owes, as whoever pays sees it.

use serde::{Deserialize, Serialize};
use tenure_domain::kind::Kind;
use tenure_domain::ledger::bill::What;
use tenure_domain::workload::spec::Isolation;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

/// Which rows: those of a scope and everything below it, in a span of time, of some sort.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BillQuery {
    /// The scope's id; absent means the widest the caller may see.
    pub scope: Option<String>,
    /// From this moment on, RFC 3339; absent means the start of the month.
    pub since: Option<String>,
    /// Before this moment; absent means now.
    pub until: Option<String>,
    pub what: Option<What>,
    /// On this GPU class; empty means on none.
    pub class: Option<String>,
    /// Of this SKU; empty means of none.
    pub sku: Option<String>,
    pub kind: Option<Kind>,
    /// How many at most, 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Goes on where the page that gave this cursor ended.
    pub cursor: Option<String>,
}

/// One change of what is owed. As it is written here it is hashed into invoices, so fields are only ever added with a
/// default that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BillRowView {
    /// The number of its event in the journal.
    pub event: u64,
    pub at: Moment,
    pub what: What,
    /// The user, or the scope, whose it is.
    pub owner: String,
    /// Of a job, a booking or a lease; of an adjustment its reason.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<IntervalView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<String>,
    /// What it comes to; negative where something is given back.
    pub amount_micros: i64,
}

/// A metered interval of an allocation: `[from_ms, to_ms)` of its run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntervalView {
    pub allocation: String,
    pub job: String,
    pub from_ms: u64,
    pub to_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    pub kind: Kind,
    pub isolation: Isolation,
    /// How many devices it had a slice of.
    pub slices: u32,
    /// Compute share and device memory, of all of them.
    pub gpu_milli: u64,
    pub vram_mib: u64,
    /// Time times compute share.
    pub gpu_ms: u64,
    /// Time its devices worked for it, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_vram_mib: Option<u64>,
    /// Energy, where devices say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<u64>,
    /// Frames that were made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frames: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
