//! Files of jobs, policies and prices in YAML: read strictly, and wrong ones drawn with a caret at the place.
//!
//! Unknown and duplicate keys are refused; several documents in one file are several jobs. What YAML cannot
//! know, such as a GPU class without a GPU, is checked here too and points at the same file.

use std::collections::BTreeMap;
use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned, UserMessageFormatter};
use tenure_domain::refusal::Refusal;
use tenure_domain::workload::spec::JobSpec;

use crate::input::Document;
use crate::refusal::Failure;
use crate::safe::{is_hidden, safe};

/// What is wrong with a file, and where.
#[derive(Debug)]
pub struct FileError {
    name: String,
    text: String,
    what: String,
    hint: Option<String>,
    code: &'static str,
    /// Byte offset and length.
    place: Option<(usize, usize)>,
    line: u64,
}

impl FileError {
    pub fn draw(&self, colour: bool) -> String {
        let mut diagnostic = MietteDiagnostic::new(safe(&self.what).into_owned());
        if let Some(hint) = &self.hint {
            diagnostic = diagnostic.with_help(safe(hint).into_owned());
        }
        if let Some((offset, length)) = self.place {
            diagnostic = diagnostic.with_label(LabeledSpan::new_primary_with_span(
                Some("here".into()),
                (offset, length),
            ));
        }
        let theme = if colour {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_context_lines(1)
            .with_width(100)
            .without_syntax_highlighting();
        let report =
            Report::new(diagnostic).with_source_code(NamedSource::new(safe(&self.name), self.text.clone()));
        let mut drawn = String::new();
        let place = if self.line > 0 {
            format!("{}:{}", safe(&self.name), self.line)
        } else {
            safe(&self.name).into_owned()
        };
        let head = format!(
            "{} {place}  [{}]\n",
            crate::output::paint(crate::output::Paint::Bad, "error:", colour),
            self.code
        );
        match handler.render_report(&mut drawn, report.as_ref()) {
            Ok(()) => head + &drawn,
            Err(fmt::Error) => format!("{head}{}\n", safe(&self.what)),
        }
    }

    fn new(
        document: &Document,
        what: String,
        code: &'static str,
        location: Option<Location>,
    ) -> Box<FileError> {
        let location = location.filter(|location| location.line() > 0);
        Box::new(FileError {
            name: document.name.clone(),
            // Tabs and what else acts on a terminal take one place each, so that carets stay where they point.
            text: same_length(&document.text),
            what,
            hint: None,
            code,
            place: location.map(|location| span(&document.text, location)),
            line: location.map_or(0, |location| location.line()),
        })
    }
}

impl From<Box<FileError>> for Failure {
    fn from(error: Box<FileError>) -> Failure {
        Failure::File(error)
    }
}

/// The text with every character that acts on a terminal made harmless, each as long as it was.
fn same_length(text: &str) -> String {
    let harmless = |letter: char| match letter.len_utf8() {
        _ if matches!(letter, '\n' | '\r') || !is_hidden(letter) => letter,
        1 => ' ',
        2 => '¿',
        _ => '\u{fffd}',
    };
    text.chars().map(harmless).collect()
}

/// Where a location lies in the text, kept within its line.
fn span(text: &str, location: Location) -> (usize, usize) {
    let line_start: usize = text
        .split_inclusive('\n')
        .take(location.line() as usize - 1)
        .map(str::len)
        .sum();
    let line = text[line_start..].split(['\n', '\r']).next().unwrap_or("");
    let column = (location.column() as usize).saturating_sub(1);
    let before: usize = line.chars().take(column).map(char::len_utf8).sum();
    let rest = &line[before..];
    let length = match location.span().byte_len() {
        Some(length)
            if length > 0 && (length as usize) < rest.len() && rest.is_char_boundary(length as usize) =>
        {
            length as usize
        }
        _ => rest.trim_end().len(),
    };
    (line_start + before, length)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { with_snippet: false, strict_booleans: true, reject_unsupported_tags: true }
}

/// Reads every document of the file as a `T`.
pub fn read_all<T: DeserializeOwned>(document: &Document) -> Result<Vec<T>, Box<FileError>> {
    serde_saphyr::from_multiple_with_options(&document.text, options()).map_err(|error| {
        let said = error
            .without_snippet()
            .render_with_formatter(&UserMessageFormatter);
        FileError::new(document, plain(&said), "invalid_file", error.location())
    })
}

/// Reads a file of exactly one document.
pub fn read_one<T: DeserializeOwned>(document: &Document) -> Result<T, Box<FileError>> {
    let mut all = read_all(document)?;
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(FileError::new(
            document,
            "the file is empty".into(),
            "invalid_file",
            None,
        )),
        count => Err(FileError::new(
            document,
            format!("the file holds {count} documents, and one is wanted"),
            "invalid_file",
            None,
        )),
    }
}

/// Reads the jobs of a file and checks each.
pub fn read_jobs(document: &Document) -> Result<Vec<JobSpec>, Box<FileError>> {
    let jobs: Vec<JobSpec> = read_all(document)?;
    if jobs.is_empty() {
        return Err(FileError::new(
            document,
            "the file holds no job".into(),
            "invalid_file",
            None,
        ));
    }
    for (index, job) in jobs.iter().enumerate() {
        job.check()
            .map_err(|refusal| at_field(document, index, refusal))?;
    }
    Ok(jobs)
}

/// Points a refusal at the field it names, in the document it came from.
pub fn at_field(document: &Document, index: usize, refusal: Refusal) -> Box<FileError> {
    let trees: Vec<Spanned<Tree>> =
        serde_saphyr::from_multiple_with_options(&document.text, options()).unwrap_or_default();
    let location = trees
        .get(index)
        .map(|tree| locate(tree, refusal.field.as_deref().unwrap_or("")));
    let mut error = FileError::new(
        document,
        refusal.sentence.into_owned(),
        refusal.code.as_str(),
        location,
    );
    error.hint = refusal.hint.map(Into::into);
    error
}

/// The place of a JSON Pointer, or of the nearest part of it that was written down.
fn locate(tree: &Spanned<Tree>, pointer: &str) -> Location {
    let mut here = tree;
    for part in pointer.split('/').filter(|part| !part.is_empty()) {
        match here.value.0.get(part) {
            Some(next) => here = next,
            None => break,
        }
    }
    here.referenced
}

/// The message without the place it repeats, and starting small as errors do.
fn plain(said: &str) -> String {
    let said = said.lines().next().unwrap_or(said);
    let end = [" at line ", " (line "]
        .iter()
        .filter_map(|mark| said.find(mark))
        .min()
        .unwrap_or(said.len());
    let said = said[..end].trim_end_matches([':', ',', ' ']);
    let said = said.split_once(": line ").map_or(said, |(before, _)| before);
    said.to_owned()
}

/// A document's mappings with their places; what is not a mapping has no parts.
#[derive(Debug, Default)]
struct Tree(BTreeMap<String, Spanned<Tree>>);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Tree;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut parts = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, Spanned<Tree>>()? {
                    parts.insert(key, value);
                }
                Ok(Tree(parts))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
                while seq.next_element::<Tree>()?.is_some() {}
                Ok(Tree::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::default())
            }
            fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::default())
            }
            fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::default())
            }
            fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::default())
            }
            fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
                Ok(Tree::default())
            }
            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::default())
            }
        }
        deserializer.deserialize_any(Parts)
    }
}

#[cfg(test)]
mod tests;
