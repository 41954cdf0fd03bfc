//! The text that scrapers read, in both of its forms: OpenMetrics 1.0 where it is asked for, else Prometheus 0.0.4.
//!
//! They differ in the names of counters' families and in how a page ends; samples are the same.

use std::fmt::{Display, Write as _};

use super::histogram::Histogram;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Prometheus,
    OpenMetrics,
}

impl Form {
    /// What an `Accept` header asks for.
    pub fn asked(accept: Option<&str>) -> Form {
        let kinds = accept.unwrap_or_default().split(',');
        let wants = |kind: &str| kind.trim().starts_with("application/openmetrics-text");
        match kinds.into_iter().any(wants) {
            true => Form::OpenMetrics,
            false => Form::Prometheus,
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A page under way. Families come one after another, each with its samples behind it.
pub struct Page {
    form: Form,
    text: String,
    /// The head of the family under way, not written before there is a sample.
    head: String,
    name: String,
}

impl Page {
    pub fn new(form: Form) -> Page {
        Page {
            form,
            text: String::new(),
            head: String::new(),
            name: String::new(),
        }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, "gauge", help);
        self.name = name.to_owned();
    }

    /// Its samples end in `_total`.
    pub fn counter(&mut self, name: &str, help: &str) {
        let sample = format!("{name}_total");
        let family = match self.form {
            Form::Prometheus => &sample,
            Form::OpenMetrics => name,
        };
        self.family(family, "counter", help);
        self.name = sample;
    }

    pub fn histogram(&mut self, name: &str, help: &str) {
        self.family(name, "histogram", help);
        self.name = name.to_owned();
    }

    /// A sample of the family under way.
    pub fn put(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, None, value);
    }

    /// A histogram of the family under way.
    pub fn spread(&mut self, labels: &[(&str, &str)], sizes: &Histogram) {
        for (bound, count) in sizes.up_to() {
            // As a decimal with a point, which OpenMetrics asks for.
            self.sample("_bucket", labels, Some(&format!("{bound:?}")), count);
        }
        self.sample("_bucket", labels, Some("+Inf"), sizes.count());
        self.sample("_sum", labels, None, sizes.sum());
        self.sample("_count", labels, None, sizes.count());
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: impl Display) {
        self.text.push_str(&self.head);
        self.head.clear();
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let all = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        for (place, (name, value)) in all.enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            write_label(&mut self.text, name, value);
        }
        if !labels.is_empty() || bound.is_some() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    pub fn end(mut self) -> String {
        if self.form == Form::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// `name="value"`, whatever is in the value.
pub fn write_label(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str("=\"");
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(form: Form) -> String {
        let mut page = Page::new(form);
        page.counter("a", "Of something.");
        page.put(&[("who", "x\"\\\ny")], 3);
        page.gauge("never", "Has no sample.");
        page.gauge("b", "Of another.");
        page.put(&[], 1.5);
        page.histogram("c_seconds", "Sizes.");
        let mut sizes = Histogram::new(&[1.0]);
        sizes.add(0.5);
        page.spread(&[("k", "v")], &sizes);
        page.end()
    }

    #[test]
    fn both_forms_are_as_their_readers_expect() {
        let rest = "# HELP b Of another.\n# TYPE b gauge\nb 1.5\n# HELP c_seconds Sizes.\n# TYPE c_seconds histogram\n\
            c_seconds_bucket{k=\"v\",le=\"1.0\"} 1\nc_seconds_bucket{k=\"v\",le=\"+Inf\"} 1\nc_seconds_sum{k=\"v\"} 0.5\n\
            c_seconds_count{k=\"v\"} 1\n";
        let sample = "a_total{who=\"x\\\"\\\\\\ny\"} 3\n";
        assert_eq!(
            page(Form::Prometheus),
            format!("# HELP a_total Of something.\n# TYPE a_total counter\n{sample}{rest}")
        );
        assert_eq!(
            page(Form::OpenMetrics),
            format!("# HELP a Of something.\n# TYPE a counter\n{sample}{rest}# EOF\n")
        );
    }

    #[test]
    fn the_form_is_the_one_asked_for() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Form::asked(Some(prometheus)), Form::OpenMetrics);
        assert_eq!(Form::asked(Some("text/plain")), Form::Prometheus);
        assert_eq!(Form::asked(None), Form::Prometheus);
    }
}
