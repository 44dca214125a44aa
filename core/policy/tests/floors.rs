//! Floors of postures: at their labels nothing less counts, whatever operators set.

use levee_policy::site::{Placed, Posture, ProblemKind};
use levee_policy::{Label, Site};

const SMALL: &str = include_str!("../../../conf/small/site.toml");

/// Three in order, with a floor at SECRET and one above it at SECRET//NATO.
const ORDERED: &str = r#"
[[posture]]
name = "peace"
key-life = "30m"
[[posture]]
name = "alert"
floor = ["SECRET..SECRET//NATO"]
ciphers = ["aes-256-gcm", "chacha20-poly1305"]
key-life = "20m"
[[posture]]
name = "siege"
floor = ["SECRET//NATO"]
ciphers = ["aes-256-gcm"]
key-life = "5m"
"#;

fn site(postures: &str) -> Site {
    Site::parse(&format!("{SMALL}{postures}")).unwrap()
}

fn problems(postures: &str) -> Vec<(ProblemKind, String)> {
    let found = Site::parse(&format!("{SMALL}{postures}")).expect_err("a problem");
    found.into_iter().map(|problem| (problem.kind, problem.what)).collect()
}

/// A posture or the default, or one `at` a range.
fn placed(what: &str) -> Placed {
    let (name, range) = what.split_once(" at ").map_or((what, None), |(name, at)| (name, Some(at)));
    let labels = range.map(|range| vec![range.parse().unwrap()]);
    Placed { posture: (name != Posture::DEFAULT).then(|| name.parse().unwrap()), labels }
}

fn counts(site: &Site, in_force: &[&str], at: &str) -> String {
    let in_force: Vec<Placed> = in_force.iter().map(|what| placed(what)).collect();
    let label: Label = site.vocabulary().parse(at).unwrap();
    let posture = site.posture_at(&label, in_force.iter());
    posture.map_or(Posture::DEFAULT, |posture| posture.name().as_str()).to_owned()
}

#[test]
fn nothing_less_than_the_floor_counts_at_a_label_and_more_does() {
    let site = site(ORDERED);
    for (in_force, at, expected) in [
        // Nobody has set anything, as at the first start.
        (&[][..], "SECRET", "alert"),
        (&[], "SECRET//NATO", "siege"),
        (&[], "SECRET//MED", "default"),
        (&[], "CONFIDENTIAL", "default"),
        // Less, where it may be.
        (&["peace"], "SECRET", "alert"),
        (&["peace"], "SECRET//NATO", "siege"),
        (&["peace"], "CONFIDENTIAL", "peace"),
        // More, and the end of it.
        (&["siege"], "SECRET", "siege"),
        (&["siege"], "CONFIDENTIAL", "siege"),
        (&["alert"], "SECRET//NATO", "siege"),
        (&["siege", "peace"], "SECRET", "alert"),
        (&["siege", "default at SECRET"], "SECRET", "alert"),
        (&["siege", "default at SECRET//NATO"], "SECRET//NATO", "siege"),
        // What the site does not have any more says nothing; doubt is more than any floor.
        (&["gone"], "SECRET", "alert"),
        (&["siege at GONE"], "SECRET//NATO", "in-doubt"),
        (&["siege", "peace at GONE"], "SECRET", "in-doubt"),
        (&["peace at GONE"], "SECRET//NATO", "in-doubt"),
    ] {
        assert_eq!(counts(&site, in_force, at), expected, "{in_force:?} at {at}");
    }
    let floors: Vec<String> = site.floors().iter().map(ToString::to_string).collect();
    assert_eq!(floors, ["alert at SECRET..SECRET//NATO", "siege at SECRET//NATO"]);
}

#[test]
fn what_would_count_nowhere_for_a_floor_is_not_set_and_says_why() {
    let site = site(ORDERED);
    let place = |what: &str| site.place(&placed(what)).map(|placed| placed.to_string());
    for what in ["peace at SECRET", "peace at SECRET..SECRET//NATO", "alert at SECRET//NATO"] {
        let why = place(what).expect_err(what);
        assert!(why.contains("would count nowhere"), "{what}: {why}");
    }
    // It counts somewhere, or ends another.
    for what in
        ["peace", "peace at CONFIDENTIAL..SECRET", "alert at SECRET", "siege", "default at SECRET//NATO"]
    {
        assert_eq!(place(what).as_deref(), Ok(what));
    }
}

#[test]
fn a_posture_after_a_floor_asks_for_no_less_in_any_key() {
    const FLOOR: &str = "[[posture]]\nname = \"floor\"\nfloor = [\"SECRET\"]\n";
    for (key, floor, less, more) in [
        (
            "ciphers",
            "ciphers = [\"aes-256-gcm\"]",
            "ciphers = [\"aes-256-gcm\", \"aes-128-gcm\"]",
            "ciphers = [\"aes-256-gcm\"]",
        ),
        (
            "exchanges",
            "exchanges = [\"P-384\", \"P-256\"]",
            "exchanges = [\"X25519\"]",
            "exchanges = [\"P-384\"]",
        ),
        ("ml-kem", "ml-kem = true", "poll = \"0us\"", "ml-kem = true"),
        ("key-life", "key-life = \"5m\"", "key-life = \"6m\"", "key-life = \"4m\""),
        ("constant-rate", "constant-rate = true", "aggfrag = true", "constant-rate = true"),
        ("aggfrag", "aggfrag = true", "poll = \"0us\"", "constant-rate = true"),
        ("agree", "agree = true", "workers = 1", "agree = true"),
        ("people", "people = [\"mia\"]", "people = [\"mia\", \"ada\"]", "people = []"),
        ("hosts", "hosts = [\"ws1\"]", "people = []", "hosts = []"),
        ("services", "services = [\"web\"]", "poll = \"0us\"", "services = []"),
    ] {
        let with = |says: &str, labels: &str| {
            format!("{FLOOR}{floor}\n[[posture]]\nname = \"after\"\n{labels}{says}\n")
        };
        let found = problems(&with(less, ""));
        let expected = format!("its `{key}` asks for less");
        assert!(
            found.iter().any(|(kind, what)| *kind == ProblemKind::Overlap && what.contains(&expected)),
            "{key}: {found:?}"
        );
        let sound = |text: String| Site::parse(&format!("{SMALL}{text}")).map(drop);
        for as_much in [more, floor] {
            assert_eq!(sound(with(as_much, "")), Ok(()), "{key}");
        }
        // Elsewhere it may, and so may one that stands before it.
        assert_eq!(sound(with(less, "labels = [\"CONFIDENTIAL\"]\n")), Ok(()), "{key}");
        let before = format!("[[posture]]\nname = \"before\"\n{less}\n{FLOOR}{floor}\n");
        assert_eq!(sound(before), Ok(()), "{key}");
    }
}

#[test]
fn a_floor_is_of_labels_that_its_posture_is_for() {
    let of = |labels: &str| format!("[[posture]]\nname = \"high\"\n{labels}key-life = \"5m\"\n");
    let wrong = of("labels = [\"SECRET\"]\nfloor = [\"CONFIDENTIAL..SECRET\"]\n");
    assert_eq!(
        problems(&wrong),
        [(
            ProblemKind::OutOfBounds,
            "the posture is to be the floor of labels that it is not for".to_owned()
        )]
    );
    let right = of("labels = [\"CONFIDENTIAL..SECRET//NATO\"]\nfloor = [\"CONFIDENTIAL..SECRET\"]\n");
    assert!(Site::parse(&format!("{SMALL}{right}")).is_ok());
    assert!(Site::parse(&format!("{SMALL}{}", of("floor = [\"NOWHERE\"]\n"))).is_err());
}
