//! Invoices: what a scope owes for a span of time, and the file that proves it.

use serde::{Deserialize, Serialize};
use tenure_domain::kind::Kind;
use tenure_domain::ledger::bill::What;
use tenure_domain::ledger::invoice::{Invoice, InvoiceLine};
use utoipa::{IntoParams, ToSchema};

use super::journal::ProofView;
use super::time::Moment;

/// Whose, and for what span of time.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DraftQuery {
    /// The scope's id; absent means the widest the caller may see.
    pub scope: Option<String>,
    /// From this moment on, RFC 3339; absent means the start of the month.
    pub since: Option<String>,
    /// Before this moment; absent means now.
    pub until: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueInvoice {
    /// The tenant, subscriber or user it is for, by id.
    pub scope: String,
    pub since: Moment,
    /// Not after now: what is metered later belongs to the next.
    pub until: Moment,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PayInvoice {
    /// Under which the payment is known outside, such as that of a bank.
    #[schema(max_length = 200)]
    pub reference: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvoiceState {
    Draft,
    Issued,
    Paid,
}

impl InvoiceState {
    pub fn as_str(self) -> &'static str {
        match self {
            InvoiceState::Draft => "draft",
            InvoiceState::Issued => "issued",
            InvoiceState::Paid => "paid",
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InvoiceQuery {
    /// Those of this scope and everything below it; absent means the widest the caller may see.
    pub scope: Option<String>,
    /// Only in this state.
    pub state: Option<InvoiceState>,
    /// How many at most, 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Goes on where the page that gave this cursor ended.
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvoiceView {
    /// Absent while it is a draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub state: InvoiceState,
    pub scope: String,
    pub path: String,
    /// Who bills: the platform, or the tenant.
    pub seller: String,
    pub currency: String,
    pub since: Moment,
    pub until: Moment,
    pub total_micros: i64,
    /// How many bill rows it stands on.
    pub rows: u64,
    /// The root over its rows, hexadecimal.
    pub root: String,
    pub lines: Vec<InvoiceLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid: Option<Moment>,
    /// Given back of it.
    #[serde(default)]
    pub refunded_micros: i64,
}

/// Which of an invoice's rows: all, or those of one line, by what its rows have in common.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InvoiceRowsQuery {
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

/// How an invoice is written out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileForm {
    /// Whole, with every row and every proof; what `tenure invoice verify` checks.
    #[default]
    Json,
    Csv,
    /// For printing.
    Html,
    /// FOCUS 1.2, as CSV.
    Focus,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FileQuery {
    /// `json` unless said.
    pub form: Option<FileForm>,
}

/// What stands at the head of an invoice's file; its rows and the hashes of their events follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileHead {
    pub invoice: Invoice,
    /// That it was issued so: the event, and its way to the root of a signed head.
    pub proof: ProofView,
}

/// That the events which rows name are in the journal, under the same head: their hashes, in the order of their numbers,
/// and what else is needed to get from them to the root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventHashes {
    pub hashes: Vec<String>,
    pub path: Vec<String>,
}
