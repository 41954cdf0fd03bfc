//! Every code that can be answered has a page, and every page can be read.

use std::path::Path;

use tenure_api::problem::HTTP_CODES;
use tenure_domain::Code;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn every_code_has_a_page_that_is_served() {
    let world = World::new().await;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let codes: Vec<&str> = Code::ALL
        .iter()
        .map(|code| code.as_str())
        .chain(HTTP_CODES.iter().map(|(code, _)| *code))
        .collect();
    for code in &codes {
        let written = std::fs::read_to_string(docs.join(format!("{code}.md")))
            .unwrap_or_else(|_| panic!("{code} has no page"));
        assert!(
            written.starts_with(&format!("# {code}\n")) && written.lines().count() >= 5,
            "{code}"
        );
        let reply = world
            .send(world.request(reqwest::Method::GET, &format!("/errors/{code}"), None))
            .await;
        assert_eq!(reply.status, 200, "{code}");
        assert_eq!(String::from_utf8(reply.bytes).unwrap(), written, "{code}");
    }
    for file in std::fs::read_dir(docs).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let code = name.strip_suffix(".md").unwrap();
        assert!(
            codes.contains(&code),
            "{name} explains a code that does not exist"
        );
    }
    let unknown = world
        .send(world.request(reqwest::Method::GET, "/errors/no_such_code", None))
        .await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code()),
        (404, "not_found".into())
    );
}
