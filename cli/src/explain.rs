//! The reference of the site file, as text, as a page of docs, and as site.toml(5).

use levee_policy::nearest;
use levee_policy::site::reference::{Key, SECTIONS, Section, find};
use serde::Serialize;

/// A table of a site file, whole, or with the one key that was asked for.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// As it stands in a file, or where it stands.
    table: &'static str,
    means: &'static str,
    /// Whether every site has it.
    needed: bool,
    keys: Vec<ExplainedKey>,
}

#[derive(Debug, Serialize)]
struct ExplainedKey {
    name: &'static str,
    means: &'static str,
    /// What is written for it.
    value: &'static str,
    /// What is so without it; none: it must be there.
    default: Option<&'static str>,
}

/// The same for programs.
pub fn explained(name: &str) -> Result<Vec<Explained>, String> {
    let of =
        |key: &Key| ExplainedKey { name: key.name, means: key.means, value: key.form, default: key.default };
    let one = |(section, key): &(&'static Section, Option<&'static Key>)| Explained {
        table: section.head,
        means: section.means,
        needed: section.needed,
        keys: key.map_or_else(|| section.keys.iter().map(of).collect(), |key| vec![of(key)]),
    };
    Ok(found(name)?.iter().map(one).collect())
}

/// What the reference says of a table or key; of all of them for `all`.
pub fn explain(name: &str) -> Result<String, String> {
    let one = |(section, key): &(&Section, Option<&Key>)| match key {
        None => section_text(section),
        Some(key) => format!("{}\n{}", section.head, key_text(key)),
    };
    Ok(found(name)?.iter().map(one).collect::<Vec<_>>().join("\n"))
}

/// The tables, or keys of tables, that are called so.
fn found(name: &str) -> Result<Vec<(&'static Section, Option<&'static Key>)>, String> {
    if name == "all" {
        return Ok(SECTIONS.iter().map(|section| (*section, None)).collect());
    }
    let found = find(name.trim_matches(['[', ']', '`']));
    if found.is_empty() {
        let words = SECTIONS.iter().flat_map(|section| {
            std::iter::once(section.word()).chain(section.keys.iter().map(|key| key.name))
        });
        let near = nearest(name, words).map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        return Err(format!(
            "a site file has no `{name}`; {near}`levee check --explain all` lists everything"
        ));
    }
    Ok(found)
}

fn section_text(section: &Section) -> String {
    let needed = if section.needed { " (every site has it)" } else { "" };
    let keys: String = section.keys.iter().map(key_text).collect();
    format!("{}{needed}: {}\n{keys}", section.head, section.means)
}

fn key_text(key: &Key) -> String {
    let default =
        key.default.map_or_else(|| "must be there".to_owned(), |default| format!("default: {default}"));
    format!("  {}\n      {}\n      {}; {default}\n", key.name, key.means, key.form)
}

/// The page of docs.
pub fn markdown() -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut page = String::from(
        "# The site file\n\n\
         Every table and key that a site file can have. `levee check --explain KEY` prints the same; `levee check FILE` says whether a file is sound.\n\
         (`make reference` writes this page from what the parser reads.)\n",
    );
    for section in SECTIONS {
        let head = if section.head.starts_with('[') {
            format!("`{}`", section.head)
        } else {
            section.head.to_owned()
        };
        let needed = if section.needed { " Every site has it." } else { "" };
        page.push_str(&format!(
            "\n## {head}\n\n{}{needed}\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
            section.means
        ));
        for key in section.keys {
            let default = key.default.map_or_else(|| "must be there".to_owned(), cell);
            page.push_str(&format!(
                "| `{}` | {} | {default} | {} |\n",
                key.name,
                cell(key.form),
                cell(key.means)
            ));
        }
    }
    page
}

/// site.toml(5), in man(7).
pub fn man_page() -> String {
    // A line that begins with a dot or a quote would be a request; a backslash escapes; a dash is made a hyphen.
    let text = |text: &str| format!("\\&{}", text.replace('\\', "\\e").replace('-', "\\-"));
    let mut page = format!(
        ".TH site.toml 5 \"\" \"levee {}\" \"levee\"\n.SH NAME\nsite.toml \\- what a levee site is\n.SH DESCRIPTION\n\
         A site file says in TOML which labels there are, who is cleared for which, and which services there are.\n\
         levee\\-check(1) says whether one is sound.\n",
        env!("CARGO_PKG_VERSION")
    );
    for section in SECTIONS {
        page.push_str(&format!(".SH {}\n{}\n", text(section.head), text(section.means)));
        for key in section.keys {
            let default = key
                .default
                .map_or_else(|| "It must be there.".to_owned(), |default| format!("Default: {default}."));
            let (name, form) = (text(key.name), text(key.form));
            page.push_str(&format!(
                ".TP\n.B {name}\n{}\n.br\nValue: {form}. {}\n",
                text(key.means),
                text(&default)
            ));
        }
    }
    page.push_str(
        ".SH FILES\n.TP\n/etc/levee/site.toml\nWhere `levee init` writes it unless it is told of another place, \
         and where a unit's server looks for it (levee@site.service). Most commands want its path; shells complete the names in it.\n.TP\n/var/lib/levee/NAME\nState: keys, \
         credentials, sessions, audit log, stores.\n.TP\n/run/levee/NAME\nSockets and lock.\n.SH EXAMPLES\n.nf\n[site]\nname = \"quay\"\n\n[labels]\nlevels = [\"PUBLIC\", \"SECRET\"]\n\n[[user]]\nname = \"ada\"\n\
         clearance = \"PUBLIC..SECRET\"\n.fi\n.PP\n/usr/share/doc/levee/examples/site.toml (in the sources conf/small/site.toml) is a site of three levels, with each key \
         explained.\n.SH SEE ALSO\nlevee(1), levee\\-check(1), levee\\-enrol(1), levee\\-up(1), levee\\-audit(1)\n",
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_explained_by_its_name_alone_or_with_its_table_and_a_wrong_one_is_guessed() {
        let grace = explain("grace").unwrap();
        assert!(grace.starts_with("[server]\n  grace\n") && grace.contains("default: \"30s\""), "{grace}");
        assert_eq!(explain("server.grace").unwrap(), grace);
        assert!(explain("name").unwrap().matches("\n  name\n").count() >= 5, "every table that has it");
        assert!(explain("[[user]]").unwrap().contains("  clearance\n"));
        assert!(explain("grase").unwrap_err().contains("did you mean `grace`?"));
        assert!(explain("user.grace").is_err());
    }

    #[test]
    fn the_page_of_docs_is_what_the_parser_reads() {
        let page = include_str!("../../docs/site.md");
        assert_eq!(page, markdown(), "run `make reference`");
    }

    #[test]
    fn no_line_of_the_man_page_is_taken_for_a_request_that_it_is_not() {
        for line in man_page().lines().filter(|line| line.starts_with(['.', '\''])) {
            assert!(
                [".TH", ".SH", ".TP", ".B ", ".br", ".nf", ".fi", ".PP"]
                    .iter()
                    .any(|request| line.starts_with(request)),
                "{line}"
            );
        }
    }
}
