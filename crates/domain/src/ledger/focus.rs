//! Bill rows as FOCUS 1.2 has them (the FinOps Foundation's cost and usage table), as CSV, one row at a time.
//!
//! Columns are a table: what a later edition asks for is added to it. Columns of our own begin with `x_`. What a job's hour
//! costs by the list is told beside what was paid for it; what a payer negotiated is nobody's unit price here, so
//! `ContractedUnitPrice` is absent.

use std::collections::BTreeMap;

use super::bill::{BillRow, Eye, What};
use crate::money::{Currency, Micros};
use crate::tenancy::scope::{Level, ScopeId};
use crate::time::{HOUR_MS, Period, Time};

/// What all rows of an export share.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Who sells and bills: the platform, or the tenant to its subscribers.
    pub seller: String,
    pub payer_id: String,
    pub payer_name: String,
    /// What the payer is.
    pub payer_level: Level,
    /// In whose prices.
    pub eye: Eye,
    /// What scopes are called; one that is gone is called by its id.
    pub names: BTreeMap<ScopeId, String>,
    pub currency: Currency,
    /// Empty for a draft.
    pub invoice: String,
}

type Column = (&'static str, fn(&Frame, &BillRow, Micros) -> String);

/// The columns, in their order. An empty field is no value.
pub const COLUMNS: &[Column] = &[
    ("BilledCost", |_, _, amount| amount.to_string()),
    ("BillingAccountId", |frame, _, _| frame.payer_id.clone()),
    ("BillingAccountName", |frame, _, _| frame.payer_name.clone()),
    ("BillingAccountType", |frame, _, _| {
        frame.payer_level.as_str().to_owned()
    }),
    ("BillingCurrency", |frame, _, _| frame.currency.to_string()),
    ("BillingPeriodEnd", |_, row, _| {
        moment(Period::Month.start(Period::Month.start(row.at).plus_ms(32 * 24 * HOUR_MS)))
    }),
    ("BillingPeriodStart", |_, row, _| {
        moment(Period::Month.start(row.at))
    }),
    ("ChargeCategory", |_, row, amount| category(row, amount).into()),
    ("ChargeClass", |_, row, _| class(row).into()),
    ("ChargeDescription", |_, row, _| match row.what {
        What::Usage => format!("Use of GPUs by {}", row.name),
        What::Booking => format!("Booking {}", row.name),
        What::Lease => format!("Lease of {}", row.name),
        What::Credit | What::Refund | What::Correction => row.name.clone(),
    }),
    ("ChargeFrequency", |_, row, _| {
        match row.what {
            What::Usage => "Usage-Based",
            _ => "One-Time",
        }
        .into()
    }),
    ("ChargePeriodEnd", |_, row, _| moment(ends(row))),
    ("ChargePeriodStart", |_, row, _| {
        moment(Time(ends(row).0.saturating_sub_unsigned(spans_ms(row))))
    }),
    // Nobody commits to anything here; rules of other columns name it, and cannot be checked where it is absent.
    ("CommitmentDiscountStatus", |_, _, _| String::new()),
    ("ConsumedQuantity", |_, row, amount| {
        usage(row, amount, || match &row.interval {
            Some(of) => decimal(of.gpu_ms, HOUR_MS),
            None => ONE.into(),
        })
    }),
    ("ConsumedUnit", |_, row, amount| {
        usage(row, amount, || match row.what {
            What::Usage => "GPU-Hours".into(),
            _ => pieces(row).into(),
        })
    }),
    ("ContractedCost", |_, _, amount| amount.to_string()),
    ("EffectiveCost", |_, _, amount| amount.to_string()),
    ("InvoiceId", |frame, _, _| frame.invoice.clone()),
    ("InvoiceIssuerName", |frame, _, _| frame.seller.clone()),
    ("ListCost", |frame, row, amount| match listed(frame, row) {
        Some((price, ms)) => product(price, nano(ms, HOUR_MS)),
        None => amount.to_string(),
    }),
    ("ListUnitPrice", |frame, row, amount| {
        usage(row, amount, || unit_price(frame, row, amount).to_string())
    }),
    ("PricingCategory", |_, row, amount| {
        usage(row, amount, || {
            match row.what {
                What::Lease => "Dynamic",
                _ => "Standard",
            }
            .into()
        })
    }),
    ("PricingQuantity", |frame, row, _| match listed(frame, row) {
        Some((_, ms)) => decimal(ms, HOUR_MS),
        None => ONE.into(),
    }),
    ("PricingUnit", |frame, row, _| match listed(frame, row) {
        Some(_) => "Hours".into(),
        None => pieces(row).into(),
    }),
    ("ProviderName", |frame, _, _| frame.seller.clone()),
    ("PublisherName", |frame, _, _| frame.seller.clone()),
    ("RegionId", |_, row, _| region(row)),
    ("RegionName", |_, row, _| region(row)),
    ("ServiceCategory", |_, _, _| "Compute".into()),
    ("ServiceName", |_, _, _| "GPU".into()),
    ("ServiceSubcategory", |_, _, _| "Other (Compute)".into()),
    ("SkuId", |_, row, amount| usage(row, amount, || sku(row))),
    ("SkuMeter", |_, row, amount| {
        usage(row, amount, || {
            match row.what {
                What::Usage => "Run time",
                What::Lease => "Leased capacity",
                _ => "Booked capacity",
            }
            .into()
        })
    }),
    ("SkuPriceDetails", |_, _, _| String::new()),
    ("SkuPriceId", |frame, row, amount| {
        usage(row, amount, || {
            format!("{}@{}", sku(row), unit_price(frame, row, amount))
        })
    }),
    ("SubAccountId", |_, row, _| row.owner.to_string()),
    ("SubAccountName", |frame, row, _| {
        let name = frame.names.get(&row.owner);
        name.cloned().unwrap_or_else(|| row.owner.to_string())
    }),
    ("SubAccountType", |_, row, _| {
        row.owner.level().as_str().to_owned()
    }),
    ("Tags", |_, row, _| {
        let labels = row.about().map(|about| &about.labels);
        let labels = labels.filter(|labels| !labels.is_empty());
        labels.map_or_else(String::new, |labels| {
            serde_json::to_string(labels).expect("texts encode")
        })
    }),
    ("x_Event", |_, row, _| row.event.to_string()),
    ("x_Job", |_, row, _| interval(row, |of| of.job.to_string())),
    ("x_GpuClass", |_, row, _| {
        interval(row, |of| of.class.as_deref().unwrap_or_default().to_owned())
    }),
    ("x_Kind", |_, row, _| {
        interval(row, |of| of.kind.as_str().to_owned())
    }),
    ("x_Isolation", |_, row, _| {
        interval(row, |of| of.isolation.as_str().to_owned())
    }),
    ("x_BusySeconds", |_, row, _| {
        interval(row, |of| {
            of.used.map_or(String::new(), |used| decimal(used.busy_ms, 1000))
        })
    }),
];

const USAGE: &str = "Usage";
const ONE: &str = "1.0";

/// What comes back of a lease or a booking, or is earned by one, is no use of anything.
fn category(row: &BillRow, amount: Micros) -> &'static str {
    match row.what {
        What::Lease | What::Booking if amount.0 < 0 => "Adjustment",
        What::Usage | What::Booking | What::Lease => USAGE,
        What::Credit => "Credit",
        What::Refund | What::Correction => "Adjustment",
    }
}

fn usage(row: &BillRow, amount: Micros, value: impl FnOnce() -> String) -> String {
    match category(row, amount) {
        USAGE => value(),
        _ => String::new(),
    }
}

/// What sets right a month that was over and on an invoice; within the month it is one charge among others.
fn class(row: &BillRow) -> &'static str {
    let before = |until: Time| until <= Period::Month.start(row.at);
    match row.corrects_until {
        Some(until) if before(until) => "Correction",
        _ => "",
    }
}

/// What an hour of the like costs by the list that the payer sees, and how long this was. Rows of before it was kept do not say.
fn listed(frame: &Frame, row: &BillRow) -> Option<(Micros, u64)> {
    let about = row.about()?;
    let price = match frame.eye {
        Eye::Tenant => about.listed,
        Eye::Subscriber => about.resold_listed,
        Eye::User => about.resold_listed.or(about.listed),
    };
    Some((price?, row.interval.as_ref()?.ms()))
}

/// For one of its unit. What has no price by the hour is one piece, at what was paid for it.
fn unit_price(frame: &Frame, row: &BillRow, amount: Micros) -> Micros {
    listed(frame, row).map_or(amount, |(price, _)| price)
}

/// What was bought, whatever it cost: a size that has a name, or GPUs of a class.
fn sku(row: &BillRow) -> String {
    let interval = row.interval.as_ref();
    match row.what {
        What::Usage => {
            let named = interval.and_then(|of| of.sku.as_deref().or(of.class.as_deref()));
            named.unwrap_or("CPU").to_owned()
        }
        What::Lease => format!("{}/lease", row.name),
        _ => "booking".into(),
    }
}

fn region(row: &BillRow) -> String {
    let region = row.about().and_then(|about| about.region.as_deref());
    region.unwrap_or_default().to_owned()
}

fn interval(row: &BillRow, read: impl FnOnce(&super::bill::Interval) -> String) -> String {
    row.interval.as_ref().map_or_else(String::new, read)
}

/// To the second, as the format asks; the last one counts whole.
fn ends(row: &BillRow) -> Time {
    Time(row.at.0 - row.at.0.rem_euclid(1000) + 1000)
}

fn spans_ms(row: &BillRow) -> u64 {
    let ms = row.interval.as_ref().map_or(0, |interval| interval.ms());
    ms.div_ceil(1000).max(1) * 1000
}

fn moment(at: Time) -> String {
    at.rfc3339()
}

/// What is counted by the piece.
fn pieces(row: &BillRow) -> &'static str {
    match row.what {
        What::Usage => "Intervals",
        What::Booking => "Bookings",
        What::Lease => "Leases",
        What::Credit | What::Refund | What::Correction => "Adjustments",
    }
}

/// Billionths of one.
fn nano(of: u64, by: u64) -> u128 {
    u128::from(of) * 1_000_000_000 / u128::from(by)
}

/// A fraction with nine places and a point.
fn decimal(of: u64, by: u64) -> String {
    let nano = nano(of, by);
    format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000)
}

/// A price times a quantity, to the last of its fifteen places: the two are multiplied again by whoever checks.
fn product(price: Micros, nano: u128) -> String {
    const ONE: u128 = 1_000_000_000_000_000;
    let exact = u128::from(price.0.unsigned_abs()).saturating_mul(nano);
    format!("{}.{:015}", exact / ONE, exact % ONE)
}

/// The first line.
pub fn header() -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    names.join(",") + "\n"
}

/// One row as a line, appended; `amount` is what the payer pays of it.
pub fn line(frame: &Frame, row: &BillRow, amount: Micros, out: &mut String) {
    for (n, (_, value)) in COLUMNS.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        quoted(&value(frame, row, amount), out);
    }
    out.push('\n');
}

/// A field as RFC 4180 has it; what a spreadsheet would run as a formula is told to be text.
pub fn quoted(text: &str, out: &mut String) {
    let formula = text.starts_with(['=', '+', '@', '\t', '\r'])
        || text.starts_with('-') && !text[1..].starts_with(|c: char| c.is_ascii_digit());
    let plain = !formula && !text.contains(['"', ',', '\n', '\r']);
    if plain {
        out.push_str(text);
        return;
    }
    out.push('"');
    if formula {
        out.push('\'');
    }
    for c in text.chars() {
        if c == '"' {
            out.push('"');
        }
        out.push(c);
    }
    out.push('"');
}
