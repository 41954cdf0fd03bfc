//! Ports: one session a command, any number of connections in it, so that a page with a hundred requests is one
//! entry in the journal.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::ws::WebSocket;
use tenure_api::channel::stream::Target;
use tenure_domain::id::{AllocationId, JobId, NodeId, SessionId, UserId};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Counts, Live, carry};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};

/// Connections of one session at once; fewer than a job's streams, so that its owner can still get in.
const MAX_CONNECTIONS: usize = 48;

/// Sessions of ports that are open here.
#[derive(Default)]
pub(crate) struct Ports(Mutex<HashMap<SessionId, Arc<Port>>>);

pub(crate) struct Port {
    session: SessionId,
    user: UserId,
    job: JobId,
    node: NodeId,
    allocation: AllocationId,
    port: u16,
    counts: Arc<Counts>,
    room: Arc<Semaphore>,
    over: CancellationToken,
}

impl Ports {
    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Port>>> {
        self.0.lock().expect("short and without panics")
    }

    /// A session the caller itself has open at the job.
    pub fn find(&self, caller: &Caller, job: JobId, session: SessionId) -> Answer<Arc<Port>> {
        let port = self.open().get(&session).cloned();
        port.filter(|port| port.user == caller.user && port.job == job)
            .ok_or_else(Fail::not_found)
    }

    /// Holds the session until its client leaves or may not stay; its connections end with it.
    pub async fn hold(&self, live: Live, port: u16, socket: WebSocket) {
        let session = live.session.id;
        let port = Arc::new(Port {
            session,
            user: live.session.user,
            job: live.session.job,
            node: live.node,
            allocation: live.session.allocation,
            port,
            counts: live.counts.clone(),
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            over: CancellationToken::new(),
        });
        self.open().insert(session, port.clone());
        let job_ended = async {
            let (view, job) = (live.shared.app.controller.view(), port.job);
            let mut news = view.watch();
            let lives = || {
                let state = view.read();
                let job = state.jobs.get(&job);
                job.is_some_and(|job| job.allocations().any(|id| id == port.allocation))
            };
            while lives() {
                if news.changed().await.is_err() {
                    break;
                }
            }
            "the job ended".to_owned()
        };
        let lost = async {
            tokio::select! {
                why = live.until_lost() => why,
                why = job_ended => why,
            }
        };
        let why = carry::hold(socket, session, lost).await;
        self.open().remove(&session);
        port.over.cancel();
        live.end(None, why).await;
    }
}

impl Port {
    /// Carries one connection.
    pub async fn connect(&self, shared: &Shared, socket: WebSocket) {
        let Ok(_room) = self.room.try_acquire() else {
            let why = format!("the session has {MAX_CONNECTIONS} connections open already");
            carry(
                socket,
                Err(why),
                self.session,
                &self.counts,
                std::future::pending(),
            )
            .await;
            return;
        };
        let target = Target::Port { port: self.port };
        let stream = shared.app.engine.open(self.node, self.allocation, target).await;
        let stream = stream.map_err(|error| error.to_string());
        let over = async {
            self.over.cancelled().await;
            "the session ended".to_owned()
        };
        carry(socket, stream, self.session, &self.counts, over).await;
    }
}
