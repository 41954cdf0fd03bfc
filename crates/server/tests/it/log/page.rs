//! Kept logs in the console, without a browser.

use reqwest::redirect::Policy;
use serde_json::json;
use tenure_api::channel::LogStream::Stdout;

use super::Stage;

/// Signs in with a key, as a form does; gives what asks for pages.
async fn signed_in(stage: &Stage, key: &str) -> impl AsyncFn(&str) -> (u16, String) {
    let http = reqwest::Client::builder()
        .redirect(Policy::none())
        .build()
        .unwrap();
    let url = stage.world.url.clone();
    let cookie = |headers: &reqwest::header::HeaderMap, name: &str| {
        let all = headers.get_all("set-cookie").iter();
        let all = all.filter_map(|line| line.to_str().ok());
        let ours = all.filter_map(|line| line.split(';').next());
        ours.filter(|pair| pair.starts_with(name))
            .map(str::to_owned)
            .next_back()
            .unwrap()
    };
    let form = http.get(format!("{url}/console/sign-in")).send().await.unwrap();
    let visit = cookie(form.headers(), "tenure_visit=");
    let page = form.text().await.unwrap();
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).unwrap();
    let csrf = csrf.split('"').next().unwrap();
    let sent = http
        .post(format!("{url}/console/sign-in"))
        .header("cookie", visit)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("csrf={csrf}&key={key}"))
        .send()
        .await
        .unwrap();
    let session = cookie(sent.headers(), "tenure_session=");
    async move |path: &str| {
        let asked = http.get(format!("{url}{path}")).header("cookie", &session);
        let answer = asked.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_finds_lines_and_what_stands_in_them_is_text() {
    let stage = Stage::new().await;
    let run = stage.run(&stage.ada, "hostile", json!({ "team": "x" })).await;
    let theirs = stage.run(&stage.cleo, "theirs", json!({})).await;
    stage.says(
        &run,
        Stdout,
        "ERROR \x1b[31m<script>alert(1)</script>\x1b[0m \u{202e}gnp\n\"><img src=x> fine\n",
    );
    stage.says(&theirs, Stdout, "ERROR of another tenant\n");
    stage.kept(&stage.world.owner, "", 3).await;
    let page = signed_in(&stage, &stage.ada.1).await;

    let (status, html) = page("/console/logs?level=error&label=team%3Dx&span=1h").await;
    assert_eq!(status, 200);
    assert!(
        html.contains("ERROR &#60;script&#62;alert(1)&#60;/script&#62; \u{fffd}gnp"),
        "{html}"
    );
    for never in ["<script>alert", "\u{1b}", "\u{202e}", "fine", "another tenant"] {
        assert!(!html.contains(never), "{never}: {html}");
    }
    let (_, html) = page("/console/logs?q=FINE").await;
    assert!(
        html.contains("&#60;img src=x&#62; fine") && !html.contains("<img src=x>"),
        "{html}"
    );
    let (status, html) = page("/console/logs?q=%22%3E%3Cscript%3E&label=nonsense").await;
    assert!(status == 200 && html.contains("a label is key=value"), "{html}");
    assert!(!html.contains("\"><script>"), "{html}");
    let (status, text) = page("/console/logs/export?span=1h").await;
    assert_eq!((status, text.lines().count()), (200, 2), "{text}");
    assert!(
        !text.contains('\u{1b}') && !text.contains("another tenant"),
        "{text}"
    );
    // Pages hold so many lines, and lead on to the rest.
    let many: String = (0..450).map(|n| format!("line {n:03}.\n")).collect();
    stage.says(&run, Stdout, many);
    stage.kept(&stage.ada.1, "q=line", 450).await;
    let (mut path, mut seen) = ("/console/logs?q=line&span=1d".to_owned(), 0);
    for _ in 0..3 {
        let (_, html) = page(&path).await;
        seen += html.matches("line ").count();
        let Some(next) = html.split("rel=\"next\" href=\"").nth(1) else {
            break;
        };
        let next = next.split('"').next().unwrap();
        path = next.replace("&#38;", "&").replace("&amp;", "&");
    }
    assert!(seen >= 450, "{seen}");
}
