//! Volumes: making, showing, growing and removing them. Their files are on nodes, which erase what is removed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tenure_api::v1::page::Page;
use tenure_api::v1::volume::{CreateVolume, GrowVolume, VolumeQuery, VolumeView};
use tenure_domain::id::VolumeId;
use tenure_domain::storage::volume::Volume;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, State as Platform, Wish};

use super::scope::id_in;
use crate::auth::Caller;
use crate::controller::Accepted;
use crate::http::Shared;
use crate::http::body::{JsonBody, NoBody};
use crate::http::cursor::Turn;
use crate::http::etag::{IfMatch, tagged};
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::{RepeatKey, create};
use crate::openapi::{ChangeProblems, ReadProblems};

fn view(state: &Platform, volume: &Volume) -> VolumeView {
    let node = volume.node.and_then(|node| state.fleet.node(node));
    VolumeView {
        id: volume.id,
        scope: volume.scope.to_string(),
        scope_path: state.tree.title(volume.scope),
        name: volume.name.clone(),
        size_mib: volume.size_mib,
        created: volume.created.into(),
        node: volume.node,
        node_name: node.map(|node| node.name.to_string()),
        jobs: u32::try_from(state.volumes.jobs_of(volume.id).count()).unwrap_or(u32::MAX),
        revision: volume.revision,
    }
}

/// Whether the caller's own jobs may name it.
fn is_above(state: &Platform, caller: &Caller, volume: &Volume) -> bool {
    state.tree.is_within(ScopeId::User(caller.user), volume.scope)
}

fn render(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let id = accepted.events.iter().find_map(|event| match **event {
        Event::VolumeCreated { volume, .. } => Some(volume),
        _ => None,
    })?;
    let json = serde_json::to_string(&view(state, state.volumes.get(id)?)).ok()?;
    Some((format!("/v1/volumes/{id}"), json))
}

/// Creates a volume. Its space is counted at once; its files come into being on the node of its first job.
#[utoipa::path(post, path = "/v1/volumes", tag = "volume", request_body = CreateVolume,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = VolumeView), ChangeProblems))]
pub(crate) async fn create_volume(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<CreateVolume>,
) -> Answer<Response> {
    let CreateVolume {
        scope,
        name,
        size_mib,
    } = body.value;
    let scope = match scope {
        Some(scope) => id_in(&scope, "/scope", "a scope")?,
        None => ScopeId::User(caller.user),
    };
    let wish = Wish::CreateVolume {
        scope,
        name,
        size_mib,
    };
    create(&shared, &caller, repeat, &body.bytes, wish, render).await
}

/// Lists volumes in the order they were made.
#[utoipa::path(get, path = "/v1/volumes", tag = "volume", params(VolumeQuery), responses((status = 200, body = Page<VolumeView>), ReadProblems))]
pub(crate) async fn volumes(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<VolumeQuery>,
) -> Answer<Json<Page<VolumeView>>> {
    let state = shared.app.controller.view().read();
    let scopes: Vec<ScopeId> = match &query.scope {
        Some(scope) => {
            // As in a path: what cannot be an id is as absent as what nobody has.
            let scope = scope.parse().map_err(|_| Fail::not_found())?;
            caller.may(&state, Action::ScopeRead, scope)?;
            state.tree.subtree(scope)
        }
        None => {
            caller.may_look(&state)?;
            let chain = state.tree.chain(ScopeId::User(caller.user));
            chain.map(|scope| scope.id).collect()
        }
    };
    let list = format!("volumes/{}", query.scope.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<VolumeId> = turn.after.as_ref().and_then(|after| after.parse().ok());
    let mut found: Vec<&Volume> = scopes
        .into_iter()
        .flat_map(|scope| state.volumes.of(scope))
        .filter(|volume| after.is_none_or(|after| volume.id > after))
        .collect();
    found.sort_by_key(|volume| volume.id);
    let views = found.into_iter().map(|volume| view(&state, volume));
    Ok(Json(turn.page(views, |volume| volume.id.to_string())))
}

/// Shows a volume.
#[utoipa::path(get, path = "/v1/volumes/{volume}", tag = "volume", params(("volume" = String, Path, description = "The volume's id")),
    responses((status = 200, body = VolumeView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn volume(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    let state = shared.app.controller.view().read();
    let found = state.volumes.find(path.id(0)?)?;
    if is_above(&state, &caller, found) {
        caller.may_look(&state)?;
    } else {
        caller.may(&state, Action::ScopeRead, found.scope)?;
    }
    let view = view(&state, found);
    let changing = serde_json::json!([view.jobs, view.node_name]);
    tagged(&headers, found.revision, &changing, view)
}

/// Makes a volume larger, also while jobs use it.
#[utoipa::path(post, path = "/v1/volumes/{volume}/grow", tag = "volume", request_body = GrowVolume,
    params(("volume" = String, Path, description = "The volume's id"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = VolumeView), ChangeProblems))]
pub(crate) async fn grow_volume(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<GrowVolume>,
) -> Answer<Response> {
    let id: VolumeId = path.id(0)?;
    let present = {
        let state = shared.app.controller.view().read();
        state.volumes.get(id).map(|volume| volume.revision)
    };
    let wish = Wish::GrowVolume {
        volume: id,
        size_mib: body.value.size_mib,
        revision: condition.revision(present),
    };
    caller.submit(&shared.app.controller, wish).await?;
    let state = shared.app.controller.view().read();
    let grown = state.volumes.find(id)?;
    tagged(&HeaderMap::new(), grown.revision, &(), view(&state, grown))
}

/// Removes a volume and everything in it. Refused while a job that has not ended names it.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", tag = "volume", params(("volume" = String, Path, description = "The volume's id")),
    responses((status = 204, description = "Removed"), ChangeProblems))]
pub(crate) async fn remove_volume(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<StatusCode> {
    let wish = Wish::RemoveVolume { volume: path.id(0)? };
    caller.submit(&shared.app.controller, wish).await?;
    Ok(StatusCode::NO_CONTENT)
}
