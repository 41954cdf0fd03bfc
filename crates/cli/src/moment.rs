//! Moments and lengths of time as people say them.

use tenure_api::v1::time::Moment;
use tenure_domain::Time;

pub fn now() -> Time {
    Time(jiff::Timestamp::now().as_millisecond())
}

/// `2 min ago`, `in 3 h`, and the date where that says more.
pub fn ago(moment: Moment, now: Time) -> String {
    let ms = now.0.saturating_sub(moment.0.0);
    let length = match ms.unsigned_abs() / 1000 {
        0..=1 => return "just now".into(),
        s @ 2..=59 => format!("{s} s"),
        s @ 60..=3599 => format!("{} min", s / 60),
        s @ 3600..=86_399 => format!("{} h", s / 3600),
        s @ 86_400..=2_591_999 => format!("{} d", s / 86_400),
        _ => return moment.to_string().chars().take(10).collect(),
    };
    if ms < 0 {
        format!("in {length}")
    } else {
        format!("{length} ago")
    }
}

/// A moment in full, with how long ago it was.
pub fn full(moment: Moment, now: Time) -> String {
    format!("{moment} ({})", ago(moment, now))
}

/// `420 ms`, `45 s`, `1 h 30 min`.
pub fn length(ms: u64) -> String {
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big} {big_unit}"),
        _ => format!("{big} {big_unit} {small} {small_unit}"),
    };
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..=9 if ms % 1000 >= 100 => format!("{s}.{} s", ms % 1000 / 100),
        1..=59 => format!("{s} s"),
        60..=3599 => two(s / 60, "min", s % 60, "s"),
        3600..=86_399 => two(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// A moment as people give one: `2026-11-15`, `2026-11-15T09:30:00Z`, or how long ago, `7d`.
pub fn parse_since(text: &str) -> Result<Moment, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    if let Ok(day) = format!("{text}T00:00:00Z").parse() {
        return Ok(day);
    }
    match crate::units::seconds(text) {
        Ok(seconds) => i64::try_from(seconds)
            .ok()
            .and_then(|seconds| seconds.checked_mul(1000))
            .map(|ms| Moment(Time(now().0.saturating_sub(ms))))
            .ok_or_else(|| format!("'{text}' is longer ago than can be counted")),
        Err(_) => Err(format!(
            "'{text}' is not a moment; write it like 7d, 2026-11-15 or 2026-11-15T09:30:00Z"
        )),
    }
}

/// A moment ahead: in full, or how far ahead, `30d`.
pub fn parse_until(text: &str) -> Result<Moment, String> {
    match crate::units::seconds(text) {
        Ok(seconds) => Ok(Moment(now().plus_ms(seconds.saturating_mul(1000)))),
        Err(_) => parse_since(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_as_people_say_them() {
        let now = Time(1_700_000_000_000);
        let said = |ms: i64| ago(Moment(Time(now.0 - ms)), now);
        assert_eq!(said(300), "just now");
        assert_eq!(said(45_000), "45 s ago");
        assert_eq!(said(150_000), "2 min ago");
        assert_eq!(said(-7_200_000), "in 2 h");
        assert_eq!(said(40 * 86_400_000), "2023-10-05");
        assert_eq!(
            ago(Moment(Time(i64::MIN)), now),
            format!("{} ms", i64::MIN).chars().take(10).collect::<String>()
        );
    }

    #[test]
    fn lengths_read_as_people_say_them() {
        assert_eq!(length(420), "420 ms");
        assert_eq!(length(1_500), "1.5 s");
        assert_eq!(length(5_400_000), "1 h 30 min");
        assert_eq!(length(86_400_000), "1 d");
    }

    #[test]
    fn since_takes_dates_and_lengths() {
        assert_eq!(
            parse_since("2026-11-15").unwrap().to_string(),
            "2026-11-15T00:00:00Z"
        );
        assert!(parse_since("7d").is_ok());
        for bad in ["", "yesterday", "2026-13-40", "7", "99999999999999999w"] {
            assert!(parse_since(bad).is_err(), "{bad}");
        }
    }
}
