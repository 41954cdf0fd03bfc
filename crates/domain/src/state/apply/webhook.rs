//! Folding what happens to webhooks.

use crate::event::Event;
use crate::state::State;
use crate::tenancy::webhook::{Standing, Webhook};
use crate::time::Time;

impl State {
    pub(super) fn fold_webhook(&mut self, at: Time, event: &Event) {
        match event {
            Event::WebhookCreated { webhook } => {
                self.saw_id(webhook.id.0);
                self.saw_id(webhook.secret.0);
                self.webhooks.insert(Webhook::clone(webhook));
            }
            Event::WebhookRotated { webhook, secret, .. } => {
                self.saw_id(secret.0);
                self.webhooks.change(*webhook, |webhook| webhook.secret = *secret);
            }
            Event::WebhookPaused { webhook, .. } => self
                .webhooks
                .change(*webhook, |webhook| webhook.standing = Standing::Paused),
            Event::WebhookResumed { webhook, after, .. } => self.webhooks.change(*webhook, |webhook| {
                webhook.standing = Standing::Active;
                webhook.after = webhook.after.max(after.unwrap_or(0));
            }),
            Event::WebhookFailed { webhook, why, .. } => self.webhooks.change(*webhook, |webhook| {
                webhook.standing = Standing::Failed {
                    since: at,
                    why: why.clone(),
                };
            }),
            Event::WebhookRemoved { webhook, .. } => self.webhooks.remove(*webhook),
            _ => {}
        }
    }
}
