//! Names people give to things: short tokens that mean the same in a URL, a shell, YAML and a table.
//! Anything beyond ASCII letters, digits, dot, dash and underscore is refused, which leaves no room for
//! look-alikes, direction marks, control characters or markup.

use crate::refusal::{Code, Refusal};

pub const MAX_NAME: usize = 63;

/// Checks a name of a tenancy scope, SKU, class, secret or node: starts with a letter or digit.
pub fn check(name: &str, field: &'static str) -> Result<(), Refusal> {
    let fine = !name.is_empty()
        && name.len() <= MAX_NAME
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if fine {
        return Ok(());
    }
    Err(Refusal::new(
        Code::InvalidField,
        "a name is 1 to 63 ASCII letters, digits, '.', '-' or '_', starting with a letter or digit",
    )
    .field(field)
    .hint("choose a short token such as render-farm"))
}

/// Checks free text that people read: no control characters or invisible direction marks, bounded.
pub fn check_text(text: &str, max: usize, field: &'static str) -> Result<(), Refusal> {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if text.len() > max {
        return Err(
            Refusal::new(Code::InvalidField, format!("the text is longer than {max} bytes")).field(field),
        );
    }
    if text.chars().any(hidden) {
        return Err(Refusal::new(
            Code::InvalidField,
            "the text has control characters or direction marks",
        )
        .field(field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_plain_tokens() {
        for fine in ["a", "9", "render-farm", "H100", "a.b_c-d", &"x".repeat(63)] {
            assert_eq!(check(fine, "/name"), Ok(()), "{fine}");
        }
        let long = "x".repeat(64);
        for bad in [
            "",
            "-a",
            ".a",
            "_a",
            "a b",
            "a/b",
            "a\nb",
            "a\0",
            "ünal",
            "a\u{202e}",
            "<b>",
            "$(id)",
            "a;b",
            "a'b",
            "..",
            long.as_str(),
        ] {
            let refusal = check(bad, "/name").expect_err(bad);
            assert_eq!(
                (refusal.code, refusal.field.as_deref()),
                (Code::InvalidField, Some("/name"))
            );
        }
    }

    #[test]
    fn text_has_nothing_hidden_in_it() {
        assert_eq!(check_text("NVIDIA H100 80 GB – größer", 100, "/model"), Ok(()));
        for bad in [
            "a\nb",
            "\u{1b}[31m",
            "a\u{202e}b",
            "\u{feff}",
            "\u{200b}",
            "\u{2066}",
            "\0",
            &"x".repeat(101),
        ] {
            assert!(check_text(bad, 100, "/model").is_err(), "{bad:?}");
        }
    }
}
