//! Sessions under way: the bytes between a person's WebSocket and a running job, for as long as the person may.
//!
//! A session is journalled before anything of it is opened, and its end when it is over, however it ends. Whoever
//! loses the right, by a revoked key or a suspension, loses the session within a moment. Deliberately absent: who
//! may (decided in `domain`) and what happens inside the job (agent).

mod carry;
mod port;
mod upgrade;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_api::channel::stream::Target;
use tenure_domain::id::{JobId, NodeId};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::session::{Session, SessionEnd, SessionKind};
use tenure_domain::{Event, Wish};

use crate::auth::Caller;
use crate::controller::Controller;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};

pub(crate) use carry::carry;
pub(crate) use port::Ports;
pub(crate) use upgrade::Upgrade;

/// How soon a lost right is noticed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Bytes so far.
#[derive(Default)]
pub(crate) struct Counts {
    inward: AtomicU64,
    outward: AtomicU64,
}

/// One session; its end is journalled when it is dropped, if not before.
pub(crate) struct Live {
    pub session: Session,
    pub node: NodeId,
    pub counts: Arc<Counts>,
    shared: Arc<Shared>,
    caller: Caller,
    ended: bool,
}

/// Lets the caller into a job, or says why not. What is returned is durable.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    caller: &Caller,
    (job, member): (JobId, u32),
    kind: SessionKind,
    from: String,
) -> Answer<Live> {
    let wish = Wish::OpenSession {
        job,
        member,
        kind,
        from,
    };
    let accepted = caller.submit(&shared.app.controller, wish).await?;
    let session = accepted.events.iter().find_map(|event| match &**event {
        Event::SessionOpened { session } => Some(session.clone()),
        _ => None,
    });
    let session = session.ok_or_else(|| Fail::internal(&"a session without its event"))?;
    let node = {
        let state = shared.app.controller.view().read();
        state
            .fleet
            .allocation(session.allocation)
            .map(|allocation| allocation.node)
    };
    let live = Live {
        session,
        node: node.unwrap_or(NodeId(0)),
        counts: Arc::default(),
        shared: shared.clone(),
        caller: caller.clone(),
        ended: false,
    };
    match node {
        Some(_) => Ok(live),
        // It ended between the decision and here.
        None => Err(Fail::unavailable("the job lost its place just now")),
    }
}

impl Live {
    /// The stream to the job.
    pub async fn stream(&self, target: Target) -> Result<tenure_engine::Stream, String> {
        let engine = &self.shared.app.engine;
        engine
            .open(self.node, self.session.allocation, target)
            .await
            .map_err(|error| match error {
                tenure_engine::EngineError::Refused { why } => why,
                passing => passing.to_string(),
            })
    }

    /// Returns, with the reason, once the session may not go on.
    pub async fn until_lost(&self) -> String {
        may_no_longer(
            &self.shared,
            &self.caller,
            self.session.kind.action(),
            self.session.owner,
        )
        .await
    }

    /// Journals the end.
    pub async fn end(mut self, exit: Option<tenure_api::channel::stream::Exit>, why: String) {
        self.ended = true;
        let wish = self.wish(exit, why);
        note(self.shared.app.controller.clone(), wish).await;
    }

    fn wish(&self, exit: Option<tenure_api::channel::stream::Exit>, why: String) -> Wish {
        Wish::EndSession {
            session: self.session.id,
            end: SessionEnd {
                bytes_in: self.counts.inward.load(Ordering::Relaxed),
                bytes_out: self.counts.outward.load(Ordering::Relaxed),
                exit_code: exit.and_then(|exit| exit.code),
                signal: exit.and_then(|exit| exit.signal),
                why,
            },
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if !self.ended {
            let wish = self.wish(None, "the connection was never opened".to_owned());
            tokio::spawn(note(self.shared.app.controller.clone(), wish));
        }
    }
}

async fn note(controller: Controller, wish: Wish) {
    // Unsaid, the next leader says it: who was there is gone either way.
    if controller.system(wish).await.is_err() {
        tracing::debug!("the end of a session was not noted here");
    }
}

async fn may_no_longer(
    shared: &Shared,
    caller: &Caller,
    action: Action,
    owner: tenure_domain::id::UserId,
) -> String {
    loop {
        tokio::select! {
            () = shared.stop.cancelled() => return "the server is closing".to_owned(),
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        if !shared.app.controller.is_leading() {
            return "the server no longer leads".to_owned();
        }
        let state = shared.app.controller.view().read();
        if !caller.stands(&state) {
            return "the key was revoked or has expired, or its user is suspended".to_owned();
        }
        if let Err(refusal) = caller.may(&state, action, ScopeId::User(owner)) {
            return format!("it is no longer allowed: {}", refusal.sentence);
        }
    }
}

/// Ends, in the journal, the sessions of a leader that is gone.
pub(crate) async fn end_orphans(controller: &Controller) {
    let orphans: Vec<_> = controller.view().read().sessions.keys().copied().collect();
    for session in orphans {
        let end = SessionEnd {
            bytes_in: 0,
            bytes_out: 0,
            exit_code: None,
            signal: None,
            why: "the server ended before the session did; its bytes are not known".to_owned(),
        };
        note(controller.clone(), Wish::EndSession { session, end }).await;
    }
}
