//! Webhooks.

use reqwest::Method;
use serde_json::json;

use super::{Answer, Client};
use crate::v1::page::Page;
use crate::v1::webhook::{
    CreateWebhook, NewWebhook, PingView, ResumeWebhook, RotateWebhook, WebhookQuery, WebhookView,
};

impl Client {
    pub async fn webhooks(&self, query: &WebhookQuery) -> Answer<Page<WebhookView>> {
        self.query("/v1/webhooks", query).await
    }

    pub async fn webhook(&self, webhook: &str) -> Answer<WebhookView> {
        self.get(&format!("/v1/webhooks/{webhook}")).await
    }

    /// The answer holds a secret, so it is not repeatable.
    pub async fn create_webhook(&self, body: &CreateWebhook) -> Answer<NewWebhook> {
        self.change(Method::POST, "/v1/webhooks", body, None).await
    }

    pub async fn pause_webhook(&self, webhook: &str) -> Answer<WebhookView> {
        let path = format!("/v1/webhooks/{webhook}/pause");
        self.change(Method::POST, &path, &json!({}), None).await
    }

    pub async fn resume_webhook(&self, webhook: &str, body: &ResumeWebhook) -> Answer<WebhookView> {
        let path = format!("/v1/webhooks/{webhook}/resume");
        self.change(Method::POST, &path, body, None).await
    }

    pub async fn rotate_webhook(&self, webhook: &str, body: &RotateWebhook) -> Answer<NewWebhook> {
        let path = format!("/v1/webhooks/{webhook}/rotate");
        self.change(Method::POST, &path, body, None).await
    }

    pub async fn ping_webhook(&self, webhook: &str) -> Answer<PingView> {
        let path = format!("/v1/webhooks/{webhook}/ping");
        self.change(Method::POST, &path, &json!({}), None).await
    }

    pub async fn remove_webhook(&self, webhook: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/webhooks/{webhook}"))
            .await
    }
}
