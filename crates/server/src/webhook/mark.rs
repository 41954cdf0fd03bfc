//! How far each webhook has come, in memory, and as it is written down.

use std::collections::HashMap;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tenure_domain::Time;
use tenure_domain::id::WebhookId;
use tenure_domain::tenancy::webhook::Webhook;
use tenure_journal::{JournalError, JournalReader};

/// Events that were looked at and not sent are written down after so many; to look again costs little.
const SKIPPED: u64 = 10_000;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Everything up to this event is done with.
    pub done: u64,
    /// How many its receiver took.
    pub delivered: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
    /// What of `done` is written down; more than that where something else is to be.
    #[serde(skip)]
    written: u64,
    #[serde(skip)]
    changed: bool,
}

/// An event its receiver did not take.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failing {
    pub event: u64,
    /// Of the webhook then; one that was changed since is tried afresh.
    pub revision: u64,
    pub since: Time,
    pub tries: u32,
    pub next: Time,
    pub why: String,
}

impl Mark {
    /// The failure the webhook, as it is now, goes on with.
    pub fn failing_as(&self, webhook: &Webhook) -> Option<&Failing> {
        self.failing
            .as_ref()
            .filter(|failing| failing.revision == webhook.revision && failing.event > webhook.after)
    }

    /// Everything up to this event is done with, or was given up.
    pub fn done_of(&self, webhook: &Webhook) -> u64 {
        self.done.max(webhook.after)
    }
}

/// What the leader last wrote.
pub(crate) async fn read(reader: &JournalReader) -> Result<HashMap<WebhookId, Mark>, JournalError> {
    let rows = reader.marks().await?;
    let marks = rows.iter().filter_map(|(id, body)| {
        let mut mark: Mark = serde_json::from_str(body).ok()?;
        mark.written = mark.done;
        Some((id.parse().ok()?, mark))
    });
    Ok(marks.collect())
}

/// The marks of all webhooks, while this server leads.
#[derive(Default)]
pub(super) struct Marks(Mutex<Option<HashMap<WebhookId, Mark>>>);

impl Marks {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<WebhookId, Mark>) -> T) -> T {
        let mut marks = self.0.lock().expect("short and without panics");
        look(marks.get_or_insert_default())
    }

    pub fn set(&self, marks: HashMap<WebhookId, Mark>) {
        *self.0.lock().expect("short and without panics") = Some(marks);
    }

    pub fn clear(&self) {
        *self.0.lock().expect("short and without panics") = None;
    }

    pub fn all(&self) -> Option<HashMap<WebhookId, Mark>> {
        self.0.lock().expect("short and without panics").clone()
    }

    pub fn of(&self, id: WebhookId) -> Mark {
        self.with(|marks| marks.get(&id).cloned().unwrap_or_default())
    }

    /// The event concerns its receiver not.
    pub fn skipped(&self, id: WebhookId, event: u64) {
        self.with(|marks| marks.entry(id).or_default().done = event);
    }

    pub fn taken(&self, id: WebhookId, event: u64, at: Time) {
        self.with(|marks| {
            let mark = marks.entry(id).or_default();
            (mark.done, mark.delivered, mark.changed) = (event, mark.delivered + 1, true);
            (mark.last_success, mark.failing) = (Some(at), None);
        });
    }

    pub fn failed(&self, id: WebhookId, failing: Failing) {
        self.with(|marks| {
            let mark = marks.entry(id).or_default();
            (mark.failing, mark.changed) = (Some(failing), true);
        });
    }

    /// What is to be written down; with `all` whatever moved at all.
    pub fn take_changed(&self, all: bool) -> Vec<(WebhookId, Mark)> {
        self.with(|marks| {
            let due = marks.iter_mut().filter(|(_, mark)| {
                let skipped = mark.done - mark.written;
                mark.changed || skipped >= SKIPPED || all && skipped > 0
            });
            due.map(|(id, mark)| {
                (mark.changed, mark.written) = (false, mark.done);
                (*id, mark.clone())
            })
            .collect()
        })
    }

    /// They were not written down after all.
    pub fn put_back(&self, changed: &[(WebhookId, Mark)]) {
        self.with(|marks| {
            for (id, _) in changed {
                if let Some(mark) = marks.get_mut(id) {
                    mark.changed = true;
                }
            }
        });
    }

    pub fn gone(&self, is_gone: impl Fn(WebhookId) -> bool) -> Vec<WebhookId> {
        self.with(|marks| marks.keys().copied().filter(|id| is_gone(*id)).collect())
    }

    pub fn forget(&self, gone: &[WebhookId]) {
        self.with(|marks| marks.retain(|id, _| !gone.contains(id)));
    }
}
