//! What a partition's root may be made of.

use toml::Spanned;
use toml::de::DeValue;

use super::problem::ProblemKind;
use super::read::{Reader, Table};

/// The form of an image of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootImage {
    /// squashfs (Linux `fs/squashfs/squashfs_fs.h`, SQUASHFS_MAGIC).
    Squashfs,
    /// EROFS (Linux `fs/erofs/erofs_fs.h`, EROFS_SUPER_OFFSET and EROFS_SUPER_MAGIC_V1).
    Erofs,
}

impl RootImage {
    /// So many octets of an image say its form.
    pub const HEAD: usize = 1_028;

    /// The form of what begins with these octets, if it is one.
    pub fn of(head: &[u8]) -> Option<Self> {
        let at = |from: usize, magic: u32| head.get(from..)?.starts_with(&magic.to_le_bytes()).then_some(());
        at(0, 0x7371_7368).map(|()| Self::Squashfs).or_else(|| at(1_024, 0xe0f5_e1e2).map(|()| Self::Erofs))
    }
}

/// A partition's `root`, if it has one: then nothing of the host's software is in it.
pub(super) fn root(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Option<String>> {
    let Some(value) = keys.get("root") else { return Some(None) };
    let path = place(reader, value)?;
    if let Some(software) = keys.get("software") {
        let what = "a partition with `root` has nothing of the host's software".to_owned();
        let remedy = "remove `software`, and have the root bring it";
        reader.problem(ProblemKind::BadValue, &software.span(), what, remedy);
        return None;
    }
    Some(Some(path))
}

fn place(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let path = reader.string(value, "root")?;
    let mut parts = path.value.split('/');
    let is_absolute = parts.next() == Some("");
    // The host's own root would be all of the host.
    let sound =
        is_absolute && parts.all(|part| !["", ".", ".."].contains(&part)) && !path.value.contains('\0');
    if !sound {
        let what = format!("`{}` is no place of a root file system", path.value);
        let remedy = "write the absolute path of a directory or of an image (squashfs or EROFS), without `.`, `..` and empty parts";
        reader.problem(ProblemKind::BadValue, &path.span, what, remedy);
        return None;
    }
    Some(path.value.to_owned())
}
