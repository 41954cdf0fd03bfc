//! The typed client. One method a route; a refusal comes back as the server's own `Problem`.

mod bill;
mod booking;
mod log;
mod market;
pub mod session;
mod webhook;

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_domain::ledger::price::Prices;
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::share::Share;
use tenure_domain::workload::service::Replicas;
use tenure_domain::workload::spec::Sku;
use tenure_domain::workload::trace::TraceParent;

use crate::problem::Problem;
use crate::secret_text::SecretText;
use crate::v1::access::{CreateKey, GrantRole, GrantView, KeyView, NewKey, WhoAmI};
use crate::v1::audit::JobAuditView;
use crate::v1::cost::{CostQuery, CostView};
use crate::v1::event::{EventQuery, EventView};
use crate::v1::fit::{AskFit, FitView};
use crate::v1::gpu::{DeviceView, GpuQuery};
use crate::v1::job::{JobQuery, JobView, LogQuery, Plan, ResizeJob, SubmitJob, Why};
use crate::v1::journal::{HeadView, ProofView};
use crate::v1::limit::{BudgetsView, PolicyView, QuotaView, RulesView, SetBudgets, SetQuota, SetRules};
use crate::v1::login::{Login, LoginView};
use crate::v1::node::{CreateJoinToken, NewJoinToken, NodeQuery, NodeView};
use crate::v1::page::Page;
use crate::v1::platform::Health;
use crate::v1::scope::{CreateSubscriber, CreateTenant, CreateUser, MoveScope, ScopeView, SetIdentity};
use crate::v1::secret::{SecretView, SetSecret};
use crate::v1::service::ServiceQuery;
use crate::v1::share::ShareView;
use crate::v1::task::TaskQuery;
use crate::v1::volume::{CreateVolume, GrowVolume, VolumeQuery, VolumeView};

/// How long a whole answer may take; streams have no such end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    #[error("the server at {server} cannot be reached: {source}")]
    Unreachable { server: String, source: reqwest::Error },
    #[error("the server's answer was not understood: {0}")]
    Unreadable(String),
}

/// A connection to one server as one user.
#[derive(Clone)]
pub struct Client {
    server: String,
    token: Option<SecretText>,
    http: reqwest::Client,
    trace: Option<TraceParent>,
}

type Answer<T> = Result<T, ClientError>;

impl Client {
    /// `authority_pem` is trusted beside the system's own authorities.
    pub fn new(server: &str, token: Option<SecretText>, authority_pem: Option<&[u8]>) -> Answer<Client> {
        // One provider for the whole program; a second call finds it there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = authority_pem {
            let certificate = reqwest::Certificate::from_pem(pem)
                .map_err(|error| ClientError::Unreadable(error.to_string()))?;
            http = http.add_root_certificate(certificate);
        }
        let http = http
            .build()
            .map_err(|error| ClientError::Unreadable(error.to_string()))?;
        Ok(Client {
            server: server.trim_end_matches('/').to_owned(),
            token,
            http,
            trace: None,
        })
    }

    /// The same, within a trace: jobs submitted belong to it.
    pub fn within(self, trace: Option<TraceParent>) -> Client {
        Client { trace, ..self }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.server));
        match &self.token {
            Some(token) => request.bearer_auth(token.reveal()),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Answer<Response> {
        let response = request.send().await.map_err(|source| ClientError::Unreachable {
            server: self.server.clone(),
            source,
        })?;
        if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let status = response.status();
        let body = response.bytes().await.unwrap_or_default();
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(_) => Err(ClientError::Unreadable(format!(
                "status {status} without a problem"
            ))),
        }
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Answer<T> {
        let response = self.send(request.timeout(PATIENCE)).await?;
        let lost = |source| ClientError::Unreachable {
            server: self.server.clone(),
            source,
        };
        let bytes = response.bytes().await.map_err(lost)?;
        serde_json::from_slice(&bytes).map_err(|error| ClientError::Unreadable(error.to_string()))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        self.json(self.request(Method::GET, path)).await
    }

    async fn query<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Answer<T> {
        self.get(&with_query(path, query)).await
    }

    /// Sends a change; with a key, repeating it changes nothing twice.
    async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Answer<T> {
        let mut request = self.request(method, path).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.json(request).await
    }

    async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        revision: Option<u64>,
    ) -> Answer<T> {
        let mut request = self.request(Method::PUT, path).json(body);
        if let Some(revision) = revision {
            request = request.header("if-match", format!("\"{revision}\""));
        }
        self.json(request).await
    }

    async fn done(&self, method: Method, path: &str) -> Answer<()> {
        self.send(self.request(method, path).timeout(PATIENCE))
            .await
            .map(drop)
    }

    pub async fn health(&self) -> Answer<Health> {
        self.get("/readyz").await
    }

    /// The server's health, and its clock as the answer's `date` header tells it.
    pub async fn health_at(&self) -> Answer<(Health, Option<String>)> {
        let response = self
            .send(self.request(Method::GET, "/readyz").timeout(PATIENCE))
            .await?;
        let date = response
            .headers()
            .get("date")
            .and_then(|date| date.to_str().ok())
            .map(str::to_owned);
        let lost = |source| ClientError::Unreachable {
            server: self.server.clone(),
            source,
        };
        let bytes = response.bytes().await.map_err(lost)?;
        let health =
            serde_json::from_slice(&bytes).map_err(|error| ClientError::Unreadable(error.to_string()))?;
        Ok((health, date))
    }

    pub async fn whoami(&self) -> Answer<WhoAmI> {
        self.get("/v1/whoami").await
    }

    pub async fn login_view(&self) -> Answer<LoginView> {
        self.get("/v1/login").await
    }

    pub async fn login(&self, login: &Login) -> Answer<NewKey> {
        self.change(Method::POST, "/v1/login", login, None).await
    }

    pub async fn create_tenant(&self, body: &CreateTenant, key: Option<&str>) -> Answer<ScopeView> {
        self.change(Method::POST, "/v1/tenants", body, key).await
    }

    pub async fn create_subscriber(&self, body: &CreateSubscriber, key: Option<&str>) -> Answer<ScopeView> {
        self.change(Method::POST, "/v1/subscribers", body, key).await
    }

    pub async fn create_user(&self, body: &CreateUser, key: Option<&str>) -> Answer<ScopeView> {
        self.change(Method::POST, "/v1/users", body, key).await
    }

    /// The tenants, subscribers and users right below a scope.
    pub async fn children(&self, scope: &str, cursor: Option<&str>) -> Answer<Page<ScopeView>> {
        self.query(&format!("/v1/scopes/{scope}/children"), &[("cursor", cursor)])
            .await
    }

    pub async fn scope(&self, scope: &str) -> Answer<ScopeView> {
        self.get(&format!("/v1/scopes/{scope}")).await
    }

    /// Finds a scope by its names, such as `acme/research/ada`; `platform` is the platform.
    pub async fn scope_by_path(&self, path: &str) -> Answer<ScopeView> {
        self.query("/v1/scopes", &[("path", path)]).await
    }

    pub async fn suspend(&self, scope: &str) -> Answer<ScopeView> {
        self.change(
            Method::POST,
            &format!("/v1/scopes/{scope}/suspend"),
            &serde_json::json!({}),
            None,
        )
        .await
    }

    pub async fn resume(&self, scope: &str) -> Answer<ScopeView> {
        self.change(
            Method::POST,
            &format!("/v1/scopes/{scope}/resume"),
            &serde_json::json!({}),
            None,
        )
        .await
    }

    pub async fn move_scope(&self, scope: &str, body: &MoveScope) -> Answer<ScopeView> {
        self.change(Method::POST, &format!("/v1/scopes/{scope}/move"), body, None)
            .await
    }

    pub async fn close(&self, scope: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/scopes/{scope}")).await
    }

    pub async fn set_identity(&self, user: &str, body: &SetIdentity) -> Answer<ScopeView> {
        self.put(&format!("/v1/users/{user}/identity"), body, None).await
    }

    pub async fn create_key(&self, user: &str, body: &CreateKey) -> Answer<NewKey> {
        self.change(Method::POST, &format!("/v1/users/{user}/keys"), body, None)
            .await
    }

    pub async fn keys(&self, user: &str) -> Answer<Page<KeyView>> {
        self.get(&format!("/v1/users/{user}/keys")).await
    }

    pub async fn revoke_key(&self, key: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/keys/{key}")).await
    }

    pub async fn roles(&self, scope: &str) -> Answer<Page<GrantView>> {
        self.get(&format!("/v1/scopes/{scope}/roles")).await
    }

    pub async fn grant_role(&self, scope: &str, body: &GrantRole) -> Answer<GrantView> {
        self.change(Method::POST, &format!("/v1/scopes/{scope}/roles"), body, None)
            .await
    }

    pub async fn revoke_role(&self, scope: &str, user: &str, role: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/scopes/{scope}/roles/{user}/{role}"))
            .await
    }

    pub async fn quota(&self, scope: &str) -> Answer<QuotaView> {
        self.get(&format!("/v1/scopes/{scope}/quota")).await
    }

    pub async fn set_quota(&self, scope: &str, body: &SetQuota, revision: Option<u64>) -> Answer<QuotaView> {
        self.put(&format!("/v1/scopes/{scope}/quota"), body, revision)
            .await
    }

    pub async fn share(&self, scope: &str) -> Answer<ShareView> {
        self.get(&format!("/v1/scopes/{scope}/share")).await
    }

    pub async fn set_share(&self, scope: &str, body: &Share, revision: Option<u64>) -> Answer<ShareView> {
        self.put(&format!("/v1/scopes/{scope}/share"), body, revision)
            .await
    }

    pub async fn budgets(&self, scope: &str) -> Answer<BudgetsView> {
        self.get(&format!("/v1/scopes/{scope}/budgets")).await
    }

    pub async fn set_budgets(
        &self,
        scope: &str,
        body: &SetBudgets,
        revision: Option<u64>,
    ) -> Answer<BudgetsView> {
        self.put(&format!("/v1/scopes/{scope}/budgets"), body, revision)
            .await
    }

    pub async fn policy(&self, scope: &str) -> Answer<PolicyView> {
        self.get(&format!("/v1/scopes/{scope}/policy")).await
    }

    pub async fn set_policy(&self, scope: &str, body: &Policy, revision: Option<u64>) -> Answer<PolicyView> {
        self.put(&format!("/v1/scopes/{scope}/policy"), body, revision)
            .await
    }

    pub async fn rules(&self, scope: &str) -> Answer<RulesView> {
        self.get(&format!("/v1/scopes/{scope}/rules")).await
    }

    pub async fn set_rules(&self, scope: &str, body: &SetRules, revision: Option<u64>) -> Answer<RulesView> {
        self.put(&format!("/v1/scopes/{scope}/rules"), body, revision)
            .await
    }

    pub async fn secrets(&self, scope: &str) -> Answer<Page<SecretView>> {
        self.get(&format!("/v1/scopes/{scope}/secrets")).await
    }

    pub async fn set_secret(&self, scope: &str, name: &str, body: &SetSecret) -> Answer<SecretView> {
        self.put(&format!("/v1/scopes/{scope}/secrets/{name}"), body, None)
            .await
    }

    pub async fn erase_secret(&self, scope: &str, name: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/scopes/{scope}/secrets/{name}"))
            .await
    }

    pub async fn fit_workload(&self, body: &AskFit) -> Answer<FitView> {
        self.change(Method::POST, "/v1/fit", body, None).await
    }

    pub async fn plan_job(&self, body: &SubmitJob) -> Answer<Plan> {
        self.change(Method::POST, "/v1/jobs/plan", body, None).await
    }

    pub async fn submit_job(&self, body: &SubmitJob, key: Option<&str>) -> Answer<JobView> {
        let mut request = self.request(Method::POST, "/v1/jobs").json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(trace) = self.trace {
            request = request.header("traceparent", trace.to_string());
        }
        self.json(request).await
    }

    pub async fn volumes(&self, query: &VolumeQuery) -> Answer<Page<VolumeView>> {
        self.query("/v1/volumes", query).await
    }

    pub async fn volume(&self, volume: &str) -> Answer<VolumeView> {
        self.get(&format!("/v1/volumes/{volume}")).await
    }

    pub async fn create_volume(&self, body: &CreateVolume, key: Option<&str>) -> Answer<VolumeView> {
        self.change(Method::POST, "/v1/volumes", body, key).await
    }

    pub async fn grow_volume(&self, volume: &str, body: &GrowVolume) -> Answer<VolumeView> {
        self.change(Method::POST, &format!("/v1/volumes/{volume}/grow"), body, None)
            .await
    }

    pub async fn remove_volume(&self, volume: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/volumes/{volume}")).await
    }

    pub async fn jobs(&self, query: &JobQuery) -> Answer<Page<JobView>> {
        self.query("/v1/jobs", query).await
    }

    pub async fn job(&self, job: &str) -> Answer<JobView> {
        self.get(&format!("/v1/jobs/{job}")).await
    }

    pub async fn stop_job(&self, job: &str) -> Answer<JobView> {
        self.change(
            Method::POST,
            &format!("/v1/jobs/{job}/stop"),
            &serde_json::json!({}),
            None,
        )
        .await
    }

    pub async fn pause_job(&self, job: &str) -> Answer<JobView> {
        let nothing = serde_json::json!({});
        self.change(Method::POST, &format!("/v1/jobs/{job}/pause"), &nothing, None)
            .await
    }

    pub async fn resume_job(&self, job: &str) -> Answer<JobView> {
        let nothing = serde_json::json!({});
        self.change(Method::POST, &format!("/v1/jobs/{job}/resume"), &nothing, None)
            .await
    }

    pub async fn resize_job(&self, job: &str, body: &ResizeJob) -> Answer<JobView> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/resize"), body, None)
            .await
    }

    /// Between how many replicas a service has from now on.
    pub async fn scale_job(&self, job: &str, replicas: &Replicas) -> Answer<JobView> {
        self.change(Method::POST, &format!("/v1/jobs/{job}/scale"), replicas, None)
            .await
    }

    pub async fn services(&self, query: &ServiceQuery) -> Answer<Page<JobView>> {
        self.query("/v1/services", query).await
    }

    pub async fn job_tasks(&self, job: &str, query: &TaskQuery) -> Answer<Page<JobView>> {
        self.query(&format!("/v1/jobs/{job}/tasks"), query).await
    }

    pub async fn job_audit(&self, job: &str) -> Answer<JobAuditView> {
        self.get(&format!("/v1/jobs/{job}/audit")).await
    }

    pub async fn why(&self, job: &str) -> Answer<Why> {
        self.get(&format!("/v1/jobs/{job}/why")).await
    }

    /// The log's bytes as they come; ends when the job has ended, or at the end of what is there.
    pub async fn logs(
        &self,
        job: &str,
        query: &LogQuery,
    ) -> Answer<impl Stream<Item = Answer<Vec<u8>>> + use<>> {
        let response = self
            .send(self.request(Method::GET, &with_query(&format!("/v1/jobs/{job}/logs"), query)))
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

    pub async fn costs(&self, query: &CostQuery) -> Answer<CostView> {
        self.query("/v1/costs", query).await
    }

    pub async fn prices(&self) -> Answer<Prices> {
        self.get("/v1/prices").await
    }

    pub async fn set_prices(&self, body: &Prices) -> Answer<Prices> {
        self.put("/v1/prices", body, None).await
    }

    pub async fn skus(&self) -> Answer<Page<Sku>> {
        self.get("/v1/skus").await
    }

    pub async fn define_sku(&self, sku: &Sku) -> Answer<Sku> {
        self.put(&format!("/v1/skus/{}", sku.name), &sku.demand, None)
            .await
    }

    pub async fn remove_sku(&self, name: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/skus/{name}")).await
    }

    pub async fn create_join_token(&self, body: &CreateJoinToken) -> Answer<NewJoinToken> {
        self.change(Method::POST, "/v1/nodes/tokens", body, None).await
    }

    pub async fn nodes(&self, query: &NodeQuery) -> Answer<Page<NodeView>> {
        self.query("/v1/nodes", query).await
    }

    pub async fn node(&self, node: &str) -> Answer<NodeView> {
        self.get(&format!("/v1/nodes/{node}")).await
    }

    pub async fn gpus(&self, query: &GpuQuery) -> Answer<Page<DeviceView>> {
        self.query("/v1/gpus", query).await
    }

    pub async fn gpu(&self, gpu: &str) -> Answer<DeviceView> {
        self.get(&format!("/v1/gpus/{gpu}")).await
    }

    /// Puts a quarantined GPU back into service.
    pub async fn release_gpu(&self, gpu: &str) -> Answer<DeviceView> {
        self.change(
            Method::POST,
            &format!("/v1/gpus/{gpu}/release"),
            &serde_json::json!({}),
            None,
        )
        .await
    }

    pub async fn cordon(&self, node: &str) -> Answer<NodeView> {
        self.change(
            Method::POST,
            &format!("/v1/nodes/{node}/cordon"),
            &serde_json::json!({}),
            None,
        )
        .await
    }

    pub async fn uncordon(&self, node: &str) -> Answer<NodeView> {
        self.change(
            Method::POST,
            &format!("/v1/nodes/{node}/uncordon"),
            &serde_json::json!({}),
            None,
        )
        .await
    }

    /// Says anew what is known of the node; what is not said is no longer so.
    pub async fn label_node(&self, node: &str, labels: &Labels, revision: Option<u64>) -> Answer<NodeView> {
        self.put(&format!("/v1/nodes/{node}/labels"), labels, revision)
            .await
    }

    /// Takes away the node's keys: it cannot speak to the server any more.
    pub async fn revoke_node(&self, node: &str) -> Answer<NodeView> {
        self.change(
            Method::POST,
            &format!("/v1/nodes/{node}/revoke"),
            &serde_json::json!({}),
            None,
        )
        .await
    }

    pub async fn remove_node(&self, node: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/nodes/{node}")).await
    }

    pub async fn journal_head(&self) -> Answer<HeadView> {
        self.get("/v1/journal/head").await
    }

    pub async fn journal_proof(&self, seq: u64) -> Answer<ProofView> {
        self.get(&format!("/v1/journal/proofs/{seq}")).await
    }

    /// The event stream; resumes after `last` where given.
    pub async fn events(
        &self,
        query: &EventQuery,
        last: Option<u64>,
    ) -> Answer<impl Stream<Item = Answer<EventView>> + use<>> {
        let mut request = self
            .request(Method::GET, &with_query("/v1/events", query))
            .header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let response = self.send(request).await?;
        let server = self.server.clone();
        let mut held = Vec::new();
        Ok(response.bytes_stream().flat_map(move |piece| {
            let events = match piece {
                Ok(bytes) => {
                    held.extend_from_slice(&bytes);
                    take_events(&mut held)
                }
                Err(source) => vec![Err(ClientError::Unreachable {
                    server: server.clone(),
                    source,
                })],
            };
            futures_util::stream::iter(events)
        }))
    }
}

/// Takes the complete events out of what has arrived of a stream.
fn take_events(held: &mut Vec<u8>) -> Vec<Answer<EventView>> {
    let mut events = Vec::new();
    while let Some(end) = held.windows(2).position(|pair| pair == b"\n\n") {
        let block: Vec<u8> = held.drain(..end + 2).collect();
        let data: Vec<&[u8]> = block
            .split(|&byte| byte == b'\n')
            .filter_map(|line| line.strip_prefix(b"data:"))
            .collect();
        if !data.is_empty() {
            let joined = data.join(&b'\n');
            events.push(
                serde_json::from_slice(&joined).map_err(|error| ClientError::Unreadable(error.to_string())),
            );
        }
    }
    events
}

/// Appends the fields of a query struct that are set.
fn with_query(path: &str, query: &impl Serialize) -> String {
    let fields = match serde_json::to_value(query) {
        Ok(serde_json::Value::Object(map)) => map.into_iter().collect(),
        Ok(serde_json::Value::Array(pairs)) => pairs
            .into_iter()
            .filter_map(|pair| Some((pair.get(0)?.as_str()?.to_owned(), pair.get(1)?.clone())))
            .collect(),
        _ => Vec::new(),
    };
    let mut text = path.to_owned();
    for (name, value) in fields {
        let value = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(&name);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text
}
