use super::*;
use crate::enrol::What;
use crate::enrol::rotate::tests::{enroller, everything, facts};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

const CURRENT: &str = "channels/readings.key";
const NEXT: &str = "channels/next/readings.key";

fn leading(sends: bool) -> Facts {
    let channel = |name| ChannelFacts { name: ChannelName::new(name).unwrap(), sends };
    Facts { channels: ["readings", "others"].map(channel).into(), ..facts() }
}

/// Who may not be asked.
fn nobody(_: &str) -> Result<bool, String> {
    panic!("asked")
}

fn finish(state: &Path, sends: bool) -> Result<Rotated, EnrolError> {
    let heard: &dyn Fn(&str) -> Result<bool, String> = if sends { &nobody } else { &|_| Ok(true) };
    enroller(state).finish_channel(&leading(sends), "readings", heard)
}

#[test]
fn a_channels_key_is_followed_by_another_at_both_hosts_and_the_old_one_is_destroyed() {
    let (below, above) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (below, above) = (below.path(), above.path());
    let begin = |state, sends| enroller(state).rotate(&leading(sends), What::Channel, Some("readings"));
    assert!(matches!(begin(below, true), Err(EnrolError::Channel(ChannelFault::NoneYet(..)))));
    for name in ["readings", "others"] {
        enroller(below).channel(&leading(true), name).unwrap();
    }
    fs::create_dir_all(above.join("channels/next")).unwrap();
    fs::copy(below.join(CURRENT), above.join(CURRENT)).unwrap();
    assert!(matches!(finish(below, true), Err(EnrolError::NotBegun)));
    let (old, other) = (fs::read(below.join(CURRENT)).unwrap(), fs::read(below.join("channels/others.key")));
    let done = begin(below, true).unwrap();
    assert_eq!((done.written, done.destroyed), (vec![below.join(NEXT)], Vec::<PathBuf>::new()));
    let new = fs::read(below.join(NEXT)).unwrap();
    assert_ne!(new, old);
    assert_eq!(fs::metadata(below.join(NEXT)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read(below.join(CURRENT)).unwrap(), old, "the old one is in use");
    // Once more: the same key.
    assert!(begin(below, true).unwrap().said.contains("was begun before"));
    assert_eq!(fs::read(below.join(NEXT)).unwrap(), new);

    fs::copy(below.join(NEXT), above.join(NEXT)).unwrap();
    let [was, is] =
        [&old, &new].map(|text| fingerprint(&data_encoding::HEXLOWER.decode(&text[..64]).unwrap()));
    for (state, sends) in [(below, true), (above, false)] {
        let mut held = File::open(state.join(CURRENT)).unwrap();
        let done = finish(state, sends).unwrap();
        assert_eq!(done.destroyed, [state.join(CURRENT)], "sends: {sends}");
        assert!(done.said.contains(&format!("from {was}; {is} alone")), "{}", done.said);
        let mut octets = Vec::new();
        held.read_to_end(&mut octets).unwrap();
        assert!(octets.len() == 65 && octets.iter().all(|octet| *octet == 0), "it is overwritten");
        assert_eq!(fs::read(state.join(CURRENT)).unwrap(), new);
        assert!(!state.join(NEXT).exists());
        assert!(matches!(finish(state, sends), Err(EnrolError::NotBegun)));
        let told: Vec<_> = everything(state).into_iter().filter(|(_, text)| *text == old).collect();
        assert!(told.is_empty(), "{told:?}");
    }
    assert_eq!(fs::read(below.join("channels/others.key")).unwrap(), other.unwrap());
}

#[test]
fn where_a_channel_ends_its_rotation_does_not_until_something_has_come_that_is_sealed_with_the_next_key() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let (facts, with) = (leading(false), enroller(state));
    with.channel(&facts, "readings").unwrap();
    let done = with.rotate(&facts, What::Channel, Some("readings")).unwrap();
    let new = fs::read(state.join(NEXT)).unwrap();
    let key = fingerprint(&data_encoding::HEXLOWER.decode(&new[..64]).unwrap());
    assert!(done.said.contains(&key), "{}", done.said);
    let before = everything(state);
    let answer = |heard: Result<bool, String>| {
        let asked = |about: &str| {
            assert_eq!(about, key);
            heard.clone()
        };
        with.finish_channel(&facts, "readings", &asked).unwrap_err().to_string()
    };
    assert!(answer(Ok(false)).contains("nothing has come by readings"));
    assert!(answer(Err("nobody answers".into())).contains("is not known (nobody answers)"));
    assert_eq!(everything(state), before, "nothing has changed");
    let forced = Enroller { force: true, ..enroller(state) };
    forced.finish_channel(&facts, "readings", &nobody).unwrap();
    assert_eq!(fs::read(state.join(CURRENT)).unwrap(), new);
}

#[test]
fn what_is_no_key_or_no_other_one_takes_no_keys_place() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    enroller(state).channel(&leading(true), "readings").unwrap();
    let refused = |what: &str| finish(state, true).map(|done| done.said).expect_err(what).to_string();
    fs::create_dir_all(state.join("channels/next")).unwrap();
    let current = fs::read(state.join(CURRENT)).unwrap();
    for wrong in ["", "\n", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64), &("0".repeat(64) + "\n\n")] {
        fs::write(state.join(NEXT), wrong).unwrap();
        assert!(refused(wrong).contains("64 hexadecimal digits"), "{wrong}");
    }
    fs::write(state.join(NEXT), &current).unwrap();
    assert!(refused("the same").contains("is the key that is in use"));
    assert_eq!(fs::read(state.join(CURRENT)).unwrap(), current);
    let name = |name| enroller(state).rotate(&leading(true), What::Channel, name);
    assert!(matches!(name(Some("nothing")), Err(EnrolError::NoChannel(_))));
    assert!(matches!(name(None), Err(EnrolError::WhoseKey)));
    // Anew by force: of a rotation that was begun nothing is left.
    Enroller { force: true, ..enroller(state) }.channel(&leading(true), "readings").unwrap();
    assert!(!state.join(NEXT).exists() && fs::read(state.join(CURRENT)).unwrap() != current);
}
