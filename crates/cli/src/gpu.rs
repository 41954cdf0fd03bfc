//! `tenure gpu`: the devices, who holds which part of each, and how it is used.

mod receipts;
mod show;

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::client::Client;
use tenure_api::v1::gpu::{DeviceView, GpuQuery};
use tenure_domain::id::GpuId;

use crate::completion::complete_gpus;
use crate::context::Context;
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, Text, figure, text};
use crate::{resolve, units};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List devices and how much of each is used
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this node
        #[arg(long)]
        node: Option<String>,
    },
    /// Show a device, its slices and who holds them
    Show {
        /// Its id, the end of one, or the vendor's own identity of it
        #[arg(add = ArgValueCompleter::new(complete_gpus))]
        gpu: String,
    },
    /// List the receipts of scrubs between tenants, and check each
    Receipts {
        /// Only of this device
        #[arg(add = ArgValueCompleter::new(complete_gpus))]
        gpu: Option<String>,
    },
    /// Put a device that was quarantined back into service
    Release {
        #[arg(add = ArgValueCompleter::new(complete_gpus))]
        gpu: String,
    },
}

impl Command {
    pub async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = context.client()?;
        match self {
            Command::List { node } => {
                let node = match node {
                    Some(node) => Some(resolve::node(&client, &node).await?.id.to_string()),
                    None => None,
                };
                list(context, &devices(&client, node).await?)
            }
            Command::Show { gpu } => {
                let id = find(&client, &gpu).await?;
                show::show(context, &client.gpu(&id.to_string()).await?)
            }
            Command::Receipts { gpu } => {
                let only = match gpu {
                    Some(gpu) => Some(find(&client, &gpu).await?),
                    None => None,
                };
                receipts::receipts(context, &client, only).await
            }
            Command::Release { gpu } => {
                let id = find(&client, &gpu).await?;
                show::show(context, &client.release_gpu(&id.to_string()).await?)
            }
        }
    }
}

/// All devices the caller may see, or those of one node.
pub async fn devices(client: &Client, node: Option<String>) -> Result<Vec<DeviceView>, Failure> {
    resolve::all(async |cursor| {
        let query = GpuQuery {
            node: node.clone(),
            limit: Some(1000),
            cursor,
        };
        client.gpus(&query).await
    })
    .await
}

async fn find(client: &Client, text: &str) -> Result<GpuId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let all = devices(client, None).await?;
    let lower = text.to_ascii_lowercase();
    let fits = |device: &&DeviceView| {
        device.gpu.uuid == text || lower.len() >= 4 && device.gpu.id.to_string().ends_with(&lower)
    };
    let fitting: Vec<GpuId> = all.iter().filter(fits).map(|device| device.gpu.id).collect();
    match fitting[..] {
        [one] => Ok(one),
        [] => Err(
            Failure::not_found(format!("there is no GPU {text} here that you may see"))
                .hint("`tenure gpu list` shows them"),
        ),
        _ => Err(Failure::usage(format!("{} GPUs end in {text}", fitting.len())).hint("give more of the id")),
    }
}

/// What is used of it now: of the whole where that is shown, else of the slices that are.
pub fn used_mib(device: &DeviceView) -> Option<u64> {
    if device.stale {
        return None;
    }
    device
        .gauges
        .as_ref()
        .and_then(|gauges| gauges.used_vram_mib)
        .or_else(|| {
            let used = device
                .slices
                .iter()
                .filter_map(|slice| Some(slice.used.as_ref()?.used_vram_mib));
            used.reduce(|sum, more| sum + more)
        })
}

/// How much of the time it works now, in the same way.
pub fn busy_permille(device: &DeviceView) -> Option<u16> {
    if device.stale {
        return None;
    }
    device
        .gauges
        .as_ref()
        .and_then(|gauges| gauges.busy_permille)
        .or_else(|| {
            let busy = device
                .slices
                .iter()
                .filter_map(|slice| slice.used.as_ref()?.busy_permille);
            busy.reduce(|sum, more| (sum + more).min(1000))
        })
}

/// A figure, or a dash where there is none.
fn known(value: Option<String>) -> Text {
    value.map_or_else(|| figure("–").paint(Paint::Dim), figure)
}

pub fn list(context: &Context, devices: &[DeviceView]) -> Result<(), Failure> {
    let wide = context.out.wide();
    context.out.list(
        devices,
        |device| device.gpu.id.to_string(),
        "no GPU that you may see",
        |devices| {
            let warm = wide || devices.iter().any(|device| temperature(device).is_some());
            let mut head = vec!["GPU", "NODE", "CLASS"];
            head.extend(wide.then_some("MODEL"));
            head.extend(["VRAM", "GIVEN", "USED", "BUSY"]);
            head.extend(warm.then_some("TEMP"));
            head.extend(wide.then_some("POWER"));
            head.push("SLICES");
            head.extend(
                wide.then_some(["SHARE", "ISOLATION", "UUID"])
                    .into_iter()
                    .flatten(),
            );
            let mut table = Table::new(&head);
            for device in devices {
                table.row(row(device, wide, warm));
            }
            table
        },
    )
}

fn row(device: &DeviceView, wide: bool, warm: bool) -> Vec<Text> {
    let gpu = &device.gpu;
    let id = text(gpu.id.to_string()).paint(if gpu.present { Paint::Plain } else { Paint::Bad });
    let mut row = vec![id, text(&device.node_name), text(&gpu.class)];
    if wide {
        row.push(text(format!("{} {}", gpu.vendor, gpu.model)));
    }
    let busy = match (device.stale, busy_permille(device)) {
        (true, _) => figure("stale").paint(Paint::Bad),
        (_, busy) => known(busy.map(|busy| format!("{} %", busy.div_ceil(10)))),
    };
    row.extend([
        figure(units::show_mib(gpu.vram_mib)),
        figure(units::show_mib(gpu.used_vram_mib)),
        known(used_mib(device).map(units::show_mib)),
        busy,
    ]);
    if warm {
        row.push(known(temperature(device).map(|celsius| format!("{celsius} °C"))));
    }
    if wide {
        row.push(known(power_mw(device).map(show::watts)));
    }
    row.push(figure(gpu.slices));
    if wide {
        let levels: Vec<&str> = gpu.isolation.keys().map(String::as_str).collect();
        row.extend([
            figure(units::show_permille(gpu.used_permille)),
            text(levels.join(", ")),
            text(&gpu.uuid),
        ]);
    }
    row
}

pub fn temperature(device: &DeviceView) -> Option<i16> {
    device.gauges.as_ref().filter(|_| !device.stale)?.temperature_c
}

pub fn power_mw(device: &DeviceView) -> Option<u64> {
    device.gauges.as_ref().filter(|_| !device.stale)?.power_mw
}
