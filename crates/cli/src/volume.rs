//! `tenure volume`: space in which jobs keep files between runs.

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::client::Client;
use tenure_api::v1::volume::{CreateVolume, GrowVolume, VolumeQuery, VolumeView};
use tenure_domain::id::VolumeId;

use crate::completion::complete_volumes;
use crate::context::Context;
use crate::moment::{ago, full, now};
use crate::output::Paint;
use crate::refusal::Failure;
use crate::run::fresh_key;
use crate::table::{Table, figure, text};
use crate::{input, resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a volume; a job gets it with `tenure run --volume NAME …`
    #[command(after_help = "Examples:\n  \
                            tenure volume create data --size 10GiB\n  \
                            tenure volume create models --size 200GiB --for acme/research\n  \
                            tenure run --volume data --volume models:ro -- ls /volumes/data /volumes/models")]
    Create {
        name: String,
        /// How much it holds at most
        #[arg(long, value_parser = units::mib, value_name = "SIZE")]
        size: u64,
        /// Whose it is: a tenant, subscriber or user, whose jobs may all use it; yours unless said
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
    },
    /// List the volumes your jobs may use
    #[command(visible_alias = "ls")]
    List {
        /// Those of this scope and below instead
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
    },
    /// Show a volume
    Show {
        #[arg(add = ArgValueCompleter::new(complete_volumes))]
        volume: String,
    },
    /// Make a volume larger, also while jobs use it
    Grow {
        #[arg(add = ArgValueCompleter::new(complete_volumes))]
        volume: String,
        /// How much it holds from then on
        #[arg(long, value_parser = units::mib, value_name = "SIZE")]
        size: u64,
    },
    /// Remove a volume and everything in it
    Remove {
        #[arg(add = ArgValueCompleter::new(complete_volumes))]
        volume: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::Create { name, size, scope } => {
                tenure_domain::name::check(&name, "/name")?;
                let scope = match scope {
                    Some(scope) => Some(resolve::scope(&client, &scope).await?.id.to_string()),
                    None => None,
                };
                let body = CreateVolume {
                    scope,
                    name: name.clone(),
                    size_mib: size,
                };
                let made = client.create_volume(&body, Some(&fresh_key()?)).await?;
                context.out.note(format!(
                    "created; a job finds it at /volumes/{name} with `tenure run --volume {name} …`"
                ));
                list(context, &[made])
            }
            Command::List { scope } => {
                let scope = match scope {
                    Some(scope) => Some(resolve::scope(&client, &scope).await?.id.to_string()),
                    None => None,
                };
                list(context, &all(&client, scope).await?)
            }
            Command::Show { volume } => show(context, &find(&client, &volume).await?),
            Command::Grow { volume, size } => {
                let volume = find(&client, &volume).await?;
                let body = GrowVolume { size_mib: size };
                list(
                    context,
                    &[client.grow_volume(&volume.id.to_string(), &body).await?],
                )
            }
            Command::Remove { volume, yes } => {
                let volume = find(&client, &volume).await?;
                let asked = format!(
                    "Remove {} of {} and all files in it?",
                    volume.name, volume.scope_path
                );
                input::confirm(&asked, yes)?;
                client.remove_volume(&volume.id.to_string()).await?;
                context
                    .out
                    .note(format!("removed {} of {}", volume.name, volume.scope_path));
                Ok(())
            }
        }
    }
}

async fn all(client: &Client, scope: Option<String>) -> Result<Vec<VolumeView>, Failure> {
    resolve::all(async |cursor| {
        let query = VolumeQuery {
            scope: scope.clone(),
            limit: Some(1000),
            cursor,
        };
        client.volumes(&query).await
    })
    .await
}

/// A volume by id; by name as a job would find it; or by scope and name, such as `acme/research/models`.
async fn find(client: &Client, text: &str) -> Result<VolumeView, Failure> {
    if let Ok(id) = text.parse::<VolumeId>() {
        return Ok(client.volume(&id.to_string()).await?);
    }
    let (scope, name) = match text.rsplit_once('/') {
        Some((scope, name)) => (Some(resolve::scope(client, scope).await?), name),
        None => (None, text),
    };
    tenure_domain::name::check(name, "")?;
    let id = scope.as_ref().map(|scope| scope.id.to_string());
    let volumes = all(client, id.clone()).await?;
    let named = volumes
        .into_iter()
        .filter(|volume| volume.name == name && id.as_ref().is_none_or(|scope| volume.scope == *scope));
    // The longest path is the nearest, as a job's own names are found.
    named
        .max_by_key(|volume| volume.scope_path.matches('/').count())
        .ok_or_else(|| {
            Failure::not_found(format!("there is no volume {text} that your jobs may use")).hint(
                "`tenure volume list` shows them; one of another scope is named like acme/research/models",
            )
        })
}

fn list(context: &Context, volumes: &[VolumeView]) -> Result<(), Failure> {
    let wide = context.out.wide();
    context.out.list(
        volumes,
        |volume| volume.name.clone(),
        "no volumes; `tenure volume create NAME --size 10GiB` makes one",
        |volumes| {
            let head: &[&str] = if wide {
                &["VOLUME", "SIZE", "OF", "NODE", "JOBS", "CREATED", "ID"]
            } else {
                &["VOLUME", "SIZE", "OF", "NODE", "JOBS"]
            };
            let mut table = Table::new(head);
            for volume in volumes {
                let mut row = vec![
                    text(&volume.name),
                    figure(units::show_mib(volume.size_mib)),
                    text(&volume.scope_path),
                    text(volume.node_name.as_deref().unwrap_or("-")),
                    figure(volume.jobs),
                ];
                if wide {
                    row.extend([text(ago(volume.created, now())), text(volume.id.to_string())]);
                }
                table.row(row);
            }
            table
        },
    )
}

fn show(context: &Context, volume: &VolumeView) -> Result<(), Failure> {
    context.out.one(
        volume,
        |volume| volume.name.clone(),
        |volume| {
            let mut table = Table::fields();
            let node = volume.node_name.as_deref().unwrap_or("none before its first use");
            table
                .field("volume", text(&volume.name).paint(Paint::Bold))
                .field("id", volume.id.to_string())
                .field("of", text(&volume.scope_path))
                .field("size", units::show_mib(volume.size_mib))
                .field("node", text(node))
                .field("jobs", volume.jobs.to_string())
                .field("created", full(volume.created, now()));
            table
        },
    )
}
