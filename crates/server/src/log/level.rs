//! How grave a line is, by what it says of itself: in JSON, in logfmt, as glog, Python, Rust and most others write it.
//!
//! That a line went to stderr says nothing: much that is well goes there. A line that says nothing counts as `info` where
//! one asks by level, and shows none.

use serde_json::Value;

/// From the least grave to the gravest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Fatal,
}

/// The bit of lines that say nothing.
pub(crate) const UNSAID_BIT: u32 = 1 << 6;

/// How far into a line its level may stand.
const NEAR_BYTES: usize = 160;
const NEAR_WORDS: usize = 8;
/// A JSON line longer than this is not read.
const JSON_BYTES: usize = 16 << 10;

impl Level {
    pub const ALL: [Level; 6] = [
        Level::Trace,
        Level::Debug,
        Level::Info,
        Level::Warn,
        Level::Error,
        Level::Fatal,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Fatal => "fatal",
        }
    }

    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The level a word means, in whatever case.
    pub fn of_word(word: &str) -> Option<Level> {
        let is = |words: &[&str]| words.iter().any(|other| word.eq_ignore_ascii_case(other));
        Some(match word.len() {
            3..=11 if is(&["trace", "verbose", "finest"]) => Level::Trace,
            3..=11 if is(&["debug", "dbg"]) => Level::Debug,
            3..=11 if is(&["info", "information", "notice", "inf"]) => Level::Info,
            3..=11 if is(&["warn", "warning", "wrn"]) => Level::Warn,
            3..=11 if is(&["error", "err", "severe"]) => Level::Error,
            3..=11
                if is(&[
                    "fatal",
                    "critical",
                    "crit",
                    "alert",
                    "emerg",
                    "emergency",
                    "panic",
                ]) =>
            {
                Level::Fatal
            }
            _ => return None,
        })
    }

    /// What a line says of itself; none where it says nothing.
    pub(crate) fn of_line(line: &str) -> Option<Level> {
        let line = line.trim_start();
        if line.starts_with('{') {
            return of_json(line);
        }
        let near = &line[..line.floor_char_boundary(NEAR_BYTES)];
        of_glog(near)
            .or_else(|| of_words(near))
            .or_else(|| of_pairs(line))
            .or_else(|| of_failures(near))
    }
}

/// The bits of a level and all graver ones. What says nothing counts as `info`.
pub(crate) fn bits_from(least: Level) -> u32 {
    let graver = Level::ALL.iter().filter(|level| **level >= least);
    let bits = graver.map(|level| level.bit()).fold(0, |all, bit| all | bit);
    if least <= Level::Info {
        bits | UNSAID_BIT
    } else {
        bits
    }
}

const NAMES: [&str; 7] = [
    "level",
    "severity",
    "lvl",
    "levelname",
    "log.level",
    "loglevel",
    "severityText",
];

fn of_json(line: &str) -> Option<Level> {
    if line.len() > JSON_BYTES {
        return None;
    }
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        return None;
    };
    match NAMES.iter().find_map(|name| fields.get(*name))? {
        Value::String(word) => Level::of_word(word.trim()),
        // As bunyan and pino count them.
        Value::Number(number) => match number.as_u64()? {
            10..20 => Some(Level::Trace),
            20..30 => Some(Level::Debug),
            30..40 => Some(Level::Info),
            40..50 => Some(Level::Warn),
            50..60 => Some(Level::Error),
            60..70 => Some(Level::Fatal),
            _ => None,
        },
        _ => None,
    }
}

/// `W0101 12:00:00.000 …`
fn of_glog(line: &str) -> Option<Level> {
    let bytes = line.as_bytes();
    let dated = bytes.len() > 5 && bytes[1..5].iter().all(u8::is_ascii_digit) && bytes[5] == b' ';
    match bytes.first() {
        Some(b'I') if dated => Some(Level::Info),
        Some(b'W') if dated => Some(Level::Warn),
        Some(b'E') if dated => Some(Level::Error),
        Some(b'F') if dated => Some(Level::Fatal),
        _ => None,
    }
}

/// A word where levels stand: first, or behind moments, names in brackets and names between dashes.
fn of_words(line: &str) -> Option<Level> {
    let mut words = line.split_whitespace().take(NEAR_WORDS).peekable();
    let mut is_first = true;
    while let Some(word) = words.next() {
        let bare = word.trim_matches(['[', ']', '(', ')', '<', '>', '|', ',', '-', '*']);
        // `WARNING:root:…`, `error[E0308]:`, `[main/INFO]`
        let head = bare.split([':', '[']).next().unwrap_or(bare);
        let head = head.rsplit('/').next().unwrap_or(head);
        if let Some(level) = Level::of_word(head) {
            let loud = !head.contains(|letter: char| letter.is_ascii_lowercase());
            let marked = head.len() < word.len();
            return (loud || marked).then_some(level);
        }
        let is_moment = word.contains(|letter: char| letter.is_ascii_digit());
        let is_mark = bare.len() < word.len() && !bare.contains(char::is_alphabetic);
        let in_brackets = word.starts_with(['[', '(', '<']) || word.ends_with([']', ')']);
        let before_dash = words.peek().is_some_and(|next| matches!(*next, "-" | "|" | "--"));
        let is_name = is_first && word.ends_with(':');
        if !(is_moment || is_mark || in_brackets || before_dash || is_name) {
            return None;
        }
        is_first = false;
    }
    None
}

/// `level=warn`, as logfmt has it.
fn of_pairs(line: &str) -> Option<Level> {
    let head = &line[..line.floor_char_boundary(1024)];
    head.split_whitespace().find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let known = NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
        known.then(|| Level::of_word(value.trim_matches('"')))?
    })
}

/// What failing programs say without a level.
fn of_failures(line: &str) -> Option<Level> {
    if line.starts_with("Traceback (most recent call last)")
        || (line.starts_with("thread '") && line.contains(" panicked at "))
        || line.starts_with("panic: ")
    {
        return Some(Level::Error);
    }
    // `ValueError: …`, `torch.cuda.OutOfMemoryError: …`
    let name = line.split(':').next().unwrap_or_default();
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_class = line.len() > name.len()
        && last.starts_with(|letter: char| letter.is_ascii_uppercase())
        && name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '.' || letter == '_');
    (is_class && (last.ends_with("Error") || last.ends_with("Exception"))).then_some(Level::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_how_grave_they_are() {
        for (line, level) in [
            (r#"{"time":"x","level":"WARN","msg":"m"}"#, Some(Level::Warn)),
            (r#"{"severity":"critical","message":"error"}"#, Some(Level::Fatal)),
            (r#"{"lvl":"dbg"}"#, Some(Level::Debug)),
            (r#"{"level":50,"msg":"pino"}"#, Some(Level::Error)),
            (r#"{"msg":"ERROR in the text alone"}"#, None),
            ("ts=2026-01-01 level=error msg=\"x\"", Some(Level::Error)),
            ("msg=ok lvl=info", Some(Level::Info)),
            ("ERROR it broke", Some(Level::Error)),
            ("[warn] low on room", Some(Level::Warn)),
            ("warning: unused variable", Some(Level::Warn)),
            ("error[E0308]: mismatched types", Some(Level::Error)),
            ("W0101 12:00:00.000000 1 file.cc:1] x", Some(Level::Warn)),
            ("E1119 04:00:00 1 x] y", Some(Level::Error)),
            (
                "2026-11-19 04:00:00,123 - trainer - WARNING - loss is nan",
                Some(Level::Warn),
            ),
            ("2026-11-19T04:00:00Z  INFO tenure: up", Some(Level::Info)),
            ("WARNING:root:deprecated", Some(Level::Warn)),
            ("[2026-11-19 04:00:00] [main/ERROR] x", Some(Level::Error)),
            ("DEBUG 1 2 3", Some(Level::Debug)),
            ("CRITICAL: out of memory", Some(Level::Fatal)),
            ("Traceback (most recent call last):", Some(Level::Error)),
            (
                "torch.cuda.OutOfMemoryError: CUDA out of memory",
                Some(Level::Error),
            ),
            ("thread 'main' panicked at src/main.rs:1", Some(Level::Error)),
            ("no ERROR was found", None),
            ("information is power", None),
            ("error", None),
            ("errors: 0", None),
            ("step 5 error 0.1", None),
            ("W0101", None),
            ("", None),
            ("é\u{202e}", None),
        ] {
            assert_eq!(Level::of_line(line), level, "{line}");
        }
    }

    #[test]
    fn a_level_takes_in_all_graver_ones_and_the_unsaid_with_info() {
        assert_eq!(bits_from(Level::Error), Level::Error.bit() | Level::Fatal.bit());
        assert_eq!(bits_from(Level::Warn) & UNSAID_BIT, 0);
        assert_ne!(bits_from(Level::Info) & UNSAID_BIT, 0);
        assert_eq!(bits_from(Level::Trace), 127);
    }
}
