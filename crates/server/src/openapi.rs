//! The OpenAPI document: collected from the handlers, finished with what all of them share, and served with its
//! own reading room.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, Method, header};
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa::openapi::path::{Operation as Described, ParameterIn};
use utoipa::openapi::response::Response;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi as _};

const BEARER: &str = "bearer";

/// The frame into which the routes put themselves.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Tenure", description = "Shared, schedulable, billable GPUs. Every error is a problem (RFC 9457) with a stable code; /errors/CODE explains each."),
    paths(crate::routes::service::call_service),
    components(schemas(tenure_api::problem::Problem, tenure_api::problem::FieldError)),
    tags(
        (name = "scope", description = "Tenants, subscribers and users"),
        (name = "access", description = "Keys, roles and logins"),
        (name = "limit", description = "Quotas, shares, budgets, policies and rules"),
        (name = "service", description = "Jobs that answer requests, and the way to them"),
        (name = "job", description = "Jobs, their logs and why they wait"),
        (name = "log", description = "What jobs wrote, kept and searched"),
        (name = "cost", description = "What was spent, price books and analysis"),
        (name = "invoice", description = "Bill rows, adjustments and invoices, with their proofs"),
        (name = "node", description = "Nodes and their devices"),
        (name = "secret", description = "Secrets by name"),
        (name = "volume", description = "Space in which jobs keep files between runs"),
        (name = "webhook", description = "Receivers outside that are told what happens"),
        (name = "booking", description = "Capacity held for windows in time"),
        (name = "market", description = "The exchange: idle capacity offered, bought and leased"),
        (name = "metric", description = "Figures for scrapers"),
        (name = "event", description = "What happened"),
        (name = "journal", description = "Signed heads and proofs"),
        (name = "platform", description = "Prices, SKUs and the server itself"),
    )
)]
struct Frame;

pub(crate) fn frame() -> OpenApi {
    Frame::openapi()
}

/// Adds what every operation shares.
pub(crate) fn finish(mut document: OpenApi) -> OpenApi {
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key, `tnr_…`"))
        .build();
    document
        .components
        .get_or_insert_default()
        .security_schemes
        .insert(BEARER.into(), RefOr::T(SecurityScheme::Http(scheme)));
    document.security = Some(vec![SecurityRequirement::new(BEARER, Vec::<String>::new())]);
    document
}

/// Where services answer: as the router knows it, and as the document shows it.
pub(crate) const ENDPOINT: &str = "/v1/services/{job}/{*path}";
pub(crate) const ENDPOINT_ROOT: &str = "/v1/services/{job}/";
const ENDPOINT_SHOWN: &str = "/v1/services/{job}/{path}";

/// What the request path needs to know of an operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub id: String,
    /// The query parameters it takes.
    pub query: Vec<String>,
    /// Takes any, and passes them on.
    pub any_query: bool,
}

pub(crate) struct Operations(HashMap<(Method, String), Arc<Operation>>);

impl Operations {
    pub fn of(document: &OpenApi) -> Operations {
        let mut operations = HashMap::new();
        for (path, item) in &document.paths.paths {
            let methods = [
                (Method::GET, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::DELETE, &item.delete),
            ];
            for (method, described) in methods
                .into_iter()
                .filter_map(|(method, described)| Some((method, described.as_ref()?)))
            {
                let mut operation = Operation::of(described);
                operation.any_query = path == ENDPOINT_SHOWN;
                operations.insert((method, path.clone()), Arc::new(operation));
            }
        }
        Operations(operations)
    }

    pub fn find(&self, method: &Method, path: &str) -> Option<Arc<Operation>> {
        let (method, path) = match path {
            // Any method is the service's own business, and one operation here.
            ENDPOINT | ENDPOINT_ROOT => (Method::POST, ENDPOINT_SHOWN),
            _ if method == Method::HEAD => (Method::GET, path),
            _ => (method.clone(), path),
        };
        self.0.get(&(method, path.to_owned())).cloned()
    }
}

impl Operation {
    fn of(described: &Described) -> Operation {
        let parameters = described.parameters.iter().flatten();
        let query = parameters.filter_map(|parameter| match parameter {
            RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
                Some(parameter.name.clone())
            }
            _ => None,
        });
        Operation {
            id: described.operation_id.clone().unwrap_or_default(),
            query: query.collect(),
            any_query: false,
        }
    }
}

/// The document's reading room.
pub(crate) fn docs() -> Router {
    let ui =
        utoipa_swagger_ui::SwaggerUi::new("/docs").config(utoipa_swagger_ui::Config::from("/openapi.json"));
    // The page draws its own icons and styles; scripts come from here alone.
    let policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    Router::from(ui).layer(SetResponseHeaderLayer::overriding(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(policy),
    ))
}

fn problems(statuses: &[(u16, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let describe = |description: &str| {
        let schema = Ref::from_schema_name("Problem");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        ResponseBuilder::new()
            .description(description)
            .content("application/problem+json", content)
            .build()
    };
    statuses
        .iter()
        .map(|&(status, description)| (status.to_string(), RefOr::T(describe(description))))
        .collect()
}

const ANY: [(u16, &str); 4] = [
    (400, "The request cannot be read"),
    (429, "Too many requests; Retry-After says when to come back"),
    (500, "Something went wrong here"),
    (
        503,
        "Not now: this server does not lead, or something it needs is away",
    ),
];

const GUARDED: [(u16, &str); 4] = [
    (401, "No valid key"),
    (403, "The caller may not"),
    (404, "There is no such object, or the caller may not know of it"),
    (422, "A field or parameter is at fault; `errors` says which"),
];

const CHANGING: [(u16, &str); 4] = [
    (409, "The present state does not allow it"),
    (412, "The object changed since it was read"),
    (413, "The body is too large"),
    (415, "The body is not application/json"),
];

/// What any route may answer.
pub(crate) struct OpenProblems;
/// What a route that reads may answer.
pub(crate) struct ReadProblems;
/// What a route that changes something may answer.
pub(crate) struct ChangeProblems;
/// What the way to a service may answer of itself.
pub(crate) struct ServiceProblems;
/// What a route that opens a session may answer.
pub(crate) struct SessionProblems;

impl IntoResponses for OpenProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&ANY)
    }
}

impl IntoResponses for ReadProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[&ANY[..], &GUARDED].concat())
    }
}

impl IntoResponses for SessionProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[&ANY[..], &GUARDED, &CHANGING[..1]].concat())
    }
}

impl IntoResponses for ServiceProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let of_replicas = [
            (405, "The method is not passed on"),
            (409, "The job is no service"),
            (413, "The body is too large"),
            (502, "A replica failed in the middle of the request"),
            (504, "A replica fell silent"),
        ];
        problems(&[&ANY[..], &GUARDED, &of_replicas[..]].concat())
    }
}

impl IntoResponses for ChangeProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[&ANY[..], &GUARDED, &CHANGING].concat())
    }
}
