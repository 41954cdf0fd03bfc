//! An invoice's rows against the journal itself, for whoever has it: every row must be what its event says.
//!
//! Offline, rows are known to be those the invoice was issued over, and their events to be in the journal. What events say
//! tells of others too, so files do not carry it; whoever may read the journal can look.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read;
use std::path::Path;

use tenure_api::v1::bill::BillRowView;
use tenure_domain::Event;
use tenure_domain::event::Charge;
use tenure_domain::ledger::account::AccountId;
use tenure_domain::ledger::bill::{Eye, What};
use tenure_domain::money::Micros;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_journal::{JournalError, JournalReader};
use tokio::sync::mpsc;

use super::verify::verify;
use crate::journal_tools::{ToolError, location};

/// Events looked at together.
const AT_ONCE: usize = 512;

/// Rows of one file, looked up in the journal.
struct Against {
    journal: JournalReader,
    eye: Eye,
    rows: Vec<BillRowView>,
    faults: Vec<String>,
}

impl Against {
    fn new(journal: JournalReader, eye: Eye) -> Against {
        Against {
            journal,
            eye,
            rows: Vec::new(),
            faults: Vec::new(),
        }
    }

    async fn add(&mut self, row: BillRowView) -> Result<(), JournalError> {
        self.rows.push(row);
        if self.rows.len() >= AT_ONCE {
            self.look().await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Vec<String>, JournalError> {
        self.look().await?;
        Ok(self.faults)
    }

    async fn look(&mut self) -> Result<(), JournalError> {
        let mut known: HashMap<u64, Option<Event>> = HashMap::new();
        for row in std::mem::take(&mut self.rows) {
            let said = match known.entry(row.event) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let line = self.journal.read(row.event, 1).await?.pop();
                    let line = line.filter(|line| line.seq == row.event);
                    unknown.insert(line.and_then(|line| serde_json::from_str(&line.event).ok()))
                }
            };
            if !said.as_ref().is_some_and(|event| says(event, &row, self.eye)) {
                self.faults.push(format!(
                    "event {} of the journal does not say what the row \"{}\" does",
                    row.event, row.name
                ));
            }
        }
        Ok(())
    }
}

/// Looks every row of a file up in a journal, and names those that are not as their events say.
pub async fn look_up(
    file: impl Read + Send + 'static,
    data_dir: &Path,
    database: Option<&str>,
    scope: ScopeId,
) -> Result<Vec<String>, ToolError> {
    let journal = JournalReader::open(&location(data_dir, database)).await?;
    let (send, mut rows) = mpsc::channel(AT_ONCE);
    let reading = tokio::task::spawn_blocking(move || {
        let each = move |row: &BillRowView| {
            // Who looks them up may have failed.
            let _ = send.blocking_send(row.clone());
        };
        verify(file, None, Some(Box::new(each)))
    });
    let mut against = Against::new(journal, Eye::of(scope));
    while let Some(row) = rows.recv().await {
        against.add(row).await?;
    }
    // That it can be read was seen before.
    drop(reading.await);
    Ok(against.finish().await?)
}

/// Whether an event says what a row does.
fn says(event: &Event, row: &BillRowView, eye: Eye) -> bool {
    let amount = Micros(row.amount_micros);
    match (event, row.what) {
        (Event::UsageMetered { charges, .. }, What::Usage) => charges.iter().any(|charge| {
            row.interval.as_ref().is_some_and(|of| {
                of.allocation == charge.allocation.to_string()
                    && of.job == charge.job.to_string()
                    && (of.from_ms, of.to_ms) == (charge.from_ms, charge.to_ms)
                    && of.gpu_ms == charge.cost.gpu_ms
                    && of.busy_ms == charge.used.map(|used| used.busy_ms)
            }) && paid(charge, eye) == Some(amount)
        }),
        (Event::Adjusted { adjustment }, What::Credit | What::Refund | What::Correction) => {
            row.name == adjustment.reason && amount.0 == -adjustment.amount.0
        }
        (Event::BookingChanged { charge, .. } | Event::BookingEnded { charge, .. }, What::Booking) => {
            charge.as_ref().is_some_and(|posting| posting.amount == amount)
        }
        (Event::WindowClosed { charge, refund, .. }, What::Booking) => {
            let of = |posting: &Option<tenure_domain::ledger::account::Posting>| {
                posting.as_ref().map_or(0, |posting| posting.amount.0)
            };
            of(charge) - of(refund) == amount.0
        }
        (Event::LeaseBegan { escrow, .. }, What::Lease) => escrow.amount == amount,
        (Event::LeaseEnded { postings, .. }, What::Lease) => {
            // Which side of it the row is of, the amount tells.
            let accounts: Vec<AccountId> = postings.iter().flat_map(|of| [of.from, of.to]).collect();
            accounts.iter().any(|account| {
                let out = postings
                    .iter()
                    .filter(|of| of.from == *account)
                    .map(|of| of.amount.0);
                let into = postings
                    .iter()
                    .filter(|of| of.to == *account)
                    .map(|of| of.amount.0);
                out.sum::<i64>() - into.sum::<i64>() == amount.0
            })
        }
        _ => false,
    }
}

fn paid(charge: &Charge, eye: Eye) -> Option<Micros> {
    let resold = charge.resale.as_deref();
    let fee = resold.and_then(|resold| resold.fee.as_ref());
    let own = charge.cost.money;
    match eye {
        Eye::Tenant => Some(Micros(own.0 + fee.map_or(0, |fee| fee.amount.0))),
        Eye::Subscriber => resold.map(|resold| resold.posting.amount),
        Eye::User => Some(resold.map_or(own, |resold| resold.posting.amount)),
    }
}
