//! `tenure journal`: heads and proofs from a server; checking, copying and restoring on the data itself.
//!
//! What touches a journal's storage is done by `tenure_server::journal_tools`, which is the same code the
//! server opens it with.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tenure_api::v1::journal::{HeadView, ProofView};
use tenure_api::v1::time::Moment;

use crate::context::Context;
use crate::moment::{full, now, parse_since};
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::table::{Table, text};
use crate::{input, profile};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check every event against its hash, its neighbours, the tree and the signed heads
    Verify {
        #[command(flatten)]
        place: Place,
        /// A head kept elsewhere, as `journal head -o json` printed it; may be repeated
        #[arg(long, value_name = "FILE")]
        head: Vec<PathBuf>,
    },
    /// Print the newest signed head; keep it elsewhere, and a cut or rewritten journal is found
    Head,
    /// Print the proof that an event is in the journal, or check one
    Prove {
        /// The event's sequence number
        #[arg(required_unless_present = "check")]
        seq: Option<u64>,
        /// Check the proof in this file instead, without a server
        #[arg(long, value_name = "FILE", conflicts_with = "seq")]
        check: Option<PathBuf>,
        /// Against this head, kept elsewhere
        #[arg(long, value_name = "FILE", requires = "check")]
        head: Option<PathBuf>,
    },
    /// Copy the journal while it is in use
    Backup {
        /// The new file
        to: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Put a backup in a place that holds no journal yet
    Restore {
        /// The backup
        from: PathBuf,
        #[command(flatten)]
        place: Place,
        /// Only up to this event
        #[arg(long, value_name = "SEQ", conflicts_with = "until")]
        until_seq: Option<u64>,
        /// Only up to this moment
        #[arg(long, value_parser = parse_since, value_name = "WHEN")]
        until: Option<Moment>,
    },
}

/// Where a journal is kept.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The server's data directory
    #[arg(
        long,
        value_name = "DIR",
        env = "TENURE_DATA_DIR",
        conflicts_with = "database"
    )]
    pub data_dir: Option<PathBuf>,
    /// The server's PostgreSQL database
    #[arg(long, value_name = "URL", env = "TENURE_DATABASE", hide_env_values = true)]
    pub database: Option<String>,
}

impl Place {
    /// The data directory, named or usual; keys are beside the journal even where that is in a database.
    fn data_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.data_dir.clone().or_else(profile::data_dir);
        dir.ok_or_else(|| Failure::usage("which journal? name its --data-dir or --database"))
    }
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::Head => show_head(context, &context.client()?.journal_head().await?),
            Command::Prove { seq: Some(seq), .. } => {
                let proof = context.client()?.journal_proof(seq).await?;
                // A proof is for machines and for keeping: no table says it.
                context.out.value(&proof)
            }
            Command::Prove { check, head, .. } => {
                let proof: ProofView = read_json(&check.unwrap_or_default())?;
                let head: Option<HeadView> = head.map(|file| read_json(&file)).transpose()?;
                stored::check_proof(context, &proof, head.as_ref())
            }
            Command::Verify { place, head } => {
                let heads = head
                    .iter()
                    .map(|file| read_json(file))
                    .collect::<Result<Vec<HeadView>, Failure>>()?;
                stored::verify(context, &place, heads).await
            }
            Command::Backup { to, place } => stored::backup(context, &place, &to).await,
            Command::Restore {
                from,
                place,
                until_seq,
                until,
            } => stored::restore(context, &from, &place, until_seq, until).await,
        }
    }
}

pub fn read_json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, Failure> {
    let document = input::read_text(file)?;
    serde_json::from_str(&document.text).map_err(|error| {
        Failure::usage(format!(
            "{} is not what `tenure journal … -o json` prints: {error}",
            document.name
        ))
    })
}

fn show_head(context: &Context, head: &HeadView) -> Result<(), Failure> {
    if context.out.form == Form::Name {
        return context.out.line(&head.hash);
    }
    context.out.one(
        head,
        |head| head.hash.clone(),
        |head| {
            let mut table = Table::fields();
            table.field("events", text(head.seq.to_string()).paint(Paint::Bold));
            table
                .field("hash", head.hash.as_str())
                .field("root", head.root.as_str());
            table.field("signed", full(Moment(tenure_domain::Time(head.at_ms)), now()));
            table
                .field("key", head.key_id.as_str())
                .field("signature", head.signature.as_str());
            table
        },
    )
}

#[cfg(feature = "server")]
mod stored {
    use tenure_server::journal_tools::{self, Until};

    use super::*;
    use crate::safe::safe;

    fn failed(error: impl std::error::Error) -> Failure {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        Failure::Local(causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}")))
    }

    pub async fn verify(context: &Context, place: &Place, heads: Vec<HeadView>) -> Result<(), Failure> {
        let report = journal_tools::verify(&place.data_dir()?, place.database.as_deref(), &heads)
            .await
            .map_err(failed)?;
        let out = &context.out;
        if matches!(out.form, Form::Json | Form::Yaml) {
            out.value(&report)?;
        } else if report.sound {
            let sound = out.paint(Paint::Good, "sound:");
            out.line(format!(
                "{sound} {} events, {} signed heads, last hash {}",
                report.events, report.heads_checked, report.hash
            ))?;
        } else {
            for fault in &report.faults {
                out.line(format!("{} {}", out.paint(Paint::Bad, "bad:"), safe(fault)))?;
            }
            out.line(format!("the first {} events are sound", report.events))?;
        }
        if report.sound {
            Ok(())
        } else {
            Err(Failure::Said(1))
        }
    }

    pub fn check_proof(context: &Context, proof: &ProofView, head: Option<&HeadView>) -> Result<(), Failure> {
        match journal_tools::check_proof(proof, head) {
            Ok(()) => {
                let proven = context.out.paint(Paint::Good, "proven:");
                context
                    .out
                    .line(format!("{proven} event {} of {}", proof.index + 1, proof.size))?;
                context.out.line(safe(&proof.line))
            }
            Err(why) => {
                context.out.line(format!(
                    "{} {}",
                    context.out.paint(Paint::Bad, "not proven:"),
                    safe(&why.to_string())
                ))?;
                Err(Failure::Said(1))
            }
        }
    }

    pub async fn backup(context: &Context, place: &Place, to: &Path) -> Result<(), Failure> {
        let seq = journal_tools::backup(&place.data_dir()?, place.database.as_deref(), to)
            .await
            .map_err(failed)?;
        context
            .out
            .note(format!("copied {seq} events to {}", to.display()));
        Ok(())
    }

    pub async fn restore(
        context: &Context,
        from: &Path,
        place: &Place,
        seq: Option<u64>,
        at: Option<Moment>,
    ) -> Result<(), Failure> {
        let until = match (seq, at) {
            (Some(seq), _) => Until::Seq(seq),
            (None, Some(at)) => Until::Time(at.0.0),
            (None, None) => Until::End,
        };
        let seq = journal_tools::restore(from, &place.data_dir()?, place.database.as_deref(), until)
            .await
            .map_err(failed)?;
        context
            .out
            .note(format!("restored {seq} events from {}", from.display()));
        Ok(())
    }
}

#[cfg(not(feature = "server"))]
mod stored {
    use super::*;

    fn absent<T>() -> Result<T, Failure> {
        Err(Failure::Local("this build cannot open a journal".into()))
    }

    pub async fn verify(_: &Context, place: &Place, _: Vec<HeadView>) -> Result<(), Failure> {
        place.data_dir()?;
        absent()
    }

    pub fn check_proof(_: &Context, _: &ProofView, _: Option<&HeadView>) -> Result<(), Failure> {
        absent()
    }

    pub async fn backup(_: &Context, _: &Place, _: &Path) -> Result<(), Failure> {
        absent()
    }

    pub async fn restore(
        _: &Context,
        _: &Path,
        _: &Place,
        _: Option<u64>,
        _: Option<Moment>,
    ) -> Result<(), Failure> {
        absent()
    }
}
