//! The journal's tail, read once for all couriers. One that is further behind reads for itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_domain::Event;
use tenure_journal::{JournalError, JournalReader, Line};
use tokio::sync::watch;

use crate::controller::Controller;

/// Events kept for those who are a little behind.
const KEPT: usize = 2048;
const PAGE: usize = 500;

/// An event as it was read.
pub(super) struct Item {
    pub line: Line,
    pub event: Event,
}

impl Item {
    /// What this program does not understand concerns nobody.
    fn read(line: Line) -> Option<Arc<Item>> {
        let event = serde_json::from_str(&line.event).ok()?;
        Some(Arc::new(Item { line, event }))
    }
}

/// What there is from an event on.
pub(super) enum Took {
    Items(Vec<Arc<Item>>),
    /// It is no longer kept, or never was.
    Behind,
    /// Nothing has happened since.
    Nothing,
}

pub(super) struct Tail {
    /// One after another, up to the head.
    items: Mutex<VecDeque<Arc<Item>>>,
    /// The last event that was looked at; the view has it.
    head: watch::Sender<u64>,
}

impl Default for Tail {
    fn default() -> Tail {
        Tail {
            items: Mutex::default(),
            head: watch::Sender::new(0),
        }
    }
}

impl Tail {
    /// Begins after an event that the view has.
    pub fn begin(&self, head: u64) {
        self.items.lock().expect("short and without panics").clear();
        self.head.send_replace(head);
    }

    pub fn watch(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    pub fn take(&self, next: u64) -> Took {
        let items = self.items.lock().expect("short and without panics");
        if next > *self.head.borrow() {
            return Took::Nothing;
        }
        match items.front() {
            Some(first) if first.line.seq <= next => {
                let from = items.partition_point(|item| item.line.seq < next);
                Took::Items(items.range(from..).take(PAGE).cloned().collect())
            }
            _ => Took::Behind,
        }
    }

    /// What is no longer kept, from the journal.
    pub async fn read(&self, reader: &JournalReader, next: u64) -> Result<Vec<Arc<Item>>, JournalError> {
        let head = *self.head.borrow();
        let lines = reader.read(next, PAGE).await?;
        let seen = lines.into_iter().take_while(|line| line.seq <= head);
        Ok(seen.filter_map(Item::read).collect())
    }

    /// Goes along with the view until it is dropped.
    pub async fn run(&self, controller: &Controller) {
        let mut view = controller.view().watch();
        loop {
            let committed = *view.borrow_and_update();
            while *self.head.borrow() < committed {
                if let Err(error) = self.catch_up(controller.reader(), committed).await {
                    tracing::warn!(%error, "webhooks do not hear the journal; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            if view.changed().await.is_err() {
                return;
            }
        }
    }

    async fn catch_up(&self, reader: &JournalReader, committed: u64) -> Result<(), JournalError> {
        let next = *self.head.borrow() + 1;
        let mut lines = reader.read(next, PAGE).await?;
        lines.retain(|line| line.seq <= committed);
        let Some(last) = lines.last().map(|line| line.seq) else {
            // The database is a moment behind what was published.
            tokio::time::sleep(Duration::from_millis(20)).await;
            return Ok(());
        };
        {
            let mut items = self.items.lock().expect("short and without panics");
            items.extend(lines.into_iter().filter_map(Item::read));
            let too_many = items.len().saturating_sub(KEPT);
            items.drain(..too_many);
        }
        self.head.send_replace(last);
        Ok(())
    }
}
