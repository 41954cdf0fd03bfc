//! One device: what it is, who holds which part of it, how it was used lately, and what the journal tells of it.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::Method;
use std::sync::Arc;
use tenure_api::v1::gpu::{DeviceView, Recent, SliceView};
use tenure_api::v1::node::NodeView;
use tenure_api::v1::time::Moment;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::Console;
use super::desk::piece;
use super::fault::{Page, go, page};
use super::form::Posted;
use super::frame::Frame;
use super::html::{Html, escape};
use super::memo::Note;
use super::session::Session;
use super::show;

struct Slice {
    holder: Html,
    job: Option<(String, Html)>,
    isolation: String,
    compute: String,
    busy: String,
    vram: String,
    vram_bar: Html,
    waited: String,
}

struct Told {
    at: Html,
    what: &'static str,
    more: Html,
}

#[derive(Template)]
#[template(path = "device.html")]
struct Device {
    frame: Frame,
    id: String,
    title: Html,
    facts: Vec<(&'static str, Html)>,
    health: Html,
    quarantine: Option<String>,
    may_release: bool,
    drawn: [(&'static str, Html); 2],
    slices: Vec<Slice>,
    given: String,
    recent: Vec<(String, String, String)>,
    levels: Vec<(String, String)>,
    told: Vec<Told>,
    /// The oldest event that was looked at for it.
    since: u64,
    tells: bool,
}

pub(super) async fn device(session: Session, Path(id): Path<String>) -> Page {
    let frame = Frame::of(&session, "fleet").await?;
    let view: DeviceView = session.desk.get(&format!("/v1/gpus/{}", piece(&id))).await?;
    let node = session
        .desk
        .get::<NodeView>(&format!("/v1/nodes/{}", view.node))
        .await
        .ok();
    let tells = session.may(Action::EventRead, ScopeId::Platform);
    let history = match tells {
        true => {
            let controller = &session.console.shared.app.controller;
            let found = session.console.memo.device(controller, view.gpu.id).await;
            Some(found)
        }
        false => None,
    };
    let told = history.iter().flat_map(|history| &history.found);
    let gpu = &view.gpu;
    let given: u64 = view
        .slices
        .iter()
        .map(|slice| u64::from(slice.compute_permille))
        .sum();
    page(&Device {
        title: show::name(&gpu.model),
        facts: facts(&view, node.as_ref()),
        health: health(&view),
        quarantine: gpu.quarantine.as_deref().map(super::html::inert),
        may_release: session.may(Action::NodeManage, ScopeId::Platform),
        drawn: drawn(&view),
        slices: view.slices.iter().map(slice).collect(),
        given: format!(
            "{} of compute, {} of {}",
            show::permille(given),
            show::mib(gpu.used_vram_mib),
            show::mib(gpu.vram_mib)
        ),
        recent: view.recent.as_ref().map(recent).unwrap_or_default(),
        levels: gpu
            .isolation
            .iter()
            .map(|(level, why)| (level.clone(), super::html::inert(why)))
            .collect(),
        told: told.map(|note| tell(&session, note)).collect(),
        since: history.map_or(1, |history| history.since),
        tells,
        id,
        frame,
    })
}

fn health(view: &DeviceView) -> Html {
    show::pill(match &view.gpu {
        gpu if gpu.quarantine.is_some() => "quarantined",
        gpu if !gpu.present => "absent",
        _ => "fine",
    })
}

fn facts(view: &DeviceView, node: Option<&NodeView>) -> Vec<(&'static str, Html)> {
    let gpu = &view.gpu;
    let plain = |text: String| Html::made(escape(&text));
    let mut facts = vec![
        ("Node", show::name(&view.node_name)),
        ("Class", show::name(&gpu.class)),
        ("Vendor", show::name(&gpu.vendor)),
        ("Memory", plain(show::mib(gpu.vram_mib))),
        ("Identity", show::name(&gpu.uuid)),
    ];
    if let Some(node) = node {
        facts.push((
            "Node state",
            show::pill(&format!("{:?}", node.status).to_lowercase()),
        ));
        facts.extend(
            node.labels
                .region
                .as_deref()
                .map(|region| ("Region", show::name(region))),
        );
        facts.extend(
            node.labels
                .block
                .as_deref()
                .map(|block| ("Block", show::name(block))),
        );
    }
    if let Some(hardware) = &gpu.hardware {
        facts.extend(hardware.pci.as_deref().map(|pci| ("PCI", show::name(pci))));
        facts.extend(
            hardware
                .driver
                .as_deref()
                .map(|driver| ("Driver", show::name(driver))),
        );
        facts.extend(
            hardware
                .architecture
                .as_deref()
                .map(|arch| ("Architecture", show::name(arch))),
        );
        facts.extend(
            hardware
                .partitioning
                .as_ref()
                .map(|parts| ("Partitioning", show::name(&parts.mode))),
        );
    }
    if let Some(gauges) = &view.gauges {
        facts.extend(
            gauges
                .busy_permille
                .map(|busy| ("Busy now", plain(show::permille(busy.into())))),
        );
        facts.extend(
            gauges
                .used_vram_mib
                .map(|used| ("Memory in use", plain(show::mib(used)))),
        );
        facts.extend(
            gauges
                .temperature_c
                .map(|c| ("Temperature", plain(format!("{c}\u{a0}°C")))),
        );
        facts.extend(
            gauges
                .power_mw
                .map(|mw| ("Power", plain(format!("{}\u{a0}W", mw / 1000)))),
        );
        facts.extend(gauges.ecc_uncorrected.map(|errors| {
            (
                "Memory errors",
                plain(format!("{} uncorrected", show::count(errors))),
            )
        }));
        if let Some(by) = gauges.throttled_by.as_ref().filter(|by| !by.is_empty()) {
            let by: Vec<&str> = by.iter().map(|by| by.as_str()).collect();
            facts.push(("Held down by", plain(by.join(", "))));
        }
    }
    if let Some(read) = &view.read {
        facts.push(("Read", show::time(read)));
    }
    facts
}

/// The device's compute and memory to scale: each slice with its share, and how much of that is in use.
fn drawn(view: &DeviceView) -> [(&'static str, Html); 2] {
    let compute = |slice: &SliceView| {
        let busy = slice.used.as_ref().and_then(|used| used.busy_permille);
        (u64::from(slice.compute_permille), u64::from(busy.unwrap_or(0)))
    };
    let memory = |slice: &SliceView| {
        let used = slice.used.as_ref().map_or(0, |used| used.used_vram_mib);
        (slice.vram_mib, used)
    };
    [
        ("Compute", strip(view, 1000, compute)),
        ("Memory", strip(view, view.gpu.vram_mib, memory)),
    ]
}

/// One measure of a device: of all there is, what each slice was given and uses.
fn strip(view: &DeviceView, all: u64, of: impl Fn(&SliceView) -> (u64, u64)) -> Html {
    let wide = |part: u64| (u128::from(part) * 10_000 / u128::from(all.max(1))).min(10_000) as f64 / 10.0;
    let mut out = String::from(
        "<svg class=\"slices\" viewBox=\"0 0 1000 28\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"of\" width=\"1000\" height=\"28\"/>",
    );
    let mut x = 0.0;
    for (number, slice) in view.slices.iter().enumerate() {
        let (given, used) = of(slice);
        let width = wide(given);
        let used = wide(used).min(width);
        let class = if slice.holder.is_some() {
            format!("h{}", number % 10)
        } else {
            "other".into()
        };
        out.push_str(&format!(
            "<rect class=\"{class} given\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"28\"/>"
        ));
        out.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" width=\"{used:.1}\" height=\"28\"/>"
        ));
        x += width;
    }
    out.push_str("</svg>");
    Html::made(out)
}

fn slice(slice: &SliceView) -> Slice {
    let used = slice.used.as_ref();
    let share = |share: Option<u16>| share.map_or("–".into(), |share| show::permille(share.into()));
    let holder = slice.holder.as_ref();
    Slice {
        holder: holder.map_or_else(
            || Html::made("<span class=\"soft\">in use</span>".into()),
            |holder| show::name(&holder.owner_path),
        ),
        job: holder.map(|holder| (holder.job.to_string(), show::name(&holder.job_name))),
        isolation: holder.map_or("–".into(), |holder| holder.isolation.as_str().into()),
        compute: show::permille(slice.compute_permille.into()),
        busy: share(used.and_then(|used| used.busy_permille)),
        vram: match used {
            Some(used) => format!(
                "{} of {}",
                show::mib(used.used_vram_mib),
                show::mib(slice.vram_mib)
            ),
            None => show::mib(slice.vram_mib),
        },
        vram_bar: show::bar(used.map_or(0, |used| used.used_vram_mib), slice.vram_mib),
        waited: share(used.and_then(|used| used.waited_permille)),
    }
}

/// Rows of the last minutes: when, how busy, how much memory.
fn recent(recent: &Recent) -> Vec<(String, String, String)> {
    let steps = recent.busy_permille.len();
    let rows = recent.busy_permille.iter().zip(&recent.used_vram_mib).enumerate();
    rows.map(|(at, (busy, used))| {
        let ago_s = (steps - 1 - at) as u64 * u64::from(recent.step_s);
        (
            match ago_s {
                0 => "now".to_owned(),
                ago_s => format!("{ago_s} s ago"),
            },
            busy.map_or(String::new(), |busy| format!("{}.{}", busy / 10, busy % 10)),
            used.map_or(String::new(), |used| used.to_string()),
        )
    })
    .collect()
}

fn tell(session: &Session, note: &Note) -> Told {
    Told {
        at: show::time(&Moment(note.at)),
        what: note.what,
        more: show::name(&match note.what {
            "Released" => format!("by {}", session.named(&note.more)),
            _ => note.more.clone(),
        }),
    }
}

/// Puts a device that was quarantined back into service.
pub(super) async fn release(State(_): State<Arc<Console>>, Path(id): Path<String>, posted: Posted) -> Page {
    let id = piece(&id);
    posted
        .session
        .desk
        .act(Method::POST, &format!("/v1/gpus/{id}/release"))
        .await?;
    Ok(go(&format!("/console/fleet/{id}")))
}
