//! What the journal was found to tell of devices, nodes and jobs, remembered for all who look: each look reads what is new,
//! and a bounded way further back, until the whole journal was looked through once. Absent: who may see it, which the
//! pages ask. Nothing durable: a process that begins anew looks anew.

mod way;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_api::v1::event::EventView;
use tenure_api::v1::time::Moment;
use tenure_domain::id::GpuId;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::{Event, Time};
use tenure_journal::Line;
use tokio::sync::Mutex;

use super::show;
use crate::controller::Controller;
use crate::routes::event::data;

pub(super) use way::{Span, Trodden, since};

/// Events read at once, and how long one look may take.
const STRETCH: usize = 1000;
const PATIENCE: Duration = Duration::from_millis(150);
/// What is kept of one device, of all devices, and of incidents.
const OF_DEVICE: usize = 50;
const OF_DEVICES: usize = 200_000;
const INCIDENTS: usize = 200;

/// What happened to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub at: Time,
    pub what: &'static str,
    /// Text of others, as it stands.
    pub more: String,
}

#[derive(Default)]
pub(super) struct Memo {
    seen: Mutex<Seen>,
    ways: Mutex<way::Ways>,
}

#[derive(Default)]
struct Seen {
    /// The first and last event looked at; none yet where the last is 0.
    low: u64,
    high: u64,
    /// Somebody goes on looking back.
    is_going: bool,
    /// Newest first.
    devices: HashMap<GpuId, VecDeque<Note>>,
    of_devices: usize,
    incidents: VecDeque<EventView>,
}

/// What was found so far, and the oldest event that was looked at.
pub(super) struct Found<T> {
    pub found: Vec<T>,
    pub since: u64,
}

impl Memo {
    /// What happened to a device, newest first.
    pub async fn device(self: &Arc<Self>, controller: &Controller, gpu: GpuId) -> Found<Note> {
        let seen = self.look(controller).await;
        let found = seen.devices.get(&gpu).into_iter().flatten().cloned().collect();
        Found {
            found,
            since: seen.low,
        }
    }

    /// The newest incidents of nodes and devices.
    pub async fn incidents(self: &Arc<Self>, controller: &Controller, most: usize) -> Found<EventView> {
        let seen = self.look(controller).await;
        Found {
            found: seen.incidents.iter().take(most).cloned().collect(),
            since: match seen.incidents.len() < most {
                true => seen.low,
                false => 1,
            },
        }
    }

    /// What a job did from when to when.
    pub async fn way(&self, controller: &Controller, job: &tenure_api::v1::job::JobView) -> Trodden {
        self.ways.lock().await.look(controller, job).await
    }

    /// Reads what is new, and further back as long as patience lasts; the rest is left to somebody who takes their time.
    async fn look(self: &Arc<Self>, controller: &Controller) -> tokio::sync::MutexGuard<'_, Seen> {
        let mut seen = self.seen.lock().await;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && seen.step(controller).await {}
        if seen.is_behind(controller) && !seen.is_going {
            seen.is_going = true;
            tokio::spawn(go_on(self.clone(), controller.clone()));
        }
        seen
    }
}

/// Looks further until all was looked through, a fifth of the time, so that nobody waits for it.
async fn go_on(memo: Arc<Memo>, controller: Controller) {
    loop {
        let begun = Instant::now();
        {
            let mut seen = memo.seen.lock().await;
            if !seen.step(&controller).await {
                seen.is_going = false;
                return;
            }
        }
        tokio::time::sleep(begun.elapsed() * 4).await;
    }
}

impl Seen {
    fn is_behind(&self, controller: &Controller) -> bool {
        self.high < controller.view().seq() || (self.low > 1 && self.of_devices < OF_DEVICES)
    }

    /// One stretch, of what is new or else of what is older; false where there is none, or it cannot be read.
    async fn step(&mut self, controller: &Controller) -> bool {
        let head = controller.view().seq();
        if self.high == 0 {
            (self.low, self.high) = (head + 1, head);
        }
        if !self.is_behind(controller) {
            return false;
        }
        let newer = self.high < head;
        let (from, many) = match newer {
            true => (self.high + 1, (head - self.high).min(STRETCH as u64)),
            false => (
                self.low.saturating_sub(STRETCH as u64).max(1),
                (self.low - 1).min(STRETCH as u64),
            ),
        };
        let Ok(lines) = controller.reader().read(from, many as usize).await else {
            return false;
        };
        if lines.len() < many as usize {
            return false;
        }
        match newer {
            true => {
                lines.iter().for_each(|line| self.take(line, true));
                self.high += many;
            }
            false => {
                lines.iter().rev().for_each(|line| self.take(line, false));
                self.low = from;
            }
        }
        true
    }

    /// Takes in what a line tells, as the newest or as the oldest so far.
    fn take(&mut self, line: &Line, newer: bool) {
        if !is_told(&line.event) {
            return;
        }
        let Ok(event) = serde_json::from_str::<Event>(&line.event) else {
            return;
        };
        if let Some((gpu, note)) = note(line, &event) {
            self.keep(gpu, note, newer);
        }
        if matches!(event, Event::DeviceScrubbed { .. }) {
            return;
        }
        let view = EventView {
            seq: line.seq,
            at: Moment(Time(line.at_ms)),
            by: line.by.clone(),
            request_id: None,
            kind: event.kind().to_owned(),
            data: data(&event),
        };
        match newer {
            true => {
                self.incidents.push_front(view);
                self.incidents.truncate(INCIDENTS);
            }
            false if self.incidents.len() < INCIDENTS => self.incidents.push_back(view),
            false => {}
        }
    }

    fn keep(&mut self, gpu: GpuId, note: Note, newer: bool) {
        let notes = self.devices.entry(gpu).or_default();
        if newer {
            notes.push_front(note);
            self.of_devices += 1;
            if notes.len() > OF_DEVICE || self.of_devices > OF_DEVICES {
                notes.pop_back();
                self.of_devices -= 1;
            }
        } else if notes.len() < OF_DEVICE && self.of_devices < OF_DEVICES {
            notes.push_back(note);
            self.of_devices += 1;
        }
    }
}

/// Kinds that are taken in; an event's text begins with its kind.
const TOLD: &[&str] = &[
    "DeviceScrubbed",
    "GpuQuarantined",
    "GpuReleased",
    "NodeJoined",
    "NodeLost",
    "NodeReturned",
    "NodeCordoned",
    "NodeUncordoned",
    "NodeRemoved",
    "NodeKeyRevoked",
    "AnomalyFound",
];

/// An event's kind, read from its text.
fn kind(text: &str) -> &str {
    text.strip_prefix("{\"")
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_default()
}

fn is_told(text: &str) -> bool {
    TOLD.contains(&kind(text))
}

/// What an event tells of a device.
fn note(line: &Line, event: &Event) -> Option<(GpuId, Note)> {
    let (gpu, what, more) = match event {
        Event::DeviceScrubbed { gpu, receipt, .. } => match &receipt.fault {
            Some(fault) => (*gpu, "Not clean", fault.clone()),
            None => (*gpu, "Scrubbed", scrubbed(receipt)),
        },
        Event::GpuQuarantined { gpu, why, .. } => (*gpu, "Quarantined", why.clone()),
        Event::GpuReleased { gpu, .. } => (*gpu, "Released", line.by.clone()),
        _ => return None,
    };
    let at = Time(line.at_ms);
    Some((gpu, Note { at, what, more }))
}

fn scrubbed(receipt: &Receipt) -> String {
    let checked = match tenure_api::seal::check_receipt(receipt) {
        Ok(()) => "signed by its node",
        Err(_) => "its signature does not hold",
    };
    format!(
        "receipt {}: {} overwritten and read back in {}, {checked}",
        receipt.number,
        show::mib(receipt.bytes >> 20),
        show::span(receipt.took_ms)
    )
}
