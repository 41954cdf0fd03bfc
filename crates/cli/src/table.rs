//! Tables as people read them: columns lined up, no borders, a dim head, colour only where it means something.

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Width, presets,
};

use crate::output::{Output, Paint};
use crate::safe::safe;

/// Below this a terminal is too narrow to arrange columns in; lines are left to wrap.
const NARROWEST: u16 = 40;
const BAR_CELLS: u64 = 12;

pub struct Text {
    text: String,
    paint: Paint,
    right: bool,
}

pub fn text(text: impl AsRef<str>) -> Text {
    Text {
        text: safe(text.as_ref()).into_owned(),
        paint: Paint::Plain,
        right: false,
    }
}

/// A figure, aligned to the right.
pub fn figure(value: impl std::fmt::Display) -> Text {
    Text {
        right: true,
        ..text(value.to_string())
    }
}

impl Text {
    pub fn paint(mut self, paint: Paint) -> Text {
        self.paint = paint;
        self
    }
}

/// How full something is, drawn; empty where there is no limit.
pub fn bar(used: u64, limit: Option<u64>) -> Text {
    let Some(limit) = limit else { return text("") };
    let full = if limit == 0 {
        BAR_CELLS
    } else {
        (u128::from(used) * u128::from(BAR_CELLS))
            .div_ceil(u128::from(limit))
            .min(BAR_CELLS.into()) as u64
    };
    let share = if limit == 0 {
        100
    } else {
        (u128::from(used) * 100 / u128::from(limit)).min(999)
    };
    let paint = if used >= limit {
        Paint::Bad
    } else if share >= 80 {
        Paint::Busy
    } else {
        Paint::Good
    };
    let drawn: String = (0..BAR_CELLS)
        .map(|cell| {
            if cell < full && (used > 0 || limit == 0) {
                '█'
            } else {
                '░'
            }
        })
        .collect();
    text(format!("{drawn} {share:>3} %")).paint(paint)
}

/// Rows under a head, or, without one, names beside values.
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Text>>,
}

impl Table {
    pub fn new(head: &[&'static str]) -> Table {
        Table {
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Names beside values, for one thing.
    pub fn fields() -> Table {
        Table {
            head: Vec::new(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<Text>) {
        self.rows.push(cells);
    }

    pub fn field(&mut self, name: &str, value: impl Into<Text>) -> &mut Table {
        self.rows.push(vec![text(name).paint(Paint::Dim), value.into()]);
        self
    }

    pub fn field_if(&mut self, name: &str, value: Option<impl Into<Text>>) -> &mut Table {
        if let Some(value) = value {
            self.field(name, value);
        }
        self
    }

    pub fn render(&self, output: &Output) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        match output.width {
            Some(width) if width >= NARROWEST => {
                table
                    .set_content_arrangement(ContentArrangement::Dynamic)
                    .set_width(width);
            }
            _ => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        // The table never looks at the terminal itself: what it is was settled once, in `Output`.
        table.force_no_tty();
        if output.colour {
            table.enforce_styling();
        }
        if !self.head.is_empty() {
            let head = self
                .head
                .iter()
                .map(|name| Cell::new(name).add_attribute(Attribute::Dim));
            table.set_header(Row::from(head.collect::<Vec<_>>()));
        }
        for row in &self.rows {
            table.add_row(Row::from(row.iter().map(cell).collect::<Vec<_>>()));
        }
        let columns = self
            .rows
            .iter()
            .map(Vec::len)
            .max()
            .unwrap_or(0)
            .max(self.head.len());
        for index in 0..columns {
            let Some(column) = table.column_mut(index) else {
                continue;
            };
            column.set_padding((0, if index + 1 == columns { 0 } else { 2 }));
            if self
                .rows
                .iter()
                .any(|row| row.get(index).is_some_and(|cell| cell.right))
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
            // Ids and short words are copied from here: a column of them is never broken over lines.
            let widest = self
                .rows
                .iter()
                .filter_map(|row| row.get(index))
                .map(|cell| cell.text.chars().count())
                .max();
            if index + 1 < columns && widest.is_some_and(|widest| widest <= 24) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
                    widest.unwrap_or(0) as u16 + 2,
                )));
            }
        }
        let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
        lines.collect()
    }
}

fn cell(text: &Text) -> Cell {
    let cell = Cell::new(&text.text);
    match text.paint {
        Paint::Plain => cell,
        Paint::Good => cell.fg(comfy_table::Color::DarkGreen),
        Paint::Busy => cell.fg(comfy_table::Color::DarkCyan),
        Paint::Bad => cell.fg(comfy_table::Color::DarkRed),
        Paint::Dim => cell.add_attribute(Attribute::Dim),
        Paint::Bold => cell.add_attribute(Attribute::Bold),
    }
}

impl From<String> for Text {
    fn from(value: String) -> Text {
        text(value)
    }
}

impl From<&str> for Text {
    fn from(value: &str) -> Text {
        text(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Form;

    fn output(width: Option<u16>) -> Output {
        let mut output = Output::new(Form::Table, false);
        (output.colour, output.width) = (false, width);
        output
    }

    fn sample() -> Table {
        let mut table = Table::new(&["NAME", "USED"]);
        table.row(vec![text("acme\u{1b}[31m"), figure(7)]);
        table.row(vec![text("x"), figure(1234)]);
        table
    }

    #[test]
    fn columns_line_up_and_nothing_acts_on_the_terminal() {
        assert_eq!(
            sample().render(&output(None)),
            "NAME       USED\nacme␛[31m     7\nx          1234\n"
        );
    }

    #[test]
    fn no_width_makes_it_panic() {
        for width in 0..200 {
            sample().render(&output(Some(width)));
        }
    }

    #[test]
    fn bars_show_how_full() {
        let drawn = |used, limit| bar(used, limit).text;
        assert_eq!(drawn(0, Some(10)), "░░░░░░░░░░░░   0 %");
        assert_eq!(drawn(5, Some(10)), "██████░░░░░░  50 %");
        assert_eq!(drawn(u64::MAX, Some(1)), "████████████ 999 %");
        assert_eq!(drawn(0, Some(0)), "████████████ 100 %");
        assert_eq!(drawn(3, None), "");
    }
}
