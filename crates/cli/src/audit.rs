//! `tenure audit`: what a job did at its devices' boundary, whether its node signed that, and what is out of order.

use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use serde::Deserialize;
use tenure_api::seal;
use tenure_api::v1::audit::JobAuditView;
use tenure_domain::audit::conduct::{Conduct, SignedConduct};

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::moment::length;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::{input, resolve};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what a job did at its devices' boundary
    Show {
        #[arg(add = ArgValueCompleter::new(complete_jobs))]
        job: String,
    },
    /// Check the signatures of records that `tenure audit show JOB -o json` printed; needs no server
    Verify {
        /// The file; - for stdin
        file: PathBuf,
        /// Only this key counts, by its digest, as the events NodeJoined and NodeKeyAdded have it
        #[arg(long, value_name = "DIGEST")]
        key: Option<String>,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::Show { job } => {
                let client = context.client()?;
                let id = resolve::job::job(&client, &job).await?;
                let audit = client.job_audit(&id.to_string()).await?;
                context.out.one(&audit, |audit| audit.job.to_string(), shown)?;
                if audit.records.is_empty() {
                    context
                        .out
                        .note("nothing is known yet: a record is made when an attempt has ended");
                }
                Ok(())
            }
            Command::Verify { file, key } => verify(context, &file, key.as_deref()),
        }
    }
}

fn shown(audit: &JobAuditView) -> Table {
    let mut table = Table::fields();
    table.field("job", audit.job.to_string());
    for anomaly in &audit.anomalies {
        let finding = format!("{}: {}", anomaly.kind.as_str(), anomaly.why);
        table.field("anomaly", text(finding).paint(Paint::Bad));
    }
    for record in &audit.records {
        fields(&mut table, &record.conduct);
        let seal = match seal::check(record) {
            Ok(()) => text(format!("good, by key {}", key_text(record))),
            Err(error) => text(error.to_string()).paint(Paint::Bad),
        };
        table.field("signature", seal);
    }
    table
}

fn fields(table: &mut Table, conduct: &Conduct) {
    let bytes = |bytes: u64| crate::units::show_mib(bytes.div_ceil(1 << 20));
    table
        .field("allocation", conduct.allocation.to_string())
        .field("ran", length(conduct.ran_ms))
        .field(
            "devices",
            format!(
                "{} given, {} opened, by {} processes",
                conduct.devices, conduct.devices_opened, conduct.opens
            ),
        )
        .field(
            "memory",
            format!(
                "{} allocations of {}, at most {} at once, {} refused",
                conduct.allocations,
                bytes(conduct.allocated_bytes),
                bytes(conduct.peak_bytes),
                conduct.refusals
            ),
        )
        .field(
            "moved",
            format!("{} in, {} out", bytes(conduct.bytes_in), bytes(conduct.bytes_out)),
        )
        .field("launches", figure(conduct.launches))
        .field(
            "time",
            format!(
                "busy {}, held back {}, waited {}",
                length(conduct.busy_ms),
                length(conduct.throttled_ms),
                length(conduct.waited_ms)
            ),
        );
    for kernel in &conduct.kernels {
        table.field(
            "kernel",
            format!("{} launched {} times", kernel.hash, kernel.launches),
        );
    }
    if conduct.other_launches > 0 {
        table.field("other kernels", figure(conduct.other_launches));
    }
    table.field("denied calls", figure(conduct.denials));
    match &conduct.denied_calls {
        None => {
            table.field("denied system calls", "not counted on this node");
        }
        Some(calls) => {
            for denied in calls {
                let line = format!("number {}, {} times", denied.call, denied.times);
                table.field("denied system call", line);
            }
        }
    }
    for kind in &conduct.tampering {
        table.field("tampering", text(kind.as_str()).paint(Paint::Bad));
    }
    if conduct.malformed > 0 {
        table.field("malformed messages", figure(conduct.malformed));
    }
}

fn key_text(record: &SignedConduct) -> String {
    serde_json::to_value(record.key)
        .ok()
        .and_then(|key| key.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// What `-o json` prints, or one record of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Audit(JobAuditView),
    Record(Box<SignedConduct>),
}

fn verify(context: &Context, file: &std::path::Path, key: Option<&str>) -> Result<(), Failure> {
    let document = input::read_text(file)?;
    let given: Given = serde_json::from_str(&document.text).map_err(|_| {
        Failure::usage(format!("{} holds no audit record", document.name))
            .hint("`tenure audit show JOB -o json` prints some")
    })?;
    let records = match given {
        Given::Audit(audit) => audit.records,
        Given::Record(record) => vec![*record],
    };
    if records.is_empty() {
        return Err(Failure::usage(format!("{} holds no audit record", document.name)));
    }
    let mut bad = 0;
    for record in &records {
        let digest = key_text(record);
        let allocation = record.conduct.allocation;
        match seal::check(record) {
            Ok(()) if key.is_none_or(|key| key.eq_ignore_ascii_case(&digest)) => {
                context
                    .out
                    .line(format!("{allocation}: signed by key {digest}"))?;
            }
            Ok(()) => {
                bad += 1;
                context
                    .out
                    .line(format!("{allocation}: signed by another key, {digest}"))?;
            }
            Err(error) => {
                bad += 1;
                context.out.line(format!("{allocation}: {error}"))?;
            }
        }
    }
    if bad > 0 {
        return Err(Failure::Local(format!(
            "{bad} of {} records are not what their node signed",
            records.len()
        )));
    }
    Ok(())
}
