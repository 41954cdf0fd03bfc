//! A job's log as it is written, from the node it runs or ran on; once that cannot give it, from what was kept.

mod kept;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tenure_api::channel::LogStream;
use tenure_api::v1::job::LogQuery;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::tenancy::role::Action;
use tenure_domain::workload::member::Member;
use tenure_engine::EngineError;

use super::{Found, find, task};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::ReadProblems;

const CHUNK_BYTES: u32 = 64 * 1024;
const WAIT_MS: u32 = 5_000;
/// Beyond the end of every log: a node asked for what is there says where the end is.
const BEYOND: u64 = 1 << 62;
/// The longest tail of a log.
const TAIL_MAX_BYTES: u64 = 16 << 20;
/// Where in the log the first byte of an answer stands.
pub(crate) const OFFSET_HEADER: &str = "tenure-log-offset";

/// Gives the log's bytes; with `follow`, as they are written until the job ends.
#[utoipa::path(get, path = "/v1/jobs/{job}/logs", tag = "job", params(("job" = String, Path, description = "The job's id"), LogQuery),
    responses((status = 200, description = "The bytes the job wrote", body = String, content_type = "text/plain",
        headers(("tenure-log-offset" = u64, description = "Where in the log the first of them stands"))), ReadProblems))]
pub(crate) async fn logs(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<LogQuery>,
) -> Answer<Response> {
    let stream = match query.stream.as_deref() {
        None | Some("stdout") => LogStream::Stdout,
        Some("stderr") => LogStream::Stderr,
        Some(_) => return Err(Fail::invalid("stream", "not one of stdout, stderr")),
    };
    let mut job = path.id(0)?;
    let member = query.member.unwrap_or(0);
    let mut found = find(&shared, &caller, job, Action::JobRead).await?;
    if let Some(number) = query.task {
        job = task::numbered(&shared, &found, number).await?;
        found = find(&shared, &caller, job, Action::JobRead).await?;
    } else if found.is_parent() {
        return Err(Fail::invalid(
            "task",
            "it is a job of tasks, each with a log of its own; say which",
        ));
    }
    let members = match &found {
        Found::Live(job) => job.spec.demand.nodes,
        Found::Done { job, .. } => job.spec.demand.nodes,
    };
    if member >= members {
        return Err(Fail::invalid(
            "member",
            format!(
                "the job has no member {member}; its members are counted from 0 to {}",
                members - 1
            ),
        ));
    }
    let tail = match (query.tail, query.offset) {
        (Some(_), Some(_)) => {
            return Err(Fail::invalid(
                "tail",
                "either the last bytes or those from an offset on",
            ));
        }
        (Some(tail), None) if tail > TAIL_MAX_BYTES => {
            return Err(Fail::invalid("tail", format!("at most {TAIL_MAX_BYTES} bytes")));
        }
        (tail, _) => tail,
    };
    let place = place_of(&found, member);
    let seat = shared.streams.take(caller.user)?;
    let (offset, follow) = (query.offset.unwrap_or(0), query.follow.unwrap_or(false));
    let mut reading = Reading {
        shared,
        caller,
        job,
        member,
        stream,
        offset,
        follow,
        place,
        first: None,
        ended: false,
        _seat: seat,
    };
    if let Some(tail) = tail {
        reading.offset = reading.end().await?.saturating_sub(tail);
    }
    let begins = reading.offset;
    reading.first = reading.next().await?;
    let pieces = stream::unfold(reading, |mut reading| async move {
        if let Some(bytes) = reading.first.take() {
            return Some((Ok(bytes), reading));
        }
        match reading.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), reading)),
            Ok(None) => None,
            // The headers are gone; all that can be said is that this is not the end.
            Err(fail) => {
                reading.ended = true;
                Some((Err(std::io::Error::other(fail.problem.detail.clone())), reading))
            }
        }
    });
    Ok((
        [
            (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
            (HeaderName::from_static(OFFSET_HEADER), begins.to_string()),
        ],
        Body::from_stream(pieces),
    )
        .into_response())
}

/// Where a job's log is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It has no node yet.
    Waiting,
    On(NodeId, AllocationId),
    /// It ended without ever having had a node.
    Nowhere,
}

/// A member that ended keeps its log where it ran, as a job does.
fn place_of(found: &Found, member: u32) -> Place {
    let on = |member: &Member| Place::On(member.node, member.allocation);
    match found {
        Found::Live(job) => job.members.get(member as usize).map_or(Place::Waiting, on),
        Found::Done { job, .. } => match (job.node, job.allocation) {
            (Some(node), Some(allocation)) if job.members.is_empty() => Place::On(node, allocation),
            _ => job.members.get(member as usize).map_or(Place::Nowhere, on),
        },
    }
}

/// What is given next of a log.
struct Piece {
    bytes: Vec<u8>,
    /// Where the one after it begins.
    next: u64,
    end: bool,
}

struct Reading {
    shared: Arc<Shared>,
    caller: Caller,
    job: JobId,
    member: u32,
    stream: LogStream,
    offset: u64,
    follow: bool,
    place: Place,
    first: Option<Bytes>,
    ended: bool,
    _seat: super::super::event::Seat,
}

impl Reading {
    /// The next piece; none at the end.
    async fn next(&mut self) -> Answer<Option<Bytes>> {
        while !self.ended {
            let stands = self.caller.stands(&self.shared.app.controller.view().read());
            if self.shared.stop.is_cancelled() || !stands {
                return Ok(None);
            }
            match self.place {
                Place::Nowhere => return Ok(None),
                Place::Waiting if !self.follow => return Ok(None),
                Place::Waiting => self.wait_for_a_place().await?,
                Place::On(node, allocation) => {
                    let chunk = self.read(node, allocation).await?;
                    self.offset = chunk.next;
                    if chunk.end {
                        self.after_the_end(allocation).await?;
                    }
                    if !chunk.bytes.is_empty() {
                        return Ok(Some(chunk.bytes.into()));
                    }
                    if !self.follow {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(None)
    }

    async fn read(&self, node: NodeId, allocation: AllocationId) -> Answer<Piece> {
        let wait_ms = if self.follow { WAIT_MS } else { 0 };
        let engine = &self.shared.app.engine;
        let asked = engine.read_log(node, allocation, self.stream, self.offset, CHUNK_BYTES, wait_ms);
        let error = match asked.await {
            Ok(chunk) => {
                return Ok(Piece {
                    next: chunk.offset + chunk.bytes.len() as u64,
                    bytes: chunk.bytes,
                    end: chunk.end,
                });
            }
            Err(error) => error,
        };
        if let Some(piece) = kept::read(&self.shared, allocation, self.stream, self.offset).await? {
            return Ok(piece);
        }
        Err(match error {
            EngineError::Refused { .. } => Fail::not_found(),
            passing => Fail::unavailable(format!(
                "the log is on a node that cannot be asked now: {passing}"
            )),
        })
    }

    /// Where the log ends at present; 0 where it has not begun.
    async fn end(&self) -> Answer<u64> {
        let Place::On(node, allocation) = self.place else {
            return Ok(0);
        };
        let engine = &self.shared.app.engine;
        let asked = engine.read_log(node, allocation, self.stream, BEYOND, 1, 0).await;
        match asked {
            Ok(chunk) if chunk.offset < BEYOND => Ok(chunk.offset),
            // The node's program is of a time when it did not say: it is asked by halves.
            Ok(_) => self.sought(node, allocation).await,
            // That nobody can give it is said when it is read.
            Err(_) => Ok(kept::end(&self.shared, allocation, self.stream)
                .await?
                .unwrap_or(0)),
        }
    }

    /// The end of a log, between what is there and what is not.
    async fn sought(&self, node: NodeId, allocation: AllocationId) -> Answer<u64> {
        let engine = &self.shared.app.engine;
        let (mut there, mut beyond) = (0, 1 << 50);
        while there < beyond {
            let middle = there + (beyond - there) / 2;
            match engine.read_log(node, allocation, self.stream, middle, 1, 0).await {
                Ok(chunk) if chunk.bytes.is_empty() => beyond = middle,
                Ok(_) => there = middle + 1,
                Err(_) => return Ok(0),
            }
        }
        Ok(there)
    }

    async fn wait_for_a_place(&mut self) -> Answer<()> {
        let mut news = self.shared.app.controller.view().watch();
        self.place = self.look().await?;
        if self.place == Place::Waiting {
            // Woken by any change; asked again at the latest when the caller's key may have been revoked.
            let _ = tokio::time::timeout(Duration::from_secs(5), news.changed()).await;
        }
        Ok(())
    }

    /// An attempt has ended: the job has too, or goes on with another attempt and another log.
    async fn after_the_end(&mut self, over: AllocationId) -> Answer<()> {
        let place = self.look().await?;
        match place {
            Place::On(_, allocation) if allocation == over => self.ended = true,
            Place::Nowhere => self.ended = true,
            _ if !self.follow => self.ended = true,
            place => (self.place, self.offset) = (place, 0),
        }
        Ok(())
    }

    async fn look(&self) -> Answer<Place> {
        let found = find(&self.shared, &self.caller, self.job, Action::JobRead).await?;
        Ok(place_of(&found, self.member))
    }
}
