//! Invoices: drafted and issued over bill rows, paid, opened down to their rows, written out with their proofs.
//!
//! Whoever may see a scope's costs sees its invoices, but what a tenant bills below it is shown to people of that tenant
//! alone. Counting up and writing out are `billing`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tenure_api::v1::bill::BillRowView;
use tenure_api::v1::invoice::{
    DraftQuery, FileForm, FileHead, FileQuery, InvoiceQuery, InvoiceRowsQuery, InvoiceState, InvoiceView,
    IssueInvoice, PayInvoice,
};
use tenure_api::v1::page::Page;
use tenure_domain::id::InvoiceId;
use tenure_domain::ledger::bill::Eye;
use tenure_domain::ledger::focus::Frame;
use tenure_domain::ledger::invoice::{Draft, Invoice, seller};
use tenure_domain::money::Micros;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, State as Platform, Wish};
use tenure_journal::Hash;

use super::bill::{Filter, choose, own_matter, page, span};
use super::scope::id_in;
use crate::auth::Caller;
use crate::billing::file::Pieces;
use crate::billing::{Rows, Wanted, count_up, file, page as printed};
use crate::controller::{Accepted, now};
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::{RepeatKey, create};
use crate::openapi::{ChangeProblems, ReadProblems};

fn seller_name(state: &Platform, scope: ScopeId) -> String {
    let seller = seller(&state.tree, scope).unwrap_or(ScopeId::Platform);
    state.tree.title(seller)
}

/// What everybody below a payer is called.
fn names(state: &Platform, scope: ScopeId) -> BTreeMap<ScopeId, String> {
    let below = state.tree.subtree(scope).into_iter();
    below.map(|scope| (scope, state.tree.title(scope))).collect()
}

fn draft_view(state: &Platform, draft: &Draft) -> InvoiceView {
    InvoiceView {
        id: None,
        state: InvoiceState::Draft,
        scope: draft.scope.to_string(),
        path: state.tree.title(draft.scope),
        seller: seller_name(state, draft.scope),
        currency: state.prices.currency.to_string(),
        since: draft.from.into(),
        until: draft.until.into(),
        total_micros: draft.total.0,
        rows: draft.rows,
        root: Hash(draft.root.0).to_string(),
        lines: draft.lines.clone(),
        issued: None,
        paid: None,
        refunded_micros: 0,
    }
}

fn view(state: &Platform, invoice: &Invoice) -> InvoiceView {
    InvoiceView {
        id: Some(invoice.id.to_string()),
        state: match invoice.paid {
            Some(_) => InvoiceState::Paid,
            None => InvoiceState::Issued,
        },
        currency: invoice.currency.to_string(),
        issued: Some(invoice.issued.into()),
        paid: invoice.paid.map(Into::into),
        refunded_micros: invoice.refunded.0,
        ..draft_view(state, &invoice.draft)
    }
}

/// May the caller see what a scope is billed?
fn may_see(state: &Platform, caller: &Caller, scope: ScopeId) -> Answer<()> {
    caller.may(state, Action::CostRead, scope)?;
    own_matter(state, caller, scope)
}

fn render(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let issued = accepted.events.iter().find_map(|event| match &**event {
        Event::InvoiceIssued { invoice } => Some(invoice),
        _ => None,
    })?;
    let json = serde_json::to_string(&view(state, issued)).ok()?;
    Some((format!("/v1/invoices/{}", issued.id), json))
}

/// Counts up what a scope owes for a span of time; nothing is issued.
#[utoipa::path(get, path = "/v1/invoice-draft", tag = "invoice", params(DraftQuery), responses((status = 200, body = InvoiceView), ReadProblems))]
pub(crate) async fn draft_invoice(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<DraftQuery>,
) -> Answer<Json<InvoiceView>> {
    let span = span(query.since.as_deref(), query.until.as_deref(), now())?;
    let (scope, wanted) = {
        let state = shared.app.controller.view().read();
        let scope = choose(&state, &caller, query.scope.as_deref())?;
        own_matter(&state, &caller, scope)?;
        let wanted = Wanted {
            path: state.tree.path(scope),
            span: span.clone(),
            eye: Eye::of(scope),
        };
        (scope, wanted)
    };
    let counted = count_up(shared.app.controller.reader(), wanted).await?;
    let draft = counted.draft(scope, span.start, span.end);
    let state = shared.app.controller.view().read();
    Ok(Json(draft_view(&state, &draft)))
}

/// Issues an invoice for a span of time that is over. Each scope is billed once for each moment.
#[utoipa::path(post, path = "/v1/invoices", tag = "invoice", request_body = IssueInvoice,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = InvoiceView), ChangeProblems))]
pub(crate) async fn issue_invoice(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<IssueInvoice>,
) -> Answer<Response> {
    let scope: ScopeId = id_in(&body.value.scope, "/scope", "a scope")?;
    let (from, until) = (body.value.since.0, body.value.until.0);
    let path = {
        let state = shared.app.controller.view().read();
        // Asked here too, so that nobody has rows counted whose invoice they may not issue.
        let seller = seller(&state.tree, scope)
            .ok_or_else(|| Fail::invalid("/scope", "the platform is billed by nobody"))?;
        own_matter(&state, &caller, scope)?;
        caller.may(&state, Action::InvoiceManage, seller)?;
        state.tree.find(scope)?;
        state.tree.path(scope)
    };
    let mut draft = Draft {
        scope,
        from,
        until,
        total: Micros::ZERO,
        rows: 0,
        root: Digest([0; 32]),
        lines: Vec::new(),
    };
    // What is refused for its span is not counted up either.
    if from < until && until <= now() {
        shared.app.controller.reach(until).await?;
        let wanted = Wanted {
            path,
            span: from..until,
            eye: Eye::of(scope),
        };
        let counted = count_up(shared.app.controller.reader(), wanted).await?;
        draft = counted.draft(scope, from, until);
    }
    let draft = Box::new(draft);
    create(
        &shared,
        &caller,
        repeat,
        &body.bytes,
        Wish::IssueInvoice { draft },
        render,
    )
    .await
}

/// Lists the invoices of a scope and of those below it, the newest first.
#[utoipa::path(get, path = "/v1/invoices", tag = "invoice", params(InvoiceQuery), responses((status = 200, body = Page<InvoiceView>), ReadProblems))]
pub(crate) async fn invoices(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<InvoiceQuery>,
) -> Answer<Json<Page<InvoiceView>>> {
    let state = shared.app.controller.view().read();
    let scope = choose(&state, &caller, query.scope.as_deref())?;
    let list = format!("invoices/{scope}/{:?}", query.state);
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<InvoiceId> = turn.after.as_ref().and_then(|after| after.parse().ok());
    let seen = state.invoices.iter().rev().filter(|invoice| {
        after.is_none_or(|after| invoice.id < after)
            && state.tree.is_within(invoice.draft.scope, scope)
            && may_see(&state, &caller, invoice.draft.scope).is_ok()
    });
    let views = seen.map(|invoice| view(&state, invoice));
    let views = views.filter(|view| query.state.is_none_or(|wanted| wanted == view.state));
    Ok(Json(turn.page(views, |view| view.id.clone().unwrap_or_default())))
}

/// The invoice of the path, once the caller may see it.
fn find(state: &Platform, caller: &Caller, id: InvoiceId) -> Answer<Invoice> {
    let invoice = state.invoices.get(id).ok_or_else(Fail::not_found)?;
    may_see(state, caller, invoice.draft.scope)?;
    Ok(invoice.clone())
}

/// Shows an invoice.
#[utoipa::path(get, path = "/v1/invoices/{invoice}", tag = "invoice", params(("invoice" = String, Path, description = "The invoice's id")),
    responses((status = 200, body = InvoiceView), ReadProblems))]
pub(crate) async fn invoice(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<InvoiceView>> {
    let state = shared.app.controller.view().read();
    let invoice = find(&state, &caller, path.id(0)?)?;
    Ok(Json(view(&state, &invoice)))
}

/// Notes that an invoice was paid.
#[utoipa::path(post, path = "/v1/invoices/{invoice}/pay", tag = "invoice", request_body = PayInvoice,
    params(("invoice" = String, Path, description = "The invoice's id")), responses((status = 200, body = InvoiceView), ChangeProblems))]
pub(crate) async fn pay_invoice(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<PayInvoice>,
) -> Answer<Json<InvoiceView>> {
    let id: InvoiceId = path.id(0)?;
    let wish = Wish::PayInvoice {
        invoice: id,
        reference: body.value.reference,
    };
    caller.submit(&shared.app.controller, wish).await?;
    let state = shared.app.controller.view().read();
    let invoice = state.invoices.get(id).ok_or_else(Fail::not_found)?;
    Ok(Json(view(&state, invoice)))
}

/// An invoice with the place where history keeps its rows, and the number of its event.
struct Placed {
    invoice: Invoice,
    wanted: Wanted,
    event: u64,
}

async fn placed(shared: &Shared, caller: &Caller, id: InvoiceId) -> Answer<Placed> {
    let invoice = {
        let state = shared.app.controller.view().read();
        find(&state, caller, id)?
    };
    let reader = shared.app.controller.reader();
    let kept = reader.history_get("invoice", &id.to_string()).await?;
    let kept = kept.ok_or_else(|| Fail::internal(&"an invoice has no place in history"))?;
    let event = serde_json::from_str::<serde_json::Value>(&kept.body)
        .ok()
        .and_then(|body| body["event"].as_u64());
    Ok(Placed {
        wanted: Wanted {
            path: kept.scope,
            span: invoice.draft.from..invoice.draft.until,
            eye: Eye::of(invoice.draft.scope),
        },
        event: event.ok_or_else(|| Fail::internal(&"an invoice has no event"))?,
        invoice,
    })
}

/// Opens an invoice, or one of its lines, down to its rows, oldest first.
#[utoipa::path(get, path = "/v1/invoices/{invoice}/rows", tag = "invoice",
    params(("invoice" = String, Path, description = "The invoice's id"), InvoiceRowsQuery),
    responses((status = 200, body = Page<BillRowView>), ReadProblems))]
pub(crate) async fn invoice_rows(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<InvoiceRowsQuery>,
) -> Answer<Json<Page<BillRowView>>> {
    let id: InvoiceId = path.id(0)?;
    let placed = placed(&shared, &caller, id).await?;
    let filter = Filter {
        what: query.what,
        class: query.class,
        sku: query.sku,
        kind: query.kind,
    };
    let list = format!("invoice-rows/{id}/{filter:?}");
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    page(&shared, &turn, placed.wanted, &filter).await.map(Json)
}

fn streamed(kind: &'static str, name: String, mut pieces: Pieces) -> Response {
    let stream = futures_util::stream::poll_fn(move |context| pieces.poll_recv(context));
    let disposition = format!("attachment; filename=\"{name}\"");
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    (headers, Body::from_stream(stream)).into_response()
}

/// Writes an invoice out: JSON with every row and the proof of it, CSV, a page for printing, or FOCUS 1.2.
#[utoipa::path(get, path = "/v1/invoices/{invoice}/file", tag = "invoice",
    params(("invoice" = String, Path, description = "The invoice's id"), FileQuery),
    responses((status = 200, description = "The file", content((String = "application/json"), (String = "text/csv"), (String = "text/html"))), ReadProblems))]
pub(crate) async fn invoice_file(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    Query(query): Query<FileQuery>,
) -> Answer<Response> {
    let id: InvoiceId = path.id(0)?;
    let Placed {
        mut invoice,
        wanted,
        event,
    } = placed(&shared, &caller, id).await?;
    let reader = shared.app.controller.reader();
    Ok(match query.form.unwrap_or_default() {
        FileForm::Json => {
            // What became of it since is told by events of their own.
            (invoice.paid, invoice.refunded) = (None, Micros::ZERO);
            let proof = super::journal::prove(&shared, event).await?;
            let pieces = file::json(reader, wanted, FileHead { invoice, proof });
            streamed("application/json", format!("{id}.json"), pieces)
        }
        FileForm::Csv => streamed(
            "text/csv; charset=utf-8",
            format!("{id}.csv"),
            file::csv(reader, wanted, invoice),
        ),
        FileForm::Focus => {
            let frame = {
                let state = shared.app.controller.view().read();
                let scope = invoice.draft.scope;
                Frame {
                    seller: seller_name(&state, scope),
                    payer_id: scope.to_string(),
                    payer_name: state.tree.title(scope),
                    payer_level: scope.level(),
                    eye: wanted.eye,
                    names: names(&state, scope),
                    currency: invoice.currency,
                    invoice: id.to_string(),
                }
            };
            let pieces = file::focus(reader, wanted, invoice, frame);
            streamed("text/csv; charset=utf-8", format!("{id}.focus.csv"), pieces)
        }
        FileForm::Html => {
            let head = super::journal::head(&shared)?;
            let mut rows = Rows::read(reader, wanted, None);
            let mut first = Vec::new();
            while first.len() < printed::ROWS
                && let Some(page) = rows.next().await?
            {
                let seen = page
                    .iter()
                    .map(|found| crate::billing::row::view(&found.row, found.amount));
                first.extend(seen.take(printed::ROWS - first.len()));
            }
            let page = {
                let state = shared.app.controller.view().read();
                let view = view(&state, &invoice);
                printed::html(&view, &view.seller, &head, &first)
            };
            // Nothing is fetched and nothing runs, whatever stands in a name.
            let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_SECURITY_POLICY, policy),
            ];
            (headers, page).into_response()
        }
    })
}
