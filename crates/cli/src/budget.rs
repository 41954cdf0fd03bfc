//! `tenure budget`: how much may be spent per period, and how much is gone.

use clap::{Subcommand, ValueEnum};
use tenure_api::v1::limit::{BudgetsView, SetBudgets};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::time::Period;

use crate::context::Context;
use crate::moment::{ago, now};
use crate::output::Paint;
use crate::refusal::Failure;
use crate::resolve;
use crate::run::KindArg;
use crate::table::{Table, Text, bar, figure, text};
use crate::units;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show budgets of a scope, or of yourself
    Show { scope: Option<String> },
    /// Set a budget: money=500 gpu-hours=100 frames=2000; none takes a limit away, and with all gone the budget goes
    Set {
        scope: String,
        #[arg(value_enum)]
        period: PeriodArg,
        #[arg(required = true, value_name = "WHAT=AMOUNT", value_parser = limit)]
        limits: Vec<Limit>,
        /// Tell when this share of it is spent, such as 80%; may be repeated, and none takes all away
        #[arg(long = "alert", value_delimiter = ',', value_name = "SHARE", value_parser = share)]
        alerts: Vec<Option<u16>>,
        /// Count only jobs on this GPU class
        #[arg(long, conflicts_with_all = ["sku", "kind"])]
        class: Option<String>,
        /// Count only jobs of this SKU
        #[arg(long, conflicts_with = "kind")]
        sku: Option<String>,
        /// Count only jobs of this kind
        #[arg(long, value_enum)]
        kind: Option<KindArg>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum PeriodArg {
    Day,
    Week,
    Month,
    Total,
}

#[derive(Debug, Clone, Copy)]
pub enum Limit {
    Money(Option<u64>),
    GpuSeconds(Option<u64>),
    Frames(Option<u64>),
}

fn share(text: &str) -> Result<Option<u16>, String> {
    match text {
        "none" => Ok(None),
        text => units::permille(text)
            .map(Some)
            .map_err(|_| format!("'{text}' is not a share; write it like 80% or 0.8")),
    }
}

fn limit(text: &str) -> Result<Limit, String> {
    let (what, amount) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not WHAT=AMOUNT, such as money=500 or gpu-hours=100"))?;
    match (what, amount) {
        ("money", "none") => Ok(Limit::Money(None)),
        ("money", amount) => Ok(Limit::Money(Some(units::micros(amount)?.unsigned_abs()))),
        ("gpu-hours", "none") => Ok(Limit::GpuSeconds(None)),
        // Thousandths of an hour, times 3.6, are seconds.
        ("gpu-hours", amount) => Ok(Limit::GpuSeconds(Some(
            (u128::from(units::milli(amount)?) * 36).div_ceil(10) as u64,
        ))),
        ("frames", "none") => Ok(Limit::Frames(None)),
        ("frames", amount) => amount
            .parse()
            .map(|frames| Limit::Frames(Some(frames)))
            .map_err(|_| format!("'{amount}' is not a number of frames")),
        _ => Err(format!(
            "a budget limits money, gpu-hours and frames, not '{what}'"
        )),
    }
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Show { scope } => {
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                show(
                    context,
                    &scope.path,
                    &client.budgets(&scope.id.to_string()).await?,
                )
            }
            Command::Set {
                scope,
                period,
                limits,
                alerts,
                class,
                sku,
                kind,
            } => {
                let scope = resolve::scope(&client, &scope).await?;
                let id = scope.id.to_string();
                let before = client.budgets(&id).await?;
                let mut budgets: Vec<Budget> = before.budgets.into_iter().map(|view| view.budget).collect();
                let budget = Budget {
                    period: period.into(),
                    class: class.map(Into::into),
                    sku: sku.map(Into::into),
                    kind: kind.map(Into::into),
                    money_micros: None,
                    gpu_seconds: None,
                    frames: None,
                    alerts_permille: Vec::new(),
                };
                change(&mut budgets, budget, &limits, &alerts);
                show(
                    context,
                    &scope.path,
                    &client
                        .set_budgets(&id, &SetBudgets { budgets }, Some(before.revision))
                        .await?,
                )
            }
        }
    }
}

/// Sets the limits of the budget for the same period and the same jobs, keeping the others.
fn change(budgets: &mut Vec<Budget>, new: Budget, limits: &[Limit], alerts: &[Option<u16>]) {
    let same = |budget: &Budget| budget.period == new.period && budget.of() == new.of();
    let index = budgets.iter().position(same).unwrap_or_else(|| {
        budgets.push(new.clone());
        budgets.len() - 1
    });
    for limit in limits {
        match *limit {
            Limit::Money(money) => budgets[index].money_micros = money,
            Limit::GpuSeconds(seconds) => budgets[index].gpu_seconds = seconds,
            Limit::Frames(frames) => budgets[index].frames = frames,
        }
    }
    if !alerts.is_empty() {
        let shares = alerts.iter().flatten().copied();
        let sorted: std::collections::BTreeSet<u16> = shares.collect();
        budgets[index].alerts_permille = sorted.into_iter().collect();
    }
    budgets.retain(|budget| {
        budget.money_micros.is_some() || budget.gpu_seconds.is_some() || budget.frames.is_some()
    });
}

impl From<PeriodArg> for Period {
    fn from(period: PeriodArg) -> Period {
        match period {
            PeriodArg::Day => Period::Day,
            PeriodArg::Week => Period::Week,
            PeriodArg::Month => Period::Month,
            PeriodArg::Total => Period::Total,
        }
    }
}

fn show(context: &Context, path: &str, view: &BudgetsView) -> Result<(), Failure> {
    if view.budgets.is_empty()
        && matches!(
            context.out.form,
            crate::output::Form::Table | crate::output::Form::Wide
        )
    {
        context.out.note(format!("{path} has no budgets of its own"));
        return Ok(());
    }
    let now = now();
    context.out.one(
        view,
        |_| path.to_owned(),
        |view| {
            let mut table = Table::new(&["PERIOD", "OF", "SPENT", "HELD", "LIMIT", "", "SINCE"]);
            for view_of in &view.budgets {
                let budget = &view_of.budget;
                let of = match budget.of().to_string() {
                    all if all.is_empty() => text("everything").paint(Paint::Dim),
                    part => text(part),
                };
                let since = view_of
                    .period_start
                    .filter(|start| start.0.0 > 0)
                    .map_or(String::new(), |start| ago(start, now));
                let mut lead = vec![text(budget.period.as_str()), of];
                let mut push = |spent: String, held: String, limit: String, bar: Text| {
                    let mut row = std::mem::replace(&mut lead, vec![text(""), text("")]);
                    row.extend([figure(spent), figure(held), figure(limit), bar, text(&since)]);
                    table.row(row);
                };
                if let Some(limit) = budget.money_micros {
                    let money = |micros: i64| units::show_money(micros, &view.currency);
                    let gone =
                        u64::try_from(view_of.spent_micros.saturating_add(view_of.held_micros)).unwrap_or(0);
                    let limit_shown = money(i64::try_from(limit).unwrap_or(i64::MAX));
                    push(
                        money(view_of.spent_micros),
                        money(view_of.held_micros),
                        limit_shown,
                        bar(gone, Some(limit)),
                    );
                }
                if let Some(limit) = budget.gpu_seconds {
                    let time = |seconds: u64| units::show_gpu_ms(seconds.saturating_mul(1000));
                    let gone = view_of.spent_gpu_seconds.saturating_add(view_of.held_gpu_seconds);
                    push(
                        time(view_of.spent_gpu_seconds),
                        time(view_of.held_gpu_seconds),
                        time(limit),
                        bar(gone, Some(limit)),
                    );
                }
                if let Some(limit) = budget.frames {
                    let frames = |count: u64| format!("{count} frames");
                    let gone = view_of.spent_frames.saturating_add(view_of.held_frames);
                    push(
                        frames(view_of.spent_frames),
                        frames(view_of.held_frames),
                        frames(limit),
                        bar(gone, Some(limit)),
                    );
                }
            }
            table
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month() -> Budget {
        Budget {
            period: Period::Month,
            class: None,
            sku: None,
            kind: None,
            money_micros: None,
            gpu_seconds: None,
            frames: None,
            alerts_permille: Vec::new(),
        }
    }

    #[test]
    fn one_budget_per_period_and_kind_of_job() {
        let mut budgets = Vec::new();
        change(&mut budgets, month(), &[Limit::Money(Some(5))], &[]);
        change(&mut budgets, month(), &[Limit::GpuSeconds(Some(7))], &[]);
        assert_eq!(
            budgets,
            [Budget {
                money_micros: Some(5),
                gpu_seconds: Some(7),
                ..month()
            }]
        );
        change(
            &mut budgets,
            Budget {
                class: Some("H100".into()),
                ..month()
            },
            &[Limit::Money(Some(1))],
            &[],
        );
        assert_eq!(budgets.len(), 2);
        change(
            &mut budgets,
            month(),
            &[Limit::Money(None), Limit::GpuSeconds(None)],
            &[],
        );
        assert_eq!(budgets.len(), 1);
    }

    #[test]
    fn amounts_are_read_in_human_units() {
        assert!(matches!(limit("money=12.50"), Ok(Limit::Money(Some(12_500_000)))));
        assert!(matches!(
            limit("gpu-hours=0.5"),
            Ok(Limit::GpuSeconds(Some(1800)))
        ));
        for bad in ["", "money", "money=", "money=-1", "hours=3", "gpu-hours=x"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
    }
}
