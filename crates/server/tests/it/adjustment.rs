//! Credits, refunds and corrections over HTTP: the seller's to give, of its own money, once for each key.

use serde_json::json;

use crate::money::Money;

#[tokio::test(flavor = "multi_thread")]
async fn money_is_given_by_whoever_bills() {
    let money = Money::with_books().await;
    let credit = |scope: &str, amount: i64| json!({ "scope": scope, "kind": "credit", "amount_micros": amount, "reason": "the node was slow" });
    let given = money
        .world
        .post(&money.staff, "/v1/adjustments", credit(&money.acme, 500))
        .await;
    assert_eq!(given.status, 201, "{given:?}");
    assert_eq!(given.json()["amount_micros"], 500);
    let given = money
        .world
        .post(&money.boss, "/v1/adjustments", credit(&money.lab, 70))
        .await;
    assert_eq!(given.status, 201, "{given:?}");
    for (token, scope, status) in [
        (&money.boss, &money.acme, 404),
        (&money.clerk, &money.lab, 404),
        (&money.staff, &money.lab, 404),
        (&money.world.owner, &money.lab, 404),
        (&money.auditor, &money.acme, 403),
        (&money.stranger, &money.acme, 404),
    ] {
        let reply = money.world.post(token, "/v1/adjustments", credit(scope, 1)).await;
        assert_eq!(reply.status.as_u16(), status, "{scope}: {reply:?}");
    }
    // What a tenant gives its subscriber is on the subscriber's bill, and on nobody else's.
    let rows = |scope: &str| format!("/v1/bill-rows?scope={scope}&what=credit");
    let of_lab = money.get(&money.clerk, &rows(&money.lab)).await;
    assert_eq!(of_lab["items"][0]["amount_micros"], -70);
    assert_eq!(of_lab["items"].as_array().unwrap().len(), 1);
    let of_acme = money.get(&money.staff, &rows(&money.acme)).await;
    assert_eq!(of_acme["items"].as_array().unwrap().len(), 1, "{of_acme}");
    assert_eq!(of_acme["items"][0]["amount_micros"], -500);
    let seen = money.get(&money.staff, &rows(&money.lab)).await;
    assert_eq!(seen["items"].as_array().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gives_once() {
    let money = Money::new().await;
    let body = json!({ "scope": money.acme, "kind": "credit", "amount_micros": 500, "reason": "goodwill" });
    let mut ids = Vec::new();
    for _ in 0..2 {
        let request = money
            .world
            .request(reqwest::Method::POST, "/v1/adjustments", Some(&money.staff));
        let reply = money
            .world
            .send(request.header("idempotency-key", "once").json(&body))
            .await;
        ids.push(reply.id());
    }
    assert_eq!(ids[0], ids[1]);
    let rows = money
        .get(&money.boss, &format!("/v1/bill-rows?scope={}", money.acme))
        .await;
    assert_eq!(rows["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn adjustments_that_make_no_sense_name_their_field() {
    let money = Money::new().await;
    let (acme, ada) = (&money.acme, &money.ada);
    let of = |scope: &str, kind: &str, amount: i64| json!({ "scope": scope, "kind": kind, "amount_micros": amount, "reason": "r" });
    let mut unsaid = of(acme, "credit", 1);
    unsaid["reason"] = json!("  ");
    let mut long = of(acme, "credit", 1);
    long["reason"] = json!("x".repeat(501));
    let mut half = of(acme, "credit", 1);
    half["amount_micros"] = json!(0.5);
    let mut of_invoice = of(acme, "credit", 1);
    of_invoice["invoice"] = json!("inv_0000000000000");
    let mut unknown = of(acme, "refund", 1);
    unknown["invoice"] = json!("inv_0000000000000");
    for (body, code, field) in [
        (of(acme, "credit", 0), "invalid_field", "/amount_micros"),
        (of(acme, "credit", -1), "invalid_field", "/amount_micros"),
        (of(acme, "correction", 0), "invalid_field", "/amount_micros"),
        (of(acme, "credit", i64::MAX), "invalid_field", "/amount_micros"),
        (
            of(acme, "correction", i64::MIN),
            "invalid_field",
            "/amount_micros",
        ),
        (of(acme, "gift", 1), "invalid_field", "/kind"),
        (of(acme, "refund", 1), "invalid_field", "/invoice"),
        (of_invoice, "invalid_field", "/invoice"),
        (unknown, "not_found", ""),
        (of("platform", "credit", 1), "invalid_field", "/scope"),
        (of("nobody", "credit", 1), "invalid_field", "/scope"),
        (of(ada, "credit", 1), "not_found", ""),
        (unsaid, "invalid_field", "/reason"),
        (long, "invalid_field", "/reason"),
        (half, "invalid_field", "/amount_micros"),
    ] {
        let head = money.world.head();
        let reply = money
            .world
            .post(&money.staff, "/v1/adjustments", body.clone())
            .await;
        assert_eq!(
            (reply.code().as_str(), reply.field().as_str()),
            (code, field),
            "{body}: {reply:?}"
        );
        assert_eq!(money.world.head(), head, "{body} changed nothing");
    }
}
