//! Kept logs.

use futures_util::{Stream, StreamExt};
use reqwest::Method;
use tenure_domain::tenancy::keeping::Keeping;

use super::{Answer, Client, ClientError, with_query};
use crate::v1::log::{LogKeepingView, LogPage, LogSearch};

impl Client {
    pub async fn search_logs(&self, search: &LogSearch) -> Answer<LogPage> {
        self.query("/v1/logs", search).await
    }

    /// Everything that fits, as `format` says, while it is found.
    pub async fn export_logs(
        &self,
        search: &LogSearch,
    ) -> Answer<impl Stream<Item = Answer<Vec<u8>>> + use<>> {
        let response = self
            .send(self.request(Method::GET, &with_query("/v1/logs", search)))
            .await?;
        let server = self.server.clone();
        Ok(response.bytes_stream().map(move |piece| {
            piece
                .map(|bytes| bytes.to_vec())
                .map_err(|source| ClientError::Unreachable {
                    server: server.clone(),
                    source,
                })
        }))
    }

    pub async fn log_keeping(&self, scope: &str) -> Answer<LogKeepingView> {
        self.get(&format!("/v1/scopes/{scope}/log-keeping")).await
    }

    pub async fn set_log_keeping(&self, scope: &str, keeping: &Keeping) -> Answer<LogKeepingView> {
        self.put(&format!("/v1/scopes/{scope}/log-keeping"), keeping, None)
            .await
    }
}
