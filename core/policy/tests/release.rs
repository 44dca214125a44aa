//! `release` of a guard: who may be asked, and what their word is worth.

use levee_policy::decision::{DenialKind, Message, Release};
use levee_policy::{Grant, Site};

const SMALL: &str = include_str!("../../../conf/small/site.toml");
const PEOPLE: &str = "release = [\"ada\", \"mia\", \"ugo\"]\n";

/// The small site where everybody and both workstations have all labels, with a guard downwards.
fn site(more: &str) -> Result<Site, String> {
    let small = SMALL
        .replace("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED..SECRET//NATO,MED\"")
        .replace("\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", "\"UNCLASSIFIED..SECRET//NATO,MED\"")
        .replace("clearance = \"UNCLASSIFIED\"", "clearance = \"UNCLASSIFIED..SECRET\"");
    let partition = |name, label| {
        format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\n")
    };
    let parts =
        ["high", "filter"].map(|name| partition(name, "SECRET")).concat() + &partition("low", "UNCLASSIFIED");
    let guard = "[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"high\"\nto = \"low\"\nfilter = \"filter\"\nmessages = \"10 in 60s\"\n";
    Site::parse(&format!("{small}\n{parts}{guard}{more}"))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn message(of: u8) -> Message {
    Message { channel: "down".parse().unwrap(), digest: [of; 32], octets: 9 }
}

fn word(site: &Site, user: &str, host: &str, message: &Message) -> Result<Grant<Release>, DenialKind> {
    at(site, user, host, "SECRET", message)
}

fn at(site: &Site, user: &str, host: &str, label: &str, of: &Message) -> Result<Grant<Release>, DenialKind> {
    let (user, host) = (user.parse().unwrap(), host.parse().unwrap());
    let session = site.decide_session(&user, &host, &label.parse().unwrap()).unwrap();
    site.decide_release(&session, of).map_err(|denial| denial.kind())
}

#[test]
fn a_message_passes_by_the_word_of_two_people_at_two_workstations_for_this_very_message() {
    let site = site(PEOPLE).unwrap();
    let it = message(1);
    let word = |user, host| word(&site, user, host, &it).unwrap();
    let pass = site.decide_pass(it.clone(), vec![word("ada", "ws1"), word("ugo", "ws2")]).unwrap();
    assert_eq!(pass.action().message(), &it);
    let said = &pass.audit().reason;
    assert!(said.contains("released by `ada` at ws1 and `ugo` at ws2"), "{said}");
    assert!(said.contains("9 octets from SECRET to UNCLASSIFIED, SHA-256 0101"), "{said}");
    let other = message(2);
    let for_other = at(&site, "ugo", "ws2", "SECRET", &other).unwrap();
    for (words, what) in [
        (vec![], "nobody's"),
        (vec![word("ada", "ws1")], "one person's"),
        (vec![word("ada", "ws1"), word("ada", "ws2")], "one person's, twice"),
        (vec![word("ada", "ws1"), word("ugo", "ws1")], "two people's at one workstation"),
        (vec![word("ada", "ws1"), for_other], "one for another message"),
        (vec![word("ada", "ws1"), word("ugo", "ws2"), word("mia", "ws2")], "three"),
    ] {
        let denied = site.decide_pass(it.clone(), words).expect_err(what);
        assert_eq!(denied.kind(), DenialKind::NotReleased, "{what}");
    }
}

#[test]
fn nobody_is_asked_but_whom_the_site_names_and_in_a_session_at_the_writers_label() {
    let named = site("release = [\"ada\", \"mia\"]\n").unwrap();
    let it = message(1);
    assert_eq!(word(&named, "ugo", "ws1", &it).unwrap_err(), DenialKind::NotReleaser);
    for label in ["UNCLASSIFIED", "CONFIDENTIAL"] {
        assert_eq!(at(&named, "ada", "ws1", label, &it).unwrap_err(), DenialKind::OtherLabel);
    }
    let unknown = Message { channel: "up".parse().unwrap(), ..it.clone() };
    assert_eq!(word(&named, "ada", "ws1", &unknown).unwrap_err(), DenialKind::UnknownChannel);
    assert_eq!(named.decide_pass(unknown, vec![]).unwrap_err().kind(), DenialKind::UnknownChannel);
    // Where the site has nobody asked, there is nothing to release, and the filter's word is enough.
    let alone = site("").unwrap();
    assert_eq!(word(&alone, "ada", "ws1", &it).unwrap_err(), DenialKind::UnknownChannel);
    assert!(alone.decide_pass(it, vec![]).unwrap().audit().reason.ends_with("let through by its filter"));
}

#[test]
fn people_who_cannot_release_are_no_people_who_release() {
    let guard = |more: &str| site(more).unwrap().channels()[0].guard().unwrap().clone();
    assert!(guard("").release().is_none());
    assert_eq!(guard(PEOPLE).release().unwrap().within().as_secs(), 3_600);
    let ten = guard("release = [\"ada\", \"mia\"]\nrelease-within = \"10m\"\n");
    assert_eq!(ten.release().unwrap().within().as_secs(), 600);
    for (keys, said) in [
        ("release = []\n", "0 of the site's people"),
        ("release = [\"ada\"]\n", "1 of the site's people"),
        ("release = [\"ada\", \"ada\"]\n", "`ada` is named twice"),
        ("release = [\"ada\", \"mio\"]\n", "did you mean `mia`"),
        ("release = [\"ada\", \"Mia\"]\n", "not a valid user name"),
        ("release = \"ada\"\n", "a list in brackets"),
        ("release-within = \"10m\"\n", "nobody releases"),
        ("release = [\"ada\", \"mia\"]\nrelease-within = \"5s\"\n", "10s"),
        ("release = [\"ada\", \"mia\"]\nrelease-within = \"25h\"\n", "24h"),
    ] {
        let why = site(keys).expect_err(keys);
        assert!(why.contains(said), "{keys}: {why}");
    }
    let oneway = "[[channel]]\nname = \"up\"\nkind = \"oneway\"\nfrom = \"low\"\nto = \"high\"\n";
    let why = site(&format!("{oneway}{PEOPLE}")).expect_err("no guard");
    assert!(why.contains("only a guard has `release`"), "{why}");
    // As it is shipped, neither mia nor a second workstation has SECRET.
    let parts = "[[partition]]\nname = \"high\"\nlabel = \"SECRET\"\ncommand = [\"/x\"]\n[[partition]]\nname = \"filter\"\nlabel = \"SECRET\"\ncommand = [\"/x\"]\n[[partition]]\nname = \"low\"\nlabel = \"UNCLASSIFIED\"\ncommand = [\"/x\"]\n[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"high\"\nto = \"low\"\nfilter = \"filter\"\nmessages = \"10 in 60s\"\nrelease = [\"ada\", \"mia\"]\n";
    let why = Site::parse(&format!("{SMALL}\n{parts}")).expect_err("not cleared");
    let why: Vec<_> = why.iter().map(ToString::to_string).collect();
    assert!(why.iter().any(|why| why.contains("`mia` is not cleared for SECRET")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("fewer than two workstations are accredited")), "{why:?}");
}
