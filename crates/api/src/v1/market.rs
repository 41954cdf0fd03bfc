//! The exchange: offers, bids, leases, the book of each class and what was traded at which price.
//!
//! Prices are for a whole GPU by the hour, in micros; amounts are in thousandths of a GPU. Offers of others are shown
//! without who makes them, but for how reliable that seller is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_domain::id::{BidId, LeaseId, OfferId};
use tenure_domain::market::offer::Source;
use tenure_domain::workload::spec::Isolation;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

/// When an offer stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "when", deny_unknown_fields)]
pub enum OfferWindows {
    #[default]
    Always,
    Once {
        start: Moment,
        end: Moment,
    },
    /// Minutes of the day by the clocks of an IANA zone; one that ends no later than it starts ends the next day.
    Daily {
        from_minute: u16,
        until_minute: u16,
        zone: String,
    },
}

fn quota() -> Source {
    Source::Quota
}

fn fenced() -> Isolation {
    Isolation::Fenced
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeOffer {
    /// The tenant that sells; absent means the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    pub class: String,
    /// Idle quota unless said.
    #[serde(default = "quota")]
    #[schema(required = false)]
    pub source: Source,
    /// Of nodes: all they have.
    #[schema(minimum = 1)]
    pub gpu_milli: u64,
    /// Of nodes alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(default)]
    #[schema(required = false)]
    pub windows: OfferWindows,
    #[schema(minimum = 0)]
    pub price_micros: i64,
    #[schema(minimum = 1)]
    pub min_lease_s: u64,
    #[schema(minimum = 1)]
    pub max_lease_s: u64,
    /// How long before it is wanted back that is said.
    pub notice_s: u64,
    /// Only these tenants, by id; anybody where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyers: Option<BTreeSet<String>>,
    /// The level it is let at.
    #[serde(default = "fenced")]
    #[schema(required = false)]
    pub isolation: Isolation,
}

/// A standing order: what the forecast says lies idle is offered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAutoOffer {
    /// At least; more where the class traded dearer lately.
    #[schema(minimum = 0)]
    pub floor_micros: i64,
    /// Kept free of offers.
    #[serde(default)]
    pub reserve_milli: u64,
    #[schema(minimum = 1)]
    pub min_lease_s: u64,
    #[schema(minimum = 1)]
    pub max_lease_s: u64,
    pub notice_s: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyers: Option<BTreeSet<String>>,
    #[serde(default = "fenced")]
    #[schema(required = false)]
    pub isolation: Isolation,
}

/// Buys the best offers there are now, or nothing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Buy {
    /// The tenant, subscriber or user whose quota grows; absent means the caller's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    pub class: String,
    #[schema(minimum = 1)]
    pub gpu_milli: u64,
    #[schema(minimum = 1)]
    pub duration_s: u64,
    /// At most; whatever is asked unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub price_micros: Option<i64>,
    /// Less than wanted will do.
    #[serde(default)]
    pub partial: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_isolation: Option<Isolation>,
    /// Only sellers this reliable, in thousandths.
    #[serde(default)]
    #[schema(maximum = 1000)]
    pub min_reliability_permille: u32,
    /// Shows what would be bought, and buys nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Waits for offers at its price.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceBid {
    /// The tenant, subscriber or user whose quota grows; absent means the caller's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    pub class: String,
    #[schema(minimum = 1)]
    pub gpu_milli: u64,
    #[schema(minimum = 1)]
    pub duration_s: u64,
    /// At most. What is paid is what was asked.
    #[schema(minimum = 0)]
    pub price_micros: i64,
    /// What it gets is another's who bids more, after the offer's notice.
    #[serde(default)]
    pub spot: bool,
    pub expires: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_isolation: Option<Isolation>,
    #[serde(default)]
    #[schema(maximum = 1000)]
    pub min_reliability_permille: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OfferView {
    #[schema(value_type = String)]
    pub id: OfferId,
    pub class: String,
    pub gpu_milli: u64,
    /// What of it is not leased.
    pub left_milli: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub isolation: Isolation,
    pub price_micros: i64,
    pub min_lease_s: u64,
    pub max_lease_s: u64,
    pub notice_s: u64,
    /// How much of what its seller promised lately was had, in thousandths.
    pub reliability_permille: u32,
    /// The window that is on or comes next; an end that is absent is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_from: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Moment>,
    pub made: Moment,
    /// Whose it is, to those who trade for that tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seller: Option<String>,
    /// What the forecast went by, where a standing order made it; to the seller alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AutoOfferView {
    pub seller: String,
    pub seller_path: String,
    pub class: String,
    pub floor_micros: i64,
    pub reserve_milli: u64,
    pub min_lease_s: u64,
    pub max_lease_s: u64,
    pub notice_s: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyers: Option<BTreeSet<String>>,
    pub isolation: Isolation,
    pub made: Moment,
    /// The offer it has made, while that stands.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<OfferId>,
    /// What the forecast says now; absent where it sees nothing idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_milli: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_until: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BidView {
    #[schema(value_type = String)]
    pub id: BidId,
    pub scope: String,
    pub scope_path: String,
    pub class: String,
    pub gpu_milli: u64,
    /// What of it still waits.
    pub left_milli: u64,
    pub duration_s: u64,
    pub price_micros: i64,
    pub spot: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_isolation: Option<Isolation>,
    pub min_reliability_permille: u32,
    /// What is held for what still waits.
    pub held_micros: i64,
    pub made: Moment,
}

/// What came of a bid: what waits, and what was leased at once.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlacedView {
    /// Absent where it was filled whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<BidView>,
    pub leases: Vec<LeaseView>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    #[schema(value_type = String)]
    pub id: LeaseId,
    pub seller: String,
    pub seller_path: String,
    /// The scope that bought it, to those who see it; its tenant to the seller.
    pub buyer: String,
    pub buyer_path: String,
    pub class: String,
    pub gpu_milli: u64,
    pub price_micros: i64,
    pub start: Moment,
    pub end: Moment,
    pub min_lease_s: u64,
    pub notice_s: u64,
    /// Can be outbid.
    pub spot: bool,
    /// In escrow for all of it.
    pub escrow_micros: i64,
    /// What was had of it so far costs this much.
    pub cost_micros: i64,
    /// `seller` or `outbid`, where it ends sooner than it was bought for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled: Option<String>,
    /// Whoever ran beyond what is left was told to leave.
    pub vacating: bool,
}

/// A part of an offer that was bought, or would be.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FillView {
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    #[schema(value_type = String)]
    pub offer: OfferId,
    pub class: String,
    pub gpu_milli: u64,
    pub price_micros: i64,
    pub cost_micros: i64,
    pub start: Moment,
    pub end: Moment,
    pub notice_s: u64,
    pub reliability_permille: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PurchaseView {
    /// Nothing was bought.
    pub dry_run: bool,
    pub fills: Vec<FillView>,
    pub gpu_milli: u64,
    /// Into escrow for all of it.
    pub cost_micros: i64,
    pub currency: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LevelView {
    pub price_micros: i64,
    pub gpu_milli: u64,
    /// How many offers or bids.
    pub orders: u64,
}

/// The depth of one class: what is offered and wanted at each price, the best first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BookView {
    pub class: String,
    pub asks: Vec<LevelView>,
    pub bids: Vec<LevelView>,
}

/// What was traded of a class in an hour.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PriceHourView {
    pub class: String,
    pub hour: Moment,
    pub trades: u64,
    /// GPU time that was sold, whenever it is had.
    pub gpu_ms: u64,
    /// Each trade weighing what it is.
    pub mean_micros: i64,
    pub low_micros: i64,
    pub high_micros: i64,
    pub last_micros: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfferQuery {
    /// Those a tenant of this scope makes, whatever is left of them; absent means all the caller may buy from.
    pub scope: Option<String>,
    pub class: Option<String>,
    pub region: Option<String>,
    #[param(minimum = 0)]
    pub max_price_micros: Option<i64>,
    #[param(maximum = 1000)]
    pub min_reliability_permille: Option<u32>,
    pub min_gpu_milli: Option<u64>,
    pub min_isolation: Option<Isolation>,
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// For lists of what a scope trades.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TradeQuery {
    /// Of this scope and below; absent means the caller's tenant.
    pub scope: Option<String>,
    pub class: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ClassQuery {
    /// Only of this GPU class.
    pub class: Option<String>,
}
