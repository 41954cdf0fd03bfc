//! Text from elsewhere made safe to print: no control characters, escapes or direction marks reach the
//! terminal, whoever wrote them.

use std::borrow::Cow;

/// Whether a character acts on a terminal or hides in a line instead of being seen.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// One line of text; what could act on a terminal is shown as its picture or a replacement character.
pub fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        text.chars()
            .map(|letter| {
                if is_hidden(letter) {
                    picture(letter)
                } else {
                    letter
                }
            })
            .collect(),
    )
}

/// Text of several lines, such as a rule file.
pub fn safe_lines(text: &str) -> String {
    text.split('\n')
        .map(|line| safe(line.trim_end_matches('\r')))
        .collect::<Vec<_>>()
        .join("\n")
}

fn picture(letter: char) -> char {
    match u32::from(letter) {
        code @ 0..=0x1f => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
        0x7f => '\u{2421}',
        _ => '\u{fffd}',
    }
}

/// Neutralises a log as it streams: keeps line ends, tabs and returns, takes the power from everything else.
/// A character cut in two by the stream is put together again.
#[derive(Default)]
pub struct LogFilter {
    held: Vec<u8>,
}

impl LogFilter {
    pub fn pass(&mut self, piece: &[u8]) -> String {
        self.held.extend_from_slice(piece);
        let whole = complete_len(&self.held);
        let rest = self.held.split_off(whole);
        let text = String::from_utf8_lossy(&self.held);
        let clean = text
            .chars()
            .map(|letter| match letter {
                '\n' | '\t' | '\r' => letter,
                letter if is_hidden(letter) => picture(letter),
                letter => letter,
            })
            .collect();
        self.held = rest;
        clean
    }

    /// What is left when the stream ends.
    pub fn finish(&mut self) -> String {
        let left = std::mem::take(&mut self.held);
        if left.is_empty() {
            String::new()
        } else {
            "\u{fffd}".into()
        }
    }
}

/// How many bytes from the start end at a character boundary, leaving at most a begun character behind.
fn complete_len(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let needs = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return bytes.len(),
        };
        return if needs > back {
            bytes.len() - back
        } else {
            bytes.len()
        };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_pictures() {
        assert_eq!(safe("a\u{1b}[31mb\u{9b}c\u{202e}\n"), "a␛[31mb\u{fffd}c\u{fffd}␊");
        assert!(matches!(safe("plain ünïcode ✓"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_log_keeps_its_lines_and_loses_its_power() {
        let mut filter = LogFilter::default();
        assert_eq!(filter.pass(b"50%\r100%\t\x1b]0;x\x07\n"), "50%\r100%\t␛]0;x␇\n");
        assert_eq!(filter.pass(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_character_cut_in_two_comes_out_whole_and_nothing_is_held_for_ever() {
        let text = "aé€😀\u{9b}z".as_bytes();
        for cut in 0..=text.len() {
            let mut filter = LogFilter::default();
            let whole = filter.pass(&text[..cut]) + &filter.pass(&text[cut..]) + &filter.finish();
            assert_eq!(whole, "aé€😀\u{fffd}z", "cut at {cut}");
        }
        let mut filter = LogFilter::default();
        assert_eq!(filter.pass(b"\xf0\x9f"), "");
        assert_eq!(filter.finish(), "\u{fffd}");
    }
}
