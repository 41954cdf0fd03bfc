//! Styles, scripts and the icon: files of this crate, in the program.

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

macro_rules! assets {
    ($($name:literal $kind:literal)*) => {
        const ASSETS: &[(&str, &str, &str)] = &[$(($name, $kind, include_str!(concat!("../../console/asset/", $name))),)*];
    };
}

assets! {
    "base.css" "text/css"
    "page.css" "text/css"
    "icon.svg" "image/svg+xml"
    "main.js" "text/javascript"
    "page.js" "text/javascript"
    "html.js" "text/javascript"
    "live.js" "text/javascript"
    "calendar.js" "text/javascript"
    "chart.js" "text/javascript"
    "log.js" "text/javascript"
    "fleet.js" "text/javascript"
    "submit.js" "text/javascript"
}

pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Some((_, kind, text)) = ASSETS.iter().find(|(of, _, _)| *of == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // A build's files are those of its version; asked for again, they are compared by it.
    let tag = concat!("\"", env!("CARGO_PKG_VERSION"), "-");
    let tag = format!("{tag}{:x}\"", digest(text));
    let same = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let head = [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::CONTENT_TYPE, format!("{kind}; charset=utf-8")),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; frame-ancestors 'none'".to_owned(),
        ),
    ];
    match same {
        true => (StatusCode::NOT_MODIFIED, head).into_response(),
        false => (head, *text).into_response(),
    }
}

/// Tells one text from another (FNV-1a).
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
