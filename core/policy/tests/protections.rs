//! Protections: what is asked for is had or the session is not; and what a site may say of them.

use levee_policy::site::{Cipher, Placed, Protected};
use levee_policy::{DenialKind, LabelName, Site};
use std::time::Duration;

const BASE: &str = include_str!("../../../conf/small/site.toml");
const SOME: &str = r#"
[[posture]]
name = "gcm"
ciphers = ["aes-256-gcm", "aes-128-gcm"]
[[posture]]
name = "weak"
ciphers = ["aes-128-gcm"]
[[protection]]
name = "strong"
ciphers = ["chacha20-poly1305", "aes-256-gcm"]
key-life = "10m"
[[protection]]
name = "quiet"
labels = ["SECRET..SECRET//NATO,MED"]
key-life = "5m"
constant-rate = true
[[protection]]
name = "other"
ciphers = ["chacha20-poly1305"]
[[service]]
name = "orders"
port = 8080
protocol = "tcp"
range = "SECRET//NATO..SECRET//NATO,MED"
mode = "direct"
program = "nginx"
protection = "strong"
"#;

fn site(more: &str) -> Site {
    Site::parse(&format!("{BASE}{SOME}{more}")).unwrap()
}

fn protected(
    site: &Site,
    label: &str,
    asked: Option<&str>,
    posture: Option<&str>,
) -> Result<Protected, DenialKind> {
    let (user, host) = ("ada".parse().unwrap(), "ws1".parse().unwrap());
    let (label, asked) = (LabelName::new(label).unwrap(), asked.map(|name| name.parse().unwrap()));
    let posture = posture.map(|name| site.postures().iter().find(|one| one.name().as_str() == name).unwrap());
    let grant = site.decide_protected_session(&user, &host, &label, asked.as_ref(), posture);
    grant.map(|grant| grant.action().protected().clone()).map_err(|denial| denial.kind())
}

/// The problems of a site file with this at its end.
fn problems(more: &str) -> String {
    let problems = Site::parse(&format!("{BASE}{more}")).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_a_person_and_services_ask_for_counts_together() {
    let (site, all) = (site(""), [Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305]);
    assert_eq!(protected(&site, "SECRET", None, None), Ok(Protected::default()));
    let strong = protected(&site, "SECRET", Some("strong"), None).unwrap();
    assert_eq!(strong.words(), "strong");
    assert_eq!(strong.ciphers, Some(vec![Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm]));
    assert_eq!((strong.key_life, strong.interval), (Some(Duration::from_secs(600)), None));
    // The label's order counts, and what a posture has left.
    assert_eq!(strong.among(&all), [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305]);

    // Nobody asked but the service.
    assert_eq!(protected(&site, "SECRET//NATO", None, None), Ok(strong.clone()));
    let both = protected(&site, "SECRET//NATO", Some("quiet"), None).unwrap();
    assert_eq!(both.words(), "quiet and strong");
    assert_eq!(both.ciphers, strong.ciphers);
    assert_eq!(
        (both.key_life, both.interval),
        (Some(Duration::from_secs(300)), Some(Duration::from_millis(4)))
    );
    let narrow = protected(&site, "SECRET//NATO", Some("other"), None).unwrap();
    assert_eq!(narrow.ciphers, Some(vec![Cipher::ChaCha20Poly1305]));
}

#[test]
fn what_cannot_be_had_is_denied_and_nothing_less_is_granted() {
    let site = site("");
    for (label, asked, posture) in [
        ("SECRET", Some("stronger"), Some("gcm")),
        // Not at this label.
        ("CONFIDENTIAL", Some("quiet"), Some("gcm")),
        // Not now.
        ("SECRET", Some("other"), Some("gcm")),
        // A service wants it, whatever the person asks.
        ("SECRET//NATO", None, Some("weak")),
    ] {
        assert_eq!(
            protected(&site, label, asked, posture),
            Err(DenialKind::NotProtected),
            "{label} {asked:?}"
        );
    }
    // The person's clearance comes first: who may not be there is not told what can be had.
    let (user, host) = ("ugo".parse().unwrap(), "ws1".parse().unwrap());
    let (label, asked) = (LabelName::new("SECRET").unwrap(), "stronger".parse().unwrap());
    let denied = site.decide_protected_session(&user, &host, &label, Some(&asked), None).unwrap_err();
    assert_eq!(denied.kind(), DenialKind::NotCleared);
}

#[test]
fn what_asks_for_nothing_more_or_cannot_be_had_is_a_problem_of_the_site() {
    let one = |keys: &str| format!("\n[[protection]]\nname = \"strong\"\n{keys}\n");
    let with = |keys: &str, vault: &str| {
        let base = BASE.replace("workers = 1 ", &format!("{vault} "));
        let problems = Site::parse(&format!("{base}{}", one(keys))).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(problems(&one("")).contains("asks for nothing that not every tunnel has"));
    let all = "ciphers = [\"aes-128-gcm\", \"aes-256-gcm\", \"chacha20-poly1305\"]";
    assert!(problems(&one(all)).contains("asks for nothing"));
    assert!(problems(&one("constant-rate = false")).contains("asks for nothing"));
    assert!(problems(&one("ciphers = []")).contains("a protection without a cipher lets nothing pass"));
    assert!(problems(&one("key-life = \"2h\"")).contains("1h"));
    assert!(problems(&format!("{0}{0}", one("key-life = \"5m\""))).contains("two protections `strong`"));
    assert!(with("constant-rate = true", "workers = 2").contains("a rate of its own"));
    let base = BASE.replace("agree = []", "agree = [\"SECRET\"]");
    assert!(Site::parse(&format!("{base}{}", one("key-life = \"5m\""))).is_ok());
    let problems_of = Site::parse(&format!("{base}{}", one("constant-rate = true"))).unwrap_err();
    assert!(problems_of.iter().any(|problem| problem.to_string().contains("stacks that must agree")));
    // A posture with a constant rate, likewise.
    let even = "[[posture]]\nname = \"even\"\nconstant-rate = true\n";
    assert!(Site::parse(&format!("{BASE}{even}")).is_ok());
    for (base, why) in [
        (base, "stacks that must agree"),
        (BASE.replace("workers = 1 ", "workers = 2 "), "a rate of its own"),
        (BASE.replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]"), "whose datagrams have no room"),
    ] {
        let problems = Site::parse(&format!("{base}{even}")).unwrap_err();
        assert!(problems.iter().any(|problem| problem.to_string().contains(why)), "{why}: {problems:?}");
    }
    let service = |range: &str, name: &str, port: u16, protection: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"{range}\"\nmode = \"direct\"\n\
             program = \"nginx\"\nprotection = \"{protection}\"\n"
        )
    };
    let strong = one("key-life = \"5m\"");
    let unknown = problems(&format!("{strong}{}", service("SECRET", "orders", 8_080, "stong")));
    assert!(
        unknown.contains("`stong` is no protection of the site") && unknown.contains("`strong`"),
        "{unknown}"
    );
    let narrow = one("key-life = \"5m\"\nlabels = [\"SECRET\"]");
    let beyond = problems(&format!("{narrow}{}", service("CONFIDENTIAL..SECRET", "orders", 8_080, "strong")));
    assert!(beyond.contains("where protection `strong` is not"), "{beyond}");
    let two = "[[protection]]\nname = \"a\"\nciphers = [\"aes-256-gcm\"]\n[[protection]]\nname = \"b\"\nciphers = [\"chacha20-poly1305\"]\n";
    let clash = problems(&format!(
        "\n{two}{}{}",
        service("SECRET", "orders", 8_080, "a"),
        service("CONFIDENTIAL..SECRET", "charts", 8_081, "b")
    ));
    assert!(clash.contains("no cipher in common"), "{clash}");
}

#[test]
fn a_posture_that_needs_two_layers_lets_hosts_have_sessions_that_have_them() {
    let with = |site: &str, more: &str| Site::parse(&format!("{site}{more}"));
    let host = |layers: &str| BASE.replace("name = \"ws1\"", &format!("name = \"ws1\"\nlayers = {layers}"));
    let needs =
        "\n[[posture]]\nname = \"sealed\"\nlabels = [\"CONFIDENTIAL\"]\nlayers = [\"esp\", \"quic\"]\n";
    let two = "[\"esp\", \"quic\"]";
    let site = with(&host(two), needs).unwrap();
    let [ws1, ws2] = ["ws1", "ws2"].map(|name| site.host(&name.parse().unwrap()).unwrap().is_layered());
    assert_eq!((ws1, ws2, site.is_layered(&"ws9".parse().unwrap())), (true, false, true));
    let vault = site.vault();
    assert!(vault.has_second_tunnel() && vault.has_layer_beside() && !vault.is_layered());
    assert_eq!(vault.inner_mtu(&site.label(&LabelName::new("CONFIDENTIAL").unwrap()).unwrap()), 1_280);
    let decide = |site: &Site, host: &str, label: &str| {
        let (user, host, label) =
            ("ada".parse().unwrap(), host.parse().unwrap(), LabelName::new(label).unwrap());
        let in_force = [Placed::everywhere(site.postures()[0].name().clone())];
        let posture = site.posture_at(&site.label(&label).unwrap(), in_force.iter());
        let decided = site.decide_protected_session(&user, &host, &label, None, posture);
        decided.map(drop).map_err(|denial| (denial.kind(), denial.reason().to_owned()))
    };
    assert_eq!(decide(&site, "ws1", "CONFIDENTIAL"), Ok(()));
    let (kind, why) = decide(&site, "ws2", "CONFIDENTIAL").unwrap_err();
    assert_eq!(kind, DenialKind::Posture);
    assert!(
        why.contains("`sealed` needs the layers esp and quic at CONFIDENTIAL") && why.contains("`ws2`"),
        "{why}"
    );
    // At other labels it says nothing; and where all have two layers all are let.
    assert_eq!(decide(&site, "ws2", "UNCLASSIFIED"), Ok(()));
    let all = BASE.replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]");
    let all = with(&all, needs).unwrap();
    assert_eq!((decide(&all, "ws1", "CONFIDENTIAL"), decide(&all, "ws2", "CONFIDENTIAL")), (Ok(()), Ok(())));
    assert!(all.vault().is_layered() && !all.vault().has_layer_beside());

    let refused = |site: &str, more: &str| {
        let problems = with(site, more).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let less = BASE.replace("layers = [\"esp\"]", "layers = [\"esp\", \"quic\"]");
    let less = less.replace("name = \"ws1\"", "name = \"ws1\"\nlayers = [\"esp\"]");
    for (site, more, why) in [
        (BASE.to_owned(), needs, "no host has a second tunnel"),
        (host(two), "[[posture]]\nname = \"a\"\nlayers = [\"esp\"]\n", "takes no layer away"),
        (host("[\"quic\"]"), "", "the innermost first"),
        (less, "", "a host has no less than that"),
        (
            host(two),
            "[[posture]]\nname = \"a\"\nconstant-rate = true\n",
            "no room for packets of a constant rate",
        ),
        (host(two), "[[posture]]\nname = \"a\"\nagree = true\n", "some hosts have a second tunnel"),
        (host(two).replace("agree = []", "agree = [\"SECRET\"]"), "", "goes with neither `agree` nor"),
        (
            host(two).replace("constant-rate = []", "constant-rate = [\"SECRET\"]"),
            "",
            "goes with neither `agree` nor",
        ),
        (host(two).replace("aggfrag = []", "aggfrag = [\"SECRET\"]"), "", "goes with neither `agree` nor"),
        (host(two).replace("\"10.77.0.1\"", "\"127.0.0.1\""), "", "the server has a loopback address"),
    ] {
        let problems = refused(&site, more);
        assert!(problems.contains(why), "{why}: {problems}");
    }
}

#[test]
fn a_posture_asks_for_no_vault_that_cannot_be() {
    let site = |vault: (&str, &str), more: &str| {
        Site::parse(&format!("{}{more}", BASE.replace(vault.0, vault.1).replace("poll = \"0us\"", "")))
    };
    let posture =
        |keys: &str| format!("\n[[posture]]\nname = \"a\"\nlabels = [\"CONFIDENTIAL..SECRET\"]\n{keys}\n");
    let even = "\n[[protection]]\nname = \"even\"\nconstant-rate = true\n";
    let has = |key: &str| (format!("{key} = []"), format!("{key} = [\"SECRET\"]"));
    let (agree, aggfrag, constant) = (has("agree"), has("aggfrag"), has("constant-rate"));
    let none = (String::new(), String::new());
    let workers = ("workers = 1 ".to_owned(), "workers = 2 ".to_owned());
    let quic = ("layers = [\"esp\"]".to_owned(), "layers = [\"esp\", \"quic\"]".to_owned());
    let (no_rate, no_pieces) = ("know no constant rate", "know no AGGFRAG");
    for (vault, keys, why) in [
        (&agree, "constant-rate = true", no_rate),
        (&none, "constant-rate = true\nagree = true", no_rate),
        (&aggfrag, "agree = true", no_pieces),
        (&constant, "agree = true", no_pieces),
        (&agree, "aggfrag = true", no_pieces),
        (&none, "aggfrag = true\nagree = true", no_pieces),
        (&quic, "aggfrag = true", "have no room for AGGFRAG payloads"),
        (&workers, "constant-rate = true", "are several, each with a rate of its own"),
        (&constant, "workers = 2", "a rate of its own"),
        (&none, "workers = 2\nconstant-rate = true", "a rate of its own"),
        (&none, "agree = true\naead = \"ring\"", "leaves neither `aead` nor"),
        (&none, "agree = true\nworkers = 1", "leaves neither `aead` nor"),
        (&agree, "poll = \"1ms\"", "leaves neither `aead` nor"),
        (&none, "workers = 17", "`workers` is 17"),
        (&none, "aggfrag = false", "a posture takes no AGGFRAG away"),
        (&none, "agree = false", "a posture takes no stack away"),
        (&none, "aead = \"rnig\"", "did you mean `ring`?"),
        (&none, "poll = \"1s\"", "`1s` is not a valid poll"),
    ] {
        let problems = site((&vault.0, &vault.1), &posture(keys)).unwrap_err();
        assert!(problems.iter().any(|one| one.to_string().contains(why)), "{why}: {problems:?}");
        // At other labels it is no matter what these have.
        let elsewhere = posture(keys).replace("CONFIDENTIAL..SECRET", "UNCLASSIFIED");
        let is_apart = site((&vault.0, &vault.1), &elsewhere).is_ok();
        assert_eq!(is_apart, [&agree, &aggfrag, &constant].contains(&vault), "{keys}");
    }
    for (keys, why) in [("agree = true", no_pieces), ("workers = 2", "a rate of its own")] {
        let asked = site(("", ""), &format!("{even}{}", posture(keys))).unwrap_err();
        assert!(asked.iter().any(|one| one.to_string().contains(why)), "{asked:?}");
    }
    for keys in [
        "agree = true\nciphers = [\"aes-128-gcm\"]",
        "aead = \"ring\"\npoll = \"1ms\"",
        "workers = 1\nconstant-rate = true",
        "workers = 16\naggfrag = true",
    ] {
        assert!(site(("", ""), &posture(keys)).is_ok(), "{keys}");
    }
    assert!(site((&workers.0, &workers.1), &posture("agree = true")).is_ok(), "a gate is one");
}

#[test]
fn how_packets_go_is_said_by_label_protection_and_posture_and_a_constant_rate_comes_first() {
    let base = BASE.replace("constant-rate = []", "constant-rate = [\"SECRET\"]");
    let base = base.replace("aggfrag = []", "aggfrag = [\"CONFIDENTIAL\"]");
    let postures =
        "\n[[posture]]\nname = \"a\"\naggfrag = true\n[[posture]]\nname = \"b\"\nconstant-rate = true\n";
    let site = Site::parse(&format!("{base}{postures}")).unwrap();
    let [packed, even] = site.postures() else { panic!("two postures") };
    let asked = Protected { interval: Some(Duration::from_millis(4)), ..Protected::default() };
    let at = |name: &str, asked: &Protected, posture| {
        let tunnel = site.protected_under(&site.vocabulary().parse(name).unwrap(), asked, posture);
        (tunnel.interval.is_some(), tunnel.aggfrag)
    };
    let (each, in_pieces, at_a_rate) = ((false, false), (false, true), (true, false));
    for (label, none, under_packed) in [
        ("UNCLASSIFIED", each, in_pieces),
        ("CONFIDENTIAL", in_pieces, in_pieces),
        ("SECRET", at_a_rate, at_a_rate),
    ] {
        let of = |posture| at(label, &Protected::default(), posture);
        assert_eq!((of(None), of(Some(packed)), of(Some(even))), (none, under_packed, at_a_rate), "{label}");
        assert_eq!(at(label, &asked, Some(packed)), at_a_rate, "{label}");
    }
}

#[test]
fn a_label_has_slots_for_the_most_workers_that_any_posture_gives_it() {
    let base = BASE.replace("workers = 1 ", "workers = 2 ").replace("agree = []", "agree = [\"SECRET\"]");
    let site = Site::parse(&format!(
        "{base}\n[[posture]]\nname = \"many\"\nlabels = [\"CONFIDENTIAL\"]\nworkers = 5\n\
         [[posture]]\nname = \"few\"\nlabels = [\"CONFIDENTIAL\", \"UNCLASSIFIED\"]\nworkers = 1\n"
    ))
    .unwrap();
    let [many, few] = site.postures() else { panic!("two postures") };
    let at = |name: &str| {
        let label = site.vocabulary().parse(name).unwrap();
        let workers = |posture| site.vault_under(&label, posture).workers();
        (site.slots_at(&label), workers(None), workers(Some(many)), workers(Some(few)))
    };
    assert_eq!(at("CONFIDENTIAL"), (5, 2, 5, 1));
    assert_eq!((at("UNCLASSIFIED").0, at("UNCLASSIFIED").3), (2, 1));
    assert_eq!(at("SECRET").0, 1, "where two stacks must agree there is one gate");
}

#[test]
fn who_is_not_of_a_posture_has_no_session_while_it_counts_and_clearance_comes_first() {
    let site = site(
        "[[posture]]\nname = \"few\"\nlabels = [\"CONFIDENTIAL\"]\npeople = [\"ada\"]\nhosts = [\"ws1\"]\n[[posture]]\nname = \"nobody\"\npeople = []\n[[posture]]\nname = \"mia\"\npeople = [\"mia\"]\n",
    );
    let decide = |user: &str, host: &str, label: &str, in_force: &[&str]| {
        let placed: Vec<Placed> =
            in_force.iter().map(|name| Placed::everywhere(name.parse().unwrap())).collect();
        let label = LabelName::new(label).unwrap();
        let posture = site.posture_at(&site.label(&label).unwrap(), placed.iter());
        let (user, host) = (user.parse().unwrap(), host.parse().unwrap());
        site.decide_protected_session(&user, &host, &label, None, posture).map(|_| ()).map_err(|d| d.kind())
    };
    let (no, few, nobody) = (Err(DenialKind::Posture), &["few"][..], &["nobody"][..]);
    for (user, host, label, in_force, expected) in [
        ("ada", "ws2", "CONFIDENTIAL", &[][..], Ok(())),
        ("ada", "ws1", "CONFIDENTIAL", few, Ok(())),
        ("ada", "ws2", "CONFIDENTIAL", few, no),
        // At other labels it says nothing.
        ("ada", "ws2", "UNCLASSIFIED", few, Ok(())),
        ("ada", "ws1", "CONFIDENTIAL", nobody, no),
        // The last that names the label counts, wholly.
        ("ada", "ws1", "CONFIDENTIAL", &["nobody", "few"], Ok(())),
        ("ada", "ws1", "UNCLASSIFIED", &["nobody", "few"], no),
        ("ada", "ws1", "CONFIDENTIAL", &["few", "nobody"], no),
        // What a site does not have any more says nothing.
        ("ada", "ws2", "CONFIDENTIAL", &["gone"], Ok(())),
        ("mia", "ws2", "CONFIDENTIAL//MED", &["mia"], Ok(())),
        ("ada", "ws2", "CONFIDENTIAL//MED", &["mia"], no),
        // Who may not be there is not told of postures.
        ("ugo", "ws1", "CONFIDENTIAL", nobody, Err(DenialKind::NotCleared)),
    ] {
        assert_eq!(decide(user, host, label, in_force), expected, "{user} {host} {label} {in_force:?}");
    }
    // Nothing of the ciphers is said, so nothing changes there.
    let few = site.postures().iter().find(|one| one.name().as_str() == "few");
    assert_eq!(site.ciphers_under(few), site.ciphers_under(None));
}
