//! `tenure gpu`: the devices, and how much of each is given away.

use clap::Subcommand;
use serde::Serialize;
use tenure_api::v1::node::{GpuView, NodeView};

use crate::context::Context;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, bar, figure, text};
use crate::{resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List devices
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this node
        #[arg(long)]
        node: Option<String>,
    },
}

#[derive(Serialize)]
struct Device<'a> {
    node: &'a str,
    #[serde(flatten)]
    gpu: &'a GpuView,
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        let Command::List { node } = self;
        match node {
            Some(node) => list(context, &[resolve::node(&client, &node).await?]),
            None => list(context, &resolve::nodes(&client).await?),
        }
    }
}

pub fn list(context: &Context, nodes: &[NodeView]) -> Result<(), Failure> {
    let devices: Vec<Device<'_>> = nodes
        .iter()
        .flat_map(|node| {
            node.gpus.iter().map(|gpu| Device {
                node: &node.name,
                gpu,
            })
        })
        .collect();
    let wide = context.out.wide();
    context.out.list(
        &devices,
        |device| device.gpu.id.to_string(),
        "no node has a GPU",
        |devices| {
            let mut table = Table::new(if wide {
                &[
                    "GPU",
                    "NODE",
                    "CLASS",
                    "MODEL",
                    "VRAM",
                    "USED",
                    "COMPUTE",
                    "SLICES",
                    "ISOLATION",
                    "UUID",
                ]
            } else {
                &["GPU", "NODE", "CLASS", "VRAM", "USED", "COMPUTE", "SLICES"]
            });
            for Device { node, gpu } in devices {
                let id = text(gpu.id.to_string()).paint(if gpu.present { Paint::Plain } else { Paint::Bad });
                let mut row = vec![id, text(node), text(&gpu.class)];
                if wide {
                    row.push(text(format!("{} {}", gpu.vendor, gpu.model)));
                }
                row.extend([
                    figure(units::show_mib(gpu.vram_mib)),
                    figure(units::show_mib(gpu.used_vram_mib)),
                    bar(gpu.used_permille.into(), Some(1000)),
                    figure(gpu.slices),
                ]);
                if wide {
                    let levels: Vec<&str> = gpu.isolation.keys().map(String::as_str).collect();
                    row.extend([text(levels.join(", ")), text(&gpu.uuid)]);
                }
                table.row(row);
            }
            table
        },
    )
}
