//! Health: nodes and devices that are not as they should be, what the journal tells of them, and what operators do about
//! it. For who may see the fleet.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::Method;
use tenure_api::v1::event::EventView;
use tenure_api::v1::node::NodeView;
use tenure_api::v1::page::Page as List;
use tenure_domain::schedule::fleet::NodeStatus;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::Console;
use super::desk::piece;
use super::fault::{Fault, Page, go, page};
use super::form::Posted;
use super::frame::Frame;
use super::html::{Html, escape};
use super::session::Session;
use super::show;

const NODES: u32 = 500;
const TOLD: usize = 40;

struct Node {
    id: String,
    name: Html,
    status: Html,
    labels: String,
    gpus: String,
    trouble: Html,
    cpu: Html,
    memory: Html,
    jobs: u32,
    joined: Html,
    cordoned: bool,
}

struct Told {
    at: Html,
    what: String,
    of: Html,
    more: Html,
}

#[derive(Template)]
#[template(path = "health.html")]
struct Health {
    frame: Frame,
    figures: Vec<(&'static str, String, String)>,
    nodes: Vec<Node>,
    more: bool,
    told: Vec<Told>,
    /// The oldest event that was looked at for it.
    since: u64,
    may_act: bool,
}

pub(super) async fn health(session: Session) -> Page {
    let frame = Frame::of(&session, "health").await?;
    let found: List<NodeView> = session.desk.get(&format!("/v1/nodes?limit={NODES}")).await?;
    let tells = session.may(Action::EventRead, ScopeId::Platform);
    let told = match tells {
        true => {
            let controller = &session.console.shared.app.controller;
            Some(session.console.memo.incidents(controller, TOLD).await)
        }
        false => None,
    };
    let mut nodes: Vec<&NodeView> = found.items.iter().collect();
    nodes.sort_by_key(|node| {
        (
            node.status == NodeStatus::Up && troubles(node) == 0,
            node.name.clone(),
        )
    });
    page(&Health {
        figures: figures(&found.items),
        told: told
            .iter()
            .flat_map(|told| &told.found)
            .map(|event| tell(event, &found.items))
            .collect(),
        since: told.map_or(1, |told| told.since),
        nodes: nodes.into_iter().map(row).collect(),
        more: found.next.is_some(),
        may_act: session.may(Action::NodeManage, ScopeId::Platform),
        frame,
    })
}

fn troubles(node: &NodeView) -> usize {
    node.gpus
        .iter()
        .filter(|gpu| gpu.quarantine.is_some() || !gpu.present)
        .count()
}

fn figures(nodes: &[NodeView]) -> Vec<(&'static str, String, String)> {
    let of = |status: NodeStatus| nodes.iter().filter(|node| node.status == status).count() as u64;
    let gpus = nodes.iter().flat_map(|node| &node.gpus);
    let quarantined = gpus.clone().filter(|gpu| gpu.quarantine.is_some()).count() as u64;
    let absent = gpus.clone().filter(|gpu| !gpu.present).count() as u64;
    vec![
        (
            "Nodes up",
            show::count(of(NodeStatus::Up)),
            format!("of {}", show::count(nodes.len() as u64)),
        ),
        ("Away", show::count(of(NodeStatus::Lost)), "lease ran out".into()),
        (
            "Cordoned",
            show::count(of(NodeStatus::Cordoned)),
            "take no new work".into(),
        ),
        (
            "GPUs in quarantine",
            show::count(quarantined),
            format!(
                "of {}, {} absent",
                show::count(gpus.count() as u64),
                show::count(absent)
            ),
        ),
    ]
}

fn row(node: &NodeView) -> Node {
    let labels = [node.labels.region.as_deref(), node.labels.block.as_deref()];
    let labels: Vec<String> = labels.into_iter().flatten().map(super::html::inert).collect();
    let troubled = node
        .gpus
        .iter()
        .filter(|gpu| gpu.quarantine.is_some() || !gpu.present);
    let trouble: Vec<String> = troubled
        .take(4)
        .map(|gpu| {
            let why = gpu
                .quarantine
                .as_deref()
                .unwrap_or("no longer listed by its node");
            format!(
                "<a class=\"mono\" href=\"/console/fleet/{0}\">{0}</a> {1}",
                gpu.id,
                show::name(why)
            )
        })
        .collect();
    Node {
        id: node.id.to_string(),
        name: show::name(&node.name),
        status: show::pill(match node.status {
            NodeStatus::Up => "up",
            NodeStatus::Lost => "away",
            NodeStatus::Cordoned => "cordoned",
        }),
        labels: if labels.is_empty() {
            "–".into()
        } else {
            labels.join(", ")
        },
        gpus: show::count(node.gpus.len() as u64),
        trouble: if trouble.is_empty() {
            show::none()
        } else {
            Html::made(trouble.join("<br>"))
        },
        cpu: show::bar(node.used_cpu_milli.into(), node.cpu_milli.into()),
        memory: show::bar(node.used_memory_mib, node.memory_mib),
        jobs: node.allocations,
        joined: show::time(&node.joined),
        cordoned: node.status == NodeStatus::Cordoned,
    }
}

fn tell(event: &EventView, nodes: &[NodeView]) -> Told {
    let data = &event.data;
    let node = data["node"].as_str().unwrap_or_default();
    let known = nodes.iter().find(|of| of.id.to_string() == node);
    let of = match (data["gpu"].as_str(), data["job"].as_str()) {
        (Some(gpu), _) => Html::made(format!(
            "<a class=\"mono\" href=\"/console/fleet/{0}\">{0}</a>",
            escape(gpu)
        )),
        (None, Some(job)) => Html::made(format!(
            "<a class=\"mono\" href=\"/console/jobs/{0}\">{0}</a>",
            escape(job)
        )),
        (None, None) => show::name(known.map_or(node, |node| &node.name)),
    };
    let why = data["why"].as_str().or(data["anomaly"]["why"].as_str());
    Told {
        at: show::time(&event.at),
        what: apart(&event.kind),
        of,
        more: why.map_or_else(show::none, show::name),
    }
}

/// `NodeLost` as `Node lost`.
pub(super) fn apart(kind: &str) -> String {
    let mut out = String::new();
    for letter in kind.chars() {
        match letter.is_ascii_uppercase() && !out.is_empty() {
            true => {
                out.push(' ');
                out.push(letter.to_ascii_lowercase());
            }
            false => out.push(letter),
        }
    }
    out
}

/// Takes a node out of service, or puts it back.
pub(super) async fn act(
    State(_): State<Arc<Console>>,
    Path((node, what)): Path<(String, String)>,
    posted: Posted,
) -> Page {
    if !matches!(what.as_str(), "cordon" | "uncordon") {
        return Err(Fault::not_found());
    }
    let path = format!("/v1/nodes/{}/{what}", piece(&node));
    posted.session.desk.act(Method::POST, &path).await?;
    Ok(go("/console/health"))
}
