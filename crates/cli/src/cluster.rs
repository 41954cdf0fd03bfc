//! `tenure cluster`: a team's own nodes for the time of a booking, with its volumes and its jobs there.

use clap::Subcommand;
use serde::Serialize;
use tenure_api::client::Client;
use tenure_api::v1::booking::BookingView;
use tenure_api::v1::job::{JobQuery, JobView};
use tenure_api::v1::volume::{VolumeQuery, VolumeView};
use tenure_domain::booking::record::Size;

use crate::context::Context;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, text};
use crate::{book, resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the clusters your jobs may use: bookings of whole nodes
    #[command(visible_alias = "ls")]
    List {
        /// Those of this scope and below instead
        #[arg(long = "for", value_name = "SCOPE")]
        scope: Option<String>,
    },
    /// Show a cluster: its nodes, its volumes and its jobs
    Show { booking: String },
    /// Book whole nodes for one window, for several, or again and again
    #[command(
        visible_alias = "new",
        after_help = "Examples:\n  \
        tenure cluster make sprint --class H100 --nodes 4 --from 2026-03-16T09:00 --to 2026-03-20T18:00 --zone Europe/Berlin --for acme/research\n  \
        tenure run --booking sprint --nodes 4 --gpus 8 -- ./train.sh"
    )]
    Make(Box<book::Make>),
}

/// All there is to see of one.
#[derive(Serialize)]
struct Cluster {
    booking: BookingView,
    nodes: Vec<String>,
    volumes: Vec<VolumeView>,
    jobs: Vec<JobView>,
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::List { scope } => {
                let scope = book::scope_id(&client, scope).await?;
                let mut bookings = book::all(&client, scope, None).await?;
                bookings.retain(is_cluster);
                book::list(context, &bookings)
            }
            Command::Make(make) if !make.is_cluster() => {
                Err(Failure::usage("a cluster is of whole nodes: say --nodes N")
                    .hint("`tenure book make` books GPUs and slices"))
            }
            Command::Make(make) => make.run(context, &client).await,
            Command::Show { booking } => {
                let booking = book::find(&client, &booking).await?;
                if !is_cluster(&booking) {
                    return Err(
                        Failure::usage(format!("{} is no booking of whole nodes", booking.name))
                            .hint("`tenure book show` shows any booking"),
                    );
                }
                show(context, &gather(&client, booking).await?)
            }
        }
    }
}

fn is_cluster(booking: &BookingView) -> bool {
    matches!(booking.size, Size::Nodes { .. })
}

async fn volumes(client: &Client, scope: Option<String>) -> Result<Vec<VolumeView>, Failure> {
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

async fn jobs(client: &Client, scope: Option<String>) -> Result<Vec<JobView>, Failure> {
    resolve::all(async |cursor| {
        let query = JobQuery {
            scope: scope.clone(),
            show: Some("live".into()),
            // What runs in the cluster is the tasks.
            tasks: Some(true),
            limit: Some(1000),
            cursor,
        };
        client.jobs(&query).await
    })
    .await
}

async fn gather(client: &Client, booking: BookingView) -> Result<Cluster, Failure> {
    let scope = Some(booking.scope.clone());
    // Who may not see all of the team's sees their own, and what their jobs may name.
    let volumes = match volumes(client, scope.clone()).await {
        Ok(volumes) => volumes,
        Err(_) => volumes(client, None).await?,
    };
    let jobs = match jobs(client, scope).await {
        Ok(jobs) => jobs,
        Err(_) => jobs(client, None).await?,
    };
    // The window that is open, or else the next.
    let nodes = booking
        .windows
        .first()
        .map(|window| window.nodes.clone())
        .unwrap_or_default();
    let there = |job: &JobView| {
        let node = job.allocation.as_ref().map(|allocation| &allocation.node_name);
        job.spec.booking == Some(booking.id) || node.is_some_and(|node| nodes.contains(node))
    };
    Ok(Cluster {
        jobs: jobs.into_iter().filter(there).collect(),
        volumes,
        nodes,
        booking,
    })
}

fn show(context: &Context, cluster: &Cluster) -> Result<(), Failure> {
    context.out.one(
        cluster,
        |cluster| cluster.booking.id.to_string(),
        |cluster| {
            let mut table = Table::fields();
            let window = cluster.booking.windows.first();
            let when = window.map(|window| format!("{} to {} ({})", window.start, window.end, window.phase));
            let volumes = cluster.volumes.iter().map(|volume| {
                let place = volume.node_name.as_deref().unwrap_or("not used yet");
                format!("{}, {}, {place}", volume.name, units::show_mib(volume.size_mib))
            });
            let jobs = cluster
                .jobs
                .iter()
                .map(|job| format!("{} {}, {}", job.id, job.spec.name, job.phase.as_str()));
            table
                .field("cluster", text(&cluster.booking.name).paint(Paint::Bold))
                .field("id", cluster.booking.id.to_string())
                .field("of", text(&cluster.booking.scope_path));
            table
                .field_if("window", when)
                .field("nodes", text(cluster.nodes.join(", ")))
                .field("volumes", text(volumes.collect::<Vec<_>>().join("\n")))
                .field("jobs", text(jobs.collect::<Vec<_>>().join("\n")));
            table
        },
    )
}
