//! Amounts as people write and read them: `40GiB`, `2.5`, `30%`, `12.50`. Exact: no floats on the way in, and
//! what cannot be said exactly is rounded up, never to less than was asked.

use tenure_domain::meter::{Meter, Of, Resource};
use tenure_domain::money::Micros;

/// A decimal number as digits and how many of them stand behind the point.
struct Decimal {
    digits: u128,
    scale: u32,
}

/// Splits `1.5GiB` into its number and its unit.
fn number(text: &str) -> Option<(Decimal, &str)> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (figure, unit) = text.split_at(end);
    let (whole, part) = figure.split_once('.').unwrap_or((figure, ""));
    if whole.is_empty()
        || (figure.contains('.') && part.is_empty())
        || part.contains('.')
        || figure.len() > 30
    {
        return None;
    }
    let digits = format!("{whole}{part}").parse().ok()?;
    Some((
        Decimal {
            digits,
            scale: part.len() as u32,
        },
        unit.trim_start(),
    ))
}

impl Decimal {
    /// The number times `factor / divisor`, rounded up.
    fn times(&self, factor: u128, divisor: u128) -> Option<u64> {
        let divisor = divisor.checked_mul(10u128.checked_pow(self.scale)?)?;
        u64::try_from(self.digits.checked_mul(factor)?.div_ceil(divisor)).ok()
    }

    /// The number times `factor`, only if that is whole.
    fn exactly(&self, factor: u128) -> Option<u64> {
        let divisor = 10u128.checked_pow(self.scale)?;
        let product = self.digits.checked_mul(factor)?;
        (product % divisor == 0)
            .then(|| u64::try_from(product / divisor).ok())
            .flatten()
    }
}

/// Memory in MiB, from `40GiB`, `512Mi`, `24GB`. A unit is always said.
pub fn mib(text: &str) -> Result<u64, String> {
    const MIB: u128 = 1 << 20;
    let wrong = || format!("'{text}' is not an amount of memory; write it like 512MiB, 1.5GiB or 24GB");
    let (value, unit) = number(text.trim()).ok_or_else(wrong)?;
    let bytes: u128 = match unit.to_ascii_lowercase().as_str() {
        "kib" | "ki" => 1 << 10,
        "mib" | "mi" => 1 << 20,
        "gib" | "gi" => 1 << 30,
        "tib" | "ti" => 1 << 40,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "" => return Err(format!("'{text}' has no unit; write {text}MiB or {text}GiB")),
        _ => return Err(wrong()),
    };
    value
        .times(bytes, MIB)
        .ok_or_else(|| format!("'{text}' is more memory than can be counted"))
}

/// A number by thousands: `13,015,864,320`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Thousandths, from `2.5`; also `500m`.
pub fn milli(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not an amount; write it like 2, 0.5 or 2.25, to a thousandth");
    let (value, unit) = number(text.trim()).ok_or_else(wrong)?;
    match unit {
        "" => value.exactly(1000).ok_or_else(wrong),
        "m" => value.exactly(1).ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// Thousandths of a core, for a job.
pub fn cpu_milli(text: &str) -> Result<u32, String> {
    u32::try_from(milli(text)?).map_err(|_| format!("'{text}' is more CPU than any machine has"))
}

/// A share of one GPU in thousandths, from `30%`, `0.3` or `300`.
pub fn permille(text: &str) -> Result<u16, String> {
    let wrong = || format!("'{text}' is not a share of a GPU; write it like 30% or 0.3");
    let (value, unit) = number(text.trim()).ok_or_else(wrong)?;
    let share = match unit {
        "%" => value.exactly(10),
        "" => value.exactly(1000),
        "‰" => value.exactly(1),
        _ => None,
    };
    match share {
        Some(share @ 1..=1000) => Ok(share as u16),
        _ => Err(wrong()),
    }
}

/// Seconds, from `90s`, `30m`, `2h`, `1h30m`, `7d`. A unit is always said.
pub fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a length of time; write it like 90s, 30m, 2h, 1h30m or 7d");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (value, tail) = number(rest).ok_or_else(wrong)?;
        let end = tail
            .find(|letter: char| !letter.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(end);
        let factor = match unit {
            "s" | "sec" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            "w" => 604_800,
            "" => return Err(format!("'{text}' has no unit; write {text}s, {text}m or {text}h")),
            _ => return Err(wrong()),
        };
        total = value
            .exactly(factor)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(wrong)?;
        rest = next.trim_start();
    }
    Ok(total)
}

/// Money to a millionth, from `12.50`.
pub fn micros(text: &str) -> Result<i64, String> {
    let wrong = || format!("'{text}' is not an amount of money; write it like 12.50, to a millionth at most");
    let (value, unit) = number(text.trim()).ok_or_else(wrong)?;
    let exact = value.exactly(1_000_000).filter(|_| unit.is_empty());
    exact
        .and_then(|micros| i64::try_from(micros).ok())
        .ok_or_else(wrong)
}

/// A meter by its short name or its own: `gpus`, `vram@class:H100`, `gpu_milli`. Tells whether it was the
/// short one, whose amounts carry units.
pub fn meter(text: &str) -> Result<(Meter, bool), String> {
    let (resource, of) = text
        .split_once('@')
        .map_or((text, None), |(resource, of)| (resource, Some(of)));
    let own = match resource {
        "gpus" | "gpu" => Some(Resource::GpuMilli),
        "vram" => Some(Resource::VramMib),
        "cpu" | "cpus" => Some(Resource::CpuMilli),
        "memory" => Some(Resource::MemoryMib),
        "volume" | "volumes" => Some(Resource::VolumeMib),
        "booked" => Some(Resource::BookedMilli),
        _ => None,
    };
    let name = own.map_or(resource, |own| own.as_str());
    let whole = of.map_or_else(|| name.to_owned(), |of| format!("{name}@{of}"));
    match whole.parse() {
        Ok(meter) => Ok((meter, own.is_some())),
        Err(_) if own.is_none() && name.parse::<Resource>().is_err() => Err(format!(
            "there is no meter '{text}'; there are gpus, slices, vram, cpu, memory, jobs, volume and booked, each also as @class:NAME or @sku:NAME"
        )),
        Err(why) => Err(why),
    }
}

/// `gpus=2.5`, `vram=40GiB`, `jobs@sku:large=none`: a meter and its limit, none for no limit.
pub fn limit(text: &str) -> Result<(Meter, Option<u64>), String> {
    let (name, amount) = text
        .rsplit_once('=')
        .ok_or_else(|| format!("'{text}' is not METER=AMOUNT, such as gpus=2 or vram=40GiB"))?;
    let (meter, short) = meter(name)?;
    if amount == "none" {
        return Ok((meter, None));
    }
    let whole = || {
        amount
            .parse::<u64>()
            .map_err(|_| format!("'{amount}' is not a whole number of {name}"))
    };
    let amount = match (short, meter.resource) {
        (true, Resource::GpuMilli | Resource::CpuMilli | Resource::BookedMilli) => milli(amount)?,
        (true, Resource::VramMib | Resource::MemoryMib | Resource::VolumeMib) => mib(amount)?,
        _ => whole()?,
    };
    Ok((meter, Some(amount)))
}

/// A meter's short name.
pub fn meter_name(meter: &Meter) -> String {
    let name = match meter.resource {
        Resource::GpuMilli => "gpus",
        Resource::VramMib => "vram",
        Resource::CpuMilli => "cpu",
        Resource::MemoryMib => "memory",
        Resource::Slices => "slices",
        Resource::Jobs => "jobs",
        Resource::VolumeMib => "volume",
        Resource::BookedMilli => "booked",
    };
    if meter.of == Of::All {
        name.to_owned()
    } else {
        format!("{name}@{}", meter.of)
    }
}

/// An amount of a meter, with its unit.
pub fn amount(meter: &Meter, amount: u64) -> String {
    match meter.resource {
        Resource::GpuMilli | Resource::CpuMilli | Resource::BookedMilli => show_milli(amount),
        Resource::VramMib | Resource::MemoryMib | Resource::VolumeMib => show_mib(amount),
        Resource::Slices | Resource::Jobs => amount.to_string(),
    }
}

/// `2500` as `2.5`.
pub fn show_milli(milli: u64) -> String {
    trimmed(milli / 1000, milli % 1000, 3, 0)
}

/// `1536` as `1.5 GiB`.
pub fn show_mib(mib: u64) -> String {
    const UNITS: [&str; 5] = ["MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut size = 1u64;
    let mut unit = 0;
    while mib / size >= 1024 && unit + 1 < UNITS.len() {
        size *= 1024;
        unit += 1;
    }
    let hundredths = (u128::from(mib % size) * 100 / u128::from(size)) as u64;
    format!("{} {}", trimmed(mib / size, hundredths, 2, 0), UNITS[unit])
}

/// `300` as `30 %`.
pub fn show_permille(permille: u32) -> String {
    format!(
        "{} %",
        trimmed(u64::from(permille) / 10, u64::from(permille) % 10, 1, 0)
    )
}

/// Money with at least two decimals and no idle zeros after them: `0.52 EUR`, `0.000125 EUR`.
pub fn show_money(micros: i64, currency: &str) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let magnitude = Micros(micros).0.unsigned_abs();
    let number = trimmed(magnitude / 1_000_000, magnitude % 1_000_000, 6, 2);
    if currency.is_empty() {
        format!("{sign}{number}")
    } else {
        format!("{sign}{number} {currency}")
    }
}

/// GPU time as `1.5 GPU-h`, or in minutes and seconds where it is short.
pub fn show_gpu_ms(ms: u64) -> String {
    match ms {
        0 => "–".into(),
        1..60_000 => format!("{} GPU-s", trimmed(ms / 1000, ms % 1000 / 100, 1, 0)),
        60_000..3_600_000 => format!("{} GPU-min", trimmed(ms / 60_000, ms % 60_000 / 6_000, 1, 0)),
        _ => format!("{} GPU-h", trimmed(ms / 3_600_000, ms % 3_600_000 / 36_000, 2, 0)),
    }
}

fn trimmed(whole: u64, part: u64, digits: usize, least: usize) -> String {
    let mut decimals = format!("{part:0digits$}");
    while decimals.len() > least && decimals.ends_with('0') {
        decimals.pop();
    }
    if decimals.is_empty() {
        whole.to_string()
    } else {
        format!("{whole}.{decimals}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GARBAGE: [&str; 18] = [
        "",
        " ",
        ".",
        "-1",
        "+1GiB",
        "1e9",
        "NaN",
        "inf",
        "1..2",
        "1.2.3GiB",
        "1.",
        ".5",
        "GiB",
        "½",
        "１",
        "0x10",
        "999999999999999999999999999999999999999",
        "1GiB\n;rm",
    ];

    #[test]
    fn memory_reads_in_the_units_people_use() {
        for (text, expected) in [
            ("512MiB", 512),
            ("40GiB", 40 * 1024),
            ("1.5GiB", 1536),
            ("1 GiB", 1024),
            ("24GB", 22889),
            ("1KiB", 1),
            ("0GiB", 0),
            ("2Ti", 2 << 20),
        ] {
            assert_eq!(mib(text), Ok(expected), "{text}");
        }
        assert_eq!(mib("40").unwrap_err(), "'40' has no unit; write 40MiB or 40GiB");
        assert!(mib("99999999999999TiB").is_err());
    }

    #[test]
    fn shares_and_counts_are_exact() {
        assert_eq!(milli("2.5"), Ok(2500));
        assert_eq!(milli("0.001"), Ok(1));
        assert_eq!(milli("500m"), Ok(500));
        assert!(milli("0.0001").is_err());
        assert_eq!(
            (permille("30%"), permille("0.3"), permille("1"), permille("12.5%")),
            (Ok(300), Ok(300), Ok(1000), Ok(125))
        );
        for bad in ["0", "0%", "101%", "1.001", "300", "0.01%"] {
            assert!(permille(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        for (text, expected) in [
            ("90s", 90),
            ("30m", 1800),
            ("1h30m", 5400),
            ("1.5h", 5400),
            ("7d", 604_800),
            ("1h 5min", 3900),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        assert_eq!(
            seconds("90").unwrap_err(),
            "'90' has no unit; write 90s, 90m or 90h"
        );
        assert!(seconds("0.1s").is_err());
        assert!(seconds("1h30").is_err());
    }

    #[test]
    fn money_is_read_to_the_micro() {
        assert_eq!(micros("12.50"), Ok(12_500_000));
        assert_eq!(micros("0.000001"), Ok(1));
        assert!(micros("0.0000001").is_err());
        assert!(micros("9000000000000").is_ok());
        assert!(micros("9999999999999").is_err());
    }

    #[test]
    fn garbage_is_refused_everywhere() {
        for text in GARBAGE {
            assert!(mib(text).is_err(), "mib {text}");
            assert!(milli(text).is_err(), "milli {text}");
            assert!(permille(text).is_err(), "permille {text}");
            assert!(seconds(text).is_err(), "seconds {text}");
            assert!(micros(text).is_err(), "micros {text}");
            assert!(limit(text).is_err(), "limit {text}");
            assert!(limit(&format!("gpus={text}")).is_err(), "gpus={text}");
        }
    }

    #[test]
    fn limits_are_meters_with_human_amounts() {
        let read = |text: &str| limit(text).map(|(meter, amount)| (meter.to_string(), amount));
        assert_eq!(read("gpus=2.5"), Ok(("gpu_milli".into(), Some(2500))));
        assert_eq!(read("gpu_milli=2500"), Ok(("gpu_milli".into(), Some(2500))));
        assert_eq!(
            read("vram@class:H100=40GiB"),
            Ok(("vram_mib@class:H100".into(), Some(40960)))
        );
        assert_eq!(read("jobs@sku:large=none"), Ok(("jobs@sku:large".into(), None)));
        assert!(read("vram_mib=40GiB").unwrap_err().contains("whole number"));
        assert!(read("ram=1").unwrap_err().contains("there is no meter 'ram'"));
        assert!(read("gpus@H100=1").is_err());
        assert!(read("jobs=1.5").is_err());
    }

    #[test]
    fn amounts_read_well() {
        assert_eq!(show_mib(512), "512 MiB");
        assert_eq!(show_mib(1536), "1.5 GiB");
        assert_eq!(show_mib(u64::MAX), "16777215.99 EiB");
        assert_eq!(show_milli(2500), "2.5");
        assert_eq!(show_permille(125), "12.5 %");
        assert_eq!(show_money(520_400, "EUR"), "0.5204 EUR");
        assert_eq!(show_money(-1_000_000, "EUR"), "-1.00 EUR");
        assert_eq!(show_money(i64::MIN, "EUR"), "-9223372036854.775808 EUR");
        assert_eq!(show_gpu_ms(5_400_000), "1.5 GPU-h");
    }
}
