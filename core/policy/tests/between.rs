//! One-way channels between hosts: in one site file, and in those of both.

use levee_policy::site::ProblemKind;
use levee_policy::{Problem, Site, between};

const HEAD: &str = r#"
[site]
name = "NAME"

[labels]
levels = ["LOW", "MID", "HIGH"]

[server]
name = "NAME.example"
addresses = ["10.0.0.1"]
inner-address = "10.80.0.1"
inner-pool = "10.80.1.0/24"
"#;

fn partition(name: &str, label: &str) -> String {
    format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/bin/true\"]\n")
}

/// A channel whose other end is elsewhere: `here` is its end, and `wire` what it says beside what all say.
fn far(name: &str, here: &str, own: u8, wire: &str) -> String {
    let (peer, hardware) =
        (3 - own, if here.starts_with("from") { ", hardware = \"02:00:5e:00:53:02\"" } else { "" });
    format!(
        "[[channel]]\nname = \"{name}\"\nkind = \"oneway\"\n{here}\nwire = {{ interface = \"{name}\", address = \"10.9.0.{own}/30\", \
         peer = \"10.9.0.{peer}\", port = 4700{hardware}, {wire} }}\n"
    )
}

fn guard(name: &str, from: &str, to: &str) -> String {
    format!(
        "[[channel]]\nname = \"{name}\"\nkind = \"guard\"\nfrom = \"{from}\"\nto = \"{to}\"\nfilter = \"{name}\"\nmessages = \"9 in 60s\"\n"
    )
}

fn oneway(name: &str, from: &str, to: &str) -> String {
    format!("[[channel]]\nname = \"{name}\"\nkind = \"oneway\"\nfrom = \"{from}\"\nto = \"{to}\"\n")
}

fn parse(name: &str, parts: &[String]) -> Result<Site, Vec<Problem>> {
    Site::parse(&(HEAD.replace("NAME", name) + &parts.concat()))
}

fn site(name: &str, parts: &[String]) -> Site {
    parse(name, parts).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn told(parts: &[String]) -> Vec<(ProblemKind, String)> {
    parse("one", parts).unwrap_err().into_iter().map(|problem| (problem.kind, problem.what)).collect()
}

#[test]
fn a_channel_to_another_host_has_one_end_here_and_says_where_the_other_is() {
    let parts =
        [partition("field", "LOW"), far("up", "from = \"field\"", 1, "label = \"HIGH\", repair = \"25%\"")];
    let one = site("one", &parts);
    let [channel] = one.channels() else { panic!("one channel") };
    let wire = channel.wire().unwrap();
    assert_eq!((channel.from().map(|from| from.as_str()), channel.to()), (Some("field"), None));
    assert_eq!((wire.port(), wire.mtu(), wire.repair(), wire.datagram()), (4_700, 1_500, 25, 1_472));
    assert_eq!(wire.hardware().map(|hardware| hardware.to_string()).as_deref(), Some("02:00:5e:00:53:02"));
}

#[test]
fn what_leads_downwards_or_is_no_wire_is_refused_at_its_place() {
    let field = || partition("field", "MID");
    let from = |wire: &str| [field(), far("up", "from = \"field\"", 1, wire)];
    let way = "information gets where the lattice forbids it: field (MID) -[up]-> another host (LOW)";
    assert_eq!(told(&from("label = \"LOW\"")), [(ProblemKind::Flow, way.to_owned())]);
    let way = "information gets where the lattice forbids it: another host (HIGH) -[down]-> field (MID)";
    let to = [field(), far("down", "to = \"field\"", 2, "label = \"HIGH\"")];
    assert_eq!(told(&to), [(ProblemKind::Flow, way.to_owned())]);
    let kinds = |parts: &[String]| told(parts).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    for wire in ["label = \"NONE\"", "label = \"HIGH\", mtu = 500", "label = \"HIGH\", repair = \"101%\""] {
        assert_eq!(kinds(&from(wire)).len(), 1, "{wire}");
    }
    // Both ends, none, a guard, who receives with a hardware address, and who sends without.
    let sound = far("up", "from = \"field\"", 1, "label = \"HIGH\"");
    for wrong in [
        sound.replace("from = \"field\"", "from = \"field\"\nto = \"field\""),
        sound.replace("from = \"field\"", ""),
        sound.replace("oneway", "guard"),
        sound.replace("from = ", "to = "),
        sound.replace(", hardware = \"02:00:5e:00:53:02\"", ""),
        sound.replace("02:00:5e:00:53:02", "02:00:5e:00:53"),
        sound.replace("10.9.0.2", "10.9.1.2"),
        sound.replace("from = \"field\"", "from = \"field\"\nnumbered = true"),
        sound.replace("peer", "pier"),
    ] {
        assert!(parse("one", &[field(), wrong.clone()]).is_err(), "{wrong}");
    }
    // An interface is one channel's alone.
    let second = sound.replace("name = \"up\"", "name = \"more\"");
    assert_eq!(kinds(&[field(), sound, second]), [ProblemKind::Duplicate]);
}

#[test]
fn what_leaves_by_one_wire_may_come_back_by_another_and_two_guards_are_an_exception_that_nobody_declared() {
    let parts = |first: &str, second: &str| {
        let places = [partition("staff", "HIGH"), partition("bridge", "MID"), partition("field", "LOW")];
        let filters = [partition("g1", "HIGH"), partition("g2", "MID"), partition("aside", "MID")];
        let guards = [guard("g1", "staff", "bridge"), guard("g2", "aside", "field")];
        let out = far("out", "from = \"bridge\"", 1, first);
        let back = far("back", "to = \"aside\"", 2, second);
        [&places[..], &filters[..], &guards[..], &[out, back]].concat()
    };
    let way = "information gets where the lattice forbids it: staff (HIGH) -[g1]-> bridge (MID) -[out]-> another host (MID) \
               -[back]-> aside (MID) -[g2]-> field (LOW)";
    assert_eq!(told(&parts("label = \"MID\"", "label = \"MID\"")), [(ProblemKind::Flow, way.to_owned())]);
    // What is at HIGH does not come back from a host at MID.
    assert!(parse("one", &parts("label = \"HIGH\"", "label = \"MID\"")).is_ok());
}

#[test]
fn what_leaves_by_a_wire_may_come_back_from_a_host_above_with_one_file_and_with_several() {
    let parts = |aside: &str| {
        let places = [partition("staff", "HIGH"), partition("bridge", "MID"), partition("field", "LOW")];
        let filters = [partition("g1", "HIGH"), partition("g2", aside), partition("aside", aside)];
        let guards = [guard("g1", "staff", "bridge"), guard("g2", "aside", "field")];
        let out = far("out", "from = \"bridge\"", 1, "label = \"MID\"");
        let back = far("back", "to = \"aside\"", 2, &format!("label = \"{aside}\""));
        [&places[..], &filters[..], &guards[..], &[out, back]].concat().concat()
    };
    let head = HEAD.replace("NAME", "one").replace("\"MID\", ", "\"MID\", \"NEAR\", ");
    let way = "staff (HIGH) -[g1]-> bridge (MID) -[out]-> another host (MID) -[upward]-> another host (NEAR) -[back]-> aside (NEAR) -[g2]-> field (LOW)";
    let told = Site::parse(&(head.clone() + &parts("NEAR"))).unwrap_err();
    assert!(told.iter().any(|problem| problem.what.contains(way)), "{told:?}");
    let sound = Site::parse(&(head + &parts("HIGH"))).unwrap();
    assert_eq!(between::check(&[&sound]).wrong, []);
    // What neither file shows alone: one host lets it down and sends it out, the other takes it in above and lets it down.
    let head = |name: &str| HEAD.replace("NAME", name).replace("\"MID\", ", "\"MID\", \"NEAR\", ");
    let one = [
        partition("staff", "HIGH"),
        partition("bridge", "MID"),
        partition("g1", "HIGH"),
        guard("g1", "staff", "bridge"),
        far("out", "from = \"bridge\"", 1, "label = \"MID\""),
    ];
    let two = [
        partition("aside", "NEAR"),
        partition("field", "LOW"),
        partition("g2", "NEAR"),
        guard("g2", "aside", "field"),
        far("back", "to = \"aside\"", 2, "label = \"NEAR\""),
    ];
    let [one, two] = [("one", one), ("two", two)]
        .map(|(name, parts)| Site::parse(&(head(name) + &parts.concat())).unwrap());
    let found = between::check(&[&one, &two]);
    assert!(
        found.wrong.iter().any(|(what, _)| what.contains("-[upward]->") && what.contains("two/field (LOW)")),
        "{found:?}"
    );
}

#[test]
fn both_ends_of_a_channel_say_the_same_or_it_is_told() {
    let sends =
        |wire: &str| site("one", &[partition("field", "LOW"), far("up", "from = \"field\"", 1, wire)]);
    let receives = |label: &str, wire: &str| {
        site("two", &[partition("desk", label), far("up", "to = \"desk\"", 2, wire)])
    };
    let one = sends("label = \"HIGH\"");
    assert_eq!(between::check(&[&one, &receives("HIGH", "label = \"LOW\"")]), between::Found::default());
    let alone = between::check(&[&one]);
    assert!(alone.wrong.is_empty() && alone.alone.len() == 1, "{alone:?}");
    for (other, said) in [
        (receives("HIGH", "label = \"MID\""), "`two` says that the other end is at MID, and it is at LOW"),
        (receives("MID", "label = \"LOW\""), "`one` says that the other end is at HIGH, and it is at MID"),
        (receives("HIGH", "label = \"LOW\", mtu = 9000"), "`mtu` is 1500 in `one` and 9000 in `two`"),
        (receives("HIGH", "label = \"LOW\", repair = \"0%\""), "`repair` is 10% in `one` and 0% in `two`"),
    ] {
        for sites in [[&one, &other], [&other, &one]] {
            let found = between::check(&sites);
            assert_eq!(found.wrong.len(), 1, "{found:?}");
            assert!(found.wrong[0].0.contains(said), "{said}: {found:?}");
        }
    }
}

#[test]
fn a_guard_at_the_other_host_is_a_step_of_the_way_that_neither_site_file_shows_alone() {
    // Each is sound by itself: what one host has let down to MID goes to the other, which lets it down to LOW.
    let one = [
        partition("staff", "HIGH"),
        partition("bridge", "MID"),
        partition("g1", "HIGH"),
        guard("g1", "staff", "bridge"),
        far("out", "from = \"bridge\"", 1, "label = \"MID\""),
    ];
    let two = [
        partition("desk", "MID"),
        partition("relay", "MID"),
        partition("field", "LOW"),
        partition("g2", "MID"),
        far("out", "to = \"desk\"", 2, "label = \"MID\""),
        oneway("on", "desk", "relay"),
        guard("g2", "relay", "field"),
    ];
    let (one, two) = (site("one", &one), site("two", &two));
    let way = "information gets where the lattice forbids it: one/staff (HIGH) -[g1]-> one/bridge (MID) -[out]-> two/desk (MID) \
               -[on]-> two/relay (MID) -[g2]-> two/field (LOW)";
    let found = between::check(&[&one, &two]);
    assert_eq!(found.wrong.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>(), [way]);
    assert!(found.alone.is_empty());
}

#[test]
fn sites_that_do_not_mean_the_same_by_their_words_are_told_so() {
    let one = site("one", &[partition("field", "LOW"), far("up", "from = \"field\"", 1, "label = \"HIGH\"")]);
    let other = |levels: &str| {
        let text = HEAD.replace("NAME", "two").replace("[\"LOW\", \"MID\", \"HIGH\"]", levels)
            + &partition("desk", "HIGH")
            + &far("up", "to = \"desk\"", 2, "label = \"LOW\"");
        Site::parse(&text)
    };
    // In another order this would lead downwards there, and is refused before anything else is asked.
    assert!(other("[\"HIGH\", \"LOW\"]").is_err());
    let text = HEAD.replace("NAME", "two").replace("[\"LOW\", \"MID\", \"HIGH\"]", "[\"HIGH\", \"LOW\"]")
        + &partition("desk", "HIGH")
        + &partition("aside", "LOW");
    let turned = Site::parse(&text).unwrap();
    let found = between::check(&[&one, &turned]);
    assert!(found.wrong[0].0.contains("do not agree which of"), "{found:?}");
    let more =
        HEAD.replace("NAME", "two").replace("\"HIGH\"]", "\"HIGH\", \"TOP\"]") + &partition("desk", "TOP");
    let found = between::check(&[&one, &Site::parse(&more).unwrap()]);
    assert!(found.wrong[0].0.contains("has no label TOP"), "{found:?}");
}

#[test]
fn places_outside_at_three_labels_are_three_and_are_told_apart() {
    let levels = "[\"LOW\", \"MID\", \"NEAR\", \"HIGH\"]";
    let site = |name: &str, parts: &[String]| {
        let head = HEAD.replace("NAME", name).replace("[\"LOW\", \"MID\", \"HIGH\"]", levels);
        Site::parse(&(head + &parts.concat())).unwrap()
    };
    let out = |name: &str, from: &str, label: &str| {
        far(name, &format!("from = \"{from}\""), 1, &format!("label = \"{label}\""))
    };
    let one = [
        partition("staff", "HIGH"),
        partition("aside", "NEAR"),
        partition("field", "LOW"),
        partition("g1", "HIGH"),
        guard("g1", "staff", "aside"),
        out("first", "field", "LOW"),
        out("second", "field", "MID").replace("10.9.0", "10.9.1"),
        out("third", "aside", "NEAR").replace("10.9.0", "10.9.2"),
    ];
    let two = [
        partition("relay", "NEAR"),
        partition("desk", "MID"),
        partition("g2", "NEAR"),
        guard("g2", "relay", "desk"),
        far("back", "to = \"relay\"", 2, "label = \"NEAR\""),
    ];
    let found = between::check(&[&site("one", &one), &site("two", &two)]);
    let way = "information gets where the lattice forbids it: one/staff (HIGH) -[g1]-> one/aside (NEAR) \
               -[third]-> another host 3 (NEAR) -[back]-> two/relay (NEAR) -[g2]-> two/desk (MID)";
    assert_eq!(found.wrong.iter().map(|(what, _)| what.as_str()).collect::<Vec<_>>(), [way]);
    assert_eq!(found.alone.len(), 4);
}
