//! Which job is meant: its id, the last characters of it, or the name of one's own latest.

use tenure_api::client::Client;
use tenure_api::v1::job::{JobQuery, JobView};
use tenure_domain::id::JobId;

use crate::refusal::Failure;
use crate::resolve::all;

/// Fewer characters of an id would match by chance.
const SHORTEST_SUFFIX: usize = 4;

pub async fn job(client: &Client, text: &str) -> Result<JobId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let me = client.whoami().await?.user;
    let mine = jobs(client, Some(me.id.to_string())).await?;
    if let Some(latest) = latest_named(&mine, text) {
        return Ok(latest);
    }
    let suffix = text.strip_prefix(JobId::PREFIX).unwrap_or(text);
    if suffix.len() >= SHORTEST_SUFFIX
        && suffix.len() < 13
        && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        let all = jobs(client, None).await?;
        match with_suffix(&all, suffix)[..] {
            [one] => return Ok(one),
            [] => {}
            ref several => {
                let ids: Vec<String> = several.iter().take(5).map(ToString::to_string).collect();
                return Err(Failure::usage(format!(
                    "{} jobs end in {text}: {}",
                    several.len(),
                    ids.join(", ")
                ))
                .hint("give more of the id"));
            }
        }
    }
    Err(
        Failure::not_found(format!("there is no job {text} here that you may see"))
            .hint("give an id, the end of one, or the name of a job of yours; `tenure ps -a` shows them"),
    )
}

async fn jobs(client: &Client, scope: Option<String>) -> Result<Vec<JobView>, Failure> {
    all(async |cursor| {
        let query = JobQuery {
            scope: scope.clone(),
            show: Some("all".into()),
            tasks: None,
            limit: Some(1000),
            cursor,
        };
        client.jobs(&query).await
    })
    .await
}

/// Ids rise with time, so the largest is the latest.
fn latest_named(jobs: &[JobView], name: &str) -> Option<JobId> {
    jobs.iter()
        .filter(|job| job.spec.name == name)
        .map(|job| job.id)
        .max()
}

fn with_suffix(jobs: &[JobView], suffix: &str) -> Vec<JobId> {
    let lower = suffix.to_ascii_lowercase();
    jobs.iter()
        .map(|job| job.id)
        .filter(|id| id.to_string().ends_with(&lower))
        .collect()
}
