//! What operators have set at some labels: at each label the last counts that has it.

use levee_policy::site::{Placed, Posture};
use levee_policy::{Label, RangeName, Site};

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
[[posture]]
name = "quiet"
services = []
[[posture]]
name = "high"
labels = ["SECRET..SECRET//NATO,MED"]
key-life = "5m"
[[posture]]
name = "low"
labels = ["UNCLASSIFIED", "CONFIDENTIAL"]
ciphers = ["aes-128-gcm"]
"#
);

fn site() -> Site {
    Site::parse(SITE).unwrap()
}

/// A posture or the default, or one `at` ranges.
fn placed(what: &str) -> Placed {
    let (name, ranges) = what.split_once(" at ").map_or((what, None), |(name, at)| (name, Some(at)));
    let labels = ranges.map(|ranges| ranges.split(" and ").map(|range| range.parse().unwrap()).collect());
    Placed { posture: (name != Posture::DEFAULT).then(|| name.parse().unwrap()), labels }
}

fn label(site: &Site, text: &str) -> Label {
    site.vocabulary().parse(text).unwrap()
}

fn counts(site: &Site, in_force: &[&str], at: &str) -> String {
    let in_force: Vec<Placed> = in_force.iter().map(|what| placed(what)).collect();
    let posture = site.posture_at(&label(site, at), in_force.iter());
    posture.map_or(Posture::DEFAULT, |posture| posture.name().as_str()).to_owned()
}

/// Some of these with their ends, as a list of `siege at SECRET until 5`.
fn set(site: &Site, list: &[&str], new: Option<&str>) -> Vec<String> {
    let read = |text: &&str| {
        let (what, until) = text.split_once(" until ").map_or((*text, None), |(what, end)| (what, Some(end)));
        (placed(what), until.map(|end| end.parse::<u64>().unwrap()))
    };
    let list: Vec<(Placed, Option<u64>)> = list.iter().map(read).collect();
    let after = match new.as_ref().map(read) {
        Some(new) => site.with(list, new, |(what, _)| what),
        None => site.seen(list, |(what, _)| what),
    };
    let said = after.iter().map(|(what, until)| match until {
        Some(until) => format!("{what} until {until}"),
        None => what.to_string(),
    });
    said.collect()
}

#[test]
fn at_each_label_the_last_counts_that_has_it_both_by_its_own_ranges_and_by_those_that_it_was_set_for() {
    let site = site();
    const ALL: &str = "UNCLASSIFIED..SECRET//NATO,MED";
    for (in_force, at, expected) in [
        (&[][..], "SECRET", "default"),
        (&["siege"], "SECRET", "siege"),
        (&["siege at SECRET"], "SECRET", "siege"),
        (&["siege at SECRET"], "SECRET//NATO", "default"),
        (&["siege at SECRET..SECRET//NATO"], "SECRET//NATO", "siege"),
        (&["siege at SECRET..SECRET//NATO"], "SECRET//MED", "default"),
        (&["siege at SECRET//NATO,MED and UNCLASSIFIED"], "UNCLASSIFIED", "siege"),
        (&["siege at SECRET//MED,NATO"], "SECRET//NATO,MED", "siege"),
        // The rest of what is in force stays.
        (&["siege", "quiet at SECRET"], "SECRET", "quiet"),
        (&["siege", "quiet at SECRET"], "CONFIDENTIAL", "siege"),
        (&["quiet at SECRET", "siege"], "SECRET", "siege"),
        (&["siege", "default at SECRET"], "SECRET", "default"),
        (&["siege", "default at SECRET"], "CONFIDENTIAL", "siege"),
        (&["siege", "default at SECRET", "quiet at SECRET//NATO"], "SECRET//NATO", "quiet"),
        // Where it is set for more than it is for it counts there alone.
        (&[&format!("high at {ALL}")], "SECRET", "high"),
        (&[&format!("high at {ALL}")], "CONFIDENTIAL", "default"),
        (&["siege", "high at SECRET"], "SECRET//NATO", "siege"),
        // What the site does not have any more says nothing.
        (&["siege", "gone at SECRET"], "SECRET", "siege"),
    ] {
        assert_eq!(counts(&site, in_force, at), expected, "{in_force:?} at {at}");
    }
}

#[test]
fn where_nobody_can_know_what_counts_nobody_has_a_session_and_no_service_is_on() {
    let site = site();
    for (in_force, at, expected) in [
        (&["siege at GONE"][..], "SECRET", "in-doubt"),
        (&["siege at SECRET..GONE"], "UNCLASSIFIED", "in-doubt"),
        // Of what it has one knows.
        (&["siege at SECRET and GONE"], "SECRET", "siege"),
        (&["siege at SECRET and GONE"], "CONFIDENTIAL", "in-doubt"),
        (&["siege", "default at GONE"], "SECRET", "in-doubt"),
        // The same counts either way.
        (&["default at GONE"], "SECRET", "default"),
        (&["siege", "siege at GONE"], "SECRET", "siege"),
        (&["siege", "siege at GONE and GONE", "quiet at GONE"], "SECRET", "in-doubt"),
        (&["high", "default at GONE"], "CONFIDENTIAL", "default"),
        // It cannot be where its posture is not.
        (&["high at GONE"], "SECRET", "in-doubt"),
        (&["high at GONE"], "CONFIDENTIAL", "default"),
        (&["gone at GONE"], "SECRET", "default"),
        // What is over it is known.
        (&["siege at GONE", "quiet at SECRET"], "SECRET", "quiet"),
        (&["siege at GONE", "quiet at SECRET"], "CONFIDENTIAL", "in-doubt"),
        (&["siege at GONE", "default at SECRET"], "SECRET", "default"),
        // A range the wrong way round is none.
        (&["siege at SECRET..CONFIDENTIAL"], "SECRET", "in-doubt"),
    ] {
        assert_eq!(counts(&site, in_force, at), expected, "{in_force:?} at {at}");
    }
    let gone = [placed("siege at GONE")];
    let posture = site.posture_at(&label(&site, "SECRET"), gone.iter()).unwrap();
    let name = site.label_name(&label(&site, "SECRET")).unwrap();
    let refused = site
        .decide_protected_session(
            &"ada".parse().unwrap(),
            &"ws1".parse().unwrap(),
            &name,
            None,
            Some(posture),
        )
        .unwrap_err();
    assert!(refused.reason().contains("does not have a range any more that was set"), "{}", refused.reason());
    assert!(site.services().all(|service| !posture.offers(service.name())));
    assert!(site.is_in_doubt(&gone[0]));
    for sure in ["siege", "siege at SECRET", "gone at GONE", "default at SECRET"] {
        assert!(!site.is_in_doubt(&placed(sure)), "{sure}");
    }
}

#[test]
fn what_is_set_anew_replaces_itself_the_default_what_it_is_over_and_one_posture_never_ends_another() {
    let site = site();
    const EACH: &str = "UNCLASSIFIED..SECRET//NATO,MED";
    for (list, new, expected) in [
        (&["siege"][..], "quiet", &["siege", "quiet"][..]),
        (&["siege"], "default", &[]),
        (&["siege"], "quiet at SECRET", &["siege", "quiet at SECRET"]),
        (&["siege at SECRET"], "quiet at SECRET", &["siege at SECRET", "quiet at SECRET"]),
        (
            &["siege at SECRET"],
            "quiet at CONFIDENTIAL..SECRET//NATO",
            &["siege at SECRET", "quiet at CONFIDENTIAL..SECRET//NATO"],
        ),
        (
            &["siege at SECRET..SECRET//NATO"],
            "quiet at SECRET",
            &["siege at SECRET..SECRET//NATO", "quiet at SECRET"],
        ),
        // By several together, and by the default.
        (
            &["siege at SECRET..SECRET//NATO", "quiet at SECRET"],
            "quiet at SECRET//NATO",
            &["siege at SECRET..SECRET//NATO", "quiet at SECRET", "quiet at SECRET//NATO"],
        ),
        (&["siege", "quiet at SECRET"], "default at SECRET", &["siege", "default at SECRET"]),
        (&["siege at SECRET", "quiet"], "default at SECRET", &["quiet", "default at SECRET"]),
        // By what it says, and not by which labels there are today: tomorrow's site file may have more.
        (&["siege"], &format!("default at {EACH}"), &["siege", &format!("default at {EACH}")]),
        (&["siege"], &format!("quiet at {EACH}"), &["siege", &format!("quiet at {EACH}")]),
        (&["high"], "siege at SECRET..SECRET//NATO,MED", &["high", "siege at SECRET..SECRET//NATO,MED"]),
        // The default is in force anyway where nothing else is.
        (&[], "default at SECRET", &[]),
        (&["siege at CONFIDENTIAL"], "default at SECRET", &["siege at CONFIDENTIAL"]),
        (&["low"], "default at SECRET", &["low"]),
        (
            &["siege", "default at SECRET"],
            "siege at SECRET",
            &["siege", "default at SECRET", "siege at SECRET"],
        ),
        // What ends lets the one below it be seen again.
        (&["siege"], "quiet until 5", &["siege", "quiet until 5"]),
        (&["quiet", "siege"], "siege until 5", &["quiet", "siege until 5"]),
        (&["siege until 6"], "quiet until 5", &["siege until 6", "quiet until 5"]),
        (&["siege until 4"], "default at SECRET", &["siege until 4", "default at SECRET"]),
        // The same posture anew is as somebody has said last.
        (&["siege"], "siege until 5", &["siege until 5"]),
        (
            &["siege at SECRET", "quiet at CONFIDENTIAL"],
            "siege until 5",
            &["quiet at CONFIDENTIAL", "siege until 5"],
        ),
        (&["siege"], "siege at SECRET until 5", &["siege", "siege at SECRET until 5"]),
        // Of what nobody can know where it is: it may be anywhere that its posture is, and hides nothing.
        (&["siege at GONE"], "quiet", &["siege at GONE", "quiet"]),
        (&["siege at GONE"], "siege", &["siege"]),
        (&["siege at GONE"], "default", &[]),
        (&["siege at GONE"], "quiet at SECRET", &["siege at GONE", "quiet at SECRET"]),
        (&["quiet", "siege at GONE"], "high", &["quiet", "siege at GONE", "high"]),
    ] {
        assert_eq!(set(&site, list, Some(new)), expected, "{list:?} and then {new}");
    }
    // When one has ended.
    for (list, expected) in [
        (&["default at SECRET"][..], &[][..]),
        (&["siege at CONFIDENTIAL", "default at SECRET"], &["siege at CONFIDENTIAL"]),
        (&["siege", "default at SECRET"], &["siege", "default at SECRET"]),
    ] {
        assert_eq!(set(&site, list, None), expected, "{list:?}");
    }
}

/// Whatever is set in whatever order: at each label what counts is the last that was said of it.
#[test]
fn dropping_what_is_replaced_changes_what_counts_at_none() {
    let site = site();
    const RANGES: [&str; 7] = [
        "",
        " at SECRET",
        " at UNCLASSIFIED..SECRET",
        " at CONFIDENTIAL..SECRET//NATO,MED",
        " at CONFIDENTIAL//MED",
        " at SECRET//NATO and UNCLASSIFIED",
        " at GONE",
    ];
    let all: Vec<Label> = site.vocabulary().whole().labels(1_000).unwrap().collect();
    assert!(all.len() >= 12, "{}", all.len());
    let mut state = 7_u64;
    let mut next = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut dropped = 0;
    for _ in 0..300 {
        let (mut whole, mut kept): (Vec<Placed>, Vec<(Placed, Option<u64>)>) = (vec![], vec![]);
        for _ in 0..8 {
            let name = ["siege", "quiet", "high", "low", "default"][next(5)];
            let what = placed(&format!("{name}{}", RANGES[next(RANGES.len())]));
            whole.push(what.clone());
            kept = site.with(kept, (what, None), |(what, _)| what);
            for label in &all {
                let name = |posture: Option<&Posture>| posture.map(|posture| posture.name().to_string());
                let before = name(site.posture_at(label, whole.iter()));
                let after = name(site.posture_at(label, kept.iter().map(|(what, _)| what)));
                // Of two of which nobody can know where, but that it is the same, one takes the other's place.
                let is_doubted = before.as_deref() == Some("in-doubt");
                assert!(before == after || is_doubted, "{label:?}: {whole:?} {kept:?}");
            }
        }
        dropped += whole.len() - kept.len();
    }
    assert!(dropped > 100, "{dropped}");
}

#[test]
fn what_somebody_sets_is_said_in_the_sites_words_and_refused_with_the_remedy_where_there_is_no_such() {
    let site = site();
    for (said, meant) in [
        ("siege", "siege"),
        ("default", "default"),
        ("siege at SECRET//MED,NATO", "siege at SECRET//NATO,MED"),
        ("siege at SECRET..SECRET and CONFIDENTIAL", "siege at SECRET and CONFIDENTIAL"),
        ("siege at SECRET and SECRET..SECRET", "siege at SECRET"),
        ("high at CONFIDENTIAL..SECRET", "high at CONFIDENTIAL..SECRET"),
        ("default at UNCLASSIFIED..SECRET", "default at UNCLASSIFIED..SECRET"),
    ] {
        assert_eq!(site.place(&placed(said)).unwrap().to_string(), meant, "{said}");
    }
    for (said, why) in [
        ("seige", "the site has no posture `seige`; it has: siege quiet high low default"),
        ("siege at SECERT", "did you mean `SECRET`?"),
        ("siege at SECRET..CONFIDENTIAL", "write the dominated label first: `CONFIDENTIAL..SECRET`"),
        (
            "high at CONFIDENTIAL",
            "posture `high` is for no label of `CONFIDENTIAL`: its own are SECRET..SECRET//NATO,MED",
        ),
        (
            "low at CONFIDENTIAL and SECRET",
            "is for no label of `SECRET`: its own are UNCLASSIFIED, CONFIDENTIAL",
        ),
    ] {
        let error = site.place(&placed(said)).unwrap_err();
        assert!(error.contains(why), "{said}: {error}");
    }
    let none = Site::parse(include_str!("../../../conf/small/site.toml")).unwrap();
    let error = none.place(&placed("siege")).unwrap_err();
    assert_eq!(error, "the site has no posture `siege`; it has: default");
    let nowhere = Placed { labels: Some(vec![]), ..placed("siege") };
    assert!(site.place(&nowhere).is_err() && !nowhere.is_sound());
    assert!(!placed("default").is_sound() && placed("default at SECRET").is_sound());
    for wrong in ["", "..", "SECRET..", "..SECRET", "A...B", "A..B..C", "A B", "\u{e9}"] {
        assert!(RangeName::new(wrong).is_err(), "{wrong}");
    }
    assert!(RangeName::new(&format!("{0}..{0}", "A".repeat(255))).is_ok());
    assert!(RangeName::new(&format!("A..{}", "A".repeat(256))).is_err());
}

#[test]
fn all_labels_of_a_site_are_in_its_whole_range_with_integrity_too() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let vocabulary = levee_policy::Vocabulary::new(
        words(&["LOW", "HIGH"]),
        words(&["A", "B"]),
        words(&["DRAFT", "CHECKED"]),
        words(&["LAW"]),
    )
    .unwrap();
    let whole = vocabulary.whole();
    assert_eq!(vocabulary.print_range(&whole).unwrap(), "LOW@CHECKED//LAW..HIGH//A,B@DRAFT");
    assert_eq!(whole.count(), Some(2 * 4 * 2 * 2));
    for text in ["LOW@DRAFT", "HIGH//A,B@CHECKED//LAW", "LOW//B@DRAFT//LAW"] {
        assert!(whole.contains(&vocabulary.parse(text).unwrap()), "{text}");
    }
}
