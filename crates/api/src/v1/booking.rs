//! Bookings: capacity held for windows in time, in a time zone.
//!
//! Wall times are written `2026-03-29T09:00`, without an offset: the zone says what they mean. A window is named by the
//! wall time at which its occurrence begins.

use serde::{Deserialize, Serialize};
use tenure_domain::booking::record::Size;
use tenure_domain::id::BookingId;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeBooking {
    /// The tenant, subscriber or user it is for; absent means the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    pub name: String,
    /// The GPU class.
    pub class: String,
    pub size: Size,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// An IANA zone, such as `Europe/Berlin`.
    pub zone: String,
    pub start: String,
    pub end: String,
    /// An RFC 5545 rule, such as `FREQ=WEEKLY;BYDAY=MO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// More starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// Starts that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// The price that was quoted; it is refused at a higher one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_micros: Option<i64>,
}

/// Which windows are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhichWindows {
    One,
    Rest,
    All,
}

/// What is to be different; what is not said stays.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EditBooking {
    pub which: WhichWindows,
    /// The window it begins with; for all of them absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendBooking {
    pub of: String,
    #[schema(minimum = 1)]
    pub more_s: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferBooking {
    /// The tenant, subscriber or user it is for from then on.
    pub to: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelBooking {
    pub which: WhichWindows,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WindowView {
    /// Which occurrence it is: its wall time.
    pub of: String,
    pub start: Moment,
    pub end: Moment,
    /// `booked`, `clearing` or `open`.
    pub phase: String,
    pub gpus: u32,
    /// Where it is.
    pub nodes: Vec<String>,
    pub price_micros: i64,
    /// How long it was not to be had since its start; that is refunded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BookingView {
    #[schema(value_type = String)]
    pub id: BookingId,
    pub scope: String,
    pub scope_path: String,
    pub name: String,
    pub class: String,
    pub size: Size,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    pub zone: String,
    /// The edition of the tz database its wall times were read by.
    pub tzdata: String,
    pub start: String,
    pub end: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Windows that have not ended and are held.
    pub windows: Vec<WindowView>,
    /// More follow as time passes.
    pub more: bool,
    /// What is held for them.
    pub price_micros: i64,
    pub made: Moment,
    pub revision: u64,
    /// What its owner should know of it and did not do: windows that moved with new tzdata, or were not to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QuoteView {
    pub windows: Vec<WindowView>,
    pub more: bool,
    pub price_micros: i64,
    pub currency: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BookingQuery {
    /// Bookings of this scope and below; absent means those the caller's jobs may use.
    pub scope: Option<String>,
    /// Only of this GPU class.
    pub class: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// A window in the calendar, with what it is a window of.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CalendarWindow {
    #[schema(value_type = String)]
    pub booking: BookingId,
    pub name: String,
    pub class: String,
    pub scope_path: String,
    #[serde(flatten)]
    pub window: WindowView,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CalendarQuery {
    /// Bookings of this scope and below; absent means those the caller's jobs may use.
    pub scope: Option<String>,
    /// Only of this GPU class.
    pub class: Option<String>,
    /// Windows that have not ended by then; absent means now.
    pub since: Option<String>,
    /// Windows that begin before; absent means seven days later.
    pub until: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FeedQuery {
    /// Bookings of this scope and below; absent means those the caller's jobs may use.
    pub scope: Option<String>,
    /// Only of this GPU class.
    pub class: Option<String>,
}
