//! Values that tables of several kinds have.

use toml::Spanned;
use toml::de::DeValue;

use super::problem::ProblemKind;
use super::read::{At, Keys, Reader};
use crate::label::Label;
use crate::vocabulary::Vocabulary;

/// A table's `label`; nothing is said of it while the words themselves are at fault.
pub(super) fn label(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Keys<'_>,
) -> Option<At<Label>> {
    let value = reader.need(keys, "label", "\"SECRET\"")?;
    let text = reader.string(value, "label")?;
    match vocabulary?.parse(text.value) {
        Ok(label) => Some(At::new(label, text.span)),
        Err(error) => {
            reader.label_fault(&text, error);
            None
        }
    }
}

/// A program's absolute path, and its arguments.
pub(super) fn command(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    let words = reader.strings(value, "command")?;
    let fault = match words.first() {
        None => Some("`command` is empty".to_owned()),
        Some(first) if !first.value.starts_with('/') => {
            Some(format!("`{}` is not an absolute path", first.value))
        }
        // An argument ends at a NUL: what follows would be silently lost (execve(2)).
        Some(_) if words.iter().any(|word| word.value.contains('\0')) => {
            Some("a NUL in `command`".to_owned())
        }
        Some(_) => None,
    };
    if let Some(what) = fault {
        let remedy = "write the program's absolute path, then its arguments";
        reader.problem(ProblemKind::BadValue, &value.span(), what, remedy);
        return None;
    }
    Some(words.iter().map(|word| word.value.to_owned()).collect())
}
