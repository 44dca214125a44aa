//! Tables as CSV (RFC 4180).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use serde::Serialize;
use std::io;

/// A table that is being written.
pub struct Csv {
    text: ::csv::Writer<Vec<u8>>,
    fault: Option<::csv::Error>,
}

impl Csv {
    /// One with these columns.
    pub fn new(columns: &[&str]) -> Csv {
        let mut csv = Csv::untitled();
        csv.row(columns);
        csv
    }

    /// One whose columns are named as the fields of its rows are.
    pub fn untitled() -> Csv {
        Csv { text: ::csv::Writer::from_writer(Vec::new()), fault: None }
    }

    /// One row more.
    pub fn row(&mut self, row: impl Serialize) {
        if let Err(e) = self.text.serialize(row) {
            self.fault.get_or_insert(e);
        }
    }

    /// The whole.
    ///
    /// # Errors
    /// A row had more columns than the first, or fewer.
    pub fn finish(self) -> io::Result<String> {
        if let Some(fault) = self.fault {
            return Err(io::Error::other(fault));
        }
        let text = self.text.into_inner().map_err(|e| io::Error::other(e.to_string()))?;
        String::from_utf8(text).map_err(io::Error::other)
    }

    /// The whole, or what is wrong with it: for a page, which is there without it.
    pub fn text(self) -> String {
        self.finish().unwrap_or_else(|e| format!("this table could not be written: {e}\n"))
    }
}

/// A link to a table that the page itself holds.
pub fn download(name: &str, csv: &str) -> Markup {
    let file = format!("{name}.csv");
    html! {
        a.csv download=(file) href={ "data:text/csv;base64," (STANDARD.encode(csv)) } { (file) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_table_is_quoted_and_a_row_of_another_length_is_told_of() {
        let mut csv = Csv::new(&["arm", "value"]);
        csv.row(("a, \"b\"\n", 1.5));
        assert_eq!(csv.finish().unwrap(), "arm,value\n\"a, \"\"b\"\"\n\",1.5\n");
        let mut csv = Csv::new(&["arm", "value"]);
        csv.row(("a", 1.5, 2.5));
        assert!(csv.finish().is_err());
    }
}
