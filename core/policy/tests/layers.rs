//! Which shared parts make one layer of two, and where the second one may end.

use levee_policy::Site;
use levee_policy::layers::{Evidence, Judgement, Layer, Line, Part, Rule, Seen, judge};
use levee_policy::site::Problem;
use std::net::IpAddr;

/// Two layers that share nothing of this.
fn two(seen: Seen) -> [Layer; 2] {
    let layer = |name: &str| {
        let mut layer = Layer::default();
        for part in Part::ALL {
            layer.add(part, Evidence::found([format!("{name}'s {part}")], name, seen));
        }
        layer
    };
    [layer("esp"), layer("quic")]
}

fn of(lines: &[Line], part: Part) -> &Line {
    lines.iter().find(|line| line.part == part).expect("a line for each part")
}

#[test]
fn layers_that_share_nothing_are_two_by_what_was_seen() {
    for (seen, verdict) in [(Seen::Running, Judgement::Proved), (Seen::OnDisk, Judgement::Assessed)] {
        let [esp, quic] = two(seen);
        let lines = judge(&esp, &quic);
        assert_eq!(lines.len(), Part::ALL.len());
        assert!(lines.iter().all(|line| line.verdict == verdict && !line.refuses()), "{lines:?}");
    }
}

#[test]
fn each_part_that_both_have_is_told_with_where_and_refused_or_warned_of_by_its_rule() {
    for part in Part::ALL {
        let [mut esp, mut quic] = two(Seen::Running);
        esp.add(part, Evidence::found(["the same"], "levee-vault", Seen::Running));
        quic.add(part, Evidence::found(["the same"], "levee-layer", Seen::Running));
        let lines = judge(&esp, &quic);
        let line = of(&lines, part);
        assert_eq!((line.verdict, line.refuses()), (Judgement::Unmet, part.rule() == Rule::Refused));
        assert_eq!(line.evidence, "both have the same (levee-vault; levee-layer)");
        assert_eq!(lines.iter().filter(|line| line.verdict == Judgement::Unmet).count(), 1, "{part}");
    }
}

#[test]
fn what_is_unknown_of_either_counts_as_shared() {
    for part in Part::ALL {
        for which in 0..2 {
            let mut layers = two(Seen::Running);
            layers[which].add(part, Evidence::Unknown("no symbols".into()));
            // What is known besides changes nothing.
            layers[which].add(part, Evidence::found(["more"], "elsewhere", Seen::Running));
            let lines = judge(&layers[0], &layers[1]);
            assert_eq!(of(&lines, part).verdict, Judgement::Unmet, "{part}");
            assert!(of(&lines, part).evidence.contains("no symbols"));
        }
    }
    // Nothing at all is nothing known, and so is a list of nothing.
    assert!(judge(&Layer::default(), &Layer::default()).iter().all(|line| line.verdict == Judgement::Unmet));
    let [mut esp, quic] = [Layer::default(), two(Seen::Running)[1].clone()];
    Part::ALL.into_iter().for_each(|part| esp.add(part, Evidence::found([""; 0], "", Seen::Running)));
    assert!(judge(&esp, &quic).iter().all(|line| line.verdict == Judgement::Unmet));
}

#[test]
fn what_cannot_be_otherwise_on_one_host_is_said_and_refuses_nothing() {
    let [mut esp, mut quic] = two(Seen::Running);
    for part in [Part::Kernel, Part::Processor, Part::Compiler] {
        assert_eq!(part.rule(), Rule::Allowed);
        esp.add(part, Evidence::found(["one"], "this host", Seen::Running));
        quic.add(part, Evidence::found(["one"], "this host", Seen::Running));
    }
    let lines = judge(&esp, &quic);
    assert!(!lines.iter().any(Line::refuses));
    assert_eq!(lines.iter().filter(|line| line.verdict == Judgement::Unmet).count(), 3);
}

#[test]
fn each_part_and_each_judgement_has_words_of_its_own() {
    let parts = "cryptographic library, authority, private key, type of key, store of private keys, process, uid, way in, cipher, \
                 key exchange, IP stack, host, operator, source of randomness, kernel, processor, compiler";
    assert_eq!(Part::ALL.map(|part| part.to_string()).join(", "), parts);
    let judgements = [Judgement::Proved, Judgement::Assessed, Judgement::Unmet];
    assert_eq!(judgements.map(Judgement::as_str), ["proved", "assessed", "unmet"]);
}

#[test]
fn what_each_layer_has_of_its_own_is_told_each_once_and_in_order() {
    let [mut esp, mut quic] = two(Seen::Running);
    esp.add(Part::Library, Evidence::found(["ring", "an older ring"], "levee-vault", Seen::Running));
    esp.add(Part::Library, Evidence::found(["ring"], "levee-keyer", Seen::Running));
    quic.add(Part::Library, Evidence::found(["aws-lc"], "levee-layer", Seen::Running));
    assert_eq!(
        of(&judge(&esp, &quic), Part::Library).evidence,
        "an older ring, esp's cryptographic library, ring within, aws-lc, quic's cryptographic library around"
    );
}

/// The example site with a second tunnel and this `[gateway]`.
fn with_gateway(keys: &str) -> Result<Site, String> {
    let site = include_str!("../../../conf/small/site.toml").replace("[\"esp\"]", "[\"esp\", \"quic\"]");
    let problems =
        |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    Site::parse(&format!("{site}\n[gateway]\n{keys}\n")).map_err(problems)
}

#[test]
fn a_gateway_is_another_host_than_the_server_with_an_address_of_its_own_towards_it() {
    let site = with_gateway("addresses = [\"192.0.2.1\", \"2001:db8::1\"]\ninside = \"10.78.0.2\"").unwrap();
    let gateway = site.gateway().unwrap();
    assert_eq!(gateway.addresses(), ["192.0.2.1", "2001:db8::1"].map(|one| one.parse::<IpAddr>().unwrap()));
    assert_eq!(gateway.inside(), "10.78.0.2".parse::<IpAddr>().unwrap());
    for (keys, why) in [
        ("addresses = [\"192.0.2.1\"]", "`inside`"),
        ("inside = \"10.78.0.2\"", "`addresses`"),
        ("addresses = []\ninside = \"10.78.0.2\"", "has no address"),
        ("addresses = [\"192.0.2.1\"]\ninside = \"192.0.2.1\"", "stands here twice"),
        ("addresses = [\"192.0.2.1\"]\ninside = \"10.77.0.1\"", "the server's address"),
        ("addresses = [\"10.77.0.1\"]\ninside = \"10.78.0.2\"", "the server's address"),
        ("addresses = [\"192.0.2.1\"]\ninside = \"127.0.0.2\"", "by which others reach a host"),
        ("addresses = [\"0.0.0.0\"]\ninside = \"10.78.0.2\"", "by which others reach a host"),
        ("addresses = [\"192.0.2.1\"]\ninside = \"2001:db8::2\"", "of the family"),
        ("addresses = [\"192.0.2.1\"]\ninside = \"10.78.0.2\"\nport = 1", "port"),
    ] {
        let problems = with_gateway(keys).unwrap_err();
        assert!(problems.contains(why), "{why}: {problems}");
    }
    // Without a second tunnel there is nothing to end there.
    let one = include_str!("../../../conf/small/site.toml").to_owned()
        + "\n[gateway]\naddresses = [\"192.0.2.1\"]\ninside = \"10.78.0.2\"\n";
    let problems = Site::parse(&one).unwrap_err();
    assert!(
        problems.iter().any(|problem| problem.to_string().contains("where the second tunnel ends")),
        "{problems:?}"
    );
}
