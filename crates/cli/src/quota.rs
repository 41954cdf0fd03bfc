//! `tenure quota`: how much may be in use at once, and how much is.

use std::collections::BTreeSet;

use clap::Subcommand;
use tenure_api::v1::limit::{QuotaView, SetQuota};
use tenure_domain::meter::{Amounts, Meter};

use crate::context::Context;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::resolve;
use crate::table::{Table, bar, figure, text};
use crate::units;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show limits and use of a scope, or of yourself
    Show { scope: Option<String> },
    /// Set limits: gpus=2.5 vram=40GiB cpu=16 memory=64GiB slices=4 jobs=10 volume=1TiB, each also @class:NAME or
    /// @sku:NAME; none takes a limit away
    Set {
        scope: String,
        #[arg(required = true, value_name = "METER=AMOUNT", value_parser = units::limit)]
        limits: Vec<(Meter, Option<u64>)>,
        /// Drop every limit not named here
        #[arg(long)]
        replace: bool,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Show { scope } => {
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                show(context, &scope.path, &client.quota(&scope.id.to_string()).await?)
            }
            Command::Set {
                scope,
                limits,
                replace,
            } => {
                let mut named = BTreeSet::new();
                if let Some((meter, _)) = limits.iter().find(|(meter, _)| !named.insert(meter)) {
                    return Err(Failure::usage(format!(
                        "{} is given twice",
                        units::meter_name(meter)
                    )));
                }
                let scope = resolve::scope(&client, &scope).await?;
                let id = scope.id.to_string();
                let before = client.quota(&id).await?;
                let mut new = if replace {
                    Amounts::default()
                } else {
                    before.limits
                };
                for (meter, limit) in limits {
                    match limit {
                        Some(limit) => new.set(meter, limit),
                        None => new.unset(&meter),
                    }
                }
                let view = client
                    .set_quota(&id, &SetQuota { limits: new }, Some(before.revision))
                    .await?;
                show(context, &scope.path, &view)
            }
        }
    }
}

fn show(context: &Context, path: &str, view: &QuotaView) -> Result<(), Failure> {
    for over in &view.over {
        let (used, limit) = match over.meter.parse::<Meter>() {
            Ok(meter) => (
                units::amount(&meter, over.used),
                units::amount(&meter, over.limit),
            ),
            Err(_) => (over.used.to_string(), over.limit.to_string()),
        };
        context.out.warn(format!(
            "{path} uses {used} of {}, above its limit of {limit}: nothing new starts until that falls",
            over.meter
        ));
    }
    let meters: Vec<&Meter> = view
        .limits
        .iter()
        .chain(view.used.iter())
        .map(|(meter, _)| meter)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    if meters.is_empty()
        && context.out.form != crate::output::Form::Json
        && context.out.form != crate::output::Form::Yaml
    {
        context
            .out
            .note(format!("{path} has no limits of its own and uses nothing"));
        return Ok(());
    }
    context.out.one(
        view,
        |_| path.to_owned(),
        |view| {
            let mut table = Table::new(&["METER", "USED", "LIMIT", ""]);
            for meter in meters {
                let used = view.used.get(meter).unwrap_or(0);
                let limit = view.limits.get(meter);
                let shown = limit.map_or(figure("none").paint(Paint::Dim), |limit| {
                    figure(units::amount(meter, limit))
                });
                table.row(vec![
                    text(units::meter_name(meter)),
                    figure(units::amount(meter, used)),
                    shown,
                    bar(used, limit),
                ]);
            }
            table
        },
    )
}
