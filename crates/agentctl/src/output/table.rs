//! Tables that line up.

use crate::console::Tone;

/// What stands between two columns.
const GAP: &str = "   ";
/// What stands where there is nothing.
const NOTHING: &str = "-";

/// One place of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn plain(text: impl Into<String>) -> Self {
        Self {
            text: one_line(&text.into()),
            tone: Tone::Plain,
        }
    }

    /// A word whose meaning has a colour.
    pub fn word(text: impl Into<String>) -> Self {
        let text = one_line(&text.into());
        Self {
            tone: Tone::of(&text),
            text,
        }
    }

    pub fn optional(text: Option<impl Into<String>>) -> Self {
        text.map_or_else(|| Self::plain(""), Self::plain)
    }
}

/// A table is read line by line, by people and by grep.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.join(" ") {
        text if text.is_empty() => NOTHING.to_owned(),
        text => text,
    }
}

/// Rows under a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// How wide each column is.
    pub fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        widths
    }

    /// The whole, a line for the header and one for each row.
    pub fn render(&self, colour: bool) -> String {
        let widths = self.widths();
        let mut text = self.render_header(&widths);
        text.push_str(&self.render_rows(&widths, colour));
        text
    }

    pub fn render_header(&self, widths: &[usize]) -> String {
        let cells: Vec<Cell> = self.header.iter().cloned().map(Cell::plain).collect();
        line(&cells, widths, false)
    }

    /// The rows alone, for those who have had the header.
    pub fn render_rows(&self, widths: &[usize], colour: bool) -> String {
        self.rows.iter().map(|row| line(row, widths, colour)).collect()
    }
}

fn line(cells: &[Cell], widths: &[usize], colour: bool) -> String {
    let mut text = String::new();
    let last = cells.len().saturating_sub(1);
    for (at, cell) in cells.iter().enumerate() {
        text.push_str(&cell.tone.paint(&cell.text, colour));
        if at < last {
            let width = widths.get(at).copied().unwrap_or(0);
            let missing = width.saturating_sub(cell.text.chars().count());
            text.push_str(&" ".repeat(missing));
            text.push_str(GAP);
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_do_not_end_in_spaces() {
        let mut table = Table::new(["NAME", "STATUS"]);
        table.push(vec![Cell::plain("a"), Cell::word("Running")]);
        table.push(vec![Cell::plain("größer"), Cell::plain("two\nlines")]);
        table.push(vec![Cell::plain("b"), Cell::plain("")]);
        assert_eq!(
            table.render(false),
            "NAME     STATUS\na        Running\ngrößer   two lines\nb        -\n"
        );
        assert!(table.render(true).contains("\u{1b}[36mRunning\u{1b}[0m"));
    }
}
