//! `tenure keeping`: how long, and how much of, what jobs wrote is kept.

use clap::Subcommand;
use tenure_api::v1::log::LogKeepingView;
use tenure_domain::tenancy::keeping::Keeping;

use crate::context::Context;
use crate::refusal::Failure;
use crate::{resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show how logs are kept at a scope; your own unless said
    Show { scope: Option<String> },
    /// Say how logs are kept: `platform` for everybody, a tenant less for its own. What is not named is as above it
    Set {
        scope: String,
        /// Erase them after so many days
        #[arg(long, value_name = "N")]
        days: Option<u32>,
        /// Store so much of all its jobs together; the oldest goes first
        #[arg(long, value_name = "SIZE", value_parser = units::mib)]
        size: Option<u64>,
        /// Keep so much of what one job writes
        #[arg(long, value_name = "SIZE", value_parser = units::mib)]
        job_size: Option<u64>,
        /// Of the platform alone: store so much of one tenant
        #[arg(long, value_name = "SIZE", value_parser = units::mib)]
        tenant_size: Option<u64>,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Show { scope } => {
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                show(context, &client.log_keeping(&scope.id.to_string()).await?)
            }
            Command::Set {
                scope,
                days,
                size,
                job_size,
                tenant_size,
            } => {
                let scope = resolve::scope(&client, &scope).await?;
                let keeping = Keeping {
                    days,
                    mib: size,
                    job_mib: job_size,
                    tenant_mib: tenant_size,
                };
                let view = client.set_log_keeping(&scope.id.to_string(), &keeping).await?;
                show(context, &view)
            }
        }
    }
}

fn show(context: &Context, view: &LogKeepingView) -> Result<(), Failure> {
    let out = &context.out;
    if !matches!(out.form, crate::output::Form::Table | crate::output::Form::Wide) {
        return out.value(view);
    }
    out.line(format!(
        "logs are kept for {} days, {} in all, {} of one job",
        view.days,
        units::show_mib(view.mib),
        units::show_mib(view.job_mib)
    ))
}
