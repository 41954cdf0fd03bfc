//! `tenure-agent run`: joins if it must, takes over what runs, and speaks with the server until it is stopped.
//! SIGTERM stops no job: each has its thin parent, and the lease decides. Ctrl-C ends what runs first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_api::channel::RunState;
use tenure_api::token::JoinTicket;
use tenure_domain::workload::job::StopReason;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::channel::{self, ChannelConfig};
use crate::discover::{self, Found, setting::Setting, watch::Watch};
use crate::identity::{Identity, IdentityError};
use crate::isolate::Isolation;
use crate::node::{Node, NodeConfig, Wish};
use crate::state_dir::StateDir;

const LOOK_AROUND: Duration = Duration::from_secs(300);
/// When a driver did not answer, sooner.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Slices of what ended leave their devices at least this often, and the dead are counted out.
const CLEAR: Duration = Duration::from_secs(1);
/// What holds too much is ended within a second.
const WATCH: Duration = Duration::from_millis(200);
/// How often devices and slices are read.
const MEASURE: Duration = Duration::from_secs(1);
const PRUNE: Duration = Duration::from_secs(600);
const JOIN_PAUSE: Duration = Duration::from_secs(1);
/// How long jobs get, and how long they are waited for, when a person stops the agent.
const END_GRACE_S: u32 = 5;
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How an agent is run.
#[derive(Debug, Clone)]
pub struct RunConfig {
    pub state_dir: PathBuf,
    pub name: String,
    /// Only asked for when the node has not joined.
    pub ticket: Option<JoinTicket>,
    pub discover: Setting,
    pub node: NodeConfig,
    pub channel: ChannelConfig,
}

/// Runs until told to stop.
pub async fn run(config: RunConfig) -> anyhow::Result<()> {
    // Before there are any: where the kernel cannot keep jobs from cutting their pages short, the agent lives on.
    tenure_limits::outlive_cut_pages();
    let dir = Arc::new(StateDir::open(&config.state_dir)?);
    let isolation = tokio::task::spawn_blocking(Isolation::of_this_host).await?;
    for note in &isolation.notes {
        tracing::info!("{note}");
    }
    // Before the server is spoken to: what runs is known first.
    let node = Node::open(dir.clone(), config.node.clone(), isolation)?;
    let identity = identity(dir.root(), &config).await?;

    let host_id = host_id(dir.root())?;
    let (inventory, inventories) = watch::channel(tenure_domain::schedule::fleet::Inventory::default());
    let mut watch = Watch::begin(&config.discover);
    let mut whole = look_around(&node, &config.discover, &host_id, &inventory).await;
    tokio::spawn({
        let node = node.clone();
        async move {
            loop {
                let pause = if whole { LOOK_AROUND } else { LOOK_AGAIN };
                tokio::select! {
                    _ = tokio::time::timeout(pause, watch.changed()) => {
                        whole = look_around(&node, &config.discover, &host_id, &inventory).await;
                    }
                    () = node.images.changed() => tell_images(&node, &inventory).await,
                }
            }
        }
    });
    tokio::spawn({
        let node = node.clone();
        async move {
            loop {
                let node = node.clone();
                let pruned = tokio::task::spawn_blocking(move || {
                    if let Err(error) = node.images.collect() {
                        tracing::warn!(%error, "could not remove old images");
                    }
                    node.prune_logs()
                });
                if let Ok(Err(error)) = pruned.await {
                    tracing::warn!(%error, "could not prune old logs");
                }
                tokio::time::sleep(PRUNE).await;
            }
        }
    });
    tokio::spawn({
        let node = node.clone();
        async move {
            loop {
                tokio::time::sleep(CLEAR).await;
                let node = node.clone();
                let _ = tokio::task::spawn_blocking(move || {
                    node.clear_slices();
                    node.clear_parts();
                    node.clear_mps();
                })
                .await;
            }
        }
    });
    tokio::spawn({
        let node = node.clone();
        async move {
            let mut ticks = tokio::time::interval(MEASURE);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let node = node.clone();
                let _ = tokio::task::spawn_blocking(move || node.measure()).await;
            }
        }
    });
    tokio::spawn({
        let node = node.clone();
        async move {
            loop {
                tokio::time::sleep(WATCH).await;
                let node = node.clone();
                let _ = tokio::task::spawn_blocking(move || node.watch_use()).await;
            }
        }
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        () = channel::keep(node.clone(), identity, config.channel, inventories) => {}
        _ = terminate.recv() => tracing::info!("stopping; what runs goes on while the lease lasts"),
        _ = interrupt.recv() => end_all(&node).await,
    }
    Ok(())
}

/// A person at the terminal wants nothing left behind: what runs is ended, and goes back to the queue when this
/// node is next heard of.
async fn end_all(node: &Arc<Node>) {
    let living = || {
        node.table
            .whole()
            .into_iter()
            .filter(|report| matches!(report.state, RunState::Starting | RunState::Running))
    };
    for report in living() {
        let wish = Wish::Stop {
            allocation: report.allocation,
            reason: StopReason::Evicted,
            grace_s: END_GRACE_S,
        };
        if let Err(error) = node.grant(wish) {
            tracing::warn!(%error, allocation = %report.allocation, "could not ask for the end; the lease will end it");
        }
    }
    let begun = std::time::Instant::now();
    while living().next().is_some() && begun.elapsed() < END_PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn identity(root: &Path, config: &RunConfig) -> Result<Identity, IdentityError> {
    if let Some(identity) = Identity::load(root)? {
        return Ok(identity);
    }
    let ticket = config.ticket.as_ref().ok_or(IdentityError::NotJoined)?;
    loop {
        match Identity::join(root, &config.channel.server, &config.name, ticket).await {
            Err(error) if error.is_passing() => {
                tracing::warn!(error = &error as &dyn std::error::Error, "could not join yet");
                tokio::time::sleep(JOIN_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Looks and tells the server what is new. Whether every driver answered.
async fn look_around(
    node: &Arc<Node>,
    setting: &Setting,
    host_id: &str,
    inventory: &watch::Sender<tenure_domain::schedule::fleet::Inventory>,
) -> bool {
    let (setting, host_id) = (setting.clone(), host_id.to_owned());
    let Ok(mut found) = tokio::task::spawn_blocking(move || discover::all(&setting, &host_id)).await else {
        return false;
    };
    if node.config().mps.is_some() {
        found.with_mps();
    }
    if node.config().guard.is_none() {
        found.without_guard("there is no guard library to rely on");
    }
    if !node.isolation.namespaces.own {
        found.without_trees();
    }
    if let Some(why) = node.no_workers() {
        found.without_broker(&why);
    }
    if !node.isolation.root {
        found.without_parts(discover::PARTS_BY_ROOT);
    }
    node.hide_parts(&mut found);
    tell_people(&node.found(), &found);
    let whole = !found.incomplete;
    let mut told = found.inventory();
    told.images.clone_from(&inventory.borrow().images);
    told.volume_mib = node.volumes.space_mib();
    node.set_found(Arc::new(found));
    tell(inventory, told);
    tell_images(node, inventory).await;
    whole
}

/// Says which images are here; also those that `tenure-agent image` brought or removed meanwhile.
async fn tell_images(node: &Arc<Node>, inventory: &watch::Sender<tenure_domain::schedule::fleet::Inventory>) {
    let images = node.images.clone();
    let Ok(images) = tokio::task::spawn_blocking(move || images.known()).await else {
        return;
    };
    let mut told = inventory.borrow().clone();
    told.images = images;
    tell(inventory, told);
}

fn tell(
    inventory: &watch::Sender<tenure_domain::schedule::fleet::Inventory>,
    told: tenure_domain::schedule::fleet::Inventory,
) {
    inventory.send_if_modified(|known| {
        let news = *known != told;
        *known = told;
        news
    });
}

/// The first look says what is there; later ones what changed.
fn tell_people(before: &Found, now: &Found) {
    let first = before.cpu_milli == 0;
    for note in now.notes.iter().filter(|note| !before.notes.contains(note)) {
        if first {
            tracing::debug!("{note}");
        } else {
            tracing::info!("{note}");
        }
    }
    for (one, other, came) in [(before, now, false), (now, before, true)] {
        let only_here = |device: &&discover::Device| other.device(&device.facts.uuid).is_none();
        for device in one.devices.iter().filter(only_here).filter(|_| !first) {
            let (uuid, model) = (&device.facts.uuid, &device.facts.model);
            if came {
                tracing::info!(uuid, model, "a device came");
            } else {
                tracing::warn!(uuid, model, "a device went");
            }
        }
    }
}

/// A name for this machine's devices that no other machine has.
fn host_id(root: &Path) -> std::io::Result<String> {
    let path = root.join("host.id");
    if let Ok(known) = std::fs::read_to_string(&path) {
        return Ok(known.trim().to_owned());
    }
    let mut bytes = [0; 6];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    crate::record::write_synced(root, "host.id", id.as_bytes())?;
    Ok(id)
}
