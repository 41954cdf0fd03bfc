//! How figures, moments and names of others are shown. Numbers have their units; text of others is isolated, so that
//! its direction and marks stay its own.

use tenure_api::v1::time::Moment;
use tenure_domain::booking::zone::Zone;
use tenure_domain::money::Micros;

use super::html::{Html, escape};

/// A name somebody chose.
pub(super) fn name(text: &str) -> Html {
    Html::made(format!("<bdi>{}</bdi>", escape(text)))
}

/// A moment, in UTC here; a script shows it in the reader's zone.
pub(super) fn time(moment: &Moment) -> Html {
    let full = moment.to_string();
    let zone = jiff::tz::TimeZone::UTC;
    let shown = jiff::Timestamp::from_millisecond(moment.0.0).map_or_else(
        |_| full.clone(),
        |at| at.to_zoned(zone).strftime("%-d %b %H:%M UTC").to_string(),
    );
    Html::made(format!("<time datetime=\"{full}\">{shown}</time>"))
}

/// A moment by the clocks of a zone, whatever the reader's own show; in UTC where the zone is none.
pub(super) fn wall(moment: &Moment, zone: Option<&Zone>) -> Html {
    let Some(wall) = zone.and_then(|zone| zone.wall(moment.0)) else {
        return time(moment);
    };
    let shown = wall.strftime("%a %-d %b %Y, %H:%M");
    Html::made(format!("<span class=\"wall\">{shown}</span>"))
}

/// Nothing to say.
pub(super) fn none() -> Html {
    Html::made("<span class=\"none\" aria-label=\"none\">–</span>".into())
}

/// Money with two decimals, or as many as a small amount needs to be seen.
pub(super) fn money(micros: i64, currency: &str) -> String {
    let magnitude = Micros(micros).0.unsigned_abs();
    let sign = if micros < 0 { "−" } else { "" };
    let number = match magnitude {
        0 => "0.00".to_owned(),
        1..10_000 => format!("0.{magnitude:06}").trim_end_matches('0').to_owned(),
        10_000..1_000_000 => format!("0.{:04}", magnitude / 100),
        _ => {
            let cents = magnitude.saturating_add(5_000) / 10_000;
            format!("{}.{:02}", count(cents / 100), cents % 100)
        }
    };
    format!("{sign}{number}\u{a0}{currency}").trim_end().to_owned()
}

/// A number in groups of three.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// `1 GPU`, `2 GPUs`.
pub(super) fn things(number: u64, thing: &str) -> String {
    match number {
        1 => format!("1\u{a0}{thing}"),
        number => format!("{}\u{a0}{thing}s", count(number)),
    }
}

/// `1536` as `1.5 GiB`.
pub(super) fn mib(mib: u64) -> String {
    const UNITS: [&str; 5] = ["MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut size, mut unit) = (1_u64, 0);
    while mib / size >= 1024 && unit + 1 < UNITS.len() {
        (size, unit) = (size * 1024, unit + 1);
    }
    let tenths = (u128::from(mib) * 10 / u128::from(size)) as u64;
    match tenths % 10 {
        0 => format!("{}\u{a0}{}", tenths / 10, UNITS[unit]),
        tenth => format!("{}.{tenth}\u{a0}{}", tenths / 10, UNITS[unit]),
    }
}

/// `300` as `30 %`.
pub(super) fn permille(permille: u64) -> String {
    match permille % 10 {
        0 => format!("{}\u{a0}%", permille / 10),
        tenth => format!("{}.{tenth}\u{a0}%", permille / 10),
    }
}

/// `1500` as `1.5`, of thousandths of something countable.
pub(super) fn milli(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A length of time in its two largest units.
pub(super) fn span(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 if ms > 0 => format!("{ms}\u{a0}ms"),
        0..60 => format!("{s}\u{a0}s"),
        60..3600 => format!("{}\u{a0}min {:02}\u{a0}s", s / 60, s % 60),
        3600..86400 => format!("{}\u{a0}h {:02}\u{a0}min", s / 3600, s % 3600 / 60),
        _ => format!("{}\u{a0}d {}\u{a0}h", s / 86400, s % 86400 / 3600),
    }
}

/// GPU time.
pub(super) fn gpu_time(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{}\u{a0}GPU·s", ms / 1000),
        60_000..3_600_000 => format!("{}\u{a0}GPU·min", ms / 60_000),
        _ => format!(
            "{}\u{a0}GPU·h",
            count(ms / 3_600_000) + &tenth(ms % 3_600_000 / 360_000)
        ),
    }
}

fn tenth(tenth: u64) -> String {
    if tenth == 0 {
        String::new()
    } else {
        format!(".{tenth}")
    }
}

/// `job_submit` as `job submit`.
pub(super) fn words(text: &str) -> String {
    text.replace('_', " ")
}

/// A state as a pill; its colour comes from its word.
pub(super) fn pill(word: &str) -> Html {
    let class: String = word
        .chars()
        .filter(|letter| letter.is_ascii_alphabetic() || *letter == '_')
        .collect();
    Html::made(format!(
        "<span class=\"pill is-{class}\">{}</span>",
        escape(&words(word))
    ))
}

/// A length beside others, of which the longest is whole: more of it is nothing to worry about.
pub(super) fn length(part: u64, longest: u64) -> Html {
    let permille = (u128::from(part) * 1000)
        .checked_div(u128::from(longest))
        .unwrap_or(0)
        .min(1000);
    drawn(permille, "fine")
}

/// How much of something is used. The figures stand beside it in words.
pub(super) fn bar(used: u64, limit: u64) -> Html {
    let permille = (u128::from(used) * 1000)
        .checked_div(u128::from(limit))
        .unwrap_or(0)
        .min(1000);
    let level = match permille {
        1000 => "full",
        850..1000 => "high",
        _ => "fine",
    };
    drawn(permille, level)
}

fn drawn(permille: u128, level: &str) -> Html {
    Html::made(format!(
        "<svg class=\"bar {level}\" viewBox=\"0 0 1000 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
         <rect class=\"of\" width=\"1000\" height=\"8\"/><rect class=\"on\" width=\"{permille}\" height=\"8\"/></svg>"
    ))
}

/// A drawing of the frame's own set, 20 by 20.
pub(super) fn icon(name: &str) -> Html {
    let path = match name {
        "home" => "M3 9.5 10 3l7 6.5V17h-4.5v-4.5h-5V17H3z",
        "fleet" => "M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z",
        "jobs" => "M3 5h14M3 10h14M3 15h9",
        "logs" => "M4 3h12v14H4zM7 7h6M7 10h6M7 13h3",
        "calendar" => "M3 5h14v12H3zM3 9h14M7 3v4M13 3v4",
        "exchange" => "M4 7h12l-3-3M16 13H4l3 3",
        "money" => "M10 3v14M14 6c-1-1.5-7-2-7 1.2 0 3.3 7 2 7 5.6 0 3-6 3.200-7.500 1",
        "health" => "M3 11h3l2-6 4 11 2-5h3",
        "audit" => "M5 3h7l3 3v11H5zM8 9h4M8 12h4",
        "admin" => "M10 3v4M5 13V9.500h10V13M10 7v6M3 13h4v4H3zM8 13h4v4H8zM13 13h4v4h-4z",
        "plus" => "M10 4v12M4 10h12",
        "theme" => "M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14",
        "out" => "M8 4H4v12h4M9 10h8M14 7l3 3-3 3",
        _ => "M10 10h.01",
    };
    Html::made(format!(
        "<svg class=\"icon\" viewBox=\"0 0 20 20\" aria-hidden=\"true\" focusable=\"false\"><path d=\"{path}\"/></svg>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(money(12_345_678, "EUR"), "12.35\u{a0}EUR");
        assert_eq!(
            money(1_234_500_000_000, "EUR"),
            "1\u{202f}234\u{202f}500.00\u{a0}EUR"
        );
        assert_eq!(money(520_400, "EUR"), "0.5204\u{a0}EUR");
        assert_eq!(money(120, "EUR"), "0.00012\u{a0}EUR");
        assert_eq!(money(-2_000_000, ""), "−2.00");
        assert_eq!(
            (mib(512), mib(1536), mib(81_920)),
            ("512\u{a0}MiB".into(), "1.5\u{a0}GiB".into(), "80\u{a0}GiB".into())
        );
        assert_eq!(
            (permille(300), permille(305)),
            ("30\u{a0}%".into(), "30.5\u{a0}%".into())
        );
        assert_eq!(
            (span(59_000), span(3_725_000)),
            ("59\u{a0}s".into(), "1\u{a0}h 02\u{a0}min".into())
        );
        assert_eq!(
            (milli(1500), milli(2000), milli(5)),
            ("1.5".into(), "2".into(), "0.005".into())
        );
    }

    #[test]
    fn names_are_isolated_and_bars_stay_in_their_frame() {
        assert_eq!(name("<i>\u{202e}x").to_string(), "<bdi>&lt;i&gt;\u{fffd}x</bdi>");
        assert!(bar(5, 0).to_string().contains("width=\"0\""));
        assert!(bar(9, 3).to_string().contains("full"));
    }
}
