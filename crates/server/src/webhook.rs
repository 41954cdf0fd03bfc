//! Webhooks: receivers outside are told what happens, each what its owner would see on the event stream.
//!
//! The server that leads has one courier for each webhook, which goes through the journal event by event and on to the
//! next only when its receiver took the last: so events arrive in order, and at least once. How far each has come is
//! kept in marks beside the journal (decision 37). Routes make webhooks and show them; `run` is the loop beside them.
//! Deliberately absent: who sees what (`routes/event`), and which webhooks there are (`domain/tenancy`).

mod courier;
mod kept;
mod mark;
mod message;
mod post;
mod tail;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_domain::State;
use tenure_domain::id::{TenantId, WebhookId};
use tenure_domain::tenancy::webhook::Webhook;
use tenure_journal::{JournalError, JournalHandle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::controller::Controller;
use crate::keyring::Keyring;
use courier::Courier;
use mark::Marks;
use tail::Tail;

pub(crate) use kept::{DAY_S, Kept, WEEK_S};
pub(crate) use mark::Mark;
pub(crate) use message::Message;
pub(crate) use post::{Post, Said, origin};

/// How often it is looked which webhooks there are.
const LOOK: Duration = Duration::from_millis(250);
/// How often marks are written, where something was delivered.
const SAVE: Duration = Duration::from_secs(1);
/// Requests under way at once, in all and of one tenant: whose receivers are slow waits for itself.
const MAX_AT_ONCE: usize = 256;
const MAX_AT_ONCE_PER_TENANT: usize = 16;

/// How receivers are asked.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Hosts, with a port or without, that may be asked though their addresses are not public.
    pub private: Vec<String>,
    /// How long one request may take.
    pub time_limit: Duration,
    /// Between a failure and the next try, at first and at most.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// A receiver that took nothing for so long is given up.
    pub patience: Duration,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        WebhookOptions {
            private: Vec::new(),
            time_limit: Duration::from_secs(10),
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(3600),
            patience: Duration::from_secs(86_400),
        }
    }
}

/// All webhooks of the platform, as far as this server leads.
pub(crate) struct Webhooks {
    pub controller: Controller,
    pub keyring: Arc<Keyring>,
    pub options: WebhookOptions,
    pub post: Post,
    marks: Marks,
    tail: Tail,
    /// Says that somebody changed a webhook.
    changed: watch::Sender<u64>,
    in_all: Semaphore,
    of_tenants: Mutex<HashMap<Option<TenantId>, Arc<Semaphore>>>,
}

/// What there is while this server leads.
struct Leading {
    journal: JournalHandle,
    couriers: JoinSet<()>,
    known: HashMap<WebhookId, AbortHandle>,
    tail: Option<AbortHandle>,
    saved: Instant,
}

impl Webhooks {
    pub fn new(controller: Controller, keyring: Arc<Keyring>, options: WebhookOptions) -> Webhooks {
        Webhooks {
            controller,
            keyring,
            post: Post::new(&options),
            options,
            marks: Marks::default(),
            tail: Tail::default(),
            changed: watch::Sender::new(0),
            in_all: Semaphore::new(MAX_AT_ONCE),
            of_tenants: Mutex::default(),
        }
    }

    /// To be called when a webhook was made or changed: couriers look at once.
    pub fn poke(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// How far each has come, by id; what this server does not know itself is what the leader last wrote.
    pub async fn marks(&self) -> Result<HashMap<WebhookId, Mark>, JournalError> {
        match self.marks.all() {
            Some(known) => Ok(known),
            None => mark::read(self.controller.reader()).await,
        }
    }

    /// Keeps a courier for each active webhook until told to stop.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK);
        let mut changed = self.changed.subscribe();
        let mut leading: Option<Leading> = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = look.tick() => {}
                _ = changed.changed() => {}
            }
            match (&mut leading, self.controller.journal()) {
                (Some(led), Some(_)) => self.keep(led).await,
                (None, Some(journal)) => leading = self.begin(journal).await,
                (_, None) => {
                    leading = None;
                    self.marks.clear();
                }
            }
        }
        if let Some(mut led) = leading {
            led.couriers.shutdown().await;
            self.save(&mut led, true).await;
        }
    }

    async fn begin(&self, journal: JournalHandle) -> Option<Leading> {
        match mark::read(&journal).await {
            Ok(marks) => self.marks.set(marks),
            Err(error) => {
                tracing::warn!(%error, "how far webhooks have come was not read; trying again");
                return None;
            }
        }
        Some(Leading {
            journal,
            couriers: JoinSet::new(),
            known: HashMap::new(),
            tail: None,
            saved: Instant::now(),
        })
    }

    async fn keep(self: &Arc<Self>, led: &mut Leading) {
        let active: Vec<WebhookId> = {
            let state = self.controller.view().read();
            let active = state
                .webhooks
                .iter()
                .filter(|webhook| webhook.standing.is_active());
            active.map(|webhook| webhook.id).collect()
        };
        while led.couriers.try_join_next().is_some() {}
        led.known.retain(|_, courier| !courier.is_finished());
        match (&led.tail, active.is_empty()) {
            (None, false) => {
                let webhooks = self.clone();
                self.tail.begin(self.controller.view().seq());
                led.tail = Some(
                    led.couriers
                        .spawn(async move { webhooks.tail.run(&webhooks.controller).await }),
                );
            }
            (Some(tail), true) if led.known.is_empty() => {
                tail.abort();
                led.tail = None;
            }
            _ => {}
        }
        for id in active {
            if !led.known.contains_key(&id) {
                let courier = led.couriers.spawn(Courier::new(self.clone(), id).run());
                led.known.insert(id, courier);
            }
        }
        self.save(led, false).await;
    }

    /// Writes down what changed, once in a while.
    async fn save(&self, led: &mut Leading, now: bool) {
        if !now && led.saved.elapsed() < SAVE {
            return;
        }
        led.saved = Instant::now();
        let gone = {
            let state = self.controller.view().read();
            self.marks.gone(|id| state.webhooks.get(id).is_none())
        };
        let changed = self.marks.take_changed(now);
        if changed.is_empty() && gone.is_empty() {
            return;
        }
        let rows: Vec<(String, String)> = changed
            .iter()
            .map(|(id, mark)| {
                let body = serde_json::to_string(mark).expect("a mark encodes");
                (id.to_string(), body)
            })
            .collect();
        let gone_ids: Vec<String> = gone.iter().map(ToString::to_string).collect();
        match led.journal.keep_marks(&rows, &gone_ids).await {
            Ok(()) => self.marks.forget(&gone),
            Err(error) => {
                tracing::warn!(%error, "how far webhooks have come was not written down yet");
                self.marks.put_back(&changed);
            }
        }
    }

    /// A place for a request; at most so many of a tenant and in all are under way.
    async fn place(&self, tenant: Option<TenantId>) -> (OwnedSemaphorePermit, SemaphorePermit<'_>) {
        let own = self
            .of_tenants
            .lock()
            .expect("short and without panics")
            .entry(tenant)
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_AT_ONCE_PER_TENANT)))
            .clone();
        let own = own.acquire_owned().await.expect("never closed");
        (own, self.in_all.acquire().await.expect("never closed"))
    }

    /// Sends a message now, whatever waits.
    pub async fn send(&self, webhook: &Webhook, kept: &Kept, message: &Message) -> Said {
        let tenant = tenant_of(&self.controller.view().read(), webhook);
        let place = self.place(tenant).await;
        let said = self.post.send(kept, message).await;
        drop(place);
        self.controller.metrics().webhooks.count(said.is_taken());
        said
    }
}

fn tenant_of(state: &State, webhook: &Webhook) -> Option<TenantId> {
    state.tree.tenant_of(webhook.scope)
}
