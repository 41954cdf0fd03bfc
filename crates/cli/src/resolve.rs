//! From what people write to what the API takes: scopes by id or path, nodes by id or name, jobs in `job`.

pub mod job;

use tenure_api::client::Client;
use tenure_api::v1::node::{NodeQuery, NodeView};
use tenure_api::v1::page::Page;
use tenure_api::v1::scope::ScopeView;
use tenure_domain::id::{NodeId, TenantId};
use tenure_domain::tenancy::scope::{Level, ScopeId};

use crate::refusal::Failure;

/// A scope by its id, its path such as `acme/research/ada`, or `platform`.
pub async fn scope(client: &Client, text: &str) -> Result<ScopeView, Failure> {
    let text = text.trim_end_matches('/');
    if let Ok(id) = text.parse::<ScopeId>() {
        return Ok(client.scope(&id.to_string()).await?);
    }
    let parts: Vec<&str> = text.split('/').collect();
    if parts.len() > 3
        || parts
            .iter()
            .any(|part| tenure_domain::name::check(part, "").is_err())
    {
        return Err(
            Failure::usage(format!("'{text}' is neither an id nor a path of a scope"))
                .hint("write it like acme, acme/research, acme/research/ada or platform"),
        );
    }
    match client.scope_by_path(text).await.map_err(Failure::from) {
        Err(Failure::Refused(problem)) if problem.code == "not_found" => Err(Failure::not_found(format!(
            "there is no {text} here that you may see"
        ))
        .hint("`tenure tenant list` shows what there is")),
        other => other,
    }
}

/// A scope of one level.
pub async fn scope_at(client: &Client, text: &str, level: Level) -> Result<ScopeView, Failure> {
    let view = scope(client, text).await?;
    if view.level == level {
        return Ok(view);
    }
    Err(Failure::usage(format!(
        "{} is a {}, not a {}",
        view.path,
        view.level.as_str(),
        level.as_str()
    )))
}

/// The scope named, or the caller itself.
pub async fn scope_or_me(client: &Client, text: Option<&str>) -> Result<ScopeView, Failure> {
    match text {
        Some(text) => scope(client, text).await,
        None => Ok(client.whoami().await?.user),
    }
}

/// A node by its id or its name.
pub async fn node(client: &Client, text: &str) -> Result<NodeView, Failure> {
    if let Ok(id) = text.parse::<NodeId>() {
        return Ok(client.node(&id.to_string()).await?);
    }
    let nodes = nodes(client).await?;
    nodes.into_iter().find(|node| node.name == text).ok_or_else(|| {
        Failure::not_found(format!("there is no node named {text}")).hint("`tenure node list` shows them")
    })
}

/// All nodes; to who may not see those, the ones of their own tenant.
pub async fn nodes(client: &Client) -> Result<Vec<NodeView>, Failure> {
    match nodes_of(client, None).await {
        Err(Failure::Refused(problem)) if ["not_found", "not_permitted"].contains(&&*problem.code) => {
            nodes_of(client, own_tenant(client).await?).await
        }
        other => other,
    }
}

/// Those of one tenant.
pub async fn nodes_of(client: &Client, tenant: Option<TenantId>) -> Result<Vec<NodeView>, Failure> {
    let tenant = tenant.map(|tenant| tenant.to_string());
    all(async |cursor| {
        let query = NodeQuery {
            cursor,
            tenant: tenant.clone(),
            ..NodeQuery::default()
        };
        client.nodes(&query).await
    })
    .await
}

/// The caller's.
pub async fn own_tenant(client: &Client) -> Result<Option<TenantId>, Failure> {
    let path = client.whoami().await?.user.path;
    let Some((tenant, _)) = path.split_once('/') else {
        return Ok(None);
    };
    match scope_at(client, tenant, Level::Tenant).await?.id {
        ScopeId::Tenant(tenant) => Ok(Some(tenant)),
        _ => Ok(None),
    }
}

/// Every item of a paged list.
pub async fn all<T>(
    mut page: impl AsyncFnMut(Option<String>) -> Result<Page<T>, tenure_api::client::ClientError>,
) -> Result<Vec<T>, Failure> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let next: Page<T> = page(cursor.clone()).await?;
        items.extend(next.items);
        match next.next {
            // A server that gives the same cursor again would keep us here for ever.
            Some(more) if Some(&more) != cursor.as_ref() => cursor = Some(more),
            _ => return Ok(items),
        }
    }
}
