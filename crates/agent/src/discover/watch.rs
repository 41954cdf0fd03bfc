//! Hot-plug and loss: when to look around again before it is time to.
//!
//! The kernel says so (`uevent`), or a cheap signature of what is there changed: names of cards and device files,
//! modes and parts, installed OpenCL drivers, and whether each card still answers on the bus. No driver is asked for
//! it. Deliberately absent: what was found, and what becomes of jobs on a device that went.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::drm;
use super::pci::PciBus;
use super::setting::Setting;
use super::uevent::Uevents;

const POLL: Duration = Duration::from_secs(2);
/// A device comes with several events, and its files a moment later.
const SETTLE: Duration = Duration::from_millis(500);

/// What can be seen without asking a driver, as lines.
type Signature = Vec<String>;

pub struct Watch {
    setting: Setting,
    uevents: Option<Uevents>,
    known: Signature,
}

impl Watch {
    /// Call within a runtime, before the first look around, so that nothing is missed between.
    pub fn begin(setting: &Setting) -> Watch {
        let uevents = Uevents::listen()
            .inspect_err(
                |error| tracing::info!(%error, "the kernel's news of devices cannot be heard; polling only"),
            )
            .ok();
        Watch {
            known: signature(setting),
            setting: setting.clone(),
            uevents,
        }
    }

    /// Waits until something may have come or gone. May be dropped and called again at any time.
    pub async fn changed(&mut self) {
        loop {
            let told = tokio::select! {
                told = next(self.uevents.as_ref()) => told,
                () = tokio::time::sleep(POLL) => Ok(false),
            };
            let told = told.unwrap_or_else(|error| {
                tracing::info!(%error, "the kernel's news of devices cannot be heard any more; polling only");
                self.uevents = None;
                false
            });
            if told || self.see().await {
                tokio::time::sleep(SETTLE).await;
                self.see().await;
                return;
            }
        }
    }

    /// Takes in what is there now; whether that is news.
    async fn see(&mut self) -> bool {
        let setting = self.setting.clone();
        // A card that is dying may hold the reader up; that must not hold up the runtime.
        let Ok(now) = tokio::task::spawn_blocking(move || signature(&setting)).await else {
            return false;
        };
        let news = now != self.known;
        self.known = now;
        news
    }
}

/// True at the kernel's word; never without a socket.
async fn next(uevents: Option<&Uevents>) -> std::io::Result<bool> {
    match uevents {
        Some(uevents) => uevents.next().await.map(|()| true),
        None => std::future::pending().await,
    }
}

fn signature(setting: &Setting) -> Signature {
    let (root, sys) = (&setting.root, setting.sys());
    let mut lines = Vec::new();
    let list = |lines: &mut Signature, dir: PathBuf, prefix: &str| {
        let names = drm::names(&dir);
        let names = names.into_iter().filter(|name| name.starts_with(prefix));
        lines.extend(names.map(|name| dir.join(name).display().to_string()));
    };
    list(&mut lines, sys.join("class/drm"), "card");
    list(&mut lines, sys.join("class/drm"), "renderD");
    list(&mut lines, sys.join("class/kfd/kfd/topology/nodes"), "");
    list(&mut lines, root.join("dev"), "nvidia");
    list(&mut lines, root.join("proc/driver/nvidia/gpus"), "");
    // One directory for each instance that MIG has cut.
    let capabilities = root.join("proc/driver/nvidia/capabilities");
    for gpu in drm::names(&capabilities) {
        list(&mut lines, capabilities.join(gpu).join("mig"), "gi");
    }
    list_changed(&mut lines, &root.join("etc/OpenCL/vendors"));
    let bus = PciBus::below(&sys);
    for card in drm::cards(&sys) {
        let mode = drm::text(&card.device().join("current_compute_partition"));
        lines.push(format!(
            "{} {} {}",
            card.pci,
            bus.answers(card.pci),
            mode.unwrap_or_default()
        ));
    }
    for gpu in drm::names(&root.join("proc/driver/nvidia/gpus")) {
        if let Ok(pci) = gpu.parse() {
            lines.push(format!("{gpu} {}", bus.answers(pci)));
        }
    }
    lines
}

/// Names with the time of their last change: a driver may be replaced under its name.
fn list_changed(lines: &mut Signature, dir: &Path) {
    for name in drm::names(dir) {
        let changed = std::fs::metadata(dir.join(&name)).and_then(|file| file.modified());
        lines.push(format!("{name} {changed:?}"));
    }
}
