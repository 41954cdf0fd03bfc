//! The FOCUS export against the edition's own rules, which are data: `focus-1.2.model.json` is walked from its data set's
//! rule down, and every check it names is done on every row. What it cannot say by a check (rules of type Dynamic) is looked at
//! by hand (`focus/dynamic.rs`).

mod dynamic;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_domain::booking::zone::Wall;
use tenure_domain::event::CloseReason;
use tenure_domain::id::{BookingId, InvoiceId, UserId};
use tenure_domain::ledger::account::{AccountId, Posting};
use tenure_domain::ledger::adjust::AdjustmentKind;
use tenure_domain::ledger::bill::{self, About, BillRow, Eye, What};
use tenure_domain::ledger::focus::{COLUMNS, Frame, header, line};
use tenure_domain::money::{Currency, Micros};
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::budget::Cost;
use tenure_domain::tenancy::scope::Level;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::{Actor, Event, State, Time, Wish};

use super::draft;
use crate::market::street::{Street, demand, instant, leases, offer};
use crate::shared;
use crate::world::{spec, whole};

type Row = BTreeMap<&'static str, String>;

/// What the platform says of itself; rules for the rest do not apply. Not said: commitments, a second currency, zones within
/// regions, negotiated unit prices (books are of many clauses), resources apart from jobs, and reservations (a booking is billed
/// as itself).
const SUPPORTED: [&str; 10] = [
    "SUB_ACCOUNT_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
    "ACCOUNT_NAMING_SUPPORTED",
    "PUBLIC_PRICE_LIST_SUPPORTED",
    "UNIT_PRICING_SUPPORTED",
    "MULTIPLE_PRICING_CATEGORIES_SUPPORTED",
    "REGION_SUPPORTED",
    "TAGGING_SUPPORTED",
    "MULTIPLE_SUB_ACCOUNT_TYPES_SUPPORTED",
    "MULTIPLE_BILLING_ACCOUNT_TYPES_SUPPORTED",
];

/// Where the walk begins: the table, and how its values are written.
const ROOTS: [&str; 9] = [
    "CostAndUsage-D-000-M",
    "DateTimeFormat-A-000-M",
    "CurrencyFormat-A-000-C",
    "NumericFormat-A-000-M",
    "StringHandling-A-000-M",
    "ColumnHandling-A-000-M",
    "UnitFormat-A-000-M",
    "KeyValueFormat-A-000-M",
    "NullHandling-A-000-M",
];
const INVOICE: &str = "inv_0000000000001";

struct Rules<'a> {
    rules: &'a Value,
    rows: &'a [Row],
    /// What the rows were made of.
    of: &'a [(BillRow, Micros)],
    done: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl Rules<'_> {
    /// Whether a rule holds for a row; one that does not apply holds.
    fn rule(&mut self, id: &str, n: usize) -> bool {
        let row = &self.rows[n];
        let rule = &self.rules[id];
        assert!(rule.is_object(), "the model has no rule {id}");
        let criteria = &rule["ValidationCriteria"];
        let applies = rule["ApplicabilityCriteria"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|word| SUPPORTED.contains(&word.as_str().unwrap_or_default()));
        let must = matches!(criteria["Keyword"].as_str(), Some("MUST" | "MUST NOT"));
        if !applies || !must {
            return true;
        }
        if rule["Type"] == "Dynamic" {
            return self.dynamic(id, n);
        }
        if criteria["Requirement"]["CheckFunction"].is_null() {
            return true;
        }
        let column = criteria["Requirement"]["ColumnName"].as_str();
        let presence = criteria["Requirement"]["CheckFunction"] == "ColumnPresent";
        if column.is_some_and(|name| !presence && !row.contains_key(name)) {
            return true;
        }
        let condition = &criteria["Condition"];
        if !condition["CheckFunction"].is_null() && !self.check(condition, n) {
            return true;
        }
        self.done.insert(id.to_owned());
        let holds = self.check(&criteria["Requirement"], n);
        if !holds && rule["Function"] != "Composite" {
            self.failed.insert(format!("{id}: {}", criteria["MustSatisfy"]));
        }
        holds
    }

    /// A rule that is looked at by hand, whatever its condition.
    fn dynamic(&mut self, id: &str, n: usize) -> bool {
        let (of, amount) = &self.of[n];
        let seen = dynamic::Seen {
            row: &self.rows[n],
            rows: self.rows,
            of,
            amount: *amount,
            total: Micros(self.of.iter().map(|(_, amount)| amount.0).sum()),
            invoice: INVOICE,
        };
        let sentence = &self.rules[id]["ValidationCriteria"]["MustSatisfy"];
        let holds = dynamic::holds(id, &seen).unwrap_or_else(|| panic!("nobody looks at {id}: {sentence}"));
        self.done.insert(id.to_owned());
        if !holds {
            self.failed.insert(format!("{id}: {sentence}"));
        }
        holds
    }

    fn check(&mut self, check: &Value, n: usize) -> bool {
        let row = &self.rows[n];
        let text = |name: &str| check[name].as_str().unwrap_or_default();
        let value = |name: &str| row.get(text(name)).map_or("", String::as_str);
        let items = check["Items"].as_array();
        let own = value("ColumnName");
        match text("CheckFunction") {
            "AND" => {
                // Each is looked at, so that all faults are told.
                let held: Vec<bool> = items
                    .into_iter()
                    .flatten()
                    .map(|item| self.check(item, n))
                    .collect();
                held.iter().all(|held| *held)
            }
            "OR" => {
                let before = self.failed.clone();
                let held: Vec<bool> = items
                    .into_iter()
                    .flatten()
                    .map(|item| self.check(item, n))
                    .collect();
                let any = held.iter().any(|held| *held);
                if any {
                    self.failed = before;
                }
                any
            }
            "CheckModelRule" => self.rule(text("ModelRuleId"), n),
            "ColumnPresent" => row.contains_key(text("ColumnName")),
            "CheckValue" => same(own, &check["Value"]),
            "CheckNotValue" => !same(own, &check["Value"]),
            "CheckSameValue" => value("ColumnAName") == value("ColumnBName"),
            "CheckNotSameValue" => value("ColumnAName") != value("ColumnBName"),
            "CheckGreaterOrEqualThanValue" => own.is_empty() || number(own) >= check["Value"].as_f64(),
            "CheckDistinctCount" => {
                self.distinct(text("ColumnAName"), text("ColumnBName")) == check["ExpectedCount"].as_u64()
            }
            "CheckDecimalValue" | "TypeDecimal" | "FormatNumeric" => own.is_empty() || number(own).is_some(),
            "TypeDateTime" | "FormatDateTime" => {
                own.is_empty()
                    || (own.len() == 20 && own.ends_with('Z') && own.parse::<jiff_moment::Moment>().is_ok())
            }
            "FormatCurrency" | "CheckNationalCurrency" => own.is_empty() || own.parse::<Currency>().is_ok(),
            "TypeString" | "FormatString" => own.is_ascii(),
            "FormatUnit" => {
                own.is_empty()
                    || own
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || " -/".contains(c))
            }
            "FormatKeyValue" => {
                own.is_empty() || serde_json::from_str::<BTreeMap<String, Value>>(own).is_ok()
            }
            "ColumnByColumnEqualsColumnValue" => product_is(
                value("ColumnAName"),
                value("ColumnBName"),
                value("ResultColumnName"),
            ),
            other => panic!("a check nobody knows: {other}"),
        }
    }

    /// How many values of one column go with one of another, at most.
    fn distinct(&self, a: &str, b: &str) -> Option<u64> {
        let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for row in self.rows {
            seen.entry(row.get(a)?).or_default().insert(row.get(b)?);
        }
        seen.values().map(|values| values.len() as u64).max()
    }
}

mod jiff_moment {
    pub struct Moment;
    impl std::str::FromStr for Moment {
        type Err = ();
        fn from_str(text: &str) -> Result<Moment, ()> {
            tenure_domain::Time::parse_rfc3339(text).map(|_| Moment).ok_or(())
        }
    }
}

fn number(text: &str) -> Option<f64> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-');
    plain.then(|| text.parse().ok()).flatten()
}

/// Whether two decimals have exactly this product, however many places they are written with.
fn product_is(a: &str, b: &str, result: &str) -> bool {
    let read = |text: &str| {
        let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
        let digits: i128 = format!("{whole}{rest}").parse().ok()?;
        Some((digits, u32::try_from(rest.len()).ok()?))
    };
    let (Some(a), Some(b), Some(result)) = (read(a), read(b), read(result)) else {
        return false;
    };
    let ten = 10_i128;
    let left = (a.0 * b.0).checked_mul(ten.pow(result.1));
    left.is_some() && left == result.0.checked_mul(ten.pow(a.1 + b.1))
}

fn same(own: &str, value: &Value) -> bool {
    match value {
        Value::Null => own.is_empty(),
        Value::Number(expected) => number(own) == expected.as_f64(),
        Value::String(expected) => match expected.parse::<f64>() {
            Ok(expected) => number(own) == Some(expected),
            Err(_) => own == expected,
        },
        _ => false,
    }
}

fn model() -> Option<Value> {
    let path = shared::contract("focus-1.2.model.json")?;
    let text = std::fs::read_to_string(path).expect("it is there");
    Some(serde_json::from_str(&text).expect("the model is JSON"))
}

/// The bill of a tenant that buys on the exchange, books, runs, and is given back and corrected, in that and in the next month.
struct Told {
    street: Street,
    rows: Vec<(BillRow, Micros)>,
}

impl Told {
    fn take(&mut self, before: &State, events: &[Event]) {
        let path = before.tree.path(self.street.startup.scope());
        let below = format!("{path}/");
        for event in events {
            for placed in bill::rows(before, self.street.world.now, event) {
                if placed.path == path || placed.path.starts_with(&below) {
                    for row in placed.rows {
                        let amount = row.seen(Eye::Tenant).expect("the tenant pays");
                        self.rows.push((row, amount));
                    }
                }
            }
        }
    }

    fn does(&mut self, by: UserId, wish: Wish) -> Vec<Event> {
        let before = self.street.world.state.clone();
        let events = self.street.world.act(Actor::user(by), wish).expect("taken");
        self.take(&before, &events);
        events
    }

    /// Leases a GPU for two hours, runs on it for a while, and has what is left of the lease called back.
    fn leases_and_runs(&mut self) {
        for node in self.street.nodes.clone() {
            let labels = Labels {
                region: Some("eu-north".into()),
                ..Labels::default()
            };
            let wish = Wish::LabelNode {
                node,
                labels,
                revision: None,
            };
            self.street.world.system(wish).expect("labelled");
        }
        self.street.studio_offers(offer(1000)).expect("listed");
        let startup = self.street.startup.user;
        let wish = Wish::PlaceBid {
            scope: self.street.startup.scope(),
            spec: Box::new(instant(1000)),
        };
        let lease = leases(&self.does(startup, wish))[0];
        let labelled = JobSpec {
            labels: [("project".to_owned(), "film, \"two\"".to_owned())].into(),
            ..spec("scene", demand(1), 3600)
        };
        for spec in [labelled, spec("plain", whole(0), 3600)] {
            let job = self.street.world.submit(startup, spec).expect("taken");
            self.street.world.pass_s(97);
            let before = self.street.world.state.clone();
            let events: Vec<Event> = self.street.world.exit(job, 89);
            self.take(&before, &events);
        }
        self.does(self.street.studio.user, Wish::RecallLease { lease });
        let before = self.street.world.state.clone();
        let events = self.street.until("2026-03-02T10:00:00Z");
        self.take(&before, &events);
    }

    /// A window that was paid, and one of which more came back than was paid.
    fn books(&mut self) {
        let startup = self.street.startup.tenant;
        let posting = |amount: i64| Posting {
            from: AccountId::Tenant(startup),
            to: AccountId::Revenue,
            amount: Micros(amount),
        };
        for (charge, refund) in [(5_000_000, 0), (0, 1_250_000)] {
            let event = Event::WindowClosed {
                booking: BookingId(77),
                scope: self.street.startup.scope(),
                of: Wall::parse("2026-03-02T09:00").expect("a wall time"),
                why: CloseReason::Over,
                cost: Cost::default(),
                charge: Some(posting(charge)),
                refund: Some(posting(refund)),
            };
            let before = self.street.world.state.clone();
            self.take(&before, &[event]);
        }
    }

    fn adjusts(&mut self, kind: AdjustmentKind, amount: i64, invoice: Option<InvoiceId>) {
        let wish = Wish::Adjust {
            scope: self.street.startup.scope(),
            kind,
            amount: Micros(amount),
            invoice,
            reason: "by hand, \"twice\"".into(),
        };
        let root = self.street.world.root;
        self.does(root, wish);
    }

    fn issues(&mut self, from: Time) -> InvoiceId {
        let rows: Vec<BillRow> = self.rows.iter().map(|(row, _)| row.clone()).collect();
        let scope = self.street.startup.scope();
        let wish = Wish::IssueInvoice {
            draft: Box::new(draft(scope, from, self.street.world.now, &rows)),
        };
        let root = self.street.world.root;
        match &self.does(root, wish)[..] {
            [Event::InvoiceIssued { invoice }] => invoice.id,
            other => panic!("none was issued: {other:?}"),
        }
    }
}

fn told() -> Told {
    let mut told = Told {
        street: Street::new(),
        rows: Vec::new(),
    };
    told.leases_and_runs();
    told.books();
    told.adjusts(AdjustmentKind::Credit, 5, None);
    told.adjusts(AdjustmentKind::Correction, -7, None);
    told.street.world.pass_s(1);
    let march = told.issues(Time(0));
    let march_until = told.street.world.now;
    // While that month lasts it is one charge among others; afterwards it sets a closed one right.
    told.adjusts(AdjustmentKind::Refund, 3, Some(march));
    told.street.world.pass_s(31 * 86_400);
    told.adjusts(AdjustmentKind::Refund, 4, Some(march));
    told.adjusts(AdjustmentKind::Correction, -9, Some(march));
    told.street.world.pass_s(1);
    let april = told.issues(march_until);
    told.adjusts(AdjustmentKind::Refund, 1, Some(april));
    told
}

fn table(told: &Told) -> Vec<Row> {
    let tree = &told.street.world.state.tree;
    let below = tree.subtree(told.street.startup.scope()).into_iter();
    let frame = Frame {
        names: below.map(|scope| (scope, tree.title(scope))).collect(),
        ..frame("cell", "startup")
    };
    let cells = |row: &BillRow, amount: Micros| -> Row {
        let columns = COLUMNS.iter();
        columns
            .map(|(name, value)| (*name, value(&frame, row, amount)))
            .collect()
    };
    told.rows
        .iter()
        .map(|(row, amount)| cells(row, *amount))
        .collect()
}

fn faults(model: &Value, rows: &[Row], of: &[(BillRow, Micros)]) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut rules = Rules {
        rules: &model["ModelRules"],
        rows,
        of,
        done: BTreeSet::new(),
        failed: BTreeSet::new(),
    };
    for n in 0..rows.len() {
        for root in ROOTS {
            rules.rule(root, n);
        }
    }
    (rules.done, rules.failed)
}

/// The row of a sort, by what it is and what it comes to.
fn place(told: &Told, what: What, sign: i64) -> usize {
    let is = |(row, amount): &(BillRow, Micros)| row.what == what && amount.0.signum() == sign;
    told.rows
        .iter()
        .position(is)
        .unwrap_or_else(|| panic!("no {what:?} of sign {sign}"))
}

#[test]
fn the_export_keeps_the_rules_of_its_edition() {
    let Some(model) = model() else {
        return;
    };
    let told = told();
    let rows = table(&told);
    let (done, failed) = faults(&model, &rows, &told.rows);
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(done.len() >= 200, "only {} rules were looked at", done.len());
    let by_hand = done
        .iter()
        .filter(|id| model["ModelRules"][id.as_str()]["Type"] == "Dynamic");
    assert!(by_hand.clone().count() >= 80, "{} by hand", by_hand.count());
    // What is wrong is found: each of these turns it red, in a row of each sort.
    let [usage, lease, back, booking, credit] = [
        (What::Usage, 1),
        (What::Lease, 1),
        (What::Lease, -1),
        (What::Booking, 1),
        (What::Credit, -1),
    ]
    .map(|(what, sign)| place(&told, what, sign));
    for (n, column, value) in [
        (usage, "BilledCost", ""),
        (usage, "BilledCost", "1,5"),
        (usage, "BilledCost", "0.000001"),
        (usage, "ChargeCategory", "Gift"),
        (usage, "ChargeClass", "Correction"),
        (usage, "BillingCurrency", "euro"),
        (usage, "BillingCurrency", "USD"),
        (usage, "ChargePeriodStart", "yesterday"),
        (usage, "ServiceCategory", "Magic"),
        (usage, "ConsumedUnit", ""),
        (usage, "InvoiceIssuerName", ""),
        (usage, "ListUnitPrice", ""),
        (usage, "ListUnitPrice", "7.000000"),
        (usage, "ListCost", "0.123456"),
        (usage, "PricingQuantity", "2.0"),
        (usage, "RegionId", ""),
        (usage, "RegionName", ""),
        (usage, "SkuId", ""),
        (usage, "SkuPriceId", "another"),
        (usage, "SubAccountId", "usr_0000000000000"),
        (usage, "SubAccountName", ""),
        (usage, "SubAccountType", ""),
        (usage, "Tags", "project=film"),
        (usage, "Tags", r#"{"project":"another"}"#),
        (lease, "PricingCategory", "Standard"),
        (lease, "ListUnitPrice", "-1"),
        (back, "ConsumedQuantity", "1.0"),
        (back, "ListCost", "0.000000"),
        (booking, "PricingQuantity", ""),
        (booking, "PricingCategory", "Dynamic"),
        (credit, "EffectiveCost", "0.000000"),
        (credit, "BillingPeriodEnd", "2026-03-31T00:00:00Z"),
    ] {
        let mut wrong = rows.clone();
        wrong[n].insert(column, value.into());
        assert!(
            !faults(&model, &wrong, &told.rows).1.is_empty(),
            "{column} = '{value}' passed"
        );
    }
    for column in [
        "EffectiveCost",
        "ListUnitPrice",
        "RegionId",
        "SkuPriceId",
        "Tags",
        "PricingCategory",
    ] {
        let mut short = rows.clone();
        short.iter_mut().for_each(|row| drop(row.remove(column)));
        assert!(
            !faults(&model, &short, &told.rows).1.is_empty(),
            "{column} is missing"
        );
    }
}

#[test]
fn rows_say_who_what_and_what_it_would_cost_by_the_list() {
    let told = told();
    let rows = table(&told);
    let usage = &rows[place(&told, What::Usage, 1)];
    for (column, value) in [
        ("SubAccountName", "startup/startup-op"),
        ("SubAccountType", "user"),
        ("BillingAccountType", "tenant"),
        ("RegionId", "eu-north"),
        ("SkuId", "H100"),
        ("SkuPriceId", "H100@1.000000"),
        ("ListUnitPrice", "1.000000"),
        ("PricingUnit", "Hours"),
        // 89 seconds, to nine places, at a unit an hour.
        ("PricingQuantity", "0.024722222"),
        ("ListCost", "0.024722222000000"),
        ("Tags", r#"{"project":"film, \"two\""}"#),
    ] {
        assert_eq!(usage[column], value, "{column}");
    }
    let classes: Vec<(&str, &str)> = rows
        .iter()
        .filter(|row| row["ChargeCategory"] == "Adjustment" && row["PricingUnit"] == "Adjustments")
        .map(|row| (row["BilledCost"].as_str(), row["ChargeClass"].as_str()))
        .collect();
    let expected = [
        ("0.000007", ""),
        ("-0.000003", ""),
        ("-0.000004", "Correction"),
        ("0.000009", "Correction"),
        ("-0.000001", ""),
    ];
    assert_eq!(classes, expected);
    let back = &rows[place(&told, What::Booking, -1)];
    assert_eq!(
        (&*back["ChargeCategory"], &*back["ListUnitPrice"]),
        ("Adjustment", "")
    );
}

#[test]
fn who_pays_sees_the_list_of_its_own_level_alone() {
    let mut told = told();
    let n = place(&told, What::Usage, 1);
    let (row, amount) = &mut told.rows[n];
    let interval = row.interval.as_mut().expect("an interval");
    let mut about = About::clone(interval.about.as_deref().expect("it is kept"));
    about.resold_listed = Some(Micros(3_000_000));
    interval.about = Some(about.into());
    let price = |eye: Eye| {
        let frame = Frame {
            eye,
            ..frame("cell", "startup")
        };
        let (_, value) = COLUMNS
            .iter()
            .find(|(name, _)| *name == "ListUnitPrice")
            .expect("a column");
        value(&frame, row, *amount)
    };
    assert_eq!(price(Eye::Tenant), "1.000000");
    assert_eq!(price(Eye::Subscriber), "3.000000");
    assert_eq!(price(Eye::User), "3.000000");
    // Of before the list was kept with rows: one piece at what was paid for it.
    row.interval.as_mut().expect("an interval").about = None;
    let mut out = String::new();
    line(&frame("cell", "startup"), row, *amount, &mut out);
    assert!(out.contains(",Intervals,"), "{out}");
}

fn frame(seller: &str, payer: &str) -> Frame {
    Frame {
        seller: seller.into(),
        payer_id: "ten_1".into(),
        payer_name: payer.into(),
        payer_level: Level::Tenant,
        eye: Eye::Tenant,
        names: BTreeMap::new(),
        currency: Currency::EUR,
        invoice: INVOICE.into(),
    }
}

#[test]
fn lines_are_csv_and_never_formulas() {
    let told = told();
    let frame = frame("=cmd()", "a,\"b\"");
    let mut out = header();
    told.rows
        .iter()
        .for_each(|(row, amount)| line(&frame, row, *amount, &mut out));
    assert_eq!(out.lines().count(), 1 + told.rows.len());
    assert!(out.contains("\"a,\"\"b\"\"\"") && out.contains("\"'=cmd()\"") && !out.contains(",=cmd"));
}
