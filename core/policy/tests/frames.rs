//! `[frames]`: which slots are whose; what would never run is refused.

use levee_policy::Site;
use std::time::Duration;

const SOUND: &str = include_str!("../../../conf/small/site.toml");

fn site(frames: &str) -> Result<Site, String> {
    Site::parse(&format!("{SOUND}\n{frames}"))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

const TWO: &str = "[frames]\nlate = \"2 in 60s\"\nmargin = \"200us\"\nstop = \"50ms\"\n[[frames.slot]]\nlabels = [\"SECRET\"]\ntime = \"10ms\"\n";

#[test]
fn a_label_has_the_slots_that_name_it_and_those_that_name_nobody() {
    let site = site(&format!("{TWO}[[frames.slot]]\ntime = \"5ms\"\n")).unwrap();
    let frames = site.frames().unwrap();
    assert_eq!((frames.margin(), frames.stop()), (Duration::from_micros(200), Duration::from_millis(50)));
    assert_eq!(frames.late().map(|late| (late.most, late.within)), Some((2, Duration::from_secs(60))));
    let times: Vec<_> = frames.slots().iter().map(|slot| slot.time().as_millis()).collect();
    assert_eq!(times, [10, 5]);
    let of = |name: &str| frames.of(&site.vocabulary().parse(name).unwrap());
    assert_eq!(of("SECRET"), [0, 1]);
    assert_eq!(of("SECRET//NATO"), [1]);
    assert_eq!(of("UNCLASSIFIED"), [1]);
}

#[test]
fn what_would_never_run_and_what_is_no_frame_is_refused() {
    for (frames, said) in [
        (TWO.to_owned(), "no slot is for UNCLASSIFIED"),
        ("[frames]\n".to_owned(), "[frames] has no `slot`"),
        ("[frames]\nslot = []\n".to_owned(), "a frame has 0 slots"),
        (TWO.replace("10ms", "51ms"), "`time` is 51ms"),
        (TWO.replace("10ms", "0ms"), "`time` is 0ms"),
        (TWO.replace("200us", "11ms"), "`margin` is 11ms"),
        (TWO.replace("SECRET", "SECRETS"), "SECRETS"),
        (TWO.replace("200us", "0us"), "without a margin everything ends late"),
        (TWO.replace("2 in 60s", "often"), "`often` is no bound"),
        (format!("[frames]\n{}", "[[frames.slot]]\ntime = \"5ms\"\n".repeat(65)), "a frame has 65 slots"),
    ] {
        let why = site(&frames).expect_err(said);
        assert!(why.contains(said), "{why}");
    }
}

/// A frame of so many slots of so long.
fn slots(count: usize, time: &str, more: &str) -> String {
    format!("[frames]\n{more}\n{}", format!("[[frames.slot]]\ntime = \"{time}\"\n").repeat(count))
}

#[test]
fn no_vault_stands_still_so_long_that_it_is_taken_for_hung() {
    let stop = |frames: &str| site(frames).map(|site| site.frames().expect("it has frames").stop());
    let ms = |ms| Ok(Duration::from_millis(ms));
    // Two slots of 10 ms leave more than is of use; eight of 50 ms leave (500 - 8 * 50.5) / 9 ms.
    assert_eq!(stop(&slots(2, "10ms", "")), ms(100));
    assert_eq!(stop(&slots(8, "50ms", "")).map(|stop| stop.as_millis()), Ok(10));
    assert_eq!(stop(&slots(64, "1ms", "")).map(|stop| stop.as_millis()), Ok(6));
    assert_eq!(stop(&slots(2, "10ms", "margin = \"0us\"\nstop = \"160ms\"")), ms(160));
    for frames in [slots(2, "10ms", "margin = \"0us\"\nstop = \"161ms\""), slots(10, "50ms", "")] {
        let why = stop(&frames).expect_err("it is too long");
        assert!(why.contains("taken for hung"), "{why}");
    }
}
