//! `tenure book terms`: the operator's terms. Setting changes what is named and keeps the rest.

use clap::{Args, Subcommand};
use tenure_api::client::Client;
use tenure_domain::booking::terms::{CancelStep, Terms};

use crate::context::Context;
use crate::refusal::Failure;
use crate::table::Table;
use crate::{moment, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the terms
    Show,
    /// Change the terms, for all bookings there are and will be
    Set(SetArgs),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct SetArgs {
    /// How far ahead windows are held
    #[arg(long, value_name = "DAYS")]
    horizon: Option<u32>,
    /// How long before its start a window is cleared
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    lead: Option<u64>,
    /// How much more time jobs get at the end, once, where nobody else booked it
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    grace: Option<u64>,
    /// After how long a window nobody came to is given up; 0s for never
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    no_show: Option<u64>,
    /// What of the rest of its price is due then, such as 50%
    #[arg(long, value_parser = fee, value_name = "SHARE")]
    no_show_fee: Option<u32>,
    /// What of a window's price is due when it is cancelled with that much notice; all steps anew, and all of it with less
    #[arg(long, value_parser = step, value_name = "NOTICE=SHARE")]
    cancel: Vec<CancelStep>,
}

fn step(text: &str) -> Result<CancelStep, String> {
    let (notice, fee) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not NOTICE=SHARE, such as 24h=50%"))?;
    Ok(CancelStep {
        notice_s: units::seconds(notice)?,
        fee_permille: self::fee(fee)?,
    })
}

/// Thousandths of a price; nothing is a fee too.
fn fee(text: &str) -> Result<u32, String> {
    match text {
        "0" | "0%" => Ok(0),
        text => units::permille(text)
            .map(u32::from)
            .map_err(|_| format!("'{text}' is not a share of a price; write it like 50%")),
    }
}

impl Command {
    pub async fn run(self, context: &Context, client: &Client) -> Result<(), Failure> {
        let mut terms = client.booking_terms().await?;
        let Command::Set(set) = self else {
            return show(context, &terms);
        };
        terms.horizon_days = set.horizon.unwrap_or(terms.horizon_days);
        terms.lead_s = set.lead.unwrap_or(terms.lead_s);
        terms.grace_s = set.grace.unwrap_or(terms.grace_s);
        terms.no_show_s = set.no_show.unwrap_or(terms.no_show_s);
        terms.no_show_permille = set.no_show_fee.unwrap_or(terms.no_show_permille);
        if !set.cancel.is_empty() {
            terms.cancel = set.cancel;
        }
        terms.check()?;
        show(context, &client.set_booking_terms(&terms).await?)
    }
}

fn show(context: &Context, terms: &Terms) -> Result<(), Failure> {
    context.out.one(
        terms,
        |_| "booking-terms".into(),
        |terms| {
            let time = |seconds: u64| moment::length(seconds * 1000);
            let mut table = Table::fields();
            table
                .field("held ahead", format!("{} days", terms.horizon_days))
                .field("cleared before its start", time(terms.lead_s))
                .field("grace at the end, if free", time(terms.grace_s))
                .field(
                    "given up if nobody comes",
                    match terms.no_show_s {
                        0 => "never".to_owned(),
                        seconds => format!(
                            "after {}, {} of the rest is due",
                            time(seconds),
                            units::show_permille(terms.no_show_permille)
                        ),
                    },
                );
            let steps = terms.cancel.iter().map(|step| {
                let due = units::show_permille(step.fee_permille);
                format!("{due} of the price with {} notice", time(step.notice_s))
            });
            let steps: Vec<String> = steps.chain(["all of it with less".to_owned()]).collect();
            table.field("cancelling", steps.join("\n"));
            table
        },
    )
}
