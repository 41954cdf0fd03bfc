//! `tenure node`: the machines of the fleet.

use clap::{Subcommand, ValueEnum};
use tenure_api::client::Client;
use tenure_api::v1::node::{CreateJoinToken, NodeView};
use tenure_domain::id::TenantId;
use tenure_domain::schedule::fleet::NodeStatus;
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::scope::{Level, ScopeId};

use crate::context::Context;
use crate::moment::{ago, full, now};
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::table::{Table, Text, bar, figure, text};
use crate::{gpu, input, resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List nodes
    #[command(visible_alias = "ls")]
    List {
        /// Only those that this tenant brought, or that are dedicated to it
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show a node and its GPUs
    Show { node: String },
    /// Make a token with which one node joins, and print it, this once
    #[command(visible_alias = "join")]
    Token {
        /// Whose node it is then: only that tenant's jobs go there, and it may let it to others
        #[arg(long)]
        tenant: Option<String>,
        /// How long it is good for
        #[arg(long, value_parser = units::seconds, default_value = "1h", value_name = "TIME")]
        valid: u64,
    },
    /// Start nothing new on a node
    Cordon { node: String },
    /// Let a node take work again
    Uncordon { node: String },
    /// Say where a node stands, which fabric block it is on and whose it is
    Label {
        node: String,
        /// Where it stands; jobs may ask for a region
        #[arg(long)]
        region: Option<String>,
        /// Its fabric block, such as an InfiniBand or rail domain; gangs stay within one
        #[arg(long)]
        block: Option<String>,
        /// Only jobs of this tenant go there
        #[arg(long, value_name = "TENANT")]
        dedicated: Option<String>,
        /// What is no longer so
        #[arg(long, value_enum, value_name = "LABEL")]
        clear: Vec<Label>,
    },
    /// Take a node's keys away: it cannot speak to the server any more
    Revoke {
        node: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Remove a node from the fleet
    Remove {
        node: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Label {
    Region,
    Block,
    Dedicated,
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::List { tenant: None } => list(context, &resolve::nodes(&client).await?),
            Command::List { tenant: Some(tenant) } => {
                let tenant = tenant_id(&client, &tenant).await?;
                list(context, &resolve::nodes_of(&client, Some(tenant)).await?)
            }
            Command::Show { node } => show(context, &client, &resolve::node(&client, &node).await?).await,
            Command::Token { tenant, valid } => {
                let tenant = match tenant {
                    Some(tenant) => Some(tenant_id(&client, &tenant).await?),
                    None => None,
                };
                token(context, &client, valid, tenant).await
            }
            Command::Cordon { node } => {
                let id = resolve::node(&client, &node).await?.id.to_string();
                list(context, &[client.cordon(&id).await?])
            }
            Command::Uncordon { node } => {
                let id = resolve::node(&client, &node).await?.id.to_string();
                list(context, &[client.uncordon(&id).await?])
            }
            Command::Label {
                node,
                region,
                block,
                dedicated,
                clear,
            } => {
                let node = resolve::node(&client, &node).await?;
                let tenant = match dedicated {
                    Some(tenant) => Some(tenant_id(&client, &tenant).await?),
                    None => None,
                };
                let kept = |label| !clear.contains(&label);
                let before = node.labels;
                let labels = Labels {
                    region: region
                        .map(Into::into)
                        .or(before.region.filter(|_| kept(Label::Region))),
                    block: block
                        .map(Into::into)
                        .or(before.block.filter(|_| kept(Label::Block))),
                    dedicated: tenant.or(before.dedicated.filter(|_| kept(Label::Dedicated))),
                };
                let id = node.id.to_string();
                let labelled = client.label_node(&id, &labels, Some(node.revision)).await?;
                show(context, &client, &labelled).await
            }
            Command::Revoke { node, yes } => {
                let node = resolve::node(&client, &node).await?;
                input::confirm(&format!("Take the keys of {} away?", node.name), yes)?;
                list(context, &[client.revoke_node(&node.id.to_string()).await?])
            }
            Command::Remove { node, yes } => {
                let node = resolve::node(&client, &node).await?;
                input::confirm(&format!("Remove {} from the fleet?", node.name), yes)?;
                client.remove_node(&node.id.to_string()).await?;
                context.out.note(format!("removed {}", node.name));
                Ok(())
            }
        }
    }
}

async fn tenant_id(client: &Client, text: &str) -> Result<TenantId, Failure> {
    match resolve::scope_at(client, text, Level::Tenant).await?.id {
        ScopeId::Tenant(tenant) => Ok(tenant),
        other => Err(Failure::usage(format!("{other} is not a tenant"))),
    }
}

async fn token(
    context: &Context,
    client: &Client,
    valid_s: u64,
    tenant: Option<TenantId>,
) -> Result<(), Failure> {
    let tenant = tenant.map(|tenant| tenant.to_string());
    let made = client
        .create_join_token(&CreateJoinToken { valid_s, tenant })
        .await?;
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(&made),
        _ => {
            context.out.note(format!(
                "good for one node until {}; start its agent with it:",
                made.expires
            ));
            context.out.line(crate::safe::safe(&made.token))
        }
    }
}

fn status(status: NodeStatus) -> Text {
    match status {
        NodeStatus::Up => text("up").paint(Paint::Good),
        NodeStatus::Lost => text("lost").paint(Paint::Bad),
        NodeStatus::Cordoned => text("cordoned").paint(Paint::Busy),
    }
}

/// Labels in a line: `region=eu-north block=rail-1`.
fn said(labels: &Labels) -> String {
    let dedicated = labels.dedicated.map(|tenant| tenant.to_string());
    let each = [
        ("region", labels.region.as_deref()),
        ("block", labels.block.as_deref()),
        ("dedicated", dedicated.as_deref()),
    ];
    let told = each
        .iter()
        .filter_map(|(label, value)| Some(format!("{label}={}", (*value)?)));
    told.collect::<Vec<_>>().join(" ")
}

fn list(context: &Context, nodes: &[NodeView]) -> Result<(), Failure> {
    let wide = context.out.wide();
    context.out.list(
        nodes,
        |node| node.name.clone(),
        "no node has joined yet; `tenure node token` makes a token for one",
        |nodes| {
            let head: &[&str] = if wide {
                &[
                    "NODE", "STATUS", "JOBS", "GPUS", "CPU", "MEMORY", "LABELS", "JOINED", "ID",
                ]
            } else {
                &["NODE", "STATUS", "JOBS", "GPUS", "CPU", "MEMORY"]
            };
            let mut table = Table::new(head);
            for node in nodes {
                let cpu = format!(
                    "{} of {}",
                    units::show_milli(node.used_cpu_milli.into()),
                    units::show_milli(node.cpu_milli.into())
                );
                let memory = format!(
                    "{} of {}",
                    units::show_mib(node.used_memory_mib),
                    units::show_mib(node.memory_mib)
                );
                let mut row = vec![
                    text(&node.name),
                    status(node.status),
                    figure(node.allocations),
                    figure(node.gpus.len()),
                    text(cpu),
                    text(memory),
                ];
                if wide {
                    row.extend([
                        text(said(&node.labels)),
                        text(ago(node.joined, now())),
                        text(node.id.to_string()),
                    ]);
                }
                table.row(row);
            }
            table
        },
    )
}

async fn show(context: &Context, client: &Client, node: &NodeView) -> Result<(), Failure> {
    context.out.one(
        node,
        |node| node.name.clone(),
        |node| {
            let mut table = Table::fields();
            table
                .field("node", text(&node.name).paint(Paint::Bold))
                .field("status", status(node.status));
            table
                .field("id", node.id.to_string())
                .field("joined", full(node.joined, now()))
                .field("jobs", node.allocations.to_string());
            let labels = &node.labels;
            table
                .field_if("region", labels.region.as_deref().map(text))
                .field_if("block", labels.block.as_deref().map(text))
                .field_if("dedicated", labels.dedicated.map(|tenant| tenant.to_string()))
                .field_if("brought by", node.owner.map(|tenant| tenant.to_string()));
            let cpu = format!(
                "{} of {}",
                units::show_milli(node.used_cpu_milli.into()),
                units::show_milli(node.cpu_milli.into())
            );
            table
                .field("cpu", cpu)
                .field("", bar(node.used_cpu_milli.into(), Some(node.cpu_milli.into())));
            let memory = format!(
                "{} of {}",
                units::show_mib(node.used_memory_mib),
                units::show_mib(node.memory_mib)
            );
            table
                .field("memory", memory)
                .field("", bar(node.used_memory_mib, Some(node.memory_mib)));
            let volumes = format!(
                "{} of {}",
                units::show_mib(node.used_volume_mib),
                units::show_mib(node.volume_mib)
            );
            table.field_if("volumes", (node.volume_mib > 0).then_some(volumes));
            table
        },
    )?;
    if matches!(context.out.form, Form::Table | Form::Wide) && !node.gpus.is_empty() {
        context.out.line("")?;
        let devices = gpu::devices(client, Some(node.id.to_string())).await?;
        return gpu::list(context, &devices);
    }
    Ok(())
}
