//! What a table and a key of the reference are.

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As written in the file.
    pub name: &'static str,
    /// What its value looks like, with its bounds.
    pub form: &'static str,
    /// What holds without it; `None` where it must be there.
    pub default: Option<&'static str>,
    /// What it means.
    pub means: &'static str,
}

/// A table, or an array of tables.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// How its head is written: `[server]`, `[[user]]`, or what it stands in.
    pub head: &'static str,
    /// Whether a site must have it.
    pub needed: bool,
    /// What it is for.
    pub means: &'static str,
    /// Its keys, in the order in which they are best written.
    pub keys: &'static [Key],
}

impl Section {
    /// The names of its keys.
    pub(in crate::site) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }

    /// The word in its head: `server` of `[server]`.
    pub fn word(&self) -> &'static str {
        self.head.trim_matches(['[', ']'])
    }
}

/// A key that must be there.
pub(super) const fn must(name: &'static str, form: &'static str, means: &'static str) -> Key {
    Key { name, form, default: None, means }
}

/// A key that may be left out.
pub(super) const fn may(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    means: &'static str,
) -> Key {
    Key { name, form, default: Some(default), means }
}

/// The form of several keys.
pub(super) const RANGES: &str = "a list of ranges of labels";
