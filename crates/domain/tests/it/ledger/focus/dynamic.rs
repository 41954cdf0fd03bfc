//! What the model asks and cannot say by a check: its rules of type Dynamic, each looked at by hand. One that applies and is not
//! here is a fault of these tests, so that a later edition of the model leaves nothing out.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_domain::Time;
use tenure_domain::ledger::bill::{BillRow, What};
use tenure_domain::money::{Currency, Micros};
use tenure_domain::time::SECOND_MS;

use super::{Row, number, product_is};

/// A row of the table, with what it was made of.
pub struct Seen<'a> {
    pub row: &'a Row,
    pub rows: &'a [Row],
    pub of: &'a BillRow,
    pub amount: Micros,
    /// What the invoice is for.
    pub total: Micros,
    pub invoice: &'a str,
}

const INSTANTS: [&str; 4] = [
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargePeriodStart",
    "ChargePeriodEnd",
];
const NUMBERS: [&str; 8] = [
    "BilledCost",
    "ConsumedQuantity",
    "ContractedCost",
    "EffectiveCost",
    "ListCost",
    "ListUnitPrice",
    "PricingQuantity",
    "x_BusySeconds",
];
const CURRENCIES: [&str; 1] = ["BillingCurrency"];
const UNITS: [&str; 2] = ["ConsumedUnit", "PricingUnit"];

impl Seen<'_> {
    fn value(&self, column: &str) -> &str {
        self.row.get(column).map_or("", String::as_str)
    }

    fn is(&self, column: &str, value: &str) -> bool {
        self.value(column) == value
    }

    fn time(&self, column: &str) -> Time {
        Time::parse_rfc3339(self.value(column)).unwrap_or(Time(i64::MIN))
    }

    fn all(&self, columns: &[&str], fine: impl Fn(&str) -> bool) -> bool {
        let values = columns.iter().map(|column| self.value(column));
        values.filter(|value| !value.is_empty()).all(fine)
    }

    fn is_usage(&self) -> bool {
        self.is("ChargeCategory", "Usage")
    }

    /// Of a month that was over and on an invoice.
    fn corrects_before(&self) -> bool {
        self.of
            .corrects_until
            .is_some_and(|until| until.rfc3339().as_str() <= self.value("BillingPeriodStart"))
    }

    fn unit_price_matches(&self) -> bool {
        let corrects = self.is("ChargeClass", "Correction");
        let (price, quantity) = (self.value("ListUnitPrice"), self.value("PricingQuantity"));
        corrects
            || price.is_empty()
            || quantity.is_empty()
            || product_is(price, quantity, self.value("ListCost"))
    }

    fn tags(&self) -> Value {
        match self.value("Tags") {
            "" => Value::Object(Default::default()),
            text => serde_json::from_str(text).unwrap_or(Value::Null),
        }
    }

    fn labels(&self) -> Value {
        let labels = self.of.about().map(|about| &about.labels);
        serde_json::to_value(labels.cloned().unwrap_or_default()).expect("texts")
    }
}

/// Whether a rule holds of a row; nothing where nobody knows.
pub fn holds(id: &str, seen: &Seen<'_>) -> Option<bool> {
    let amount = seen.amount.to_string();
    let of = seen.of;
    Some(match id {
        // The one currency there is, and the whole amount in it.
        "BilledCost-C-006-M" => seen.is("BilledCost", &amount),
        "ContractedCost-C-005-M" | "ContractedCost-C-008-C" => seen.is("ContractedCost", &amount),
        "EffectiveCost-C-006-M" | "EffectiveCost-C-010-C" => seen.is("EffectiveCost", &amount),
        "ListCost-C-005-M" | "ListUnitPrice-C-009-M" | "BillingCurrency-C-005-M" => {
            seen.is("BillingCurrency", "EUR")
        }
        "ListCost-C-008-C" => !seen.value("ListUnitPrice").is_empty() || seen.is("ListCost", &amount),
        "BilledCost-C-007-M" => {
            let billed = seen.rows.iter().map(|row| {
                let text = row["BilledCost"].replace('.', "");
                text.parse::<i64>().unwrap_or(i64::MIN / 1000)
            });
            billed.sum::<i64>() == seen.total.0
        }
        "InvoiceId-C-007-C" => {
            let named = seen.row.get("InvoiceId").or(seen.row.get("x_InvoiceId"));
            named.is_some_and(|named| named == seen.invoice)
        }
        "ContractedCost-C-009-C" => true, // No contracted unit prices: what was negotiated is in books of many clauses.
        "PricingQuantity-C-009-C" => seen.unit_price_matches(),
        // Nothing is taxed, committed to or bought ahead.
        "ContractedCost-C-007-C" | "EffectiveCost-C-009-C" | "ListCost-C-007-C" => {
            !seen.is("ChargeCategory", "Tax")
        }
        "EffectiveCost-C-012-C" | "EffectiveCost-C-013-C" => {
            !seen.is("ChargeCategory", "Purchase") && seen.value("CommitmentDiscountStatus").is_empty()
        }
        // Whose, when.
        "BillingAccountId-C-004-M" => seen.rows.iter().all(|row| row["BillingAccountId"] == "ten_1"),
        "SubAccountId-C-004-C" | "SubAccountId-C-005-C" => seen.is("SubAccountId", &of.owner.to_string()),
        "BillingPeriodStart-C-004-M" => {
            let start = seen.value("BillingPeriodStart");
            start.ends_with("-01T00:00:00Z") && seen.time("BillingPeriodStart") <= of.at
        }
        "BillingPeriodEnd-C-004-M" => {
            let end = seen.value("BillingPeriodEnd");
            end.ends_with("-01T00:00:00Z") && of.at < seen.time("BillingPeriodEnd")
        }
        "ChargePeriodEnd-C-004-M" => {
            let end = seen.time("ChargePeriodEnd");
            of.at < end && end <= of.at.plus_ms(SECOND_MS)
        }
        "ChargePeriodStart-C-004-M" => {
            let spans_ms = seen
                .time("ChargePeriodEnd")
                .since_ms(seen.time("ChargePeriodStart"));
            let ran_ms = of.interval.as_ref().map_or(0, |interval| interval.ms());
            spans_ms >= ran_ms && spans_ms < ran_ms + 2 * SECOND_MS
        }
        // What for.
        "ChargeClass-C-003-C" => seen.corrects_before() || seen.value("ChargeClass").is_empty(),
        "ChargeClass-C-004-C" => !seen.corrects_before() || seen.is("ChargeClass", "Correction"),
        "ConsumedQuantity-C-008-C" => seen.all(&["ConsumedQuantity"], |value| number(value).is_some()),
        "PricingCategory-C-008-C" => {
            let standard = matches!(of.what, What::Usage | What::Booking) && seen.is_usage();
            standard == seen.is("PricingCategory", "Standard")
        }
        "PricingCategory-C-010-C" => {
            let dynamic = of.what == What::Lease && seen.is_usage();
            dynamic == seen.is("PricingCategory", "Dynamic")
        }
        "PricingCategory-C-009-C" => !seen.is("PricingCategory", "Committed"),
        "PricingCategory-C-011-C" => !seen.is("PricingCategory", "Other"),
        // The list is by the hour; what is not on it is sold by the piece.
        "PricingUnit-C-008-M" | "PricingUnit-C-009-C" => {
            let by_the_hour = of.about().is_some_and(|about| about.listed.is_some());
            by_the_hour == seen.is("PricingUnit", "Hours")
        }
        "RegionId-C-004-C" => {
            let region = of.about().and_then(|about| about.region.as_deref());
            region.is_none_or(|region| seen.is("RegionId", region))
        }
        "BillingAccountType-C-006-M" => seen.is("BillingAccountType", "tenant"),
        "SubAccountType-C-006-M" => ["tenant", "subscriber", "user"].contains(&seen.value("SubAccountType")),
        "ServiceName-C-006-C" => !seen.is("ServiceCategory", "Other"),
        "SkuId-C-008-M" | "SkuId-C-009-M" | "SkuId-C-010-M" | "SkuId-C-011-C" => {
            let interval = of.interval.as_ref();
            let bought = interval.and_then(|of| of.sku.as_deref().or(of.class.as_deref()));
            match of.what {
                What::Usage => seen.is("SkuId", bought.unwrap_or("CPU")),
                _ => seen.is_usage() != seen.value("SkuId").is_empty(),
            }
        }
        "SkuPriceId-C-009-M" | "SkuPriceId-C-010-M" | "SkuPriceId-C-012-C" | "SkuPriceId-C-013-M"
        | "SkuPriceId-C-014-C" => {
            let expected = format!("{}@{}", seen.value("SkuId"), seen.value("ListUnitPrice"));
            !seen.is_usage() || seen.is("SkuPriceId", &expected)
        }
        "SkuPriceDetails-C-007-M"
        | "SkuPriceDetails-C-008-M"
        | "SkuPriceDetails-C-010-C"
        | "SkuPriceDetails-C-017-C"
        | "SkuPriceDetails-C-018-C"
        | "SkuPriceDetails-C-020-M"
        | "SkuPriceDetails-C-021-M"
        | "SkuPriceDetails-C-022-C" => seen.value("SkuPriceDetails").is_empty(),
        // All of a job's labels as its user wrote them, which never change, and none of ours.
        "Tags-C-004-M" | "Tags-C-005-M" | "Tags-C-008-M" | "Tags-C-010-C" | "Tags-C-012-M"
        | "Tags-C-015-C" | "Tags-C-016-C" | "Tags-C-017-M" => seen.tags() == seen.labels(),
        // How values are written.
        "DateTimeFormat-A-001-M" | "DateTimeFormat-A-006-M" => {
            seen.all(&INSTANTS, |value| value.ends_with('Z'))
        }
        "DateTimeFormat-A-002-M" | "DateTimeFormat-A-004-M" | "DateTimeFormat-A-005-M" => {
            seen.all(&INSTANTS, |value| {
                let shape: String = value
                    .chars()
                    .map(|c| if c.is_ascii_digit() { '9' } else { c })
                    .collect();
                shape == "9999-99-99T99:99:99Z"
            })
        }
        "CurrencyFormat-A-001-C" | "CurrencyFormat-A-002-C" => seen.all(&CURRENCIES, |value| {
            value.len() == 3 && value.parse::<Currency>().is_ok()
        }),
        _ if id.starts_with("NumericFormat-A-") => seen.all(&NUMBERS, |value| {
            let plain = value.strip_prefix('-').unwrap_or(value);
            let (whole, rest) = plain.split_once('.').unwrap_or((plain, "0"));
            [whole, rest]
                .iter()
                .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
        }),
        _ if id.starts_with("StringHandling-A-") => {
            seen.is("SubAccountId", &of.owner.to_string())
                && seen.row.values().all(|value| value.trim() == value)
        }
        "ColumnHandling-A-001-M" | "ColumnHandling-A-003-M" | "ColumnHandling-A-010-M" => {
            seen.row.keys().all(|column| {
                let name = column.strip_prefix("x_").unwrap_or(column);
                name.starts_with(|c: char| c.is_ascii_uppercase())
                    && name.chars().all(|c| c.is_ascii_alphanumeric())
            })
        }
        "ColumnHandling-A-002-M" | "ColumnHandling-A-006-M" => {
            // An id and a name of one thing end so.
            let columns: BTreeSet<&str> = seen.row.keys().copied().collect();
            let ids = columns.iter().filter_map(|column| column.strip_suffix("Id"));
            ids.clone().count() > 3 && !ids.clone().any(|of| columns.contains(of))
        }
        "ColumnHandling-A-008-M" => ["ChargeCategory", "PricingCategory", "ServiceCategory"]
            .iter()
            .all(|column| seen.value(column).chars().all(|c| c.is_ascii_alphabetic())),
        "UnitFormat-A-003-M" => seen.all(&UNITS, |value| {
            value
                .split(['-', ' '])
                .all(|word| word == "GPU" || word.starts_with(|c: char| c.is_ascii_uppercase()))
        }),
        _ if id.starts_with("KeyValueFormat-A-") => seen
            .tags()
            .as_object()
            .is_some_and(|tags| tags.values().all(Value::is_string)),
        _ if id.starts_with("NullHandling-A-") => seen
            .row
            .values()
            .all(|value| !["null", "NULL", "None", "Not Applicable", "N/A", "-"].contains(&value.as_str())),
        _ => return None,
    })
}
