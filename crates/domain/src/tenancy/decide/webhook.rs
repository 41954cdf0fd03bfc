//! Webhooks: making, pausing and removing them, new keys, and what the server says of those whose receiver is gone.

use std::collections::BTreeSet;

use crate::actor::Actor;
use crate::decide::Case;
use crate::event::Event;
use crate::id::{SecretId, WebhookId};
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::tenancy::webhook::{
    MAX_ORIGIN_BYTES, MAX_PER_SCOPE, MAX_PER_TENANT, MAX_WHY_BYTES, Standing, Webhook,
};

impl Case<'_> {
    fn may_for_webhook(&self, id: WebhookId) -> Result<&Webhook, Refusal> {
        let webhook = self.state.webhooks.get(id).ok_or_else(Refusal::not_found)?;
        self.may(Action::WebhookManage, webhook.scope)?;
        Ok(webhook)
    }

    pub(crate) fn create_webhook(
        &mut self,
        scope: ScopeId,
        name: &str,
        origin: &str,
        kinds: &BTreeSet<String>,
        secret: SecretId,
        after: u64,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::WebhookManage, scope)?;
        // It sees with somebody's eyes.
        let Actor::User { user, allow, .. } = &self.command.by else {
            return Err(Refusal::not_found());
        };
        name::check(name, "/name")?;
        if origin.is_empty() || origin.len() > MAX_ORIGIN_BYTES {
            return Err(Refusal::invalid(
                "/url",
                format!("a URL's host has at most {MAX_ORIGIN_BYTES} characters"),
            ));
        }
        if let Some(unknown) = kinds.iter().find(|kind| !Event::KINDS.contains(&kind.as_str())) {
            return Err(
                Refusal::invalid("/kinds", format!("there are no events of kind {unknown}"))
                    .hint("kinds are named as the event stream names them, such as JobEnded"),
            );
        }
        let (tree, webhooks) = (&self.state.tree, &self.state.webhooks);
        if webhooks.of(scope).any(|webhook| webhook.name == name) {
            return Err(Refusal::new(
                Code::NameTaken,
                format!("{} has a webhook {name} already", tree.title(scope)),
            )
            .field("/name"));
        }
        let tenant = tree.tenant_of(scope);
        let (here, in_all) = (
            webhooks.of(scope).count(),
            webhooks.of_tenant(tree, tenant).count(),
        );
        if here >= MAX_PER_SCOPE || in_all >= MAX_PER_TENANT {
            return Err(Refusal::new(
                Code::WrongPhase,
                format!(
                    "a scope has at most {MAX_PER_SCOPE} webhooks, a tenant {MAX_PER_TENANT} with all below it"
                ),
            )
            .hint("remove some first, or name more kinds for one"));
        }
        let (owner, allow) = (*user, allow.clone());
        Ok(vec![Event::WebhookCreated {
            webhook: Box::new(Webhook {
                id: WebhookId(self.ids.take()),
                scope,
                name: name.into(),
                owner,
                allow,
                origin: origin.into(),
                kinds: kinds.clone(),
                secret,
                after,
                created: self.command.at,
                standing: Standing::Active,
                revision: 1,
            }),
        }])
    }

    pub(crate) fn rotate_webhook(
        &self,
        id: WebhookId,
        old: SecretId,
        secret: SecretId,
    ) -> Result<Vec<Event>, Refusal> {
        let webhook = self.may_for_webhook(id)?;
        if webhook.secret != old {
            return Err(
                Refusal::new(Code::RevisionMismatch, "the webhook got another key just now")
                    .hint("ask again, if that was not you"),
            );
        }
        Ok(vec![Event::WebhookRotated {
            webhook: id,
            scope: webhook.scope,
            old,
            secret,
        }])
    }

    pub(crate) fn pause_webhook(&self, id: WebhookId) -> Result<Vec<Event>, Refusal> {
        let webhook = self.may_for_webhook(id)?;
        let paused = Event::WebhookPaused {
            webhook: id,
            scope: webhook.scope,
        };
        Ok(match webhook.standing {
            Standing::Paused => vec![],
            Standing::Active | Standing::Failed { .. } => vec![paused],
        })
    }

    pub(crate) fn resume_webhook(&self, id: WebhookId, after: Option<u64>) -> Result<Vec<Event>, Refusal> {
        let webhook = self.may_for_webhook(id)?;
        let after = after.filter(|after| *after > webhook.after);
        if webhook.standing.is_active() && after.is_none() {
            return Ok(vec![]);
        }
        Ok(vec![Event::WebhookResumed {
            webhook: id,
            scope: webhook.scope,
            after,
        }])
    }

    pub(crate) fn remove_webhook(&self, id: WebhookId) -> Result<Vec<Event>, Refusal> {
        Ok(vec![removed(self.may_for_webhook(id)?)])
    }

    /// Said of the webhook as it was at `revision`; whoever changed it since wants it tried again.
    pub(crate) fn fail_webhook(
        &self,
        id: WebhookId,
        revision: u64,
        why: &str,
    ) -> Result<Vec<Event>, Refusal> {
        self.only_system()?;
        let webhook = self.state.webhooks.get(id).ok_or_else(Refusal::not_found)?;
        if webhook.revision != revision || !webhook.standing.is_active() {
            return Ok(vec![]);
        }
        let end = why.floor_char_boundary(MAX_WHY_BYTES);
        Ok(vec![Event::WebhookFailed {
            webhook: id,
            scope: webhook.scope,
            why: why[..end].to_owned(),
        }])
    }

    /// What goes with scopes that close: what stands there, and what sees with the eyes of users who go.
    pub(crate) fn webhooks_closing(&self, closing: &[ScopeId]) -> impl Iterator<Item = Event> {
        let gone = |webhook: &&Webhook| {
            closing.contains(&webhook.scope) || closing.contains(&ScopeId::User(webhook.owner))
        };
        self.state.webhooks.iter().filter(gone).map(removed)
    }
}

fn removed(webhook: &Webhook) -> Event {
    Event::WebhookRemoved {
        webhook: webhook.id,
        scope: webhook.scope,
        secret: webhook.secret,
    }
}
