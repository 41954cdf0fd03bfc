//! Checking an invoice's file with nothing but itself, and the platform's public key where it is known.
//!
//! Rows lead to lines, lines to the total, rows to the roots; the invoice is what an event says; the event, and the events
//! that rows name, are in the journal under a signed head. Each step is looked at for itself, so that a fault is named.
//! Rows are read one at a time, however many there are. Absent: whether rows say what their events say (`against.rs`),
//! which needs the journal.

use std::collections::BTreeMap;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::v1::bill::BillRowView;
use tenure_api::v1::invoice::EventHashes;
use tenure_api::v1::journal::{HeadView, ProofView};
use tenure_domain::ledger::invoice::{Invoice, InvoiceLine, LineKey};
use tenure_journal::{Line, ManyProof};

use super::count::Counted;
use super::file::FORMAT;
use super::page::said;
use crate::journal_tools::{check_proof, parse_hash};

/// Faults of rows that are named one by one.
const NAMED: usize = 20;

/// What a check found.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    pub sound: bool,
    pub invoice: Option<Invoice>,
    pub rows: u64,
    /// Events that rows name.
    pub events: usize,
    /// The head it is proven under.
    pub head: Option<HeadView>,
    /// What is wrong, in sentences that name the place.
    pub faults: Vec<String>,
}

/// The file cannot be read as an invoice at all, or not to its end.
#[derive(Debug, thiserror::Error)]
#[error("the file cannot be read as an invoice: {0}")]
pub struct Unreadable(#[from] serde_json::Error);

/// A row as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HashedRow {
    hash: String,
    row: BillRowView,
}

#[derive(Default)]
struct Check {
    format: Option<String>,
    invoice: Option<Value>,
    proof: Option<ProofView>,
    events: Option<EventHashes>,
    counted: Counted,
    numbers: Vec<u64>,
    altered: u64,
    faults: Vec<String>,
    each: Option<Each>,
}

/// Whoever looks at each row too.
pub type Each = Box<dyn FnMut(&BillRowView) + Send>;

/// Checks a file. `trusted` is a head of the platform that was got some other way: the file's must be of the same
/// platform and key.
pub fn verify(
    file: impl Read,
    trusted: Option<&HeadView>,
    each: Option<Each>,
) -> Result<Verdict, Unreadable> {
    let mut check = Check {
        each,
        ..Check::default()
    };
    let mut json = serde_json::Deserializer::from_reader(file);
    FileSeed(&mut check).deserialize(&mut json)?;
    json.end()?;
    Ok(check.verdict(trusted))
}

struct FileSeed<'a>(&'a mut Check);

impl<'de> DeserializeSeed<'de> for FileSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FileSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an invoice as `tenure invoice export` writes it")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: Vec<String> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if seen.contains(&name) {
                return Err(A::Error::custom(format!("{name} stands in it twice")));
            }
            match name.as_str() {
                "format" => self.0.format = Some(map.next_value()?),
                "invoice" => self.0.invoice = Some(map.next_value()?),
                "proof" => self.0.proof = Some(map.next_value()?),
                "rows" => map.next_value_seed(RowsSeed(self.0))?,
                "events" => self.0.events = Some(map.next_value()?),
                _ => return Err(A::Error::custom(format!("{name} is no part of an invoice"))),
            }
            seen.push(name);
        }
        Ok(())
    }
}

struct RowsSeed<'a>(&'a mut Check);

impl<'de> DeserializeSeed<'de> for RowsSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RowsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        while let Some(row) = rows.next_element::<HashedRow>()? {
            self.0.row(&row);
        }
        Ok(())
    }
}

fn named(row: &BillRowView) -> String {
    let job = row.interval.as_ref().map(|of| format!(", {}", of.job));
    format!(
        "{} \"{}\", event {}{}",
        row.what.as_str(),
        row.name,
        row.event,
        job.unwrap_or_default()
    )
}

impl Check {
    fn row(&mut self, HashedRow { hash, row }: &HashedRow) {
        let found = self.counted.add(row).to_string();
        self.numbers.push(row.event);
        if found != *hash {
            self.altered += 1;
            if self.altered <= NAMED as u64 {
                let number = self.counted.rows();
                self.fault(format!("row {number} ({}) was altered", named(row)));
            }
        }
        if let Some(each) = &mut self.each {
            each(row);
        }
    }

    fn fault(&mut self, fault: String) {
        self.faults.push(fault);
    }

    fn verdict(mut self, trusted: Option<&HeadView>) -> Verdict {
        if self.format.as_deref() != Some(FORMAT) {
            self.fault(format!("the format is not {FORMAT}"));
        }
        if self.altered > NAMED as u64 {
            self.fault(format!("{} rows were altered in all", self.altered));
        }
        let head = self.proof.as_ref().map(|proof| proof.head.clone());
        let issued = self.issued(trusted);
        if let Some(issued) = &issued {
            self.as_issued(issued);
        }
        self.in_journal(head.as_ref());
        self.numbers.dedup();
        Verdict {
            sound: self.faults.is_empty(),
            rows: self.counted.rows(),
            events: self.numbers.len(),
            invoice: issued,
            head,
            faults: self.faults,
        }
    }

    /// The invoice as the journal has it.
    fn issued(&mut self, trusted: Option<&HeadView>) -> Option<Invoice> {
        let Some(proof) = self.proof.take() else {
            self.fault("the file has no proof".into());
            return None;
        };
        if let Some(trusted) = trusted
            && (trusted.public_key != proof.head.public_key || trusted.platform != proof.head.platform)
        {
            self.fault(format!(
                "the head is signed with the key {} of the platform {}, and not with {} of {} as the head given",
                proof.head.key_id, proof.head.platform, trusted.key_id, trusted.platform
            ));
        }
        if let Err(why) = check_proof(&proof, None) {
            self.fault(format!("that it was issued is not proven: {why}"));
        }
        let event = Line::parse(&proof.line)
            .ok()
            .and_then(|line| serde_json::from_str::<Value>(&line.event).ok());
        let Some(issued) = event
            .as_ref()
            .and_then(|event| event.pointer("/InvoiceIssued/invoice"))
        else {
            self.fault("the proven event is not the issue of an invoice".into());
            return None;
        };
        match &self.invoice {
            None => self.fault("the file does not say what invoice it is".into()),
            Some(said) => {
                let mut differences = Vec::new();
                differ("", said, issued, &mut differences);
                self.faults.extend(differences);
            }
        }
        match Invoice::deserialize(issued) {
            Ok(invoice) => Some(invoice),
            Err(error) => {
                self.fault(format!("the invoice that was issued cannot be read: {error}"));
                None
            }
        }
    }

    /// Whether the rows are those it was issued over.
    fn as_issued(&mut self, issued: &Invoice) {
        let draft = &issued.draft;
        let mut faults = Vec::new();
        if self.counted.rows() != draft.rows {
            faults.push(format!(
                "the file has {} rows, and it was issued over {}",
                self.counted.rows(),
                draft.rows
            ));
        }
        if self.counted.total() != draft.total {
            faults.push(format!(
                "the rows come to {}, and it was issued for {}",
                self.counted.total(),
                draft.total
            ));
        }
        let found: BTreeMap<LineKey, InvoiceLine> = self
            .counted
            .lines()
            .into_iter()
            .map(|line| (line.key.clone(), line))
            .collect();
        for line in &draft.lines {
            match found.get(&line.key) {
                None => faults.push(format!("line \"{}\" has no rows", said(line))),
                Some(of) if of.amount_micros != line.amount_micros => faults.push(format!(
                    "line \"{}\": its rows come to {}, and it was issued for {}",
                    said(line),
                    tenure_domain::money::Micros(of.amount_micros),
                    tenure_domain::money::Micros(line.amount_micros)
                )),
                Some(of) if of != line => faults.push(format!(
                    "line \"{}\": its rows are not those it was issued over",
                    said(line)
                )),
                Some(_) => {}
            }
        }
        let extra = found
            .keys()
            .filter(|key| !draft.lines.iter().any(|line| line.key == **key));
        faults.extend(extra.map(|key| format!("line \"{}\" was not issued", said(&found[key]))));
        if self.counted.root() != draft.root {
            faults.push(
                "the rows are not those it was issued over: some were altered, left out, added or moved"
                    .into(),
            );
        }
        self.faults.extend(faults);
    }

    /// Whether the events that rows name are in the journal.
    fn in_journal(&mut self, head: Option<&HeadView>) {
        self.numbers.sort_unstable();
        self.numbers.dedup();
        let Some(head) = head else { return };
        let Some(events) = self.events.take() else {
            self.fault("the file has no hashes of events".into());
            return;
        };
        let read = |texts: &[String]| {
            texts
                .iter()
                .map(|text| parse_hash(text))
                .collect::<Option<Vec<_>>>()
        };
        let (Some(hashes), Some(path), Some(root)) =
            (read(&events.hashes), read(&events.path), parse_hash(&head.root))
        else {
            self.fault("a hash of an event is not one".into());
            return;
        };
        if hashes.len() != self.numbers.len() {
            self.fault(format!(
                "the rows name {} events, and the file has the hashes of {}",
                self.numbers.len(),
                hashes.len()
            ));
        } else if !(ManyProof { hashes, path }).holds(&self.numbers, head.seq, root) {
            self.fault("the events that rows name are not proven to be in the journal".into());
        }
    }
}

/// Names every place where what the file says is not what was issued.
fn differ(place: &str, said: &Value, issued: &Value, out: &mut Vec<String>) {
    match (said, issued) {
        (Value::Object(said), Value::Object(issued)) => {
            let names: std::collections::BTreeSet<&String> = said.keys().chain(issued.keys()).collect();
            for name in names {
                let at = |map: &serde_json::Map<String, Value>| map.get(name).cloned().unwrap_or(Value::Null);
                differ(&format!("{place}/{name}"), &at(said), &at(issued), out);
            }
        }
        (Value::Array(said), Value::Array(issued)) if said.len() == issued.len() => {
            for (number, (said, issued)) in said.iter().zip(issued).enumerate() {
                differ(&format!("{place}/{number}"), said, issued, out);
            }
        }
        _ if said == issued => {}
        _ => out.push(format!("invoice{place} says {said}, and {issued} was issued")),
    }
}
