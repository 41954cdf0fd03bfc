//! One replica as the server reaches it: its open connections, and whether it is ready.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, header};
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_engine::Engine;

use super::connection::{self, Connection};
use super::desk::Ticket;
use super::header::HOST;

/// How long a replica has to say that it is ready, each time it is asked.
const ANSWER: Duration = Duration::from_secs(5);
/// Asked again after so long at first, and no more seldom than that later.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Replica {
    /// The replica's own job.
    pub job: JobId,
    pub allocation: AllocationId,
    pub node: NodeId,
    port: u16,
    engine: Arc<dyn Engine>,
    idle: Mutex<Vec<Connection>>,
}

impl Replica {
    pub fn new(
        job: JobId,
        allocation: AllocationId,
        node: NodeId,
        port: u16,
        engine: Arc<dyn Engine>,
    ) -> Replica {
        Replica {
            job,
            allocation,
            node,
            port,
            engine,
            idle: Mutex::default(),
        }
    }

    /// A connection that was kept, or a new one.
    pub async fn connection(&self) -> Result<Connection, String> {
        loop {
            let kept = self.idle.lock().expect("short and without panics").pop();
            match kept {
                Some(connection) if connection.is_ready() => return Ok(connection),
                Some(_) => {}
                None => break,
            }
        }
        connection::open(&*self.engine, self.node, self.allocation, self.port).await
    }

    fn keep(&self, connection: Connection) {
        self.idle
            .lock()
            .expect("short and without panics")
            .push(connection);
    }

    /// Keeps a connection for the next request once this one is through with it; the place is free then.
    pub fn keep_when_done(ticket: Ticket, mut connection: Connection) {
        tokio::spawn(async move {
            if connection.ready().await.is_ok() {
                ticket.replica.keep(connection);
            }
            drop(ticket);
        });
    }

    /// Asks until it is ready, or until `wanted` says that nobody waits for that any more. What it last said instead
    /// is left with `said`.
    pub async fn until_ready(
        &self,
        path: Option<&str>,
        wanted: impl Fn() -> bool,
        said: impl Fn(String),
    ) -> bool {
        let mut pause = FIRST_PAUSE;
        while wanted() {
            let asked = Instant::now();
            match tokio::time::timeout(ANSWER, self.is_ready(path)).await {
                Ok(Ok(())) => return true,
                Ok(Err(why)) => said(why),
                Err(_) => said(format!("it did not answer within {} s", ANSWER.as_secs())),
            }
            tokio::time::sleep(pause.saturating_sub(asked.elapsed())).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
        false
    }

    async fn is_ready(&self, path: Option<&str>) -> Result<(), String> {
        let mut connection = self.connection().await?;
        let Some(path) = path else {
            self.keep(connection);
            return Ok(());
        };
        let request = Request::get(path)
            .header(header::HOST, HOST)
            .body(Body::empty())
            .map_err(|error| error.to_string())?;
        let answer = connection
            .send_request(request)
            .await
            .map_err(|error| format!("it did not answer: {error}"))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {path} with {}", status.as_u16())),
        }
    }
}
