//! Forms as they are sent: who sent them, that one of our pages did, and their fields.

use std::sync::Arc;

use axum::extract::{Form, FromRequest, Request};
use tenure_api::problem::Problem;

use super::Console;
use super::fault::Fault;
use super::session::{Session, is_csrf, is_from_here};

/// A form's fields in the order they stood.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn of(pairs: &[(&str, &str)]) -> Fields {
        let owned = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Fields(owned.collect())
    }

    pub fn forget(&mut self, name: &str) {
        self.0.retain(|(of, _)| of != name);
    }

    /// A field's text without the space around it; empty where it was not sent.
    pub fn text(&self, name: &str) -> &str {
        self.raw(name).trim()
    }

    /// A field's text exactly as it was sent.
    pub fn raw(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(of, _)| of == name);
        found.map_or("", |(_, value)| value)
    }

    /// A field that says something.
    pub fn some(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.some(name).is_some()
    }

    /// A whole number; none where the field is empty.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Fault> {
        let Some(text) = self.some(name) else {
            return Ok(None);
        };
        let number = text.parse().map(Some);
        number.map_err(|_| wrong(name, "this is not a whole number in range"))
    }
}

/// A field of a form is at fault.
pub(super) fn wrong(field: &str, what: impl Into<String>) -> Fault {
    Fault::Problem(Box::new(Problem::new(422, "invalid_field", what).field(field)))
}

/// A form sent by a page of this session.
pub(super) struct Posted {
    pub session: Session,
    pub fields: Fields,
}

impl FromRequest<Arc<Console>> for Posted {
    type Rejection = Fault;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Fault> {
        let peer = request.extensions().get().copied();
        let session = Session::new(console, request.headers(), peer, request.uri().path())?;
        let fields = fields(request).await?;
        if !is_csrf(session.token().reveal(), fields.raw("csrf")) {
            return Err(foreign());
        }
        Ok(Posted { session, fields })
    }
}

/// The fields of a form that was sent from here.
pub(super) async fn fields(request: Request) -> Result<Fields, Fault> {
    if !is_from_here(request.headers()) {
        return Err(foreign());
    }
    let read = Form::<Vec<(String, String)>>::from_request(request, &()).await;
    read.map(|Form(fields)| Fields(fields)).map_err(|_| {
        Fault::Problem(Box::new(Problem::new(
            400,
            "malformed_request",
            "the form cannot be read",
        )))
    })
}

pub(super) fn foreign() -> Fault {
    let problem = Problem::new(
        403,
        "not_permitted",
        "the form was not sent from a page of this session",
    );
    Fault::Problem(Box::new(
        problem.hint("go back, load the page anew and send it again"),
    ))
}
