//! `[[link]]`: which networks of two partitions a site may have.

use levee_policy::Site;

const SOUND: &str = include_str!("../../../conf/small/site.toml");
const BUS: &str = "[[link]]\nname = \"bus\"\nbetween = [\"front\", \"desk\"]\naddresses = [\"10.9.0.1/30\", \"10.9.0.2/30\"]\n";

fn partition(name: &str, label: &str) -> String {
    format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\n")
}

fn site(more: &str) -> Result<Site, String> {
    let three =
        partition("front", "SECRET") + &partition("desk", "SECRET") + &partition("low", "UNCLASSIFIED");
    Site::parse(&format!("{SOUND}\n{three}{more}"))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_link_has_two_partitions_of_one_label_each_with_its_address() {
    let site = site(BUS).unwrap();
    let [link] = site.links() else { panic!("one link: {:?}", site.links()) };
    let ends = link.ends().each_ref().map(|(name, address)| format!("{name} {address}"));
    assert_eq!(
        (link.name().as_str(), ends),
        ("bus", ["front 10.9.0.1/30".into(), "desk 10.9.0.2/30".into()])
    );
}

#[test]
fn what_is_no_link_is_refused() {
    let second = BUS.replace("bus", "other");
    for (links, said) in [
        (BUS.replace("desk", "low"), "two labels"),
        (BUS.replace("desk", "desks"), "did you mean `desk`"),
        (BUS.replace("desk", "front"), "to itself"),
        (BUS.replace("\"front\", ", ""), "two ends, and here are 1"),
        (BUS.replace(", \"10.9.0.2/30\"", ""), "two ends, and here are 1"),
        (BUS.replace("0.2/30", "0.1/30"), "not two addresses of one network"),
        (BUS.replace("0.2/30", "0.2/29"), "not two addresses of one network"),
        (BUS.replace("0.2/30", "0.3/30"), "no address that an interface can have"),
        (BUS.replace("10.9", "127.9"), "no address that an interface can have"),
        (BUS.replace("10.9.0.2/30", "10.9.0.2"), "10.9.0.2"),
        (BUS.replace("\"bus\"", "\"lo\""), "no interface can be called `lo`"),
        (BUS.replace("\"bus\"", "\"a-name-of-16-let\""), "no interface can be called"),
        (format!("{BUS}{BUS}"), "link `bus`"),
        (format!("{BUS}{second}"), "have addresses in common"),
        (BUS.repeat(65), "there are 65 links"),
    ] {
        let why = site(&links).expect_err(said);
        assert!(why.contains(said), "{said}: {why}");
    }
}

#[test]
fn what_gets_over_a_link_and_then_by_a_guard_is_an_exception_that_nobody_declared() {
    let guard = |name: &str, from: &str, to: &str, filter: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nkind = \"guard\"\nfrom = \"{from}\"\nto = \"{to}\"\nfilter = \"{filter}\"\nmessages = \"10 in 60s\"\n"
        )
    };
    // SECRET to CONFIDENTIAL by one guard, over a link, to UNCLASSIFIED by another.
    let more = partition("mid", "CONFIDENTIAL")
        + &partition("next", "CONFIDENTIAL")
        + &partition("filter1", "SECRET")
        + &partition("filter2", "CONFIDENTIAL")
        + &guard("down1", "front", "mid", "filter1")
        + &guard("down2", "next", "low", "filter2");
    site(&more).unwrap();
    let link = BUS.replace("\"front\", \"desk\"", "\"mid\", \"next\"");
    let why = site(&(more.clone() + &link)).expect_err("two guards one behind the other");
    assert!(
        why.contains(
            "front (SECRET) -[down1]-> mid (CONFIDENTIAL) -[bus]-> next (CONFIDENTIAL) -[down2]-> low"
        ),
        "{why}"
    );
    // A filter has to do with nothing but its guard.
    let link = BUS.replace("desk", "filter1");
    let why = site(&(more + &link)).expect_err("a filter with a link");
    assert!(why.contains("another channel or link"), "{why}");
}
