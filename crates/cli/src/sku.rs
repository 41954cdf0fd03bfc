//! `tenure sku`: named sizes an operator defines.

use clap::Subcommand;
use tenure_domain::workload::spec::Sku;

use crate::context::Context;
use crate::demand::{self, DemandArgs};
use crate::refusal::Failure;
use crate::table::{Table, text};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List sizes
    #[command(visible_alias = "ls")]
    List,
    /// Define a size, or define it anew; with --class, for that GPU class
    Define {
        name: String,
        #[command(flatten)]
        demand: DemandArgs,
    },
    /// Remove a size; jobs of it keep what they have
    Remove {
        name: String,
        /// The size for this GPU class
        #[arg(long)]
        class: Option<String>,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Command::List => {
                let client = context.client()?;
                show(context, &client.skus().await?.items)
            }
            Command::Define { name, demand } => {
                let sku = Sku {
                    name,
                    demand: demand.demand()?,
                };
                sku.check()?;
                show(context, &[context.client()?.define_sku(&sku).await?])
            }
            Command::Remove { name, class } => {
                tenure_domain::name::check(&name, "/name")?;
                let name = match class {
                    None => name,
                    Some(class) => {
                        tenure_domain::name::check(&class, "/class")?;
                        Sku::key_for(&name, &class)
                    }
                };
                context.client()?.remove_sku(&name).await?;
                context.out.note(format!("removed {name}"));
                Ok(())
            }
        }
    }
}

fn show(context: &Context, skus: &[Sku]) -> Result<(), Failure> {
    context.out.list(skus, Sku::key, "no sizes are defined", |skus| {
        let mut table = Table::new(&["SKU", "NEEDS", "ISOLATION"]);
        for sku in skus {
            table.row(vec![
                text(&sku.name),
                text(demand::said(&sku.demand)),
                text(sku.demand.isolation.as_str()),
            ]);
        }
        table
    })
}
