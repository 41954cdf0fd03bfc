//! Invoices: what a tenant, subscriber or user owes for a span of time. A draft is counted up from bill rows whenever it
//! is asked for; issued, it is an event with the root over its rows; paid, another.
//!
//! Absent: reading rows, hashing, and how an invoice looks (server).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bill::{BillRow, Eye, Interval, What};
use crate::id::InvoiceId;
use crate::kind::Kind;
use crate::money::{Currency, Micros};
use crate::tenancy::key::Digest;
use crate::tenancy::scope::ScopeId;
use crate::tenancy::tree::Tree;
use crate::time::Time;

/// What lines are grouped by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LineKey {
    pub what: What,
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Box<str>>,
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
}

/// One line: so many rows of one sort, and what they come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InvoiceLine {
    #[serde(flatten)]
    pub key: LineKey,
    pub rows: u64,
    pub ran_ms: u64,
    pub gpu_ms: u64,
    pub busy_ms: u64,
    pub frames: u64,
    pub amount_micros: i64,
    /// The root over its rows.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Digest>,
}

impl InvoiceLine {
    /// Of no rows yet.
    pub fn of(key: LineKey) -> InvoiceLine {
        InvoiceLine {
            key,
            rows: 0,
            ran_ms: 0,
            gpu_ms: 0,
            busy_ms: 0,
            frames: 0,
            amount_micros: 0,
            root: None,
        }
    }

    pub fn add(&mut self, part: &Part<'_>) {
        self.rows += 1;
        self.amount_micros = self.amount_micros.saturating_add(part.amount.0);
        self.ran_ms = self.ran_ms.saturating_add(part.ran_ms);
        self.gpu_ms = self.gpu_ms.saturating_add(part.gpu_ms);
        self.busy_ms = self.busy_ms.saturating_add(part.busy_ms);
        self.frames = self.frames.saturating_add(part.frames);
    }

    /// Adds what others came to that are of the same line.
    pub fn merge(&mut self, more: &InvoiceLine) {
        self.rows += more.rows;
        self.amount_micros = self.amount_micros.saturating_add(more.amount_micros);
        self.ran_ms = self.ran_ms.saturating_add(more.ran_ms);
        self.gpu_ms = self.gpu_ms.saturating_add(more.gpu_ms);
        self.busy_ms = self.busy_ms.saturating_add(more.busy_ms);
        self.frames = self.frames.saturating_add(more.frames);
    }
}

/// What of a row goes into a line.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub what: What,
    pub class: Option<&'a str>,
    pub sku: Option<&'a str>,
    pub kind: Option<Kind>,
    pub ran_ms: u64,
    pub gpu_ms: u64,
    pub busy_ms: u64,
    pub frames: u64,
    pub amount: Micros,
}

impl Part<'_> {
    /// The line it belongs to.
    pub fn key(&self) -> LineKey {
        LineKey {
            what: self.what,
            class: self.class.map(Into::into),
            sku: self.sku.map(Into::into),
            kind: self.kind,
        }
    }

    /// Whether it belongs to this line.
    pub fn is_of(&self, key: &LineKey) -> bool {
        (self.what, self.kind) == (key.what, key.kind)
            && self.class == key.class.as_deref()
            && self.sku == key.sku.as_deref()
    }
}

/// An invoice being counted up, row by row, in any number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Count {
    lines: BTreeMap<LineKey, InvoiceLine>,
    pub rows: u64,
    /// In 128 bits, so that no sum overflows on its way.
    total: i128,
}

impl Count {
    /// Takes in a row as it is seen by the payer; tells what it came to, none where it is none of theirs.
    pub fn add(&mut self, row: &BillRow, eye: Eye) -> Option<Micros> {
        let amount = row.seen(eye)?;
        let interval = row.interval.as_ref();
        self.take(&Part {
            what: row.what,
            class: interval.and_then(|interval| interval.class.as_deref()),
            sku: interval.and_then(|interval| interval.sku.as_deref()),
            kind: interval.map(|interval| interval.kind),
            ran_ms: interval.map_or(0, Interval::ms),
            gpu_ms: interval.map_or(0, |interval| interval.gpu_ms),
            busy_ms: interval
                .and_then(|interval| interval.used)
                .map_or(0, |used| used.busy_ms),
            frames: interval.map_or(0, |interval| interval.frames),
            amount,
        });
        Some(amount)
    }

    /// Takes in what a row comes to.
    pub fn take(&mut self, part: &Part<'_>) {
        let key = part.key();
        let line = match self.lines.get_mut(&key) {
            Some(line) => line,
            None => self.lines.entry(key.clone()).or_insert(InvoiceLine::of(key)),
        };
        line.add(part);
        self.rows += 1;
        self.total += i128::from(part.amount.0);
    }

    pub fn total(&self) -> Micros {
        let clamped = self.total.clamp(i64::MIN.into(), i64::MAX.into());
        Micros(clamped as i64)
    }

    pub fn lines(self) -> Vec<InvoiceLine> {
        self.lines.into_values().collect()
    }
}

/// What is to be issued, counted up by whoever read the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    pub scope: ScopeId,
    pub from: Time,
    pub until: Time,
    pub total: Micros,
    pub rows: u64,
    /// The root over its rows.
    pub root: Digest,
    pub lines: Vec<InvoiceLine>,
}

/// An issued invoice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invoice {
    pub id: InvoiceId,
    pub currency: Currency,
    pub issued: Time,
    #[serde(flatten)]
    pub draft: Draft,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid: Option<Time>,
    /// Given back of it.
    #[serde(default, skip_serializing_if = "Micros::is_zero")]
    pub refunded: Micros,
}

/// Who bills a scope: the platform its tenants, a tenant its subscribers and users; nobody bills the platform.
pub fn seller(tree: &Tree, scope: ScopeId) -> Option<ScopeId> {
    match scope {
        ScopeId::Platform => None,
        ScopeId::Tenant(_) => Some(ScopeId::Platform),
        ScopeId::Subscriber(_) | ScopeId::User(_) => {
            Some(tree.tenant_of(scope).map_or(ScopeId::Platform, ScopeId::Tenant))
        }
    }
}

/// All issued invoices: one a scope and span.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Invoices(BTreeMap<InvoiceId, Invoice>);

impl Invoices {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, id: InvoiceId) -> Option<&Invoice> {
        self.0.get(&id)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Invoice> {
        self.0.values()
    }

    /// One of the scope whose span meets this one.
    pub fn meets(&self, scope: ScopeId, from: Time, until: Time) -> Option<&Invoice> {
        let own = self.iter().filter(|invoice| invoice.draft.scope == scope);
        own.rev()
            .find(|invoice| invoice.draft.from < until && from < invoice.draft.until)
    }

    pub(crate) fn issue(&mut self, invoice: Invoice) {
        self.0.insert(invoice.id, invoice);
    }

    pub(crate) fn change(&mut self, id: InvoiceId, change: impl FnOnce(&mut Invoice)) {
        let invoice = self.0.get_mut(&id);
        change(invoice.expect("INVARIANT: events name issued invoices"));
    }
}
