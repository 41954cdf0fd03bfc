//! Text that is HTML already. Everything else is escaped where it enters a page; this is made in `show` alone.

use std::fmt;

/// HTML as it stands in a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Html(String);

impl Html {
    /// Of a text whose every part is escaped or written here.
    pub fn made(text: String) -> Html {
        Html(text)
    }
}

impl fmt::Display for Html {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl askama::filters::HtmlSafe for Html {}

/// A text for HTML, in an element or a quoted attribute. What would act on the line it stands in is shown as a
/// replacement character instead.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if acts(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// Text of others, of one line, as it may be shown: what would act or hide is replaced.
pub(super) fn inert(text: &str) -> String {
    text.chars()
        .map(|letter| if acts(letter) { '\u{fffd}' } else { letter })
        .collect()
}

/// Controls, marks of direction, and what has no width.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A log's text: lines and tabs stay, colours and movements of a terminal are left out, other controls are replaced.
pub(super) fn log(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' | '\t' => out.push(letter),
            '\r' if letters.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\u{1b}' if letters.peek() == Some(&'[') => {
                letters.next();
                // The sequence ends with its first letter.
                while letters.next().is_some_and(|next| !('@'..='~').contains(&next)) {}
            }
            letter if acts(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_marks_are_inert() {
        assert_eq!(
            escape("<b onclick='x'>&\"\u{202e}\u{1b}[31m"),
            "&lt;b onclick=&#39;x&#39;&gt;&amp;&quot;\u{fffd}\u{fffd}[31m"
        );
        assert_eq!(inert("a\u{2066}b\u{200b}<i>"), "a\u{fffd}b\u{fffd}<i>");
        assert_eq!(escape("Ünïcode 日本 עברית"), "Ünïcode 日本 עברית");
    }

    #[test]
    fn a_log_keeps_its_lines_and_loses_its_colours() {
        assert_eq!(log("a\r\n\u{1b}[1;31mred\u{1b}[0m\tb\u{7}"), "a\nred\tb\u{fffd}");
        assert_eq!(log("10%\r20%\n"), "10%\n20%\n");
        assert_eq!(log("\u{1b}["), "");
    }
}
