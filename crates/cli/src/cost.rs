//! `tenure cost`: what was spent, by whom and on what; put together, and told ahead (`cost/analysis.rs`).

mod analysis;

use clap::Args as ClapArgs;
use tenure_api::v1::analysis::{AnalysisQuery, ForecastQuery};
use tenure_api::v1::cost::{CostQuery, CostView};
use tenure_api::v1::time::Moment;
use tenure_domain::ledger::analysis::By;

use self::analysis::ByArg;
use crate::context::Context;
use crate::moment::{ago, length, now, parse_since};
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::run::KindArg;
use crate::table::{Table, figure, text};
use crate::{resolve, units};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Whose costs; everything you may see unless said
    scope: Option<String>,
    /// From when on: 7d, or a date; the start of the month unless said
    #[arg(long, value_parser = parse_since, value_name = "WHEN")]
    since: Option<Moment>,
    /// Until when
    #[arg(long, value_parser = parse_since, value_name = "WHEN")]
    until: Option<Moment>,
    /// Put together by this, with what lay idle, instead of job by job
    #[arg(long, value_parser = ByArg, value_name = "WHAT")]
    by: Option<By>,
    /// With --by: only on this GPU class
    #[arg(long, requires = "by")]
    class: Option<String>,
    /// With --by: only of this SKU
    #[arg(long, requires = "by")]
    sku: Option<String>,
    /// With --by: only of this kind
    #[arg(long, value_enum, requires = "by")]
    kind: Option<KindArg>,
    /// With --by: only jobs of this name
    #[arg(long, requires = "by")]
    name: Option<String>,
    /// What this month will come to, and what that rests on
    #[arg(long, conflicts_with_all = ["by", "since", "until"])]
    forecast: bool,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let client = context.client()?;
    let scope = match &args.scope {
        Some(scope) => Some(resolve::scope(&client, scope).await?.id.to_string()),
        None => None,
    };
    if args.forecast {
        return analysis::forecast(context, &client, &ForecastQuery { scope }).await;
    }
    if let Some(by) = args.by {
        let query = AnalysisQuery {
            scope,
            by: Some(by),
            since: args.since.map(|at| at.to_string()),
            until: args.until.map(|at| at.to_string()),
            class: args.class,
            sku: args.sku,
            kind: args.kind.map(Into::into),
            name: args.name,
        };
        return analysis::by(context, &client, &query).await;
    }
    let query = CostQuery {
        scope,
        since: args.since.map(|at| at.to_string()),
        until: args.until.map(|at| at.to_string()),
    };
    let view = client.costs(&query).await?;
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(&view),
        Form::Name => context.out.text(
            &view
                .lines
                .iter()
                .map(|line| format!("{}\n", line.job))
                .collect::<String>(),
        ),
        Form::Table | Form::Wide => show(context, &view),
    }
}

fn show(context: &Context, view: &CostView) -> Result<(), Failure> {
    let money = |micros| units::show_money(micros, &view.currency);
    let now = now();
    if !view.lines.is_empty() {
        let by_piece = view.lines.iter().any(|line| line.pieces.is_some());
        let mut heads = vec!["JOB", "NAME", "OWNER", "ENDED", "RAN", "GPU TIME", "COST"];
        heads.extend(by_piece.then_some("EACH"));
        let mut table = Table::new(&heads);
        for line in &view.lines {
            let mut row = vec![
                text(line.job.to_string()),
                text(&line.name),
                text(&line.owner_path),
                line.ended
                    .map_or(text("running").paint(Paint::Good), |at| text(ago(at, now))),
                figure(length(line.ran_ms)),
                figure(units::show_gpu_ms(line.gpu_ms)),
                figure(money(line.charged_micros)),
            ];
            row.extend(by_piece.then(|| match &line.pieces {
                Some(cost) => figure(format!(
                    "{} a {}, {} done",
                    money(cost.each_micros),
                    cost.piece,
                    cost.done
                )),
                None => text(""),
            }));
            table.row(row);
        }
        context.out.text(&table.render(&context.out))?;
        if view.truncated {
            context
                .out
                .note("there are more jobs than are shown; the totals count all");
        }
        context.out.line("")?;
    }
    let mut totals = Table::fields();
    totals.field(&view.path, text(money(view.charged_micros)).paint(Paint::Bold));
    if view.held_micros > 0 {
        totals.field("set aside", money(view.held_micros));
    }
    if view.gpu_seconds > 0 {
        totals.field(
            "gpu time",
            units::show_gpu_ms(view.gpu_seconds.saturating_mul(1000)),
        );
    }
    totals
        .field("from", view.since.to_string())
        .field("to", view.until.to_string());
    context.out.text(&totals.render(&context.out))
}
