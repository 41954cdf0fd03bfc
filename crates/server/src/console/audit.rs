//! Audit: the journal's events as far as the reader may see them, searched by kind and text; and the proof that one of
//! them is in the journal, checked with nothing but the platform's public key.

mod search;

use askama::Template;
use axum::extract::{Path, Query};
use serde::Deserialize;
use tenure_api::v1::event::EventView;
use tenure_api::v1::journal::{HeadView, ProofView};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_journal::{Hash, Proof, PublicKey, SignedHead, check_proof};

use super::desk::piece;
use super::fault::{Page, page};
use super::frame::Frame;
use super::health::apart;
use super::html::{Html, inert, log};
use super::session::Session;
use super::show;
use super::told;
use search::{Way, search};

#[derive(Deserialize)]
pub(super) struct Asked {
    q: Option<String>,
    /// From here to older ones.
    until: Option<u64>,
    /// From here to newer ones.
    from: Option<u64>,
    /// The events of the page are to be proven, one by one.
    verify: Option<String>,
}

struct Row {
    seq: u64,
    at: Html,
    kind: String,
    by: Html,
    what: Html,
    data: String,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    frame: Frame,
    q: String,
    /// The same, for an address.
    q_piece: String,
    rows: Vec<Row>,
    /// Newest first.
    back: bool,
    /// Where the search goes on: the address's field, and its value.
    next: Option<(&'static str, u64)>,
    looked: String,
    head: Option<HeadView>,
    later: bool,
    proves: bool,
    /// Whether all of the page were proven, and how that is said.
    verified: Option<(bool, String)>,
    /// Where this page's search began, as the address says it.
    began: (&'static str, u64),
    newest: u64,
}

pub(super) async fn audit(session: Session, Query(asked): Query<Asked>) -> Page {
    let frame = Frame::of(&session, "audit").await?;
    let q = asked.q.unwrap_or_default();
    let words: Vec<String> = q.split_whitespace().map(str::to_lowercase).collect();
    let way = match (asked.from, asked.until) {
        (Some(from), _) => Way::On(from),
        (None, Some(until)) => Way::Back(until),
        (None, None) => Way::of(&session, &words).await,
    };
    let found = search(&session, &words, way).await?;
    let proves = session.may(Action::JournalRead, ScopeId::Platform);
    let head = match proves {
        true => session.desk.get("/v1/journal/head").await.ok(),
        false => None,
    };
    let verified = match proves && asked.verify.is_some() {
        true => Some(verify(&session, &found.events).await),
        false => None,
    };
    page(&Audit {
        verified,
        began: field(way),
        newest: told::head(&session),
        back: matches!(way, Way::Back(_)),
        rows: found.events.iter().map(|event| row(&session, event)).collect(),
        next: found.next.map(field),
        looked: format!(
            "Searched events {} to {}",
            show::count(found.searched.0),
            show::count(found.searched.1)
        ),
        later: asked.until.is_some() || asked.from.is_some(),
        q_piece: piece(&q),
        q,
        head,
        proves,
        frame,
    })
}

/// A way as an address says it.
fn field(way: Way) -> (&'static str, u64) {
    match way {
        Way::Back(until) => ("until", until),
        Way::On(from) => ("from", from),
    }
}

fn row(session: &Session, event: &EventView) -> Row {
    let by = session.named(&event.by);
    Row {
        seq: event.seq,
        at: show::time(&event.at),
        kind: apart(&event.kind),
        by: show::name(&by),
        what: what(session, event),
        data: serde_json::to_string_pretty(&event.data)
            .map(|text| log(&text))
            .unwrap_or_default(),
    }
}

/// What it is about, where a page tells more of that.
fn what(session: &Session, event: &EventView) -> Html {
    let data = &event.data;
    for (field, page) in [("job", "jobs"), ("gpu", "fleet")] {
        if let Some(id) = data[field].as_str() {
            let id = super::html::escape(id);
            return Html::made(format!(
                "<a class=\"mono\" href=\"/console/{page}/{id}\">{id}</a>"
            ));
        }
    }
    let named = [
        "scope", "user", "node", "booking", "offer", "lease", "bid", "name",
    ];
    let id = named.iter().find_map(|field| data[field].as_str());
    id.map_or_else(show::none, |id| show::name(&session.named(id)))
}

#[derive(Template)]
#[template(path = "proof.html")]
struct Proved {
    frame: Frame,
    seq: u64,
    sound: Result<(), String>,
    line: String,
    steps: usize,
    head: HeadView,
}

pub(super) async fn proof(session: Session, Path(seq): Path<u64>) -> Page {
    let frame = Frame::of(&session, "audit").await?;
    let view: ProofView = session.desk.get(&format!("/v1/journal/proofs/{seq}")).await?;
    page(&Proved {
        seq,
        sound: check(&view),
        line: log(&view.line),
        steps: view.path.len(),
        head: view.head,
        frame,
    })
}

/// Proves events one by one, each against a head signed then. The first that is not proven is told.
async fn verify(session: &Session, events: &[EventView]) -> (bool, String) {
    for event in events {
        let seq = event.seq;
        let view = session
            .desk
            .get::<ProofView>(&format!("/v1/journal/proofs/{seq}"))
            .await;
        let sound = view
            .map_err(|problem| inert(&problem.detail))
            .and_then(|view| check(&view));
        if let Err(why) = sound {
            return (false, format!("Event {seq} is not proven: {why}."));
        }
    }
    let events = show::things(events.len() as u64, "event");
    (
        true,
        format!("{events} on this page, each led to the signed root and found sound."),
    )
}

/// Walks from the event to the head's root and checks the head's signature, with what the answer holds alone.
fn check(view: &ProofView) -> Result<(), String> {
    let hash = |text: &str| {
        text.parse::<Hash>()
            .map_err(|_| "a hash in it is not one".to_owned())
    };
    let head = &view.head;
    let signed = SignedHead {
        platform: head.platform.clone(),
        seq: head.seq,
        hash: hash(&head.hash)?,
        root: hash(&head.root)?,
        at_ms: head.at_ms,
        key_id: head.key_id.clone(),
        signature: head.signature.clone(),
    };
    let proof = Proof {
        line: view.line.clone(),
        index: view.index,
        size: view.size,
        path: view
            .path
            .iter()
            .map(|step| hash(step))
            .collect::<Result<_, _>>()?,
    };
    let key = key(&head.public_key).ok_or("the public key in it is not one")?;
    check_proof(&proof, &signed, &key)
        .map(drop)
        .map_err(|error| inert(&error.to_string()))
}

fn key(hex: &str) -> Option<PublicKey> {
    let pairs = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let bytes: Option<Vec<u8>> = pairs.collect();
    Some(PublicKey(bytes?.try_into().ok()?))
}
