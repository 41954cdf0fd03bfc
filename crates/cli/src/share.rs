//! `tenure share`: what a scope gets among its siblings, and how it stands to that.

use clap::Subcommand;
use tenure_api::v1::share::ShareView;
use tenure_domain::tenancy::share::{Nominal, Share};

use crate::context::Context;
use crate::refusal::Failure;
use crate::resolve;
use crate::table::{Table, figure, text};
use crate::units;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show weight, nominal quotas and use of a scope, or of yourself
    Show { scope: Option<String> },
    /// Set the weight and the GPUs of a class a scope is sure of, may borrow and lends: weight=2 H100=8 H100.borrow=4
    /// H100.lend=2, none taking a class or a limit away; of the platform also half_life=7d and aged=14d
    Set {
        scope: String,
        #[arg(required = true, value_name = "NAME=VALUE", value_parser = setting)]
        settings: Vec<Setting>,
    },
}

/// One thing to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    Weight(u32),
    HalfLife(Option<u64>),
    Aged(Option<u64>),
    Class(Box<str>, Part, Option<u64>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Nominal,
    Borrow,
    Lend,
}

fn setting(text: &str) -> Result<Setting, String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not NAME=VALUE, such as weight=2 or H100=8"))?;
    let unless_none = |read: fn(&str) -> Result<u64, String>| match value {
        "none" => Ok(None),
        value => read(value).map(Some),
    };
    match name {
        "" => Err(format!("'{text}' names nothing to set")),
        "weight" => value
            .parse()
            .map(Setting::Weight)
            .map_err(|_| format!("'{value}' is not a weight; write a whole number from 1 on")),
        "half_life" => unless_none(units::seconds).map(Setting::HalfLife),
        "aged" => unless_none(units::seconds).map(Setting::Aged),
        name => {
            let (class, part) = match name.rsplit_once('.') {
                Some((class, "borrow")) => (class, Part::Borrow),
                Some((class, "lend")) => (class, Part::Lend),
                _ => (name, Part::Nominal),
            };
            Ok(Setting::Class(class.into(), part, unless_none(units::milli)?))
        }
    }
}

impl Setting {
    fn apply(self, share: &mut Share) -> Result<(), Failure> {
        match self {
            Setting::Weight(weight) => share.weight = weight,
            Setting::HalfLife(half_life_s) => share.half_life_s = half_life_s,
            Setting::Aged(aged_s) => share.aged_s = aged_s,
            Setting::Class(class, Part::Nominal, None) => {
                share.nominal.remove(&class);
            }
            Setting::Class(class, Part::Nominal, Some(gpu_milli)) => {
                share.nominal.entry(class).or_default().gpu_milli = gpu_milli;
            }
            Setting::Class(class, part, milli) => {
                let Some(nominal) = share.nominal.get_mut(&class) else {
                    return Err(Failure::usage(format!(
                        "there is no nominal quota of {class} to limit; set it first, {class}=0 if it is sure of none"
                    )));
                };
                match part {
                    Part::Lend => nominal.lend_milli = milli,
                    _ => nominal.borrow_milli = milli,
                }
            }
        }
        Ok(())
    }
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Show { scope } => {
                let scope = resolve::scope_or_me(&client, scope.as_deref()).await?;
                show(context, &scope.path, &client.share(&scope.id.to_string()).await?)
            }
            Command::Set { scope, settings } => {
                let scope = resolve::scope(&client, &scope).await?;
                let id = scope.id.to_string();
                let before = client.share(&id).await?;
                let mut share = before.share;
                for setting in settings {
                    setting.apply(&mut share)?;
                }
                let view = client.set_share(&id, &share, Some(before.revision)).await?;
                show(context, &scope.path, &view)
            }
        }
    }
}

fn show(context: &Context, path: &str, view: &ShareView) -> Result<(), Failure> {
    let share = &view.share;
    let (lately, over) = (view.lately_gpu_seconds * 1000, view.over_milli);
    context.out.note(format!(
        "{path} has weight {} and used {} lately, {} of its due",
        share.weight,
        units::show_gpu_ms(lately),
        units::show_permille(u32::try_from(over).unwrap_or(u32::MAX)),
    ));
    context.out.one(
        view,
        |_| path.to_owned(),
        |view| {
            let mut table = Table::new(&[
                "CLASS",
                "USED",
                "NOMINAL",
                "BORROWED",
                "MAY BORROW",
                "LENDS NOW",
                "LENDS AT MOST",
            ]);
            for (class, nominal) in &share.nominal {
                table.row(row(class, *nominal, view));
            }
            table
        },
    )
}

fn row(class: &str, nominal: Nominal, view: &ShareView) -> Vec<crate::table::Text> {
    let used = view.used.get(class);
    let now = |of: fn(&tenure_api::v1::share::ClassUse) -> u64| {
        figure(used.map_or_else(|| "–".into(), |used| units::show_milli(of(used))))
    };
    let limit = |milli: Option<u64>| figure(milli.map_or_else(|| "all".into(), units::show_milli));
    vec![
        text(class),
        now(|used| used.gpu_milli),
        figure(units::show_milli(nominal.gpu_milli)),
        now(|used| used.borrowed_milli),
        limit(nominal.borrow_milli),
        now(|used| used.lent_milli),
        limit(nominal.lend_milli),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        assert_eq!(setting("weight=2"), Ok(Setting::Weight(2)));
        assert_eq!(setting("half_life=7d"), Ok(Setting::HalfLife(Some(604_800))));
        let class = |part, milli| Ok(Setting::Class("H100".into(), part, milli));
        assert_eq!(setting("H100=8"), class(Part::Nominal, Some(8_000)));
        assert_eq!(setting("H100.borrow=none"), class(Part::Borrow, None));
        assert_eq!(setting("H100.lend=0.5"), class(Part::Lend, Some(500)));
        for bad in ["weight", "weight=-1", "=2", "H100=many", "half_life=7"] {
            assert!(setting(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_named_stays() {
        let mut share = Share::default();
        for text in ["H100=8", "H100.borrow=4", "L40S=2", "weight=3", "L40S=none"] {
            setting(text)
                .and_then(|setting| setting.apply(&mut share).map_err(|_| text.into()))
                .expect("set");
        }
        assert_eq!((share.weight, share.nominal.len()), (3, 1));
        let nominal = share.nominal["H100"];
        assert_eq!(
            (nominal.gpu_milli, nominal.borrow_milli, nominal.lend_milli),
            (8_000, Some(4_000), None)
        );
        assert!(setting("A10.lend=1").expect("read").apply(&mut share).is_err());
    }
}
