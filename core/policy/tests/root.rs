//! `root` of a `[[partition]]`: what can be one.

use levee_policy::Site;
use levee_policy::site::RootImage;

const SOUND: &str = include_str!("../../../conf/small/site.toml");

fn site(more: &str) -> Result<Site, String> {
    let partition =
        format!("[[partition]]\nname = \"sensor\"\nlabel = \"SECRET\"\ncommand = [\"/bin/watch\"]\n{more}\n");
    Site::parse(&format!("{SOUND}\n{partition}"))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_root_is_an_absolute_path_and_brings_all_software() {
    assert_eq!(site("").unwrap().partitions()[0].root(), None);
    assert_eq!(site("root = \"/srv/a.squashfs\"").unwrap().partitions()[0].root(), Some("/srv/a.squashfs"));
    for (more, said) in [
        ("root = \"srv/a\"", "no place of a root"),
        ("root = \"/\"", "no place of a root"),
        ("root = \"/srv/../etc\"", "no place of a root"),
        ("root = \"/srv//a\"", "no place of a root"),
        ("root = \"/srv/a\\u0000b\"", "no place of a root"),
        ("root = 3", "a string in quotes"),
        ("root = \"/srv/a\"\nsoftware = [\"coreutils\"]", "nothing of the host's software"),
    ] {
        let told = site(more).unwrap_err();
        assert!(told.contains(said), "{more}: {told}");
    }
}

#[test]
fn an_image_is_known_by_its_first_octets_and_whatever_is_shorter_is_none() {
    let mut erofs = vec![0; RootImage::HEAD];
    erofs[1_024..].copy_from_slice(&[0xe2, 0xe1, 0xf5, 0xe0]);
    assert_eq!(RootImage::of(&erofs), Some(RootImage::Erofs));
    assert_eq!(RootImage::of(b"hsqs and more"), Some(RootImage::Squashfs));
    for none in [&erofs[..RootImage::HEAD - 1], b"hsq", b"", &[0; RootImage::HEAD]] {
        assert_eq!(RootImage::of(none), None);
    }
}
