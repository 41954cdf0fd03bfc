//! `tenure invoice`: what is owed, issued, paid and given back; files that prove themselves (`invoice/check.rs`).

mod check;
mod export;
mod show;

use clap::{Args, Subcommand, ValueEnum};
use tenure_api::v1::adjustment::{Adjust, AdjustmentView};
use tenure_api::v1::invoice::{DraftQuery, InvoiceQuery, InvoiceState, IssueInvoice, PayInvoice};
use tenure_api::v1::time::Moment;
use tenure_domain::Time;
use tenure_domain::ledger::adjust::AdjustmentKind;
use tenure_domain::time::{HOUR_MS, Period};

use crate::context::Context;
use crate::moment::{now, parse_since};
use crate::refusal::Failure;
use crate::resolve::{self, all};
use crate::run::fresh_key;
use crate::table::Table;
use crate::units;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count up what a scope owes; this month so far unless said
    Draft {
        /// Whose; the widest you may see unless said
        scope: Option<String>,
        #[command(flatten)]
        span: Span,
    },
    /// Issue an invoice; for the month before this one unless said
    Issue {
        scope: String,
        #[command(flatten)]
        span: Span,
    },
    /// Note that an invoice was paid
    Pay {
        invoice: String,
        /// Under which the payment is known outside, such as that of a bank
        #[arg(long)]
        reference: String,
    },
    /// List invoices of a scope and of those below it
    List {
        scope: Option<String>,
        /// Only those in this state
        #[arg(long, value_enum)]
        state: Option<StateArg>,
    },
    /// Show an invoice, or open one of its lines down to its intervals
    Show(show::Args),
    /// Write an invoice out: JSON with every proof, CSV, a page for printing, or FOCUS 1.2
    Export(export::Args),
    /// Check an invoice's file without a server: rows, sums, and that it is in the platform's journal
    Verify(check::Args),
    /// Give a tenant or subscriber credit
    Credit {
        scope: String,
        #[arg(value_parser = units::micros, value_name = "MONEY")]
        amount: i64,
        /// Why; it stands on the next invoice
        #[arg(long)]
        reason: String,
    },
    /// Give back some of what an invoice was for
    Refund {
        invoice: String,
        #[arg(value_parser = units::micros, value_name = "MONEY")]
        amount: i64,
        /// Why; it stands on the next invoice
        #[arg(long)]
        reason: String,
    },
    /// Correct what was charged wrongly: an amount is given, one with a minus taken
    Correct {
        scope: String,
        #[arg(value_parser = signed, value_name = "MONEY", allow_hyphen_values = true)]
        amount: i64,
        /// The invoice on which it was charged
        #[arg(long)]
        invoice: Option<String>,
        /// Why; it stands on the next invoice
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum StateArg {
    Issued,
    Paid,
}

/// For what time.
#[derive(Debug, Args)]
pub struct Span {
    /// A month, such as 2026-10
    #[arg(long, value_parser = month, value_name = "MONTH", conflicts_with_all = ["since", "until"])]
    month: Option<Time>,
    /// From when on: 7d, or a date
    #[arg(long, value_parser = parse_since, value_name = "WHEN")]
    since: Option<Moment>,
    /// Until when
    #[arg(long, value_parser = parse_since, value_name = "WHEN")]
    until: Option<Moment>,
}

fn month(text: &str) -> Result<Time, String> {
    format!("{text}-01T00:00:00Z")
        .parse::<Moment>()
        .map(|moment| moment.0)
        .map_err(|_| format!("'{text}' is not a month; write it like 2026-10"))
}

fn month_after(month: Time) -> Time {
    Period::Month.start(month.plus_ms(32 * 24 * HOUR_MS))
}

fn signed(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(rest) => units::micros(rest).map(|micros| -micros),
        None => units::micros(text),
    }
}

impl Span {
    /// What was said, and what was not.
    fn bounds(&self) -> (Option<Moment>, Option<Moment>) {
        match self.month {
            Some(month) => (Some(month.into()), Some(month_after(month).into())),
            None => (self.since, self.until),
        }
    }

    /// The month that is over, where nothing is said.
    fn of_issue(&self) -> (Moment, Moment) {
        let this = Period::Month.start(now());
        let before = Period::Month.start(Time(this.0 - 1));
        let (since, until) = self.bounds();
        (since.unwrap_or(before.into()), until.unwrap_or(this.into()))
    }
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        // Nobody is asked.
        if let Command::Verify(args) = self {
            return args.run(context).await;
        }
        let client = context.client()?;
        let scope_of = async |scope: &str| -> Result<String, Failure> {
            Ok(resolve::scope(&client, scope).await?.id.to_string())
        };
        match self {
            Command::Draft { scope, span } => {
                let scope = match scope {
                    Some(scope) => Some(scope_of(&scope).await?),
                    None => None,
                };
                let (since, until) = span.bounds();
                // A month that is not over is shown as far as it is.
                let until = until.filter(|until| until.0 <= now());
                let query = DraftQuery {
                    scope,
                    since: since.map(|at| at.to_string()),
                    until: until.map(|at| at.to_string()),
                };
                show::invoice(context, &client.draft_invoice(&query).await?)
            }
            Command::Issue { scope, span } => {
                let (since, until) = span.of_issue();
                let scope = scope_of(&scope).await?;
                let body = IssueInvoice { scope, since, until };
                let issued = client.issue_invoice(&body, Some(&fresh_key()?)).await?;
                show::invoice(context, &issued)
            }
            Command::Pay { invoice, reference } => {
                let body = PayInvoice { reference };
                show::invoice(context, &client.pay_invoice(&invoice, &body).await?)
            }
            Command::List { scope, state } => {
                let scope = match scope {
                    Some(scope) => Some(scope_of(&scope).await?),
                    None => None,
                };
                let mut query = InvoiceQuery {
                    scope,
                    state: state.map(|state| match state {
                        StateArg::Issued => InvoiceState::Issued,
                        StateArg::Paid => InvoiceState::Paid,
                    }),
                    ..InvoiceQuery::default()
                };
                let invoices = all(async |cursor| {
                    query.cursor = cursor;
                    client.invoices(&query).await
                });
                show::list(context, &invoices.await?)
            }
            Command::Show(args) => args.run(context, &client).await,
            Command::Export(args) => args.run(context, &client).await,
            Command::Verify(_) => Ok(()),
            Command::Credit {
                scope,
                amount,
                reason,
            } => {
                let body = adjustment(scope_of(&scope).await?, AdjustmentKind::Credit, amount, reason);
                adjusted(context, &client.adjust(&body, Some(&fresh_key()?)).await?)
            }
            Command::Refund {
                invoice,
                amount,
                reason,
            } => {
                let of = client.invoice(&invoice).await?;
                let body = Adjust {
                    invoice: Some(invoice),
                    ..adjustment(of.scope, AdjustmentKind::Refund, amount, reason)
                };
                adjusted(context, &client.adjust(&body, Some(&fresh_key()?)).await?)
            }
            Command::Correct {
                scope,
                amount,
                invoice,
                reason,
            } => {
                let scope = scope_of(&scope).await?;
                let body = Adjust {
                    invoice,
                    ..adjustment(scope, AdjustmentKind::Correction, amount, reason)
                };
                adjusted(context, &client.adjust(&body, Some(&fresh_key()?)).await?)
            }
        }
    }
}

fn adjustment(scope: String, kind: AdjustmentKind, amount_micros: i64, reason: String) -> Adjust {
    Adjust {
        scope,
        kind,
        amount_micros,
        invoice: None,
        reason,
    }
}

fn adjusted(context: &Context, view: &AdjustmentView) -> Result<(), Failure> {
    context.out.one(
        view,
        |view| view.id.clone(),
        |view| {
            let mut table = Table::fields();
            let kind = match view.kind {
                AdjustmentKind::Credit => "credit",
                AdjustmentKind::Refund => "refund",
                AdjustmentKind::Correction => "correction",
            };
            table
                .field("id", view.id.as_str())
                .field(kind, units::show_money(view.amount_micros, &view.currency))
                .field("for", view.path.as_str())
                .field_if("of invoice", view.invoice.as_deref())
                .field("reason", view.reason.as_str());
            table
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_and_signs_are_read_as_written() {
        let october = month("2026-10").expect("a month");
        assert_eq!(october.rfc3339(), "2026-10-01T00:00:00Z");
        assert_eq!(month_after(october).rfc3339(), "2026-11-01T00:00:00Z");
        assert!(month("2026-13").is_err() && month("october").is_err());
        assert_eq!(signed("-1.5"), Ok(-1_500_000));
        assert_eq!(signed("1.5"), Ok(1_500_000));
        assert!(signed("--1").is_err());
    }
}
