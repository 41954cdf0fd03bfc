//! Labels of a job: words of its user's, by which people find it and what it wrote. Nothing is decided by them; labels of
//! nodes, by which much is, are in `schedule/label`.

use std::collections::BTreeMap;

use crate::name;
use crate::refusal::Refusal;

pub const MAX_LABELS: usize = 16;
pub const MAX_VALUE_BYTES: usize = 128;

/// Refuses what could not be asked for, or not be shown.
pub fn check(labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if labels.len() > MAX_LABELS {
        return Err(Refusal::invalid(
            "/labels",
            format!("a job has at most {MAX_LABELS} labels"),
        ));
    }
    for (key, value) in labels {
        name::check(key, "/labels")?;
        name::check_text(value, MAX_VALUE_BYTES, "/labels")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_can_be_shown() {
        let of = |key: &str, value: &str| check(&[(key.to_owned(), value.to_owned())].into());
        assert_eq!(of("team", "vision lab é"), Ok(()));
        for (key, value) in [("", "x"), ("a=b", "x"), ("a", "x\u{1b}[31m"), ("a", "\u{202e}")] {
            assert!(of(key, value).is_err(), "{key:?} {value:?}");
        }
        assert!(of("a", &"x".repeat(129)).is_err());
        let many = (0..17).map(|n| (format!("k{n}"), String::new())).collect();
        assert!(check(&many).is_err());
    }
}
