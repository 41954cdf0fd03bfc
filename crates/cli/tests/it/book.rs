//! What `tenure book` and `tenure cluster` print and send.

use serde_json::{Value, json};

use crate::stub::{Request, Stub, bytes, ok, problem};
use crate::tenure::Tenure;

fn window(of: &str) -> Value {
    json!({ "of": of, "start": format!("{of}Z"), "end": "2026-03-16T17:00:00Z", "phase": "booked", "gpus": 4, "nodes": ["n1"], "price_micros": 8_000_000 })
}

fn booking(name: &str, unit: &str) -> Value {
    json!({
        "id": "bkg_0000000000001", "scope": "usr_0000000000002", "scope_path": "acme/ada", "name": name, "class": "H100",
        "size": { "unit": unit, "count": 4 }, "zone": "Europe/Berlin", "tzdata": "2026a",
        "start": "2026-03-16T09:00:00", "end": "2026-03-16T17:00:00", "windows": [window("2026-03-16T09:00:00")],
        "more": false, "price_micros": 8_000_000, "made": "2026-03-01T00:00:00Z", "revision": 1,
        "note": "the clocks of Europe/Berlin go by tzdata 2027a: 2 windows moved",
    })
}

fn answer(request: &Request) -> Option<crate::stub::Reply> {
    let sent: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let name = sent["name"].as_str().unwrap_or("train").to_owned();
    let unit = sent["size"]["unit"].as_str().unwrap_or("gpus").to_owned();
    if request.is("POST", "/v1/bookings/quote") {
        return Some(match name.as_str() {
            "taken" => problem(
                409,
                "booked_out",
                "there is no room for it",
                "free instead: 2 of them then",
            ),
            _ => ok(
                json!({ "windows": [window("2026-03-16T09:00:00")], "more": true, "price_micros": 8_000_000, "currency": "EUR" }),
            ),
        });
    }
    let calendar = json!({ "items": [{ "booking": "bkg_0000000000001", "name": "train", "class": "H100", "scope_path": "acme/ada",
        "of": "2026-03-16T09:00:00", "start": "2026-03-16T08:00:00Z", "end": "2026-03-16T16:00:00Z", "phase": "open", "gpus": 4, "nodes": ["n1"], "price_micros": 1 }] });
    [
        ("POST", "/v1/bookings", booking(&name, &unit)),
        (
            "GET",
            "/v1/bookings",
            json!({ "items": [booking("train", "gpus"), booking("sprint", "nodes")] }),
        ),
        ("GET", "/v1/bookings/bkg_0000000000001", booking("train", "gpus")),
        (
            "POST",
            "/v1/bookings/bkg_0000000000001/edit",
            booking("train", "gpus"),
        ),
        ("GET", "/v1/calendar", calendar),
        ("GET", "/v1/volumes", json!({ "items": [] })),
        ("GET", "/v1/jobs", json!({ "items": [] })),
        (
            "GET",
            "/v1/booking-terms",
            json!({ "horizon_days": 366, "lead_s": 120 }),
        ),
        ("PUT", "/v1/booking-terms", sent.clone()),
    ]
    .into_iter()
    .find(|(method, path, _)| request.is(method, path))
    .map(|(.., body)| ok(body))
    .or_else(|| {
        request
            .is("GET", "/v1/calendar.ics")
            .then(|| bytes(b"BEGIN:VCALENDAR\r\n"))
    })
}

fn tenure() -> (Stub, Tenure) {
    let stub = Stub::new(answer);
    let tenure = Tenure::with_server(&stub.url);
    (stub, tenure)
}

fn sent(stub: &Stub, path: &str) -> Vec<Value> {
    let asked = stub
        .asked()
        .into_iter()
        .filter(|request| request.method == "POST" && request.target == path);
    asked
        .map(|request| serde_json::from_str(&request.body).unwrap())
        .collect()
}

const MAKE: [&str; 12] = [
    "book",
    "make",
    "train",
    "--class",
    "H100",
    "--gpus",
    "4",
    "--from",
    "2026-03-16T09:00",
    "--to",
    "2026-03-16T17:00",
    "--yes",
];

#[test]
fn a_price_is_shown_before_and_sent_with_what_is_agreed_to() {
    let (stub, tenure) = tenure();
    let mut plan = MAKE.to_vec();
    plan[11] = "--plan";
    let shown = tenure.run(&plan);
    shown.expect(0, "");
    assert!(
        shown.stdout.contains("8.00 EUR") && shown.stdout.contains("n1"),
        "{}",
        shown.stdout
    );
    assert!(sent(&stub, "/v1/bookings").is_empty(), "nothing is held");
    tenure
        .run(&MAKE)
        .expect(0, "tenure run --booking bkg_0000000000001");
    let made = &sent(&stub, "/v1/bookings")[0];
    assert_eq!(
        (&made["shown_micros"], &made["size"]["count"]),
        (&json!(8_000_000), &json!(4))
    );
    let mut unasked = MAKE.to_vec();
    unasked.pop();
    tenure.run(&unasked).expect(2, "");
    let mut taken = MAKE.to_vec();
    taken[2] = "taken";
    tenure.run(&taken).expect(3, "free instead: 2 of them then");
    tenure
        .run(&["book", "make", "x", "--class", "H100", "--from", "a", "--to", "b"])
        .expect(2, "say how much");
}

#[test]
fn bookings_weeks_and_clusters_are_shown() {
    let (stub, tenure) = tenure();
    let week = tenure.run(&["book", "list", "--week"]);
    week.expect(0, "");
    assert!(
        week.stdout.contains("train") && week.stdout.contains("open"),
        "{}",
        week.stdout
    );
    let shown = tenure.run(&["book", "show", "train"]);
    assert!(shown.stdout.contains("2 windows moved"), "{}", shown.stdout);
    assert_eq!(tenure.run(&["book", "calendar"]).stdout, "BEGIN:VCALENDAR\r\n");
    let clusters = tenure.run(&["cluster", "list"]);
    assert!(
        clusters.stdout.contains("sprint") && !clusters.stdout.contains("train"),
        "{}",
        clusters.stdout
    );
    tenure
        .run(&["cluster", "show", "train"])
        .expect(2, "no booking of whole nodes");
    tenure.run(&["cluster", "show", "sprint"]).expect(0, "");
    let mut of_gpus = MAKE.to_vec();
    of_gpus[0] = "cluster";
    tenure.run(&of_gpus).expect(2, "--nodes");
    tenure
        .run(&["book", "terms", "set", "--cancel", "1d=0%", "--cancel", "1h=50%"])
        .expect(0, "");
    tenure
        .run(&["book", "terms", "set", "--cancel", "1h=50%", "--cancel", "1d=0%"])
        .expect(2, "longest notice first");
    let set = stub
        .asked()
        .into_iter()
        .find(|request| request.method == "PUT")
        .expect("set");
    let set: Value = serde_json::from_str(&set.body).unwrap();
    assert_eq!(set["cancel"][1], json!({ "notice_s": 3600, "fee_permille": 500 }));
}

#[test]
fn what_was_not_set_apart_at_first_is_when_the_file_is_read_again() {
    let (stub, tenure) = tenure();
    let apart = |start: &str, end: &str| {
        let event = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:c\r\nSUMMARY:train\r\nDTEND;TZID=Europe/Berlin:20260316T170000\r\nDTSTART;TZID=Europe/Berlin:20260316T090000\r\nEND:VEVENT\r\n";
        format!(
            "{event}BEGIN:VEVENT\r\nUID:c\r\nRECURRENCE-ID;TZID=Europe/Berlin:20260316T090000\r\nDTSTART;TZID=Europe/Berlin:{start}\r\nDTEND;TZID=Europe/Berlin:{end}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
        )
    };
    let import = |name: &str, text: &str| {
        let file = tenure.write(name, text);
        let line = ["book", "import", &file, "--class", "H100", "--gpus", "1", "--yes"];
        tenure.run(&line)
    };
    // The booking is there, its first window at ten by the clock; the file has it at twelve.
    import("moved.ics", &apart("20260316T120000", "20260316T180000")).expect(0, "");
    let edit = "/v1/bookings/bkg_0000000000001/edit";
    let edited = sent(&stub, edit);
    assert_eq!(edited.len(), 1, "{edited:?}");
    assert_eq!(
        (&edited[0]["of"], &edited[0]["start"]),
        (&json!("2026-03-16T09:00:00"), &json!("2026-03-16T12:00:00"))
    );
    assert!(sent(&stub, "/v1/bookings").is_empty(), "nothing is booked twice");
    let there = import("there.ics", &apart("20260316T100000", "20260316T180000"));
    there.expect(0, "nothing to book");
    assert_eq!(sent(&stub, edit).len(), 1, "it is where the file has it");
}

#[test]
fn a_calendar_is_imported_event_by_event() {
    let (stub, tenure) = tenure();
    let file = "BEGIN:VCALENDAR\r\nBEGIN:VTIMEZONE\r\nTZID:Europe/Berlin\r\nEND:VTIMEZONE\r\n\
        BEGIN:VEVENT\r\nUID:a\r\nSUMMARY:Night run\r\nDTSTART;TZID=Europe/Berlin:20260316T220000\r\nDURATION:PT8H\r\nRRULE:FREQ=WEEKLY;COUNT=9\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nUID:a\r\nRECURRENCE-ID;TZID=Europe/Berlin:20260323T220000\r\nDTSTART;TZID=Europe/Berlin:20260324T220000\r\nDTEND;TZID=Europe/Berlin:20260325T060000\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nUID:a\r\nRECURRENCE-ID;TZID=Europe/Berlin:20260330T220000\r\nSTATUS:CANCELLED\r\nDTSTART;TZID=Europe/Berlin:20260330T220000\r\nDURATION:PT8H\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nUID:b\r\nSTATUS:CANCELLED\r\nDTSTART:20260316T090000Z\r\nDTEND:20260316T100000Z\r\nEND:VEVENT\r\n\
        BEGIN:VEVENT\r\nUID:c\r\nSUMMARY:train\r\nDTSTART;TZID=Europe/Berlin:20260316T090000\r\nDTEND;TZID=Europe/Berlin:20260316T170000\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";
    let file = tenure.write("team.ics", file);
    let line = ["book", "import", &file, "--class", "H100", "--gpus", "1", "--yes"];
    tenure.run(&line).expect(0, "train is booked already");
    let made = sent(&stub, "/v1/bookings");
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(
        (&made[0]["name"], &made[0]["end"], &made[0]["except"]),
        (
            &json!("night-run"),
            &json!("2026-03-17T06:00:00"),
            &json!(["2026-03-30T22:00:00"])
        )
    );
    let edited = sent(&stub, "/v1/bookings/bkg_0000000000001/edit");
    assert_eq!(
        (&edited[0]["which"], &edited[0]["start"]),
        (&json!("one"), &json!("2026-03-24T22:00:00"))
    );
    let strange = tenure.write("strange.ics", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:x\nDTSTART;TZID=\"W. Europe Standard Time\":20260316T090000\nDTEND;TZID=\"W. Europe Standard Time\":20260316T100000\nEND:VEVENT\nEND:VCALENDAR\n");
    let line = [
        "book", "import", &strange, "--class", "H100", "--gpus", "1", "--yes",
    ];
    tenure.run(&line).expect(2, "W. Europe Standard Time");
    let line = [
        "book",
        "import",
        &strange,
        "--class",
        "H100",
        "--gpus",
        "1",
        "--yes",
        "--zone",
        "Europe/Berlin",
    ];
    tenure.run(&line).expect(0, "");
    let broken = tenure.write(
        "broken.ics",
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:x\nEND:VEVENT\nEND:VCALENDAR\n",
    );
    tenure
        .run(&["book", "import", &broken, "--class", "H100", "--gpus", "1"])
        .expect(2, "line 3");
}
