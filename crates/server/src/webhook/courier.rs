//! A courier: goes through the journal for one webhook, event by event, and stays at one until its receiver took it.
//!
//! Who sees what is asked anew with every try, so nothing leaves that its owner may no longer see.

use std::sync::Arc;
use std::time::Duration;

use tenure_domain::Wish;
use tenure_domain::id::{SecretId, WebhookId};
use tenure_domain::tenancy::webhook::Webhook;

use super::mark::{Failing, Mark};
use super::tail::{Item, Took};
use super::{Kept, Message, Said, Webhooks};
use crate::auth::Caller;
use crate::controller::now;
use crate::keyring::random;
use crate::routes::event::{Sight, shown};

/// Where something here has to be asked again.
const AGAIN: Duration = Duration::from_secs(1);
const GONE: u16 = 410;

pub(super) struct Courier {
    webhooks: Arc<Webhooks>,
    id: WebhookId,
    sight: Option<Sight>,
    kept: Option<(SecretId, Kept)>,
}

/// What comes next.
enum Next {
    /// The event after this.
    On,
    /// This event, or whatever the webhook is told now.
    Again,
    /// Nothing.
    End,
}

impl Courier {
    pub fn new(webhooks: Arc<Webhooks>, id: WebhookId) -> Courier {
        Courier {
            webhooks,
            id,
            sight: None,
            kept: None,
        }
    }

    /// Until the webhook is paused, has failed, or is gone.
    pub async fn run(mut self) {
        let mut head = self.webhooks.tail.watch();
        while let Some(webhook) = self.present() {
            head.borrow_and_update();
            let next = self.mark().done_of(&webhook) + 1;
            let items = match self.webhooks.tail.take(next) {
                Took::Items(items) => items,
                Took::Nothing => {
                    let mut changed = self.webhooks.changed.subscribe();
                    tokio::select! {
                        _ = head.changed() => {}
                        _ = changed.changed() => {}
                        // Its scope may have been closed.
                        () = tokio::time::sleep(AGAIN) => {}
                    }
                    continue;
                }
                Took::Behind => {
                    let read = self
                        .webhooks
                        .tail
                        .read(self.webhooks.controller.reader(), next)
                        .await;
                    read.unwrap_or_else(|error| {
                        tracing::warn!(%error, webhook = %self.id, "the journal was not read; trying again");
                        Vec::new()
                    })
                }
            };
            if items.is_empty() {
                tokio::time::sleep(AGAIN).await;
            }
            for item in items {
                match self.tell(&item).await {
                    Next::On => {}
                    Next::Again => break,
                    Next::End => return,
                }
            }
        }
    }

    fn mark(&self) -> Mark {
        self.webhooks.marks.of(self.id)
    }

    /// The webhook as it is now, while it is told anything.
    fn present(&self) -> Option<Webhook> {
        let state = self.webhooks.controller.view().read();
        let webhook = state.webhooks.get(self.id)?;
        webhook.standing.is_active().then(|| webhook.clone())
    }

    async fn tell(&mut self, item: &Item) -> Next {
        let Some(webhook) = self.present() else {
            return Next::End;
        };
        let event = item.line.seq;
        if event <= webhook.after {
            return Next::Again;
        }
        if !webhook.kinds.is_empty() && !webhook.kinds.contains(item.event.kind()) {
            self.webhooks.marks.skipped(self.id, event);
            return Next::On;
        }
        if let Some(failing) = self
            .mark()
            .failing_as(&webhook)
            .filter(|failing| failing.event == event)
            && failing.next > now()
        {
            self.wait(&webhook, Duration::from_millis(failing.next.since_ms(now())))
                .await;
            return Next::Again;
        }
        let owner = Caller::owner_of(&webhook);
        // Whoever is suspended is told later.
        if owner.may_look(&self.webhooks.controller.view().read()).is_err() {
            self.wait(&webhook, AGAIN).await;
            return Next::Again;
        }
        let sight = self
            .sight
            .get_or_insert_with(|| Sight::new(owner, Some(webhook.scope)));
        let message = match shown(&self.webhooks.controller, sight, &item.event).await {
            None => {
                self.wait(&webhook, AGAIN).await;
                return Next::Again;
            }
            Some(None) => {
                self.webhooks.marks.skipped(self.id, event);
                return Next::On;
            }
            Some(Some(shown)) => {
                let platform = self.webhooks.controller.reader().platform();
                Message::of(self.id, platform, &item.line, &shown)
            }
        };
        self.deliver(&webhook, event, &message).await
    }

    async fn deliver(&mut self, webhook: &Webhook, event: u64, message: &Message) -> Next {
        match self.keep(webhook.secret).await {
            Ok(true) => {}
            Ok(false) => return self.give_up(webhook, NOT_KEPT.to_owned()).await,
            Err(error) => {
                tracing::warn!(%error, webhook = %self.id, "its URL and key were not read; trying again");
                self.wait(webhook, AGAIN).await;
                return Next::Again;
            }
        }
        let Some((_, kept)) = &self.kept else {
            return Next::Again;
        };
        let said = tokio::select! {
            said = self.webhooks.send(webhook, kept, message) => said,
            // Removed, paused, or with another key: what is under way is broken off.
            () = self.until_changed(webhook) => return Next::Again,
        };
        let at = now();
        if said.is_taken() {
            self.webhooks.marks.taken(self.id, event, at);
            return Next::On;
        }
        let mark = self.mark();
        let before = mark.failing_as(webhook).filter(|failing| failing.event == event);
        let since = before.map_or(at, |failing| failing.since);
        let tries = before.map_or(0, |failing| failing.tries) + 1;
        let pause = self.pause(tries, &said);
        self.webhooks.marks.failed(
            self.id,
            Failing {
                event,
                revision: webhook.revision,
                since,
                tries,
                next: at.plus_ms(pause.as_millis() as u64),
                why: said.why(),
            },
        );
        if matches!(said, Said::Status { status: GONE, .. }) {
            return self.give_up(webhook, "it answered 410 Gone".to_owned()).await;
        }
        if u128::from(at.since_ms(since)) >= self.webhooks.options.patience.as_millis() {
            let why = format!(
                "event {event} was tried {tries} times; the last time {}",
                said.why()
            );
            return self.give_up(webhook, why).await;
        }
        tracing::debug!(webhook = %self.id, event, tries, why = said.why(), "its receiver did not take an event");
        Next::Again
    }

    /// Longer each time; somewhere between half and all of it, so that many do not come back together.
    fn pause(&self, tries: u32, said: &Said) -> Duration {
        let options = &self.webhooks.options;
        let doubled = options
            .first_pause
            .saturating_mul(1 << tries.saturating_sub(1).min(20));
        let pause = doubled.min(options.longest_pause);
        let chance = f64::from(u32::from_le_bytes(random())) / f64::from(u32::MAX);
        let pause = pause.mul_f64(0.5 + chance / 2.0);
        match said {
            Said::Status {
                retry_after: Some(asked),
                ..
            } => pause.max((*asked).min(options.longest_pause)),
            _ => pause,
        }
    }

    /// Brings URL and keys to hand; says whether there are any.
    async fn keep(&mut self, secret: SecretId) -> Result<bool, crate::keyring::KeyringError> {
        if self.kept.as_ref().is_none_or(|(of, _)| *of != secret) {
            let (keyring, reader) = (&self.webhooks.keyring, self.webhooks.controller.reader());
            let kept = Kept::find(keyring, reader, secret).await?;
            self.kept = kept.map(|kept| (secret, kept));
        }
        Ok(self.kept.is_some())
    }

    async fn give_up(&self, webhook: &Webhook, why: String) -> Next {
        tracing::info!(webhook = %self.id, why, "a webhook failed and is told nothing more until it is resumed");
        let wish = Wish::FailWebhook {
            webhook: self.id,
            revision: webhook.revision,
            why,
        };
        if let Err(error) = self.webhooks.controller.system(wish).await {
            tracing::info!(?error, webhook = %self.id, "a failed webhook was gone already");
            self.wait(webhook, AGAIN).await;
        }
        Next::Again
    }

    /// Waits so long, or until somebody changed it.
    async fn wait(&self, webhook: &Webhook, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.until_changed(webhook) => {}
        }
    }

    async fn until_changed(&self, webhook: &Webhook) {
        let mut changed = self.webhooks.changed.subscribe();
        loop {
            let is_same = {
                let state = self.webhooks.controller.view().read();
                let now = state.webhooks.get(self.id);
                now.is_some_and(|now| now.revision == webhook.revision)
            };
            if !is_same {
                return;
            }
            tokio::select! {
                _ = changed.changed() => {}
                // Its scope may have been closed, which nobody says.
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
}

pub(super) const NOT_KEPT: &str = "its URL and key are not in this platform's store; backups leave them out";
