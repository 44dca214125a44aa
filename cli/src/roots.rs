//! Roots of partitions, as `levee check` and `levee up` look at them: whether each is there, and is what can be one.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use levee_policy::Site;
use levee_policy::site::RootImage;

use crate::keys::Unfit;

/// Those that are not there, or are none.
pub fn unfit(site: &Site) -> Vec<Unfit> {
    let one = |partition: &levee_policy::site::Partition| {
        let path = Path::new(partition.root()?);
        let why = fault(path)?;
        Some(Unfit {
            file: path.to_owned(),
            what: format!("the root of the partition {}: {why}", partition.name()),
            remedy: "have a directory there, or an image made by mksquashfs or mkfs.erofs".to_owned(),
        })
    };
    site.partitions().iter().filter_map(one).collect()
}

fn fault(path: &Path) -> Option<String> {
    let kind = match path.metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(e) => return Some(e.to_string()),
    };
    if kind.is_dir() {
        return None;
    }
    // (To open a pipe could be to wait for ever.)
    let mut head = Vec::new();
    if kind.is_file()
        && let Err(e) =
            File::open(path).and_then(|file| file.take(RootImage::HEAD as u64).read_to_end(&mut head))
    {
        return Some(e.to_string());
    }
    RootImage::of(&head)
        .is_none()
        .then(|| "it is neither a directory nor an image (squashfs or EROFS)".into())
}
