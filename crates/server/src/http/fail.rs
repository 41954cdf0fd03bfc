//! A "no" on its way to the caller: a problem, and the headers that go with it. The body is written at the very
//! end, in `finish`, where the request's id is known.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure_api::problem::Problem;
use tenure_domain::Refusal;
use tenure_journal::JournalError;

use crate::controller::NotDone;

#[derive(Debug)]
pub struct Fail {
    pub problem: Box<Problem>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

pub type Answer<T> = Result<T, Fail>;

impl Fail {
    pub fn new(status: u16, code: &str, detail: impl Into<String>) -> Fail {
        Fail {
            problem: Box::new(Problem::new(status, code, detail)),
            headers: Vec::new(),
        }
    }

    pub fn malformed(detail: impl Into<String>) -> Fail {
        Fail::new(400, "malformed_request", detail)
    }

    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Fail {
        Fail::new(422, "invalid_field", detail).field(field)
    }

    pub fn media_type(detail: impl Into<String>) -> Fail {
        Fail::new(415, "unsupported_media_type", detail).hint("send application/json, uncompressed")
    }

    pub fn not_found() -> Fail {
        Refusal::not_found().into()
    }

    pub fn not_leader() -> Fail {
        Fail::new(
            503,
            "not_leader",
            "this server follows another and cannot change anything",
        )
        .hint("try again in a moment, or ask another server")
        .header(header::RETRY_AFTER, "1")
    }

    pub fn unavailable(detail: impl Into<String>) -> Fail {
        Fail::new(503, "unavailable", detail).header(header::RETRY_AFTER, "1")
    }

    pub fn unauthenticated(detail: impl Into<String>) -> Fail {
        Fail::new(401, "unauthenticated", detail)
            .hint("send Authorization: Bearer with a valid key")
            .header(header::WWW_AUTHENTICATE, "Bearer realm=\"tenure\"")
    }

    /// The cause goes to the log and never to the caller.
    pub fn internal(cause: &dyn std::fmt::Display) -> Fail {
        tracing::error!(%cause, "a request failed");
        Fail::new(
            500,
            "internal",
            "something went wrong here; the server's log says what",
        )
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Fail {
        self.problem.hint = Some(hint.into());
        self
    }

    pub fn field(mut self, pointer: impl Into<String>) -> Fail {
        let problem = std::mem::replace(&mut *self.problem, Problem::new(0, "", ""));
        *self.problem = problem.field(pointer);
        self
    }

    pub fn header(mut self, name: HeaderName, value: &str) -> Fail {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// The fields at fault stand below `prefix` in the body the caller sent.
    pub fn under(mut self, prefix: &str) -> Fail {
        for error in &mut self.problem.errors {
            error.pointer.insert_str(0, prefix);
        }
        self
    }

    /// The caller sent `prefix` itself as the body.
    pub fn without(mut self, prefix: &str) -> Fail {
        for error in &mut self.problem.errors {
            if let Some(rest) = error.pointer.strip_prefix(prefix) {
                error.pointer = rest.to_owned();
            }
        }
        self
    }
}

impl From<Refusal> for Fail {
    fn from(refusal: Refusal) -> Fail {
        Fail {
            problem: Box::new(refusal.into()),
            headers: Vec::new(),
        }
    }
}

impl From<NotDone> for Fail {
    fn from(not_done: NotDone) -> Fail {
        match not_done {
            NotDone::Refused(refusal) => refusal.into(),
            NotDone::NotLeading => Fail::not_leader(),
        }
    }
}

impl From<JournalError> for Fail {
    fn from(error: JournalError) -> Fail {
        match error {
            JournalError::Fenced => Fail::not_leader(),
            JournalError::Full => Fail::unavailable("the disk is full"),
            JournalError::NoSuchEvent { .. } => Fail::not_found(),
            other => Fail::internal(&other),
        }
    }
}

impl IntoResponse for Fail {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.headers_mut().extend(self.headers);
        response.extensions_mut().insert(self.problem);
        response
    }
}
