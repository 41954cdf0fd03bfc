//! Receipts of scrubs, each checked here against the keys the journal says its node had.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use tenure_api::client::Client;
use tenure_api::seal;
use tenure_api::v1::event::{EventQuery, EventView};
use tenure_api::v1::time::Moment;
use tenure_domain::id::{GpuId, NodeId};
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::tenancy::key::Digest;

use crate::context::Context;
use crate::moment::{full, now};
use crate::output::Paint;
use crate::refusal::Failure;
use crate::table::{Table, figure, text};
use crate::units;

const KINDS: &str = "NodeJoined,NodeKeyAdded,DeviceScrubbed";

/// A receipt and what came of checking it.
#[derive(Debug, Serialize)]
struct Checked {
    seq: u64,
    at: Moment,
    node: NodeId,
    gpu: GpuId,
    /// Signed by a key the node had.
    verified: bool,
    receipt: Receipt,
}

#[derive(Deserialize)]
struct Keyed {
    node: NodeId,
    key: Digest,
}

#[derive(Deserialize)]
struct Scrubbed {
    node: NodeId,
    gpu: GpuId,
    receipt: Receipt,
}

/// Shows the receipts of all devices, or of one. One that does not hold is an error.
pub async fn receipts(context: &Context, client: &Client, only: Option<GpuId>) -> Result<(), Failure> {
    let query = EventQuery {
        from: Some(1),
        follow: Some(false),
        kinds: Some(KINDS.to_owned()),
        ..EventQuery::default()
    };
    let mut keys: BTreeMap<NodeId, BTreeSet<Digest>> = BTreeMap::new();
    let mut checked = Vec::new();
    let mut events = std::pin::pin!(client.events(&query, None).await?);
    while let Some(event) = events.next().await {
        take(event?, &mut keys, &mut checked)?;
    }
    checked.retain(|receipt| only.is_none_or(|only| receipt.gpu == only));
    context.out.list(
        &checked,
        |receipt| receipt.seq.to_string(),
        "no device was handed from one tenant to another yet",
        table,
    )?;
    match checked.iter().filter(|receipt| !receipt.verified).count() {
        0 => Ok(()),
        wrong => Err(Failure::Local(format!(
            "{wrong} of {} receipts do not hold",
            checked.len()
        ))),
    }
}

fn take(
    event: EventView,
    keys: &mut BTreeMap<NodeId, BTreeSet<Digest>>,
    checked: &mut Vec<Checked>,
) -> Result<(), Failure> {
    let unread = |error: serde_json::Error| Failure::Local(format!("event {}: {error}", event.seq));
    if event.kind != "DeviceScrubbed" {
        let keyed: Keyed = serde_json::from_value(event.data).map_err(unread)?;
        keys.entry(keyed.node).or_default().insert(keyed.key);
        return Ok(());
    }
    let Scrubbed { node, gpu, receipt } = serde_json::from_value(event.data).map_err(unread)?;
    let own = keys.get(&node).is_some_and(|keys| keys.contains(&receipt.key));
    checked.push(Checked {
        seq: event.seq,
        at: event.at,
        node,
        gpu,
        verified: own && seal::check_receipt(&receipt).is_ok(),
        receipt,
    });
    Ok(())
}

fn table(receipts: &[Checked]) -> Table {
    let mut table = Table::new(&[
        "WHEN", "GPU", "FROM", "TO", "BYTES", "LOCAL", "TOOK", "RESULT", "SIGNED",
    ]);
    for Checked {
        at,
        gpu,
        verified,
        receipt,
        ..
    } in receipts
    {
        let from: Vec<&str> = receipt.from.iter().map(String::as_str).collect();
        let result = match (&receipt.fault, receipt.missed_bytes) {
            (None, 0) => text("clean").paint(Paint::Good),
            (None, missed) => text(format!(
                "clean but {} its driver keeps",
                units::show_mib(missed.div_ceil(1 << 20))
            ))
            .paint(Paint::Good),
            (Some(why), _) => text(why.as_str()).paint(Paint::Bad),
        };
        table.row(vec![
            text(full(*at, now())),
            text(gpu.to_string()),
            text(from.join(", ")),
            text(receipt.to.as_str()),
            figure(units::show_mib(receipt.bytes >> 20)),
            figure(format!(
                "{} × {} KiB",
                receipt.compute_units,
                receipt.local_bytes >> 10
            )),
            figure(format!("{} ms", receipt.took_ms)),
            result,
            match verified {
                true => text("yes").paint(Paint::Good),
                false => text("NO").paint(Paint::Bad),
            },
        ]);
    }
    table
}
