//! `tenure invoice verify`: a file against itself and against a head kept elsewhere; against the journal, for who has it.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::context::Context;
use crate::refusal::Failure;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// As `tenure invoice export` wrote it
    file: PathBuf,
    /// A head of the platform got some other way, as `journal head -o json` printed it: the file's key must be its key
    #[arg(long, value_name = "FILE")]
    head: Option<PathBuf>,
    /// Look every row up in the journal of this data directory too
    #[arg(long, value_name = "DIR", conflicts_with = "database")]
    data_dir: Option<PathBuf>,
    /// Look every row up in the journal of this PostgreSQL database too
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl Args {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        files::verify(context, self).await
    }
}

#[cfg(feature = "server")]
mod files {
    use std::io::BufReader;

    use serde::Serialize;
    use tenure_api::v1::journal::HeadView;
    use tenure_server::billing::against;
    use tenure_server::billing::verify::{Verdict, verify as check};

    use super::Args;
    use crate::context::Context;
    use crate::journal::read_json;
    use crate::output::{Form, Paint};
    use crate::refusal::Failure;
    use crate::safe::safe;
    use crate::units;

    fn failed(error: impl std::error::Error) -> Failure {
        let causes = std::iter::successors(error.source(), |cause| cause.source());
        Failure::Local(causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}")))
    }

    /// What is said of a file, for machines.
    #[derive(Serialize)]
    struct Said<'a> {
        #[serde(flatten)]
        verdict: &'a Verdict,
        /// Whether each row was looked up in the journal.
        looked_up: bool,
    }

    pub async fn verify(context: &Context, args: Args) -> Result<(), Failure> {
        let shown = args.file.display();
        let head: Option<HeadView> = args.head.as_deref().map(read_json).transpose()?;
        let open = || {
            std::fs::File::open(&args.file).map_err(|error| {
                Failure::usage(format!("{shown} cannot be read: {}", crate::input::plain(&error)))
            })
        };
        let mut verdict = check(BufReader::new(open()?), head.as_ref(), None).map_err(|error| {
            Failure::usage(format!("{shown}: {error}")).hint("was it cut short? export it again")
        })?;
        let looked_up = args.data_dir.is_some() || args.database.is_some();
        if looked_up && let Some(invoice) = &verdict.invoice {
            let dir = args.data_dir.clone().unwrap_or_default();
            let scope = invoice.draft.scope;
            let faults = against::look_up(BufReader::new(open()?), &dir, args.database.as_deref(), scope)
                .await
                .map_err(failed)?;
            verdict.faults.extend(faults);
            verdict.sound = verdict.faults.is_empty();
        }
        say(context, &verdict, looked_up)
    }

    fn say(context: &Context, verdict: &Verdict, looked_up: bool) -> Result<(), Failure> {
        let out = &context.out;
        if matches!(out.form, Form::Json | Form::Yaml) {
            out.value(&Said { verdict, looked_up })?;
        } else if let (true, Some(invoice), Some(head)) = (verdict.sound, &verdict.invoice, &verdict.head) {
            let sound = out.paint(Paint::Good, "sound:");
            let total = units::show_money(invoice.draft.total.0, &invoice.currency.to_string());
            out.line(format!(
                "{sound} {} for {}, {total}, over {} rows of {} events",
                invoice.id, invoice.draft.scope, verdict.rows, verdict.events
            ))?;
            out.line(format!(
                "in the journal of {} under a head over {} events, signed with the key {}",
                safe(&head.platform),
                head.seq,
                safe(&head.key_id)
            ))?;
            if looked_up {
                out.line("every row is what its event in the journal says")?;
            }
        } else {
            for fault in &verdict.faults {
                out.line(format!("{} {}", out.paint(Paint::Bad, "bad:"), safe(fault)))?;
            }
        }
        match verdict.sound {
            true => Ok(()),
            false => Err(Failure::Said(1)),
        }
    }
}

#[cfg(not(feature = "server"))]
mod files {
    use super::Args;
    use crate::context::Context;
    use crate::refusal::Failure;

    pub async fn verify(_: &Context, _: Args) -> Result<(), Failure> {
        Err(Failure::Local("this build cannot check invoices".into()))
    }
}
