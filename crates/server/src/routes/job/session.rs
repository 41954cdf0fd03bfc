//! Being at a running job: its output and input, a process inside it, its ports. WebSocket, and journalled.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use tenure_api::channel::stream::{MAX_COMMAND_BYTES, Size, Target, Terminal};
use tenure_api::v1::session::{AttachQuery, COMMAND_HEADER, ExecQuery, PortQuery, read_command};
use tenure_domain::id::JobId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::workload::session::SessionKind;
use tenure_domain::{Code, Refusal};

use super::{Found, find};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::SessionProblems;
use crate::session::{self, Live, Upgrade, carry};

/// A live job the caller may do this to, asked for in the right way.
async fn at(
    shared: &Shared,
    caller: &Caller,
    path: &Segments<1>,
    action: Action,
    upgrade: &Upgrade,
) -> Answer<JobId> {
    let id = path.id(0)?;
    if let Found::Done { .. } = find(shared, caller, id, action).await? {
        return Err(Refusal::new(Code::WrongPhase, "the job has ended").into());
    }
    upgrade.check()?;
    Ok(id)
}

fn carried(upgrade: Upgrade, live: Live, target: Target) -> Answer<Response> {
    upgrade.go(|socket| async move {
        let stream = live.stream(target).await;
        let (exit, why) = carry(socket, stream, live.session.id, &live.counts, live.until_lost()).await;
        live.end(exit, why).await;
    })
}

/// Attaches to a job: what it writes, and its input where it has one.
#[utoipa::path(get, path = "/v1/jobs/{job}/attach", tag = "job", params(("job" = String, Path, description = "The job's id"), AttachQuery),
    responses((status = 101, description = "A WebSocket. Binary messages are a byte for the stream (0 input, 1 stdout, 2 stderr) and its bytes; text messages are JSON: from the server `opened` first and `closed` last, from the client `resize` and `end`"), SessionProblems))]
pub(crate) async fn attach_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<AttachQuery>,
    upgrade: Upgrade,
) -> Answer<Response> {
    let job = at(&shared, &caller, &path, Action::JobAttach, &upgrade).await?;
    let member = query.member.unwrap_or(0);
    let live = session::open(
        &shared,
        &caller,
        (job, member),
        SessionKind::Attach,
        upgrade.from(),
    )
    .await?;
    let from_start = query.from_start.unwrap_or(false);
    carried(upgrade, live, Target::Attach { from_start })
}

/// Runs a process inside a job, walled off as the job is.
#[utoipa::path(get, path = "/v1/jobs/{job}/exec", tag = "job", params(("job" = String, Path, description = "The job's id"), ExecQuery,
        ("Tenure-Command" = Option<String>, Header, description = "The program and its arguments: base64 of a JSON list of texts")),
    responses((status = 101, description = "A WebSocket"), SessionProblems))]
pub(crate) async fn exec_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<ExecQuery>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Answer<Response> {
    let job = at(&shared, &caller, &path, Action::JobExec, &upgrade).await?;
    let command = command(&headers)?;
    let member = query.member.unwrap_or(0);
    let terminal = terminal(query)?;
    let kind = SessionKind::exec(&command, terminal.is_some());
    let live = session::open(&shared, &caller, (job, member), kind, upgrade.from()).await?;
    carried(upgrade, live, Target::Exec { command, terminal })
}

/// Opens a session at one of a job's ports, or a connection in such a session.
#[utoipa::path(get, path = "/v1/jobs/{job}/port", tag = "job", params(("job" = String, Path, description = "The job's id"), PortQuery),
    responses((status = 101, description = "A WebSocket"), SessionProblems))]
pub(crate) async fn port_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<PortQuery>,
    upgrade: Upgrade,
) -> Answer<Response> {
    let job = at(&shared, &caller, &path, Action::JobPort, &upgrade).await?;
    match (query.port, query.session) {
        (Some(port), None) => {
            let kind = SessionKind::Port { port };
            let member = query.member.unwrap_or(0);
            let live = session::open(&shared, &caller, (job, member), kind, upgrade.from()).await?;
            upgrade.go(move |socket| async move { shared.ports.hold(live, port, socket).await })
        }
        (None, Some(session)) => {
            let session = session.parse().map_err(|_| Fail::not_found())?;
            let port = shared.ports.find(&caller, job, session)?;
            upgrade.go(move |socket| async move { port.connect(&shared, socket).await })
        }
        _ => Err(Fail::invalid("port", "either a port or a session is to be given")),
    }
}

fn command(headers: &HeaderMap) -> Answer<Vec<String>> {
    let mut all = headers.get_all(COMMAND_HEADER).iter();
    let command = all.next().and_then(|header| read_command(header.as_bytes()));
    let Some(command) = command.filter(|_| all.next().is_none()) else {
        return Err(Fail::invalid(
            "Tenure-Command",
            "not one header with base64 of a JSON list of texts",
        ));
    };
    let length: usize = command.iter().map(|part| part.len() + 1).sum();
    if length > MAX_COMMAND_BYTES {
        return Err(Fail::invalid(
            "Tenure-Command",
            format!("the command is longer than {MAX_COMMAND_BYTES} bytes"),
        ));
    }
    if command.iter().any(|part| part.contains('\0')) {
        return Err(Fail::invalid("Tenure-Command", "the command has a NUL byte"));
    }
    Ok(command)
}

fn terminal(query: ExecQuery) -> Answer<Option<Terminal>> {
    if !query.tty.unwrap_or(false) {
        return Ok(None);
    }
    if query.term.as_deref().is_some_and(|name| !Terminal::is_name(name)) {
        return Err(Fail::invalid("term", "not the name of a terminal"));
    }
    Ok(Some(Terminal {
        size: Size {
            rows: query.rows.unwrap_or(24),
            cols: query.cols.unwrap_or(80),
        },
        name: query.term,
    }))
}
