//! The reference of all settings, for people: made from the same table that reads them.

use std::fmt::Write as _;

use super::table::{SECTIONS, Unset, Variable};

const OPENING: &str = "\
# Settings

`jangar controllers` and `jangar control-plane` are configured by environment variables. This page is made from the table that reads them
(`crates/engine/src/settings/table.rs`): change it there, then run `UPDATE_GOLDEN=1 cargo test -p jangar-engine settings`.

- A blank value counts as unset.
- A value that cannot be used stops the start. Every mistake is listed at once, with what would be right.
- A variable that begins with `JANGAR_` and that no part of Jangar reads is warned about.
- `1`, `yes` and `on` mean `true`; `0`, `no` and `off` mean `false`; upper and lower case are the same.
- A run's `spec.runtime.config` and `spec.workload` go before what is said here about pods and Jobs.
";

/// The reference, as it stands in `docs/settings.md`.
pub fn reference() -> String {
    let mut page = OPENING.to_owned();
    for section in SECTIONS {
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            page,
            "\n## {}\n\n| variable | meaning | takes | unset |\n|---|---|---|---|\n",
            section.title
        );
        for variable in section.variables {
            page.push_str(&row(variable));
        }
    }
    page
}

fn row(variable: &Variable) -> String {
    let unset = match variable.unset {
        Unset::Is(value) => format!("`{value}`"),
        Unset::Means(words) => words.to_owned(),
    };
    format!(
        "| `{}` | {} | {} | {unset} |\n",
        variable.name, variable.meaning, variable.reader
    )
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::*;
    use crate::settings::table;

    #[test]
    fn settings_page_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, reference()).expect("the page is written");
        }
        let page = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            page == reference(),
            "docs/settings.md is not what the code says; write it with \
             `UPDATE_GOLDEN=1 cargo test -p jangar-engine settings` and commit it"
        );
    }

    #[test]
    fn every_meaning_is_one_sentence_and_no_cell_breaks_the_table() {
        for variable in table::variables() {
            assert!(
                variable.meaning.ends_with('.') && !variable.meaning.contains(". "),
                "{}",
                variable.name
            );
            assert_eq!(row(variable).matches('|').count(), 5, "{}", variable.name);
        }
    }
}
