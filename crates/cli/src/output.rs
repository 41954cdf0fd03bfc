//! How answers leave: data on stdout in the form asked for, words about it on stderr.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::refusal::Failure;
use crate::safe::safe;
use crate::table::Table;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// Colour by meaning; few, so that each says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Good,
    Busy,
    Bad,
    Dim,
    Bold,
}

pub fn paint(paint: Paint, text: &str, colour: bool) -> String {
    let code = match paint {
        _ if !colour => return text.to_owned(),
        Paint::Plain => return text.to_owned(),
        Paint::Good => "32",
        Paint::Busy => "36",
        Paint::Bad => "31",
        Paint::Dim => "2",
        Paint::Bold => "1",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Whether a stream takes colours: a terminal that is not dumb, and nobody said NO_COLOR.
pub fn colours(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

pub struct Output {
    pub form: Form,
    pub colour: bool,
    /// Of the terminal; none where the output is not one and lines may be as long as they like.
    pub width: Option<u16>,
    pub quiet: bool,
    stderr_colour: bool,
}

impl Output {
    pub fn new(form: Form, quiet: bool) -> Output {
        let stdout = std::io::stdout();
        let width = stdout
            .is_terminal()
            .then(|| rustix::termios::tcgetwinsize(&stdout).map_or(80, |size| size.ws_col));
        Output {
            form,
            colour: colours(stdout.is_terminal()),
            width: width.filter(|&width| width > 0),
            quiet,
            stderr_colour: colours(std::io::stderr().is_terminal()),
        }
    }

    pub fn wide(&self) -> bool {
        self.form == Form::Wide
    }

    /// Writes data as it is.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        Ok(())
    }

    pub fn line(&self, text: impl Display) -> Result<(), Failure> {
        self.text(&format!("{text}\n"))
    }

    /// Writes a list: as a table, as an array, or as the names that other commands take.
    pub fn list<T: Serialize>(
        &self,
        items: &[T],
        name: impl Fn(&T) -> String,
        empty: &str,
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), Failure> {
        match self.form {
            Form::Table | Form::Wide if items.is_empty() => {
                self.note(empty);
                Ok(())
            }
            Form::Table | Form::Wide => self.text(&table(items).render(self)),
            Form::Json | Form::Yaml => self.value(&items),
            Form::Name => self.text(
                &items
                    .iter()
                    .map(|item| format!("{}\n", safe(&name(item))))
                    .collect::<String>(),
            ),
        }
    }

    /// Writes one thing: as its fields, as an object, or as its name.
    pub fn one<T: Serialize>(
        &self,
        item: &T,
        name: impl Fn(&T) -> String,
        fields: impl FnOnce(&T) -> Table,
    ) -> Result<(), Failure> {
        match self.form {
            Form::Table | Form::Wide => self.text(&fields(item).render(self)),
            Form::Json | Form::Yaml => self.value(item),
            Form::Name => self.line(safe(&name(item))),
        }
    }

    /// Writes a value in the machine's form asked for, JSON where none was.
    pub fn value(&self, value: &impl Serialize) -> Result<(), Failure> {
        let unwritable =
            |error: &dyn Display| Failure::Local(format!("the answer cannot be written down: {error}"));
        match self.form {
            Form::Yaml => {
                let text = serde_saphyr::to_string(value).map_err(|error| unwritable(&error))?;
                self.text(&if text.ends_with('\n') { text } else { text + "\n" })
            }
            _ => {
                let text = serde_json::to_string_pretty(value).map_err(|error| unwritable(&error))?;
                self.line(escape_controls(&text))
            }
        }
    }

    /// One JSON value on one line, for streams.
    pub fn json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::Local(error.to_string()))?;
        self.line(escape_controls(&text))
    }

    /// Says something about the work on stderr.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            self.say(&paint(Paint::Dim, &text.to_string(), self.stderr_colour));
        }
    }

    /// Says something on stderr that must not be missed.
    pub fn warn(&self, text: impl Display) {
        self.say(&format!(
            "{} {text}",
            paint(Paint::Busy, "note:", self.stderr_colour)
        ));
    }

    /// Writes a line to stderr as it is. A closed stderr leaves nobody to tell.
    pub fn say(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// A coloured piece of what goes to stdout.
    pub fn paint(&self, meaning: Paint, text: &str) -> String {
        paint(meaning, text, self.colour)
    }

    /// A coloured piece of what goes to stderr.
    pub fn paint_note(&self, meaning: Paint, text: &str) -> String {
        paint(meaning, text, self.stderr_colour)
    }
}

/// JSON leaves DEL and the C1 controls as they are; terminals obey some of them.
fn escape_controls(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '\n' => text.push('\n'),
            letter if letter.is_control() => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_carries_no_live_control_character() {
        let text = serde_json::to_string("a\u{1b}\u{7f}\u{9b}b").unwrap();
        assert_eq!(escape_controls(&text), r#""a\u001b\u007f\u009bb""#);
        assert_eq!(
            serde_json::from_str::<String>(&escape_controls(&text)).unwrap(),
            "a\u{1b}\u{7f}\u{9b}b"
        );
    }

    #[test]
    fn without_colour_nothing_is_added() {
        assert_eq!(paint(Paint::Bad, "no", false), "no");
        assert_eq!(paint(Paint::Plain, "no", true), "no");
    }
}
