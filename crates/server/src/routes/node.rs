//! Nodes and their devices, and the tickets with which nodes join.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tenure_api::token::{self, JoinTicket};
use tenure_api::v1::node::{CreateJoinToken, GpuView, NewJoinToken, NodeQuery, NodeView};
use tenure_api::v1::page::Page;
use tenure_domain::id::{NodeId, TenantId};
use tenure_domain::schedule::fleet::{Gpu, Node};
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{State as Platform, Wish};

use crate::auth::{Caller, digest};
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::{JsonBody, NoBody};
use crate::http::cursor::Turn;
use crate::http::etag::IfMatch;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::NotRepeatable;
use crate::keyring::random;
use crate::openapi::{ChangeProblems, ReadProblems};

const MAX_VALID_S: u64 = 30 * 24 * 3600;

pub(super) fn gpu_view(state: &Platform, gpu: &Gpu) -> GpuView {
    let facts = &gpu.facts;
    GpuView {
        id: gpu.id,
        uuid: facts.uuid.clone(),
        vendor: facts.vendor.clone(),
        model: facts.model.clone(),
        class: facts.class.to_string(),
        vram_mib: facts.vram_mib,
        used_vram_mib: gpu.used_vram_mib,
        used_permille: gpu.used_permille,
        slices: u32::try_from(gpu.holders.len()).unwrap_or(u32::MAX),
        isolation: facts
            .isolation
            .iter()
            .map(|(level, why)| (level.as_str().to_owned(), why.clone()))
            .collect(),
        present: gpu.present,
        quarantine: gpu.quarantine.as_deref().map(str::to_owned),
        checked: state
            .market
            .gpu_check(gpu.id)
            .and_then(|check| check.passed)
            .map(Into::into),
        hardware: facts.hardware.as_deref().cloned(),
    }
}

fn view(state: &Platform, node: &Node) -> NodeView {
    NodeView {
        id: node.id,
        name: node.name.to_string(),
        status: node.status,
        joined: node.joined.into(),
        cpu_milli: node.cpu_milli,
        used_cpu_milli: node.used_cpu_milli,
        memory_mib: node.memory_mib,
        used_memory_mib: node.used_memory_mib,
        volume_mib: node.volume_mib,
        used_volume_mib: node.used_volume_mib,
        allocations: u32::try_from(node.allocations.len()).unwrap_or(u32::MAX),
        gpus: node.gpus.iter().map(|gpu| gpu_view(state, gpu)).collect(),
        labels: node.labels.clone(),
        owner: node.owner,
        revision: node.revision,
    }
}

fn shown(shared: &Shared, node: NodeId) -> Answer<Json<NodeView>> {
    let state = shared.app.controller.view().read();
    Ok(Json(view(
        &state,
        state.fleet.node(node).ok_or_else(Fail::not_found)?,
    )))
}

/// Makes a ticket with which one node may join, once. It is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/nodes/tokens", tag = "node", request_body = CreateJoinToken, responses((status = 201, body = NewJoinToken), ChangeProblems))]
pub(crate) async fn create_join_token(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    _: NotRepeatable,
    body: JsonBody<CreateJoinToken>,
) -> Answer<(StatusCode, Json<NewJoinToken>)> {
    let valid_s = body.value.valid_s;
    if valid_s == 0 || valid_s > MAX_VALID_S {
        return Err(Fail::invalid(
            "/valid_s",
            format!("a token is good for 1 to {MAX_VALID_S} seconds"),
        ));
    }
    let tenant = body.value.tenant.as_deref();
    let tenant = tenant.map(|tenant| tenant.parse::<TenantId>()).transpose();
    let tenant = tenant.map_err(|_| Fail::not_found())?;
    let bytes: [u8; 32] = random();
    let expires = now().plus_ms(valid_s * 1000);
    caller
        .submit(
            &shared.app.controller,
            Wish::CreateJoinToken {
                digest: digest(&bytes),
                expires,
                tenant,
            },
        )
        .await?;
    let ticket = JoinTicket {
        token: token::write(token::Kind::Join, &bytes),
        authority: shared.app.authority,
    };
    Ok((
        StatusCode::CREATED,
        Json(NewJoinToken {
            token: ticket.write().reveal().to_owned(),
            expires: expires.into(),
        }),
    ))
}

/// A right over a node: the platform's people have it over all, a tenant's over those it brought. Who has neither is
/// told the same of any node, be there one or not.
fn may(caller: &Caller, state: &Platform, action: Action, node: NodeId) -> Answer<()> {
    let owner = state.fleet.node(node).and_then(|node| node.owner);
    let own = owner.is_some_and(|owner| caller.may(state, action, ScopeId::Tenant(owner)).is_ok());
    match own {
        true => Ok(()),
        false => Ok(caller.may(state, action, ScopeId::Platform)?),
    }
}

/// Lists the nodes in the order they joined: all of them, or those of one tenant.
#[utoipa::path(get, path = "/v1/nodes", tag = "node", params(NodeQuery), responses((status = 200, body = Page<NodeView>), ReadProblems))]
pub(crate) async fn nodes(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<NodeQuery>,
) -> Answer<Json<Page<NodeView>>> {
    let state = shared.app.controller.view().read();
    // As in a path: what cannot be an id is as absent as what nobody has.
    let tenant = query.tenant.as_deref().map(|tenant| tenant.parse::<TenantId>());
    let tenant = tenant.transpose().map_err(|_| Fail::not_found())?;
    match tenant {
        Some(tenant) => {
            state.tree.find(ScopeId::Tenant(tenant))?;
            caller.may(&state, Action::NodeRead, ScopeId::Tenant(tenant))?;
        }
        None => caller.may(&state, Action::NodeRead, ScopeId::Platform)?,
    }
    let list = format!("nodes/{}", query.tenant.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<NodeId> = turn.after.as_ref().and_then(|after| after.parse().ok());
    let ahead = state
        .fleet
        .nodes()
        .filter(|node| after.is_none_or(|after| node.id > after))
        .filter(|node| tenant.is_none() || [node.owner, node.labels.dedicated].contains(&tenant));
    let shown = ahead.map(|node| view(&state, node));
    Ok(Json(turn.page(shown, |node| node.id.to_string())))
}

/// Shows a node.
#[utoipa::path(get, path = "/v1/nodes/{node}", tag = "node", params(("node" = String, Path, description = "The node's id")),
    responses((status = 200, body = NodeView), ReadProblems))]
pub(crate) async fn node(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<NodeView>> {
    let node = path.id(0)?;
    may(
        &caller,
        &shared.app.controller.view().read(),
        Action::NodeRead,
        node,
    )?;
    shown(&shared, node)
}

/// Takes a node out of service; what runs there goes on.
#[utoipa::path(post, path = "/v1/nodes/{node}/cordon", tag = "node", params(("node" = String, Path, description = "The node's id")),
    responses((status = 200, body = NodeView), ChangeProblems))]
pub(crate) async fn cordon(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<NodeView>> {
    let node = path.id(0)?;
    caller
        .submit(&shared.app.controller, Wish::CordonNode { node })
        .await?;
    shown(&shared, node)
}

/// Puts a node back into service.
#[utoipa::path(post, path = "/v1/nodes/{node}/uncordon", tag = "node", params(("node" = String, Path, description = "The node's id")),
    responses((status = 200, body = NodeView), ChangeProblems))]
pub(crate) async fn uncordon(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<NodeView>> {
    let node = path.id(0)?;
    caller
        .submit(&shared.app.controller, Wish::UncordonNode { node })
        .await?;
    shown(&shared, node)
}

/// Says anew where a node stands, which fabric block it is on and whose it is; what is not said is no longer so. What
/// runs there goes on.
#[utoipa::path(put, path = "/v1/nodes/{node}/labels", tag = "node", request_body = Labels,
    params(("node" = String, Path, description = "The node's id"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = NodeView), ChangeProblems))]
pub(crate) async fn label_node(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<Labels>,
) -> Answer<Json<NodeView>> {
    let node: NodeId = path.id(0)?;
    let present = {
        let state = shared.app.controller.view().read();
        state.fleet.node(node).map(|node| node.revision)
    };
    let wish = Wish::LabelNode {
        node,
        labels: body.value,
        revision: condition.revision(present),
    };
    caller.submit(&shared.app.controller, wish).await?;
    shown(&shared, node)
}

/// Takes away a node's keys: it cannot speak to the server any more.
#[utoipa::path(post, path = "/v1/nodes/{node}/revoke", tag = "node", params(("node" = String, Path, description = "The node's id")),
    responses((status = 200, body = NodeView), ChangeProblems))]
pub(crate) async fn revoke_node(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<NodeView>> {
    let node: NodeId = path.id(0)?;
    let keys = {
        let state = shared.app.controller.view().read();
        may(&caller, &state, Action::NodeManage, node)?;
        state.fleet.node(node).ok_or_else(Fail::not_found)?.keys.clone()
    };
    for key in keys {
        caller
            .submit(&shared.app.controller, Wish::RevokeNodeKey { node, key })
            .await?;
    }
    shown(&shared, node)
}

/// Forgets a node on which nothing runs.
#[utoipa::path(delete, path = "/v1/nodes/{node}", tag = "node", params(("node" = String, Path, description = "The node's id")),
    responses((status = 204, description = "Removed"), ChangeProblems))]
pub(crate) async fn remove_node(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<StatusCode> {
    let node = path.id(0)?;
    caller
        .submit(&shared.app.controller, Wish::RemoveNode { node })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
