//! Bill rows as FOCUS 1.2 has them (the FinOps Foundation's cost and usage table), as CSV, one row at a time.
//!
//! Columns are a table: what a later edition asks for is added to it. Columns of our own begin with `x_`.

use super::bill::{BillRow, What};
use crate::money::{Currency, Micros};
use crate::time::{HOUR_MS, Period, Time};

/// What all rows of an export share.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Who sells and bills: the platform, or the tenant to its subscribers.
    pub seller: String,
    pub payer_id: String,
    pub payer_name: String,
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
    ("BillingCurrency", |frame, _, _| frame.currency.to_string()),
    ("BillingPeriodEnd", |_, row, _| {
        moment(Period::Month.start(Period::Month.start(row.at).plus_ms(32 * 24 * HOUR_MS)))
    }),
    ("BillingPeriodStart", |_, row, _| {
        moment(Period::Month.start(row.at))
    }),
    ("ChargeCategory", |_, row, amount| category(row, amount).into()),
    ("ChargeClass", |_, _, _| String::new()),
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
    ("ConsumedQuantity", |_, row, amount| match category(row, amount) {
        USAGE => quantity(row),
        _ => String::new(),
    }),
    ("ConsumedUnit", |_, row, amount| match category(row, amount) {
        USAGE => unit(row),
        _ => String::new(),
    }),
    ("ContractedCost", |_, _, amount| amount.to_string()),
    ("EffectiveCost", |_, _, amount| amount.to_string()),
    ("InvoiceId", |frame, _, _| frame.invoice.clone()),
    ("InvoiceIssuerName", |frame, _, _| frame.seller.clone()),
    ("ListCost", |_, _, amount| amount.to_string()),
    ("PricingQuantity", |_, row, _| quantity(row)),
    ("PricingUnit", |_, row, _| unit(row)),
    ("ProviderName", |frame, _, _| frame.seller.clone()),
    ("PublisherName", |frame, _, _| frame.seller.clone()),
    ("ServiceCategory", |_, _, _| "Compute".into()),
    ("ServiceName", |_, _, _| "GPU".into()),
    ("ServiceSubcategory", |_, _, _| "Other (Compute)".into()),
    ("SubAccountId", |_, row, _| row.owner.to_string()),
    ("SubAccountName", |_, row, _| row.owner.to_string()),
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

/// What comes back of a lease, or is earned by one, is no use of anything.
fn category(row: &BillRow, amount: Micros) -> &'static str {
    match row.what {
        What::Lease if amount.0 < 0 => "Adjustment",
        What::Usage | What::Booking | What::Lease => USAGE,
        What::Credit => "Credit",
        What::Refund | What::Correction => "Adjustment",
    }
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

fn quantity(row: &BillRow) -> String {
    match (&row.interval, row.what) {
        (Some(interval), _) => decimal(interval.gpu_ms, HOUR_MS),
        _ => "1.0".into(),
    }
}

fn unit(row: &BillRow) -> String {
    match row.what {
        What::Usage => "GPU-Hours",
        What::Booking => "Bookings",
        What::Lease => "Leases",
        What::Credit | What::Refund | What::Correction => "Adjustments",
    }
    .into()
}

/// A fraction with nine places and a point.
fn decimal(of: u64, by: u64) -> String {
    let nano = u128::from(of) * 1_000_000_000 / u128::from(by);
    format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000)
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
