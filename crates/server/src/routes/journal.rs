//! The journal's signed head, and proofs from it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::journal::{HeadView, ProofView};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_journal::SignedHead;

use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::openapi::ReadProblems;

fn head_view(shared: &Shared, head: SignedHead) -> HeadView {
    let public = shared.app.signing_key.public_key();
    HeadView {
        platform: head.platform,
        seq: head.seq,
        hash: head.hash.to_string(),
        root: head.root.to_string(),
        at_ms: head.at_ms,
        key_id: head.key_id,
        signature: head.signature,
        public_key: public.0.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// Signed here and not kept: what is kept beside the journal is signed by a timer.
fn signed(shared: &Shared) -> Answer<SignedHead> {
    let journal = shared.app.controller.journal().ok_or_else(Fail::not_leader)?;
    Ok(shared
        .app
        .signing_key
        .sign(journal.platform(), journal.head(), now().0))
}

fn may_read(shared: &Shared, caller: &Caller) -> Answer<()> {
    let state = shared.app.controller.view().read();
    Ok(caller.may(&state, Action::JournalRead, ScopeId::Platform)?)
}

/// Signs the journal as it is now; keep it elsewhere, and a rewritten or cut journal is found out.
#[utoipa::path(get, path = "/v1/journal/head", tag = "journal", responses((status = 200, body = HeadView), ReadProblems))]
pub(crate) async fn journal_head(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
) -> Answer<Json<HeadView>> {
    may_read(&shared, &caller)?;
    let head = signed(&shared)?;
    Ok(Json(head_view(&shared, head)))
}

/// Proves one event against a signed head, for checking offline.
#[utoipa::path(get, path = "/v1/journal/proofs/{seq}", tag = "journal", params(("seq" = u64, Path, description = "The event's number", minimum = 1)),
    responses((status = 200, body = ProofView), ReadProblems))]
pub(crate) async fn journal_proof(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<ProofView>> {
    may_read(&shared, &caller)?;
    let seq: u64 = path.id(0)?;
    prove(&shared, seq).await.map(Json)
}

/// Proves an event against a head signed now.
pub(super) async fn prove(shared: &Shared, seq: u64) -> Answer<ProofView> {
    let head = signed(shared)?;
    let proof = shared.app.controller.reader().prove(seq, head.seq).await?;
    let path = proof.path.iter().map(ToString::to_string).collect();
    Ok(ProofView {
        line: proof.line,
        index: proof.index,
        size: proof.size,
        path,
        head: head_view(shared, head),
    })
}

/// The journal's head as it is now, signed.
pub(super) fn head(shared: &Shared) -> Answer<HeadView> {
    Ok(head_view(shared, signed(shared)?))
}
