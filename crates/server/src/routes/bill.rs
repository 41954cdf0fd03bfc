//! Bill rows, and who sees them in whose prices.
//!
//! What a tenant asks of its subscribers is shown to people of that tenant and below alone: whoever stands above sees what
//! the tenant pays, whatever scope they look at.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::bill::{BillQuery, BillRowView};
use tenure_api::v1::page::Page;
use tenure_api::v1::time::Moment;
use tenure_domain::kind::Kind;
use tenure_domain::ledger::bill::{BillRow, Eye, What};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;
use tenure_domain::{State as Platform, Time};

use crate::auth::Caller;
use crate::billing::row::{NoPlace, Place, view};
use crate::billing::{Rows, RowsError, Wanted};
use crate::controller::now;
use crate::http::Shared;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::query::Query;
use crate::openapi::ReadProblems;

/// Whether the caller is of the tenant a scope belongs to; of the platform and its staff everybody is.
pub(super) fn is_own(state: &Platform, caller: &Caller, scope: ScopeId) -> bool {
    let tenant = state.tree.tenant_of(scope);
    tenant.is_none() || state.tree.tenant_of(ScopeId::User(caller.user)) == tenant
}

/// What is between a tenant and those below it is nobody's matter outside it.
pub(super) fn own_matter(state: &Platform, caller: &Caller, scope: ScopeId) -> Answer<()> {
    let between = matches!(scope, ScopeId::Subscriber(_) | ScopeId::User(_));
    let fine = !between || is_own(state, caller, scope);
    fine.then_some(()).ok_or_else(Fail::not_found)
}

/// In whose prices the caller sees what a scope paid.
pub(super) fn eye(state: &Platform, caller: &Caller, scope: ScopeId) -> Eye {
    match is_own(state, caller, scope) {
        true => Eye::of(scope),
        false => Eye::Tenant,
    }
}

/// The scope asked for, or the widest one above the caller whose costs it may see.
pub(super) fn choose(state: &Platform, caller: &Caller, asked: Option<&str>) -> Answer<ScopeId> {
    if let Some(asked) = asked {
        let scope = asked.parse().map_err(|_| Fail::not_found())?;
        caller.may(state, Action::CostRead, scope)?;
        return Ok(scope);
    }
    let me = ScopeId::User(caller.user);
    let above: Vec<ScopeId> = state.tree.chain(me).map(|scope| scope.id).collect();
    let widest = above
        .into_iter()
        .rev()
        .find(|&scope| caller.may(state, Action::CostRead, scope).is_ok());
    widest.map_or_else(
        || {
            Err(caller
                .may(state, Action::CostRead, me)
                .err()
                .map_or_else(Fail::not_found, Fail::from))
        },
        Ok,
    )
}

/// A span of time as queries say it: from the start of the month to now, where nothing is said.
pub(super) fn span(since: Option<&str>, until: Option<&str>, at: Time) -> Answer<std::ops::Range<Time>> {
    let moment = |text: Option<&str>, name: &str| -> Answer<Option<Time>> {
        let parsed = text.map(|text| text.parse::<Moment>().map(|moment| moment.0));
        parsed.transpose().map_err(|why| Fail::invalid(name, why))
    };
    let until = moment(until, "until")?.unwrap_or(at);
    let since = moment(since, "since")?.unwrap_or(Period::Month.start(at).min(until));
    if since > until {
        return Err(Fail::invalid("since", "the span ends before it begins"));
    }
    Ok(since..until)
}

impl From<RowsError> for Fail {
    fn from(error: RowsError) -> Fail {
        match error {
            RowsError::Journal(error) => error.into(),
            RowsError::Row(error) => Fail::internal(&error),
            RowsError::Stopping => Fail::internal(&error),
        }
    }
}

/// Which rows of those that are read.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    pub what: Option<What>,
    /// Empty means none.
    pub class: Option<String>,
    pub sku: Option<String>,
    pub kind: Option<Kind>,
}

impl Filter {
    pub fn takes(&self, row: &BillRow) -> bool {
        let interval = row.interval.as_ref();
        let class = interval.and_then(|of| of.class.as_deref()).unwrap_or_default();
        let sku = interval.and_then(|of| of.sku.as_deref()).unwrap_or_default();
        self.what.is_none_or(|what| what == row.what)
            && self.class.as_deref().is_none_or(|wanted| wanted == class)
            && self.sku.as_deref().is_none_or(|wanted| wanted == sku)
            && self
                .kind
                .is_none_or(|kind| interval.is_some_and(|of| of.kind == kind))
    }
}

/// A page of rows, oldest first.
pub(super) async fn page(
    shared: &Shared,
    turn: &Turn<'_>,
    wanted: Wanted,
    filter: &Filter,
) -> Answer<Page<BillRowView>> {
    let after = turn.after.as_deref().map(|after| {
        let bad = |NoPlace| Fail::invalid("cursor", "the cursor is not one of this list");
        after.parse::<Place>().map_err(bad)
    });
    let mut rows = Rows::read(shared.app.controller.reader(), wanted, after.transpose()?);
    let mut items = Vec::new();
    let mut last: Option<Place> = None;
    while let Some(found) = rows.next().await? {
        for found in found.into_iter().filter(|found| filter.takes(&found.row)) {
            if items.len() == turn.limit {
                let next = last.map(|last| turn.seal(&last.to_string()));
                return Ok(Page { items, next });
            }
            items.push(view(&found.row, found.amount));
            last = Some(found.place);
        }
    }
    Ok(Page { items, next: None })
}

/// Lists every change of what a scope owes in a span of time, oldest first.
#[utoipa::path(get, path = "/v1/bill-rows", tag = "invoice", params(BillQuery), responses((status = 200, body = Page<BillRowView>), ReadProblems))]
pub(crate) async fn bill_rows(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<BillQuery>,
) -> Answer<Json<Page<BillRowView>>> {
    let span = span(query.since.as_deref(), query.until.as_deref(), now())?;
    let wanted = {
        let state = shared.app.controller.view().read();
        let scope = choose(&state, &caller, query.scope.as_deref())?;
        Wanted {
            path: state.tree.path(scope),
            span,
            eye: eye(&state, &caller, scope),
        }
    };
    // A span that ends now is another with each page.
    let list = format!(
        "bill-rows/{:?}",
        BillQuery {
            limit: None,
            cursor: None,
            ..query.clone()
        }
    );
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let filter = Filter {
        what: query.what,
        class: query.class,
        sku: query.sku,
        kind: query.kind,
    };
    page(&shared, &turn, wanted, &filter).await.map(Json)
}
