//! Refused accesses, counted by principal, action and code, and journalled once a minute: every one is
//! audited, and a flood of them costs one event.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_api::problem::Problem;
use tenure_domain::event::RefusedAccess;
use tenure_domain::{Code, Wish};
use tokio_util::sync::CancellationToken;

use crate::controller::Controller;
use crate::http::Notes;

const EVERY: Duration = Duration::from_secs(60);
/// Kinds of refusals told apart within a minute; the rest is counted together.
const MAX_KINDS: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    principal: String,
    action: String,
    code: String,
}

/// The counts of this minute.
#[derive(Default)]
pub struct Audit {
    counts: Mutex<BTreeMap<Kind, u64>>,
}

impl Audit {
    pub fn count(&self, principal: &str, action: &str, code: &str) {
        let mut counts = self.counts.lock().expect("short and without panics");
        let mut kind = Kind {
            principal: principal.into(),
            action: action.into(),
            code: code.into(),
        };
        if counts.len() >= MAX_KINDS && !counts.contains_key(&kind) {
            kind = Kind {
                principal: "others".into(),
                action: "any".into(),
                code: code.into(),
            };
        }
        *counts.entry(kind).or_default() += 1;
    }

    fn take(&self) -> Vec<RefusedAccess> {
        let counts = std::mem::take(&mut *self.counts.lock().expect("short and without panics"));
        let rows = counts.into_iter();
        rows.map(
            |(
                Kind {
                    principal,
                    action,
                    code,
                },
                count,
            )| RefusedAccess {
                principal,
                action,
                code,
                count,
            },
        )
        .collect()
    }

    /// Journals what was counted. What cannot be journalled is counted on.
    pub async fn flush(&self, controller: &Controller) {
        let counts = self.take();
        if counts.is_empty() {
            return;
        }
        if let Err(error) = controller
            .system(Wish::CountRefusals {
                counts: counts.clone(),
            })
            .await
        {
            tracing::warn!(
                ?error,
                kinds = counts.len(),
                "refused accesses were not journalled yet"
            );
            let mut kept = self.counts.lock().expect("short and without panics");
            for RefusedAccess {
                principal,
                action,
                code,
                count,
            } in counts
            {
                *kept
                    .entry(Kind {
                        principal,
                        action,
                        code,
                    })
                    .or_default() += count;
            }
        }
    }

    /// Journals once a minute, and a last time when told to stop.
    pub async fn run(self: Arc<Self>, controller: Controller, stop: CancellationToken) {
        let mut minute = tokio::time::interval(EVERY);
        minute.tick().await;
        while tokio::select! { () = stop.cancelled() => false, _ = minute.tick() => true } {
            self.flush(&controller).await;
        }
        self.flush(&controller).await;
    }
}

/// Counts a problem that is a refused access: a token not taken, a right not held, an object not shown.
pub(crate) fn note(audit: &Audit, notes: &Notes, problem: &Problem) {
    let refused = [
        Code::NotPermitted,
        Code::ForbiddenByRule,
        Code::Suspended,
        Code::GrantExceedsGrantor,
        Code::NotFound,
    ];
    let by_code = refused.iter().any(|code| code.as_str() == problem.code);
    let bad_token = problem.status == 401 && notes.had_token;
    let Some(operation) = &notes.operation else { return };
    if by_code || bad_token {
        let principal = notes.principal.get().map_or("stranger", String::as_str);
        audit.count(principal, &operation.id, &problem.code);
    }
}
