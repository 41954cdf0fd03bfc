//! What a stream of a job's was about, as it is remembered with it: the job may have left long ago.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_domain::State;
use tenure_domain::id::{JobId, NodeId, UserId};
use tenure_domain::schedule::allocation::Allocation;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::DoneJob;
use tenure_domain::workload::spec::JobSpec;
use tenure_journal::{JournalError, JournalReader, NewSource};

use crate::view::View;

/// In JSON beside the stream; may grow by what has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub owner: UserId,
    pub name: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Of a task: which job's, and its number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<(JobId, u32)>,
    pub attempt: u32,
    pub member: u32,
    pub node: NodeId,
    pub node_name: String,
}

impl About {
    /// Whether it bears a label, of its user's or of Tenure's own.
    pub fn bears(&self, stream: &str, key: &str, value: &str) -> bool {
        if self.labels.get(key).is_some_and(|own| own == value) {
            return true;
        }
        match key {
            "name" => self.name == value,
            "kind" => self.kind == value,
            "node" => self.node_name == value || self.node.to_string() == value,
            "stream" => stream == value,
            "member" => self.member.to_string() == value,
            "attempt" => self.attempt.to_string() == value,
            "task" => self.task.is_some_and(|(_, number)| number.to_string() == value),
            _ => false,
        }
    }
}

/// A job wherever it is: whose, how it was written, and the path it stands or stood at.
struct Written {
    owner: UserId,
    spec: std::sync::Arc<JobSpec>,
    path: String,
}

async fn written(view: &View, reader: &JournalReader, job: JobId) -> Result<Option<Written>, JournalError> {
    let path = |state: &State, owner| state.tree.path(ScopeId::User(owner));
    {
        let state = view.read();
        if let Some(job) = state.jobs.get(&job) {
            return Ok(Some(Written {
                owner: job.owner,
                spec: job.spec.clone(),
                path: path(&state, job.owner),
            }));
        }
    }
    let id = job.to_string();
    let mut row = reader.history_get("job", &id).await?;
    if row.is_none() {
        row = reader.history_get("task", &id).await?;
    }
    let Some(row) = row else { return Ok(None) };
    let Ok(job) = serde_json::from_str::<DoneJob>(&row.body) else {
        return Ok(None);
    };
    // The row of a task names its job.
    let scope = match &job.spec.task {
        None => row.scope,
        Some(_) => match reader.history_get("job", &row.scope).await? {
            Some(of) => of.scope,
            None => path(&view.read(), job.owner),
        },
    };
    Ok(Some(Written {
        owner: job.owner,
        spec: job.spec,
        path: scope,
    }))
}

/// The streams of allocations of one job, to be collected. Nothing of a job nobody knows any more.
pub(super) async fn streams(
    view: &View,
    reader: &JournalReader,
    job: JobId,
    allocations: &[Allocation],
) -> Result<Vec<NewSource>, JournalError> {
    let Some(written) = written(view, reader, job).await? else {
        return Ok(Vec::new());
    };
    let (spec, path) = (&written.spec, &written.path);
    let mut all = Vec::new();
    for allocation in allocations {
        let node_name = {
            let state = view.read();
            let node = state.fleet.node(allocation.node);
            node.map_or_else(String::new, |node| node.name.to_string())
        };
        let about = About {
            owner: written.owner,
            name: spec.name.clone(),
            kind: spec.kind.as_str().to_owned(),
            labels: spec.labels.clone(),
            task: spec.task.as_ref().map(|task| (task.of, task.number)),
            attempt: allocation.attempt,
            member: allocation.member,
            node: allocation.node,
            node_name,
        };
        let about = serde_json::to_string(&about).expect("INVARIANT: plain fields encode");
        for stream in ["stdout", "stderr"] {
            all.push(NewSource {
                allocation: allocation.id.to_string(),
                stream: stream.to_owned(),
                job: job.to_string(),
                tenant: tenant_in(path),
                scope: path.clone(),
                about: about.clone(),
                begun_ms: allocation.placed.0,
            });
        }
    }
    Ok(all)
}

/// The tenant a path begins with; empty for the platform's own.
pub(super) fn tenant_in(path: &str) -> String {
    let first = path.split('/').next().unwrap_or_default();
    match first.parse() {
        Ok(ScopeId::Tenant(_)) => first.to_owned(),
        _ => String::new(),
    }
}
