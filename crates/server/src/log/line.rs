//! Lines out of the bytes of a log, as they may be shown: without what would act on a terminal or hide in a line.

use std::borrow::Cow;

/// The lines of a stretch. The last may lack its end.
pub(crate) fn lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let whole = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let some = (!bytes.is_empty()).then(|| whole.split(|byte| *byte == b'\n'));
    some.into_iter().flatten()
}

/// One line as text: colours and movements of a terminal left out, other controls and marks of direction as pictures.
pub(crate) fn clean(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
    if !text.contains(acts) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => match letters.peek() {
                Some('[') => {
                    letters.next();
                    // The sequence ends with its first letter.
                    while letters.next().is_some_and(|next| !('@'..='~').contains(&next)) {}
                }
                Some(']') => {
                    // A title or a link: up to a bell or the end of strings.
                    while let Some(next) = letters.next() {
                        if next == '\u{7}' || (next == '\u{1b}' && letters.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => out.push('\u{241b}'),
            },
            letter if acts(letter) => out.push(picture(letter)),
            letter => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// Controls but tabs, marks of direction, and what has no width.
fn acts(letter: char) -> bool {
    (letter.is_control() && letter != '\t')
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn picture(letter: char) -> char {
    match u32::from(letter) {
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ => '\u{fffd}',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_as_people_count_them() {
        let of = |bytes: &'static [u8]| lines(bytes).collect::<Vec<_>>();
        assert_eq!(of(b"a\nb\n"), [b"a", b"b"]);
        assert_eq!(of(b"a\n\nb"), [&b"a"[..], b"", b"b"]);
        assert_eq!(of(b"\n"), [b""]);
        assert_eq!(of(b""), Vec::<&[u8]>::new());
    }

    #[test]
    fn nothing_in_a_line_acts() {
        assert_eq!(clean(b"\x1b[1;31mred\x1b[0m\tx\r"), "red\tx");
        assert_eq!(clean(b"a\x1b]8;;http://x\x07link\x1b]0;t\x1b\\b"), "alinkb");
        assert_eq!(
            clean("a\u{202e}b\u{9b}c\x07\rd".as_bytes()),
            "a\u{fffd}b\u{fffd}c\u{2407}\u{240d}d"
        );
        assert_eq!(clean(b"\xff\x1b"), "\u{fffd}\u{241b}");
        assert_eq!(clean(b"\x1b["), "");
        assert!(matches!(clean("plain \u{e9} <b>".as_bytes()), Cow::Borrowed(_)));
    }
}
