//! iCalendar (RFC 5545) at the edge: windows as events for calendars to show, and events of a file as bookings to make.
//!
//! What is written has one event a window, in UTC, so that no reader needs our rules for zones. What is read is read
//! strictly and within bounds: an event that does not say all a booking needs is refused by its line. Absent: alarms,
//! attendees, and everything else a calendar knows that a booking does not.

use std::fmt::Write;

use tenure_domain::Time;
use tenure_domain::booking::zone::Wall;

/// The largest file that is read, and the most events in it.
pub const MAX_BYTES: usize = 1 << 20;
pub const MAX_EVENTS: usize = 200;

/// One event to show.
pub struct Shown {
    pub uid: String,
    pub summary: String,
    pub description: String,
    pub start: Time,
    pub end: Time,
    pub made: Time,
    /// How often it was changed.
    pub revision: u64,
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text
        .chars()
        .filter(|letter| !letter.is_control() || *letter == '\n')
    {
        match letter {
            '\\' | ';' | ',' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            letter => out.push(letter),
        }
    }
    out
}

/// Lines longer than 75 bytes go on in the next, after a blank.
fn line(out: &mut String, text: &str) {
    let mut length = 0;
    for letter in text.chars() {
        if length + letter.len_utf8() > 75 {
            out.push_str("\r\n ");
            length = 1;
        }
        out.push(letter);
        length += letter.len_utf8();
    }
    out.push_str("\r\n");
}

fn utc(time: Time) -> String {
    let text: String = time
        .rfc3339()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    // Parts of a second are not iCalendar's.
    let digits = text.get(..15).unwrap_or_default();
    format!("{digits}Z")
}

/// A calendar of events.
pub fn write(name: &str, events: &[Shown]) -> String {
    let mut out = String::new();
    for text in [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Tenure//Bookings//EN",
        "CALSCALE:GREGORIAN",
    ] {
        line(&mut out, text);
    }
    line(&mut out, &format!("X-WR-CALNAME:{}", escaped(name)));
    for event in events {
        let mut text = String::new();
        let Shown {
            uid,
            start,
            end,
            made,
            revision,
            ..
        } = event;
        let _ = writeln!(
            text,
            "BEGIN:VEVENT\nUID:{uid}\nSEQUENCE:{}\nDTSTAMP:{}\nDTSTART:{}\nDTEND:{}",
            revision.saturating_sub(1),
            utc(*made),
            utc(*start),
            utc(*end)
        );
        let _ = writeln!(
            text,
            "SUMMARY:{}\nDESCRIPTION:{}\nEND:VEVENT",
            escaped(&event.summary),
            escaped(&event.description)
        );
        text.lines().for_each(|text| line(&mut out, text));
    }
    line(&mut out, "END:VCALENDAR");
    out
}

/// An event of a file, as far as a booking needs it. Wall times are as bookings have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    pub uid: String,
    pub summary: String,
    /// Absent for wall times without a zone.
    pub zone: Option<String>,
    pub start: String,
    pub end: String,
    pub rule: Option<String>,
    pub dates: Vec<String>,
    pub except: Vec<String>,
    /// Which occurrence of the event with the same uid this one stands for.
    pub of: Option<String>,
    pub cancelled: bool,
}

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadCalendar {
    pub line: usize,
    pub why: String,
}

/// The events of a file.
pub fn read(text: &str) -> Result<Vec<Read>, BadCalendar> {
    let bad = |line: usize, why: &str| BadCalendar {
        line,
        why: why.into(),
    };
    if text.len() > MAX_BYTES {
        return Err(bad(1, "a calendar has at most 1 MiB"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (number, raw) in text.lines().enumerate() {
        match (raw.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(more), Some((_, line))) => line.push_str(more),
            (Some(_), None) => return Err(bad(1, "it begins with BEGIN:VCALENDAR")),
            (None, _) => lines.push((number + 1, raw.to_owned())),
        }
    }
    lines.retain(|(_, line)| !line.is_empty());
    let mut lines = lines.into_iter();
    if lines
        .next()
        .is_none_or(|(_, line)| !line.eq_ignore_ascii_case("BEGIN:VCALENDAR"))
    {
        return Err(bad(1, "it begins with BEGIN:VCALENDAR"));
    }
    let mut events: Vec<Read> = Vec::new();
    // What the event says, line by line.
    let mut said: Vec<(usize, String)> = Vec::new();
    // What we are in, the innermost last.
    let mut within: Vec<(usize, String)> = vec![(1, "VCALENDAR".into())];
    for (number, line) in lines {
        let (parts, value) = split(&line).ok_or_else(|| bad(number, "a line is NAME:VALUE"))?;
        let name = parts[0].to_ascii_uppercase();
        match (name.as_str(), within.len()) {
            ("BEGIN", depth) => {
                if depth == 0 || depth > 8 {
                    return Err(bad(number, "one calendar, and nothing nested so deep"));
                }
                if depth == 1 && value.eq_ignore_ascii_case("VEVENT") {
                    if events.len() == MAX_EVENTS {
                        return Err(bad(number, "a calendar has at most 200 events"));
                    }
                    said.clear();
                }
                within.push((number, value.to_ascii_uppercase()));
            }
            ("END", _) => {
                let open = within.pop();
                if open.is_none_or(|(_, open)| !open.eq_ignore_ascii_case(value)) {
                    return Err(bad(number, "it ends what did not begin"));
                }
                if value.eq_ignore_ascii_case("VEVENT") && within.len() == 1 {
                    events.push(event(&said, number)?);
                }
            }
            (_, 2) if within[1].1 == "VEVENT" => said.push((number, line)),
            _ => {}
        }
    }
    match within.last() {
        Some((line, open)) => Err(bad(*line, &format!("{open} does not end"))),
        None => Ok(events),
    }
}

/// An event that ends in a line. Its properties stand in any order, and its start says what the others mean.
fn event(said: &[(usize, String)], ends: usize) -> Result<Read, BadCalendar> {
    let bad = |line: usize, why: &str| BadCalendar {
        line,
        why: why.into(),
    };
    let mut event = Read::default();
    let starts = |line: &str| {
        line.get(..7)
            .is_some_and(|name| name.eq_ignore_ascii_case("DTSTART"))
    };
    let first = said.iter().filter(|(_, line)| starts(line));
    for (number, line) in first.chain(said.iter().filter(|(_, line)| !starts(line))) {
        let (parts, value) = split(line).ok_or_else(|| bad(*number, "a line is NAME:VALUE"))?;
        let name = parts[0].to_ascii_uppercase();
        property(&mut event, &name, &parts[1..], value).map_err(|why| bad(*number, &why))?;
    }
    match event.start.is_empty() || event.end.is_empty() {
        true => Err(bad(ends, "an event says DTSTART and DTEND")),
        false => Ok(event),
    }
}

/// A name with its parameters, and the value. What stands in quotes parts nothing.
fn split(line: &str) -> Option<(Vec<&str>, &str)> {
    let (mut parts, mut from, mut quoted) = (Vec::new(), 0, false);
    for (at, letter) in line.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ';' | ':' if !quoted => {
                parts.push(&line[from..at]);
                from = at + 1;
                if letter == ':' {
                    return Some((parts, &line[from..]));
                }
            }
            _ => {}
        }
    }
    None
}

fn property(event: &mut Read, name: &str, parameters: &[&str], value: &str) -> Result<(), String> {
    match name {
        "UID" => event.uid = value.chars().take(200).collect(),
        "SUMMARY" => {
            event.summary = value
                .replace("\\,", ",")
                .replace("\\;", ";")
                .chars()
                .take(200)
                .collect()
        }
        "DTSTART" => {
            let (zone, wall) = moment(parameters, value)?;
            (event.zone, event.start) = (zone, wall);
        }
        "DTEND" => {
            let (zone, wall) = moment(parameters, value)?;
            if zone != event.zone {
                return Err("an event ends in the zone it begins in".into());
            }
            event.end = wall;
        }
        "DURATION" => {
            let start = Wall::parse(&event.start);
            let start = start.map_err(|_| "an event with a duration says its DTSTART".to_owned())?;
            let end = duration_s(value).and_then(|seconds| start.plus_s(seconds));
            let end = end.ok_or("a duration is written PT1H30M or P1D, and is a year at most")?;
            event.end = end.to_string();
        }
        "STATUS" => event.cancelled = value.eq_ignore_ascii_case("CANCELLED"),
        "RRULE" if event.rule.is_some() => return Err("an event has one RRULE".into()),
        "RRULE" => event.rule = Some(value.to_owned()),
        "RDATE" | "EXDATE" => {
            for value in value.split(',') {
                let (zone, wall) = moment(parameters, value)?;
                if zone != event.zone {
                    return Err(format!("{name} is in the zone the event begins in"));
                }
                match name {
                    "RDATE" => event.dates.push(wall),
                    _ => event.except.push(wall),
                }
            }
        }
        "RECURRENCE-ID" => {
            let (zone, wall) = moment(parameters, value)?;
            if parameters
                .iter()
                .any(|parameter| parameter.to_ascii_uppercase().starts_with("RANGE="))
            {
                return Err("occurrences are set apart one by one".into());
            }
            if zone != event.zone {
                return Err("an occurrence is named in the zone its event begins in".into());
            }
            event.of = Some(wall);
        }
        _ => {}
    }
    Ok(())
}

/// `P1DT2H30M` in seconds; a day has 24 hours, a week seven days.
fn duration_s(text: &str) -> Option<i64> {
    let (mut seconds, mut number, mut in_day) = (0_i64, None::<i64>, false);
    for letter in text.strip_prefix('+').unwrap_or(text).strip_prefix('P')?.chars() {
        if let Some(digit) = letter.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit.into())?);
            continue;
        }
        let unit = match (letter, in_day) {
            ('T', false) if number.is_none() => {
                in_day = true;
                continue;
            }
            ('W', false) => 7 * 86_400,
            ('D', false) => 86_400,
            ('H', true) => 3600,
            ('M', true) => 60,
            ('S', true) => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    (number.is_none() && (1..=366 * 86_400).contains(&seconds)).then_some(seconds)
}

/// `20260329T090000`, with `Z` or in the zone its parameters name.
fn moment(parameters: &[&str], value: &str) -> Result<(Option<String>, String), String> {
    let mut zone = None;
    for parameter in parameters {
        match parameter.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("TZID") => {
                zone = Some(value.trim_matches('"').to_owned())
            }
            Some((name, value))
                if name.eq_ignore_ascii_case("VALUE") && value.eq_ignore_ascii_case("DATE-TIME") => {}
            Some((name, _)) if name.eq_ignore_ascii_case("VALUE") => {
                return Err(
                    "a window begins and ends at a time of day; whole days and periods are not read".into(),
                );
            }
            _ => {}
        }
    }
    let digits = match value.strip_suffix('Z') {
        Some(digits) if zone.is_none() => {
            zone = Some("UTC".into());
            digits
        }
        Some(_) => return Err("a time is in UTC or in a zone, not both".into()),
        None => value,
    };
    let shaped = digits.len() == 15
        && digits.bytes().enumerate().all(|(at, byte)| {
            if at == 8 {
                byte == b'T'
            } else {
                byte.is_ascii_digit()
            }
        });
    if !shaped {
        return Err("a time is written 20260329T090000".into());
    }
    let part = |range| digits.get(range).unwrap_or_default();
    let wall = format!(
        "{}-{}-{}T{}:{}:{}",
        part(0..4),
        part(4..6),
        part(6..8),
        part(9..11),
        part(11..13),
        part(13..15)
    );
    Ok((zone, wall))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(event: &str) -> String {
        format!(
            "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\n{event}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
        )
    }

    #[test]
    fn an_event_is_read_as_a_calendar_wrote_it() {
        let text = file(
            "UID:a@b\r\nSUMMARY:train\\, late\r\nDTSTART;TZID=Europe/Berlin:20260316T0\r\n 90000\r\nDTEND;TZID=Europe/Berlin:20260316T100000\r\nRRULE:FREQ=WEEKLY\r\nEXDATE;TZID=Europe/Berlin:20260323T090000,20260330T090000\r\nBEGIN:VALARM\r\nTRIGGER:-PT5M\r\nEND:VALARM",
        );
        let read = read(&text).expect("a calendar");
        let expected = Read {
            uid: "a@b".into(),
            summary: "train, late".into(),
            zone: Some("Europe/Berlin".into()),
            start: "2026-03-16T09:00:00".into(),
            end: "2026-03-16T10:00:00".into(),
            rule: Some("FREQ=WEEKLY".into()),
            dates: vec![],
            except: vec!["2026-03-23T09:00:00".into(), "2026-03-30T09:00:00".into()],
            of: None,
            cancelled: false,
        };
        assert_eq!(read, [expected]);
    }

    #[test]
    fn durations_quotes_and_occurrences_apart_are_read() {
        let text = file(
            "UID:a\r\nSUMMARY;ALTREP=\"http://x/a;b\":late\r\nRECURRENCE-ID;TZID=\"Europe/Berlin\":20260316T090000\r\nSTATUS:CANCELLED\r\nDTSTART;TZID=\"Europe/Berlin\":20260316T220000\r\nDURATION:P1DT1H30M",
        );
        let read = &read(&text).expect("a calendar")[0];
        assert_eq!(
            (
                read.summary.as_str(),
                read.end.as_str(),
                read.of.as_deref(),
                read.cancelled
            ),
            ("late", "2026-03-17T23:30:00", Some("2026-03-16T09:00:00"), true)
        );
        assert_eq!(read.zone.as_deref(), Some("Europe/Berlin"));
    }

    #[test]
    fn what_an_event_says_stands_in_any_order() {
        let lines = [
            "EXDATE;TZID=Europe/Berlin:20260323T090000",
            "RRULE:FREQ=WEEKLY;COUNT=3",
            "UID:a",
            "RDATE;TZID=Europe/Berlin:20260324T090000",
            "DTSTART;TZID=Europe/Berlin:20260316T090000",
            "SUMMARY:train",
        ];
        for end in ["DTEND;TZID=Europe/Berlin:20260316T103000", "DURATION:PT1H30M"] {
            let read = |lines: &[&str]| read(&file(&lines.join("\r\n"))).expect("a calendar");
            let mut forth = vec![end];
            forth.extend(lines);
            let back: Vec<&str> = forth.iter().rev().copied().collect();
            assert_eq!(read(&forth), read(&back));
            let event = &read(&forth)[0];
            assert_eq!(event.end, "2026-03-16T10:30:00");
            assert_eq!((event.dates.len(), event.except.len()), (1, 1));
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let shown = Shown {
            uid: "bkg_1-2".into(),
            summary:
                "4 × H100; \"late\", and a name that is long enough to go on in the next line of the file"
                    .into(),
            description: "one\ntwo".into(),
            start: Time::parse_rfc3339("2026-03-16T08:00:00Z").expect("a moment"),
            end: Time::parse_rfc3339("2026-03-16T09:30:00Z").expect("a moment"),
            made: Time(0),
            revision: 1,
        };
        let text = write("acme", &[shown]);
        assert!(text.lines().all(|line| line.len() <= 75), "{text}");
        let read = read(&text).expect("a calendar");
        assert_eq!(
            (read[0].start.as_str(), read[0].end.as_str()),
            ("2026-03-16T08:00:00", "2026-03-16T09:30:00")
        );
        assert_eq!(read[0].zone.as_deref(), Some("UTC"));
    }

    #[test]
    fn what_is_not_all_there_is_refused() {
        for (event, why) in [
            ("DTSTART:20260316T090000Z", "DTEND"),
            (
                "DTSTART;VALUE=DATE:20260316\r\nDTEND;VALUE=DATE:20260317",
                "whole days",
            ),
            ("DTSTART:20260316T090000Z\r\nDURATION:PT", "duration"),
            ("DTSTART:20260316T090000Z\r\nDURATION:P1H", "duration"),
            ("DTSTART:20260316T090000Z\r\nDURATION:P9999D", "duration"),
            ("DURATION:PT1H", "DTSTART"),
            (
                "DTEND:20260316T100000Z\r\nDTSTART;TZID=Europe/Berlin:20260316T090000",
                "zone",
            ),
            (
                "DTSTART:20260316T090000Z\r\nRECURRENCE-ID;RANGE=THISANDFUTURE:20260316T090000Z",
                "one by one",
            ),
            ("DTSTART:20260316T09Z\r\nDTEND:20260316T10Z", "written"),
            (
                "DTSTART;TZID=Europe/Berlin:20260316T090000\r\nDTEND:20260316T100000Z",
                "zone",
            ),
            ("DTSTART;TZID=Europe/Berlin:20260316T090000Z", "both"),
            ("nonsense", "NAME:VALUE"),
            ("BEGIN:VALARM", "did not begin"),
        ] {
            let refused = read(&file(event)).expect_err(event);
            assert!(refused.why.contains(why), "{event}: {refused}");
        }
        assert!(read("").is_err() && read("BEGIN:VCALENDAR").is_err() && read("hello").is_err());
        assert!(read(&" ".repeat(MAX_BYTES + 1)).is_err());
        assert_eq!(read("BEGIN:VCALENDAR\nEND:VCALENDAR"), Ok(vec![]));
    }
}
