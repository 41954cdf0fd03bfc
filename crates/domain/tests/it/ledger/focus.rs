//! The FOCUS export against the edition's own rules, which are data: `focus-1.2.model.json` is walked from its data set's
//! rule down, and every check it names is done on every row. What it cannot say by a check (rules of type Dynamic) is
//! not looked at. `TENURE_SHARED` says where the contracts lie, beside the repository unless said.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;
use tenure_domain::ledger::adjust::AdjustmentKind;
use tenure_domain::ledger::bill::{self, BillRow, Eye};
use tenure_domain::ledger::focus::{COLUMNS, Frame, header, line};
use tenure_domain::money::{Currency, Micros};
use tenure_domain::{Actor, Event, Wish};

use super::house;
use crate::world::{plain_prices, spec, whole};

type Row = BTreeMap<&'static str, String>;

/// What the platform says of itself; rules for the rest do not apply.
const SUPPORTED: [&str; 3] = [
    "SUB_ACCOUNT_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
    "ACCOUNT_NAMING_SUPPORTED",
];

struct Rules<'a> {
    rules: &'a Value,
    rows: &'a [Row],
    done: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl Rules<'_> {
    /// Whether a rule holds for a row; one that does not apply holds.
    fn rule(&mut self, id: &str, row: &Row) -> bool {
        let rule = &self.rules[id];
        let criteria = &rule["ValidationCriteria"];
        let applies = rule["ApplicabilityCriteria"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|word| SUPPORTED.contains(&word.as_str().unwrap_or_default()));
        let must = matches!(criteria["Keyword"].as_str(), Some("MUST" | "MUST NOT"));
        if !applies
            || !must
            || rule["Type"] == "Dynamic"
            || criteria["Requirement"]["CheckFunction"].is_null()
        {
            return true;
        }
        let column = criteria["Requirement"]["ColumnName"].as_str();
        let presence = criteria["Requirement"]["CheckFunction"] == "ColumnPresent";
        if column.is_some_and(|name| !presence && !row.contains_key(name)) {
            return true;
        }
        let condition = &criteria["Condition"];
        if !condition["CheckFunction"].is_null() && !self.check(condition, row) {
            return true;
        }
        self.done.insert(id.to_owned());
        let holds = self.check(&criteria["Requirement"], row);
        if !holds && rule["Function"] != "Composite" {
            self.failed.insert(format!("{id}: {}", criteria["MustSatisfy"]));
        }
        holds
    }

    fn check(&mut self, check: &Value, row: &Row) -> bool {
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
                    .map(|item| self.check(item, row))
                    .collect();
                held.iter().all(|held| *held)
            }
            "OR" => {
                let before = self.failed.clone();
                let held: Vec<bool> = items
                    .into_iter()
                    .flatten()
                    .map(|item| self.check(item, row))
                    .collect();
                let any = held.iter().any(|held| *held);
                if any {
                    self.failed = before;
                }
                any
            }
            "CheckModelRule" => self.rule(text("ModelRuleId"), row),
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
            "ColumnByColumnEqualsColumnValue" => true,
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
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var("TENURE_SHARED").map_or(beside, PathBuf::from);
    let text = std::fs::read_to_string(shared.join("contracts/focus-1.2.model.json")).ok()?;
    Some(serde_json::from_str(&text).expect("the model is JSON"))
}

/// Usage, a credit and a correction, of a tenant.
fn rows() -> Vec<(BillRow, Micros)> {
    let mut house = house(plain_prices());
    let (acme, ada) = (house.acme, house.ada);
    let mut rows = vec![];
    let job = house
        .world
        .submit(ada, spec("scene", whole(2), 3600))
        .expect("taken");
    house.world.pass_s(100);
    let before = house.world.state.clone();
    let events: Vec<Event> = house.world.exit(job, 90);
    rows.extend(
        events
            .iter()
            .flat_map(|event| bill::rows(&before, house.world.now, event)),
    );
    for (kind, amount) in [(AdjustmentKind::Credit, 5), (AdjustmentKind::Correction, -7)] {
        let before = house.world.state.clone();
        let wish = Wish::Adjust {
            scope: acme,
            kind,
            amount: Micros(amount),
            invoice: None,
            reason: "by hand, \"twice\"".into(),
        };
        let events = house
            .world
            .act(Actor::user(house.world.root), wish)
            .expect("given");
        rows.extend(
            events
                .iter()
                .flat_map(|event| bill::rows(&before, house.world.now, event)),
        );
    }
    assert_eq!(rows.len(), 3);
    rows.into_iter()
        .flat_map(|placed| placed.rows)
        .map(|row| {
            let amount = row.seen(Eye::Tenant).expect("the tenant pays");
            (row, amount)
        })
        .collect()
}

fn table(rows: &[(BillRow, Micros)]) -> Vec<Row> {
    let frame = Frame {
        seller: "cell".into(),
        payer_id: "ten_1".into(),
        payer_name: "acme".into(),
        currency: Currency::EUR,
        invoice: String::new(),
    };
    let cells = |row: &BillRow, amount: Micros| -> Row {
        let columns = COLUMNS.iter();
        columns
            .map(|(name, value)| (*name, value(&frame, row, amount)))
            .collect()
    };
    rows.iter().map(|(row, amount)| cells(row, *amount)).collect()
}

fn faults(model: &Value, rows: &[Row]) -> (usize, BTreeSet<String>) {
    let mut rules = Rules {
        rules: &model["ModelRules"],
        rows,
        done: BTreeSet::new(),
        failed: BTreeSet::new(),
    };
    for row in rows {
        rules.rule("CostAndUsage-D-000-M", row);
    }
    (rules.done.len(), rules.failed)
}

#[test]
fn the_export_keeps_the_rules_of_its_edition() {
    let Some(model) = model() else {
        eprintln!("the model is not here; name its directory in TENURE_SHARED");
        return;
    };
    let rows = table(&rows());
    let (done, failed) = faults(&model, &rows);
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(done >= 100, "only {done} rules were looked at");
    // What is wrong is found: each of these turns it red.
    for (column, value) in [
        ("BilledCost", ""),
        ("BilledCost", "1,5"),
        ("ChargeCategory", "Gift"),
        ("BillingCurrency", "euro"),
        ("ChargePeriodStart", "yesterday"),
        ("ServiceCategory", "Magic"),
        ("ConsumedUnit", ""),
        ("InvoiceIssuerName", ""),
    ] {
        let mut wrong = rows.clone();
        wrong[0].insert(column, value.into());
        assert!(
            !faults(&model, &wrong).1.is_empty(),
            "{column} = '{value}' passed"
        );
    }
    let mut short = rows;
    short.iter_mut().for_each(|row| drop(row.remove("EffectiveCost")));
    assert!(!faults(&model, &short).1.is_empty(), "a column is missing");
}

#[test]
fn lines_are_csv_and_never_formulas() {
    let rows = rows();
    let frame = Frame {
        seller: "=cmd()".into(),
        payer_id: "ten_1".into(),
        payer_name: "a,\"b\"".into(),
        currency: Currency::EUR,
        invoice: "inv_1".into(),
    };
    let mut out = header();
    rows.iter()
        .for_each(|(row, amount)| line(&frame, row, *amount, &mut out));
    assert_eq!(out.lines().count(), 1 + rows.len());
    assert!(out.contains("\"a,\"\"b\"\"\"") && out.contains("\"'=cmd()\"") && !out.contains(",=cmd"));
}
