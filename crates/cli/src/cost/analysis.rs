//! What was used, put together by what one asks; what lay idle; what the month will come to.

use std::ffi::OsStr;
use std::str::FromStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use tenure_api::client::Client;
use tenure_api::v1::analysis::{AnalysisQuery, AnalysisView, ForecastQuery, ForecastView};
use tenure_domain::ledger::analysis::{By, Group};

use crate::context::Context;
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::units;

/// What `--by` takes: a word that shells complete, or `label:KEY`.
#[derive(Debug, Clone)]
pub struct ByArg;

impl TypedValueParser for ByArg {
    type Value = By;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<By, clap::Error> {
        By::from_str.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words = By::WORDS.iter().map(|(word, _)| PossibleValue::new(word));
        let label = PossibleValue::new("label:KEY").help("what jobs' labels of that key say");
        Some(Box::new(words.chain([label])))
    }
}

pub async fn by(context: &Context, client: &Client, query: &AnalysisQuery) -> Result<(), Failure> {
    let view = client.analysis(query).await?;
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(&view),
        Form::Name => {
            let names = view.groups.iter().map(|of| format!("{}\n", of.group.group));
            context.out.text(&names.collect::<String>())
        }
        Form::Table | Form::Wide => show(context, &view),
    }
}

/// Of the time devices were there and measured, the share they worked.
fn busy(group: &Group) -> String {
    let could = group.busy_ms.saturating_add(group.idle_ms);
    match could {
        0 => "–".into(),
        could => {
            let permille = u128::from(group.busy_ms) * 1000 / u128::from(could);
            units::show_permille(u32::try_from(permille).unwrap_or(1000))
        }
    }
}

fn show(context: &Context, view: &AnalysisView) -> Result<(), Failure> {
    let money = |micros| units::show_money(micros, &view.currency);
    let mut table = Table::new(&["GROUP", "COST", "GPU TIME", "BUSY", "IDLE COST", "FRAMES"]);
    let frames = |group: &Group| match group.frames {
        0 => String::new(),
        frames => units::grouped(frames),
    };
    for of in &view.groups {
        let group = &of.group;
        let name = of.path.as_deref().unwrap_or(&group.group);
        let name = match &group.name {
            Some(called) => format!("{called} ({name})"),
            None if name.is_empty() => "none".to_owned(),
            None => name.to_owned(),
        };
        table.row(vec![
            text(name),
            figure(money(group.cost_micros)),
            figure(units::show_gpu_ms(group.gpu_ms)),
            figure(busy(group)),
            figure(money(group.waste_micros)),
            figure(frames(group)),
        ]);
    }
    let total = &view.total;
    table.row(vec![
        text("total").paint(Paint::Bold),
        figure(money(total.cost_micros)).paint(Paint::Bold),
        figure(units::show_gpu_ms(total.gpu_ms)),
        figure(busy(total)),
        figure(money(total.waste_micros)),
        figure(frames(total)),
    ]);
    context.out.text(&table.render(&context.out))?;
    if view.truncated {
        context
            .out
            .note("there are more groups than are shown; the total counts all");
    }
    if view.by == By::Kind && !view.labels.is_empty() {
        let all: Vec<String> = view
            .labels
            .iter()
            .map(|key| format!("--by label:{key}"))
            .collect();
        context.out.note(format!("also {}", all.join(", ")));
    }
    context.out.note(format!(
        "{}, {} to {}; idle cost is what was paid for device time that jobs could have had and had no work for, where that was measured",
        view.path, view.since, view.until
    ));
    Ok(())
}

pub async fn forecast(context: &Context, client: &Client, query: &ForecastQuery) -> Result<(), Failure> {
    let view: ForecastView = client.forecast(query).await?;
    context.out.one(
        &view,
        |view| view.forecast.month_micros.to_string(),
        |view| {
            let money = |micros| units::show_money(micros, &view.currency);
            let mut table = Table::fields();
            table
                .field("for", view.path.as_str())
                .field("so far", money(view.forecast.so_far_micros))
                .field(
                    "by the end",
                    text(money(view.forecast.month_micros)).paint(Paint::Bold),
                )
                .field("which is", view.until.to_string())
                .field("basis", view.basis.as_str());
            table
        },
    )
}
