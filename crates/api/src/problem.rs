//! RFC 9457 problems: the one shape of every error answer.

use serde::{Deserialize, Serialize};
use tenure_domain::refusal::{Class, Code, Refusal};
use utoipa::ToSchema;

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A stable address of the code's page: `/errors/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The stable code.
    pub code: String,
    pub title: String,
    pub status: u16,
    /// One sentence about this very case.
    pub detail: String,
    /// What would change the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The fields at fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Find it in the server's log and the audit by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// One field at fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// JSON Pointer into the request body, or the name of a header or query parameter.
    pub pointer: String,
    pub detail: String,
}

impl Problem {
    pub fn new(status: u16, code: &str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("/errors/{code}"),
            code: code.into(),
            title: code.replace('_', " "),
            status,
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            request_id: None,
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    pub fn field(mut self, pointer: impl Into<String>) -> Problem {
        let detail = self.detail.clone();
        self.errors.push(FieldError {
            pointer: pointer.into(),
            detail,
        });
        self
    }
}

/// The HTTP status of each class of refusal.
pub fn status(code: Code) -> u16 {
    match (code, code.class()) {
        (Code::RevisionMismatch, _) => 412,
        (_, Class::Invalid) => 422,
        (_, Class::Forbidden | Class::Denied) => 403,
        (_, Class::Absent) => 404,
        (_, Class::Conflict | Class::Waiting) => 409,
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let mut problem = Problem::new(status(refusal.code), refusal.code.as_str(), refusal.sentence);
        problem.hint = refusal.hint.map(Into::into);
        match refusal.field {
            Some(field) => problem.field(field),
            None => problem,
        }
    }
}

/// Codes of the HTTP layer itself, beside those of `Code`.
pub const HTTP_CODES: &[(&str, u16)] = &[
    ("malformed_request", 400),
    ("unauthenticated", 401),
    ("route_not_found", 404),
    ("method_not_allowed", 405),
    ("idempotency_in_flight", 409),
    ("body_too_large", 413),
    ("unsupported_media_type", 415),
    ("idempotency_key_reused", 422),
    ("slice_in_use", 409),
    ("too_many_requests", 429),
    ("internal", 500),
    ("replica_failed", 502),
    ("not_leader", 503),
    ("service_full", 503),
    ("service_waits", 503),
    ("replica_silent", 504),
    ("unavailable", 503),
];
