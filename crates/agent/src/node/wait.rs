//! An allocation that waits for its image, or for its devices to be scrubbed, off the node's one thread, so that
//! nothing else waits with it.
//!
//! Meanwhile it counts as not here: the server sees it placed and may say its start again, which changes
//! nothing. An agent that is restarted has forgotten it, and that repeated order begins anew; what was fetched
//! by then is kept. A stop ends the waiting, and the download if nobody else waits for it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError};

use tenure_api::channel::{ImageOrder, Order, StartStep};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::image::ImageName;
use tokio::task::AbortHandle;

use super::Node;
use crate::clock;
use crate::image::store::Held;
use crate::image::{ImageError, command};
use crate::launch::ImageRoot;
use crate::record::{Phase, Record};
use crate::scrub::Taker;

/// Who waits. Whoever takes an allocation out decides what becomes of it.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<AllocationId, AbortHandle>);

impl Node {
    /// Starts an expected allocation when its image is here and its devices are clean.
    pub(super) fn start_when_ready(self: &Arc<Self>, order: Order) {
        let id = order.allocation;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that it is known as waiting before it can be done.
        let node = self.clone();
        let task = self.runtime.spawn(async move {
            let held = match &order.image {
                Some(image) => {
                    let began_us = clock::monotonic_us();
                    let held = node.image_of(image).await;
                    node.steps.note(id, StartStep::Image, began_us);
                    Some(held)
                }
                None => None,
            };
            let (cleaner, order) = (node.clone(), Arc::new(order));
            let for_whom = order.clone();
            let cleaned = tokio::task::spawn_blocking(move || {
                let clean = || cleaner.clean_for_order(&for_whom);
                match for_whom.devices.is_empty() {
                    true => clean(),
                    false => cleaner.steps.time(id, StartStep::Scrub, clean),
                }
            })
            .await;
            let cleaned = cleaned.unwrap_or_else(|error| Err(error.to_string()));
            let order = Arc::unwrap_or_clone(order);
            let _ = tokio::task::spawn_blocking(move || node.is_ready(order, held, cleaned)).await;
        });
        waiting.0.insert(id, task.abort_handle());
    }

    /// Ends the waiting of an allocation; false when it did not wait.
    pub(super) fn wait_no_more(&self, id: AllocationId) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.0.remove(&id) {
            Some(task) => {
                task.abort();
                true
            }
            None => false,
        }
    }

    fn clean_for_order(&self, order: &Order) -> Result<(), String> {
        match self.mps_strangers(order, &self.found()) {
            Some(why) => Err(why),
            None => self.clean_for(&Taker::of(order)),
        }
    }

    pub(super) fn clean_for(&self, taker: &Taker) -> Result<(), String> {
        let program = self.config.broker.as_ref().map(|broker| &*broker.program);
        let _alone = self.keep_checks_off(taker);
        self.scrubs
            .clean(taker, &self.found(), &self.shares, program, |id| self.lives(id))
    }

    async fn image_of(&self, image: &ImageOrder) -> Result<Held, ImageError> {
        let name: ImageName = image.name.parse()?;
        let patience = self.images.config().patience;
        let fetched = self.images.ensure(&name, image.credentials.as_ref());
        tokio::time::timeout(patience, fetched).await.unwrap_or_else(|_| {
            Err(ImageError::Unreachable {
                registry: name.registry().to_owned(),
                why: format!("the image was not here after {} s", patience.as_secs()),
            })
        })
    }

    fn is_ready(
        self: &Arc<Self>,
        order: Order,
        held: Option<Result<Held, ImageError>>,
        cleaned: Result<(), String>,
    ) {
        let id = order.allocation;
        if !self.wait_no_more(id) {
            return;
        }
        let started = match cleaned {
            // No receipt, no hand-over: it may run elsewhere.
            Err(why) => {
                tracing::warn!(allocation = %id, why, "an allocation cannot have its device");
                self.end_unwalled(&self.dir.allocation(id), id, &why)
            }
            Ok(()) => self.start_ready(order, held),
        };
        if let Err(error) = started {
            tracing::error!(allocation = %id, %error, "could not start an allocation that was ready");
        }
    }

    fn start_ready(
        self: &Arc<Self>,
        mut order: Order,
        held: Option<Result<Held, ImageError>>,
    ) -> io::Result<()> {
        let id = order.allocation;
        let dir = self.dir.allocation(id);
        let prepared = held.map(|held| {
            let held = held?;
            command::complete(&mut order, &held.image.config)?;
            Ok(held)
        });
        let held = match prepared.transpose() {
            Ok(held) => held,
            Err(error) => {
                let error: ImageError = error;
                let image = order.image.as_ref().map_or("", |image| &image.name);
                tracing::warn!(allocation = %id, image, %error, "an image is not to be had");
                let phase = if error.is_node_fault() {
                    Phase::evicted(0)
                } else {
                    let why = format!("image {image}: {error}");
                    Phase::NotStarted { why }
                };
                return self.end_waiting(id, phase);
            }
        };
        if !self.holds_lease() {
            // The server has given the node up, or will have: what it ordered then goes elsewhere.
            return self.end_waiting(id, Phase::evicted(0));
        }
        if let Some(Err(error)) = held.as_ref().map(|held| held.note(&dir)) {
            return Err(self.forget_waiting(id, error));
        }
        let root = held.as_ref().map(|held| ImageRoot {
            digest: held.image.digest.to_string(),
            layers: held.image.layers.clone(),
        });
        // What the registry was told is nobody's business any more.
        order.image = None;
        self.spawn_in(&dir, order, root)
    }

    /// Writes down that a waiting allocation never ran.
    fn end_waiting(&self, id: AllocationId, phase: Phase) -> io::Result<()> {
        let dir = self.dir.allocation(id);
        let record = Record::without_process(id, phase);
        let written = record.claim(&dir).and_then(|own| {
            if own {
                record.replace(&dir)?;
                self.table.update(record);
            }
            Ok(())
        });
        written.map_err(|error| self.forget_waiting(id, error))
    }

    /// Nothing was started and nothing could be written: a later order finds no trace of this one.
    fn forget_waiting(&self, id: AllocationId, error: io::Error) -> io::Error {
        self.table.remove(id);
        let _ = std::fs::remove_dir_all(self.dir.allocation(id));
        error
    }
}
