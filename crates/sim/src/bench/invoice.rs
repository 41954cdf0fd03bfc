//! `tenure-bench invoice`: a large invoice counted up from history, written out with its proofs, and checked again.
//!
//! Rows lie in a journal on SQLite as a platform writes them: so many of a node's metering to an event, of one owner.

use std::io::Write as _;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;
use tenure_api::v1::invoice::FileHead;
use tenure_api::v1::journal::{HeadView, ProofView};
use tenure_domain::Time;
use tenure_domain::id::{AllocationId, InvoiceId, JobId, NodeId, TenantId, UserId};
use tenure_domain::ledger::bill::{BillRow, Eye, Interval, What};
use tenure_domain::ledger::invoice::Invoice;
use tenure_domain::ledger::sheaf;
use tenure_domain::money::{Currency, Micros};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::{Isolation, Kind};
use tenure_domain::workload::usage::Usage;
use tenure_journal::{
    Batch, Entry, EventText, HistoryRow, Journal, JournalReader, Location, Options, SigningKey,
};
use tenure_server::billing::verify::verify;
use tenure_server::billing::{Counted, Wanted, count_up, file};

use super::figure::figure;

const EVENTS_A_BATCH: u64 = 40;
const START_MS: i64 = 1_760_000_000_000;
const TENANT: TenantId = TenantId(7 << 22);

/// One of `rows` rows: jobs of two classes and three kinds, an interval a minute of a thousand allocations.
fn row(number: u64, event: u64) -> BillRow {
    let (allocation, minute) = (number % 1000, number / 1000);
    let kinds = [Kind::Batch, Kind::Training, Kind::Inference];
    BillRow {
        event,
        at: Time(START_MS + event as i64),
        what: What::Usage,
        owner: ScopeId::User(UserId(9 << 22)),
        name: format!("job-{allocation}"),
        interval: Some(Interval {
            allocation: AllocationId((allocation + 1) << 22),
            job: JobId((allocation + 2) << 22),
            node: NodeId(3 << 22),
            from_ms: minute * 60_000,
            to_ms: (minute + 1) * 60_000,
            class: Some(if allocation % 2 == 0 { "H100" } else { "A100" }.into()),
            sku: None,
            kind: kinds[(allocation % 3) as usize],
            isolation: Isolation::Fenced,
            slices: 1,
            gpu_milli: 500,
            vram_mib: 40_000,
            gpu_ms: 30_000,
            used: Some(Usage {
                busy_ms: 25_000,
                launches: 12_000,
                peak_vram_mib: 31_000,
                ..Usage::default()
            }),
            frames: 0,
            about: None,
        }),
        booking: None,
        money: Micros(16_666 + number as i64 % 7),
        resold: None,
        fee: Micros::ZERO,
        corrects_until: None,
    }
}

async fn fill(journal: &mut Journal, rows: u64, together: u64) -> anyhow::Result<()> {
    let events = rows.div_ceil(together);
    let path = format!("{TENANT}/{}", ScopeId::User(UserId(9 << 22)));
    let mut next = 1;
    while next <= events {
        let last = (next + EVENTS_A_BATCH - 1).min(events);
        let mut batch = Batch::default();
        for event in next..=last {
            batch.entries.push(Entry {
                at_ms: START_MS + event as i64,
                by: "system".into(),
                request: None,
                event: EventText::encode(&json!({ "UsageMetered": { "node": "n", "charges": [] } }))?,
            });
            let of_event = (event - 1) * together..(event * together).min(rows);
            let each: Vec<BillRow> = of_event.clone().map(|number| row(number, event)).collect();
            batch.history.push(HistoryRow {
                kind: "bill".into(),
                id: format!("{:012}", of_event.start),
                scope: path.clone(),
                at_ms: START_MS + event as i64,
                body: sheaf::write(&each),
            });
        }
        journal.append(batch).await?;
        next = last + 1;
    }
    Ok(())
}

/// Issues what was counted, and proves that.
async fn issue(
    journal: &mut Journal,
    counted: &Counted,
    span: &std::ops::Range<Time>,
) -> anyhow::Result<FileHead> {
    let invoice = Invoice {
        id: InvoiceId(11 << 22),
        currency: Currency::EUR,
        issued: span.end,
        draft: counted.draft(ScopeId::Tenant(TENANT), span.start, span.end),
        paid: None,
        refunded: Micros::ZERO,
    };
    let entry = Entry {
        at_ms: span.end.0,
        by: "system".into(),
        request: None,
        event: EventText::encode(&json!({ "InvoiceIssued": { "invoice": invoice } }))?,
    };
    let committed = journal
        .append(Batch {
            entries: vec![entry],
            ..Batch::default()
        })
        .await?;
    let (key, _) = SigningKey::generate();
    let head = key.sign(journal.platform(), journal.head(), span.end.0);
    let proof = journal.prove(committed.last_seq, head.seq).await?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(FileHead {
        invoice,
        proof: ProofView {
            line: proof.line,
            index: proof.index,
            size: proof.size,
            path: proof.path.iter().map(ToString::to_string).collect(),
            head: HeadView {
                platform: head.platform,
                seq: head.seq,
                hash: head.hash.to_string(),
                root: head.root.to_string(),
                at_ms: head.at_ms,
                key_id: head.key_id,
                signature: head.signature,
                public_key: hex(&key.public_key().0),
            },
        },
    })
}

pub async fn run(rows: u64, together: u64) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let location = Location::Sqlite(dir.path().to_owned());
    let mut journal = Journal::open_leader(&location, "bench", Options::default()).await?;
    fill(&mut journal, rows, together).await?;
    let reader = JournalReader::clone(&journal);
    let span = Time(0)..Time(START_MS + i64::MAX / 4);
    let wanted = Wanted {
        path: TENANT.to_string(),
        span: span.clone(),
        eye: Eye::Tenant,
    };
    let how = format!("{rows} intervals of {} events on SQLite", rows.div_ceil(together));
    let begun = Instant::now();
    let counted = count_up(&reader, wanted.clone()).await?;
    let took = begun.elapsed();
    anyhow::ensure!(counted.rows() == rows, "{} rows were counted", counted.rows());
    let goal = (rows == 1_000_000).then_some(2000.0);
    figure(
        "invoice",
        "counted up",
        took.as_secs_f64() * 1e3,
        "ms",
        goal,
        &how,
    );

    let head = issue(&mut journal, &counted, &span).await?;
    let path = dir.path().join("invoice.json");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path)?);
    let begun = Instant::now();
    let mut pieces = file::json(&reader, wanted, head);
    while let Some(piece) = pieces.recv().await {
        out.write_all(&piece?)?;
    }
    out.flush()?;
    figure(
        "invoice",
        "written out with its proofs",
        begun.elapsed().as_secs_f64() * 1e3,
        "ms",
        None,
        &how,
    );

    let begun = Instant::now();
    let verdict = verify(std::io::BufReader::new(std::fs::File::open(&path)?), None, None)
        .context("the file is read")?;
    anyhow::ensure!(verdict.sound, "{:?}", verdict.faults);
    figure(
        "invoice",
        "checked without a server",
        begun.elapsed().as_secs_f64() * 1e3,
        "ms",
        None,
        &how,
    );
    journal.close().await?;
    Ok(())
}
