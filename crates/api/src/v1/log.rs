//! Kept logs: searching lines of all jobs a caller may read, taking them out, and how they are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenure_domain::tenancy::keeping::Keeping;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogSearch {
    /// Jobs of this scope and below; all the caller may read unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// This job, with its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// `trace`, `debug`, `info`, `warn`, `error` or `fatal`, and graver. A line that says no level counts as `info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Labels as `key=value`, several between commas, all of which must hold: the job's own, or `name`, `kind`, `node`,
    /// `stream`, `task`, `member`, `attempt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Lines that came at this moment or later, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Lines that came before this moment, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Text the line has in it, in whatever case; not a pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    /// `newest` (default) or `oldest` first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// `json` (default): one page. `ndjson` or `text`: everything there is now, as it is found, one line each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// How many at most in a page, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Goes on where the page that gave this cursor ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// One line a job wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogLineView {
    /// Its own, for as long as it is kept.
    pub id: String,
    /// When it was collected: seconds after it was written, later where its node could not be asked.
    #[schema(value_type = String, format = DateTime)]
    pub at: Moment,
    /// What it says of itself; absent where it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    pub stream: String,
    pub job: String,
    /// The job's name.
    pub name: String,
    /// The job it is a task of, and its number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_of: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
    pub member: u32,
    pub attempt: u32,
    pub node: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Without a terminal's colours and movements; other controls are shown as pictures of themselves.
    pub text: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    pub items: Vec<LogLineView>,
    /// There is more to look through. A page may be short, or empty, and have more after it: work on one request is bounded.
    pub more: bool,
    /// Where to go on: present when there is more, and always with the oldest first, so that what comes later can be asked
    /// for with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Lines from before this moment may be missing: they were erased, for their age or for want of room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub erased_before: Option<Moment>,
}

/// How logs are kept at a scope.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LogKeepingView {
    /// What the scope itself says.
    pub said: Keeping,
    /// What holds, all said above it considered.
    pub days: u32,
    pub mib: u64,
    pub job_mib: u64,
    pub revision: u64,
}
