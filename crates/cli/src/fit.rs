//! `tenure fit`: what a model or a scene needs, term by term, which GPUs would do, and what they cost. Submits nothing.

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::v1::fit::{AskFit, FitView};
use tenure_domain::kind::Kind;
use tenure_domain::schedule::fit::{ClassFit, Fit};
use tenure_domain::workload::derive::Derivation;
use tenure_domain::workload::model::{CATALOGUE, Cache};

use crate::completion::complete_models;
use crate::context::Context;
use crate::demand::DemandArgs;
use crate::moment::length;
use crate::output::{Form, Output, Paint};
use crate::refusal::Failure;
use crate::run::KindArg;
use crate::safe::safe;
use crate::table::{Table, Text, bar, figure, text};
use crate::workload::WorkloadArgs;
use crate::{resolve, units};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The model, by name or by size such as 13B
    #[arg(value_name = "MODEL", required_unless_present_any = ["frames", "duration", "list"], add = ArgValueCompleter::new(complete_models))]
    which: Option<String>,
    /// What is done with it
    #[arg(long, value_enum, default_value = "batch", hide_default_value = true)]
    kind: KindArg,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    demand: DemandArgs,
    /// What the job would be called
    #[arg(long)]
    name: Option<String>,
    /// Whose job it would be; yours unless said
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// List the models known by name
    #[arg(long)]
    list: bool,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    if args.list {
        return models(context);
    }
    let kind: Kind = args.kind.into();
    let workload = args.workload.workload(args.which.as_deref(), kind)?;
    let workload = workload.ok_or_else(|| Failure::usage("what is to be fitted is not said"))?;
    workload.check()?;
    let client = context.client()?;
    let owner = match &args.owner {
        Some(owner) => Some(resolve::scope(&client, owner).await?.id.to_string()),
        None => None,
    };
    let body = AskFit {
        owner,
        name: args.name,
        workload,
        demand: args.demand.open()?,
    };
    let view = client.fit_workload(&body).await?;
    let out = &context.out;
    match out.form {
        Form::Json | Form::Yaml => out.value(&view),
        Form::Name => out.text(&names(&view.fit)),
        Form::Table | Form::Wide => out.text(&drawn(out, &view)),
    }
}

/// The classes that would do, the cheapest first.
fn names(fit: &Fit) -> String {
    let would_do = fit.classes.iter().filter(|class| class.why_not.is_none());
    would_do
        .map(|class| format!("{}\n", safe(&class.class)))
        .collect()
}

fn drawn(out: &Output, view: &FitView) -> String {
    let fit = &view.fit;
    let derivation = &fit.derivation;
    let mut drawn = format!(
        "{}  {}\n\n",
        out.paint(Paint::Bold, &safe(&derivation.estimate.title)),
        out.paint(Paint::Dim, &derivation.basis.words())
    );
    drawn.push_str(&terms(derivation).render(out));
    let note = |text: &str| format!("{} {}\n", out.paint(Paint::Busy, "note:"), safe(text));
    drawn.extend(
        derivation
            .estimate
            .notes
            .iter()
            .chain(&derivation.differs)
            .map(|text| note(text)),
    );
    drawn.push('\n');
    if fit.classes.is_empty() {
        drawn.push_str(&note("no GPU of the kind asked for is here"));
    } else {
        drawn.push_str(&classes(out, view).render(out));
    }
    let hint = |text: &str| format!("{} {}\n", out.paint(Paint::Good, "try:"), safe(text));
    if !fit.instead.is_empty() {
        drawn.push('\n');
        drawn.extend(fit.instead.iter().map(|text| hint(text)));
    }
    if !fit.skus.is_empty() {
        let sizes = fit.skus.iter().map(|sku| {
            let class = sku
                .class
                .as_ref()
                .map_or(String::new(), |class| format!(" on {class}"));
            let price = units::show_money(sku.hourly_micros, &view.currency);
            format!("{}{class} at {price} an hour", sku.name)
        });
        let sizes = sizes.collect::<Vec<_>>().join(", ");
        drawn.push_str(&format!(
            "\n{} {}\n",
            out.paint(Paint::Dim, "sizes that would do:"),
            safe(&sizes)
        ));
    }
    drawn
}

/// Bytes as GiB, to a hundredth, rounded up.
fn gib(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100).div_ceil(1 << 30);
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

fn terms(derivation: &Derivation) -> Table {
    let estimate = &derivation.estimate;
    let mut table = Table::fields();
    let whole = estimate.bytes();
    let row = |name: &str, bytes: u64, drawn: Text, words: &str| {
        vec![
            text(name).paint(Paint::Dim),
            figure(gib(bytes)),
            drawn,
            text(words).paint(Paint::Dim),
        ]
    };
    for term in &estimate.terms {
        let share = bar(term.bytes, Some(whole.max(1))).paint(Paint::Plain);
        table.row(row(term.name.as_str(), term.bytes, share, &term.words));
    }
    if !estimate.terms.is_empty() {
        let each = match estimate.gpus {
            1 => "on one GPU".to_owned(),
            gpus => format!("on each of {gpus} GPUs"),
        };
        table.row(vec![
            text("together").paint(Paint::Bold),
            figure(gib(whole)).paint(Paint::Bold),
            text(""),
            text(each),
        ]);
    }
    if let Some(seen) = derivation.measured.and_then(|measured| measured.vram_mib) {
        table.row(vec![
            text("measured").paint(Paint::Good),
            figure(gib(seen.most << 20)).paint(Paint::Good),
            text(""),
            text(format!(
                "enough for each of {} runs, {} for most",
                seen.runs,
                gib(seen.p50 << 20)
            )),
        ]);
    }
    if let Some(run_ms) = derivation.run_ms {
        let each = derivation.measured.and_then(|measured| measured.each_ms);
        table.row(vec![
            text("run time").paint(Paint::Dim),
            figure(length(run_ms)),
            text(""),
            text(each.map_or("as the job says".to_owned(), |each| {
                format!("{} each, measured over {} runs", length(each.p50), each.runs)
            })),
        ]);
    }
    table
}

fn classes(out: &Output, view: &FitView) -> Table {
    let money = |micros: i64| units::show_money(micros, &view.currency);
    let tokens = view.fit.classes.iter().any(|class| class.tokens.is_some());
    let mut head = vec!["CLASS"];
    head.extend(out.wide().then_some("MODEL"));
    head.extend(["MEMORY", "GPUS", "FREE", "SLICE", "AN HOUR", "WHOLE, AN HOUR"]);
    head.extend(tokens.then_some("ROOM FOR"));
    let mut table = Table::new(&head);
    for class in &view.fit.classes {
        let mut row = vec![text(&class.class).paint(Paint::Bold)];
        row.extend(out.wide().then(|| text(&class.model)));
        row.extend([
            figure(units::show_mib(class.vram_mib)),
            figure(class.gpus),
            figure(class.free).paint(if class.free > 0 { Paint::Good } else { Paint::Dim }),
        ]);
        row.extend(offers(class, &money));
        row.extend(tokens.then(|| {
            class.tokens.map_or(text(""), |tokens| {
                figure(format!("{} tokens", units::grouped(tokens)))
            })
        }));
        table.row(row);
    }
    table
}

fn offers(class: &ClassFit, money: &dyn Fn(i64) -> String) -> [Text; 3] {
    if let Some(why) = &class.why_not {
        return [text(short(why)).paint(Paint::Bad), text(""), text("")];
    }
    let slice = class.slice.map_or_else(
        || [text("whole"), text("")],
        |slice| {
            let share = units::show_permille(slice.compute_permille.into());
            [
                text(format!("{}, {share}", units::show_mib(slice.vram_mib))),
                figure(money(slice.hourly_micros)),
            ]
        },
    );
    let [size, hourly] = slice;
    let whole = class
        .whole
        .map_or(text(""), |whole| figure(money(whole.hourly_micros)));
    [size, hourly, whole]
}

/// `4506 MiB short` in larger units.
fn short(why: &str) -> String {
    let missing = why.strip_suffix(" MiB short").and_then(|mib| mib.parse().ok());
    missing.map_or(why.to_owned(), |mib| format!("{} short", units::show_mib(mib)))
}

/// A model as the catalogue has it.
#[derive(serde::Serialize)]
struct ModelRow {
    name: &'static str,
    params: u64,
    layers: u32,
    hidden: u32,
    cache: String,
}

fn models(context: &Context) -> Result<(), Failure> {
    let rows = CATALOGUE.iter().map(|known| ModelRow {
        name: known.name,
        params: known.shape.params,
        layers: known.shape.layers,
        hidden: known.shape.hidden,
        cache: match known.shape.cache {
            Cache::Heads(heads) => format!(
                "{heads} of {} heads × {}",
                known.shape.heads, known.shape.head_dim
            ),
            Cache::Latent { rank, rope } => format!("latent {rank} + {rope}"),
        },
    });
    let rows: Vec<ModelRow> = rows.collect();
    context.out.list(
        &rows,
        |row| row.name.to_owned(),
        "no models are known",
        |rows| {
            let mut table = Table::new(&["MODEL", "PARAMETERS", "LAYERS", "WIDE", "KEYS AND VALUES"]);
            for row in rows {
                table.row(vec![
                    text(row.name),
                    figure(units::grouped(row.params)),
                    figure(row.layers),
                    figure(row.hidden),
                    text(&row.cache),
                ]);
            }
            table
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_and_in_units_people_use() {
        assert_eq!(gib(0), "0.00 GiB");
        assert_eq!(gib(1), "0.01 GiB");
        assert_eq!(gib(13_015_864_320 * 2), "24.25 GiB");
        assert_eq!(short("4506 MiB short"), "4.4 GiB short");
        assert_eq!(
            short("8 on one node wanted, 4 there"),
            "8 on one node wanted, 4 there"
        );
    }
}
