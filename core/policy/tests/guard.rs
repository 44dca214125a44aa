//! Where the bounds of a guard end.

use levee_policy::Site;

const SOUND: &str = include_str!("../../../conf/small/site.toml");

fn partition(name: &str, label: &str) -> String {
    format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\n")
}

/// A site with a guard that has these keys besides.
fn site(keys: &str) -> Result<Site, String> {
    let three = partition("archive", "SECRET")
        + &partition("checker", "SECRET")
        + &partition("press", "UNCLASSIFIED");
    let guard = "[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"archive\"\nfilter = \"checker\"\nto = \"press\"\n";
    Site::parse(&format!("{SOUND}\n{three}{guard}{keys}\n"))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_guards_bounds_are_taken_to_their_ends_and_not_beyond() {
    let schema = |octets: usize| format!("messages = \"1 in 1s\"\nschema = '{:<octets$}'", "true");
    for (within, beyond) in [
        ("messages = \"1 in 1s\"\nsize = \"32K\"", "messages = \"1 in 1s\"\nsize = \"33K\""),
        ("messages = \"1 in 1s\"\nsize = \"1K\"", "messages = \"1 in 1s\"\nsize = \"0K\""),
        (&schema(16 << 10), &schema((16 << 10) + 1)),
        ("messages = \"100000 in 1s\"", "messages = \"100001 in 1s\""),
        ("messages = \"1 in 24h\"", "messages = \"1 in 86401s\""),
        ("messages = \"1 in 1s\"\noctets = \"101K in 1s\"", "messages = \"1 in 1s\"\noctets = \"0K in 1s\""),
        ("messages = \"1 in 1s\"\nanswer = \"100ms\"", "messages = \"1 in 1s\"\nanswer = \"99ms\""),
        ("messages = \"1 in 1s\"\nanswer = \"10m\"", "messages = \"1 in 1s\"\nanswer = \"601s\""),
        (
            "messages = \"1 in 1s\"\nhours = \"00:00-23:59\"",
            "messages = \"1 in 1s\"\nhours = \"00:00-24:00\"",
        ),
    ] {
        site(within).unwrap_or_else(|why| panic!("{within}: {why}"));
        assert!(site(beyond).is_err(), "{beyond}");
    }
}

#[test]
fn a_guard_has_the_bounds_that_the_file_says_and_octets_for_as_many_messages() {
    let of = |keys: &str| {
        let site = site(keys).unwrap_or_else(|why| panic!("{keys}: {why}"));
        let [channel] = site.channels() else { panic!("one channel") };
        channel.guard().expect("a guard").clone()
    };
    let plain = of("messages = \"7 in 60s\"");
    assert_eq!((plain.messages().most, plain.messages().within.as_secs()), (7, 60));
    assert_eq!((plain.octets().most, plain.octets().within.as_secs()), (7 * 32_768, 60));
    assert_eq!((plain.answer().as_millis(), plain.hours(), plain.schema()), (5_000, None, None));
    assert_eq!(of("messages = \"7 in 60s\"\nsize = \"2K\"").octets().most, 7 * 2_048);
    let all = of(
        "messages = \"7 in 60s\"\noctets = \"3K in 9s\"\nanswer = \"2s\"\nhours = \"08:01-18:02\"\nschema = 'true'",
    );
    assert_eq!((all.octets().most, all.octets().within.as_secs()), (3_072, 9));
    let hours = all.hours().map(|hours| (hours.from, hours.until));
    assert_eq!((all.answer().as_millis(), hours, all.schema()), (2_000, Some((481, 1_082)), Some("true")));
    assert_eq!(all.filter().as_str(), "checker");
}

#[test]
fn a_guard_waits_longer_than_its_filter_may_stand_still_in_a_frame() {
    // One slot of 50 ms, a margin of 500 us, and `stop` twice, which are 49 ms 750 us each: 150 ms in all.
    let frames = "[frames]\nstop = \"49750us\"\n[[frames.slot]]\ntime = \"50ms\"\n";
    let of = |answer: u64, more: &str| {
        site(&format!("messages = \"1 in 1s\"\nanswer = \"{answer}ms\"\n{frames}{more}"))
    };
    of(151, "").unwrap();
    let why = of(150, "").unwrap_err();
    assert!(
        why.contains("waits 150 ms for its filter `checker`") && why.contains("still for 150 ms"),
        "{why}"
    );
    assert!(why.contains("such as \"600ms\""), "{why}");
    // What has a processor for itself alone never stands still.
    let alone = |label: &str| format!("[[processors]]\nnumbers = \"1\"\nlabels = [\"{label}\"]\n");
    of(150, &alone("SECRET")).unwrap();
    of(150, &alone("CONFIDENTIAL")).unwrap_err();
}
