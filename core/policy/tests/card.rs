//! `[[network]]` with `partition`, and what a `[[link]]` forwards: which ways to the outside a site may give its partitions.

use levee_policy::Site;
use levee_policy::site::Protocol;

const SOUND: &str = include_str!("../../../conf/small/site.toml");
const CARD: &str = "[[network]]\ninterface = \"eth5\"\nlabel = \"SECRET\"\npartition = \"front\"\naddress = [\"192.168.5.1/24\", \"fd05::1/64\"]\n\
                    ports = [{ port = 80, protocol = \"tcp\" }]\nhosts = [{ address = \"192.168.5.9\", port = 53, protocol = \"udp\" }]\n";
const BUS: &str = "[[link]]\nname = \"bus\"\nbetween = [\"desk\", \"front\"]\naddresses = [\"10.9.0.1/30\", \"10.9.0.2/30\"]\n\
                   ports = [{ port = 25, protocol = \"tcp\" }]\nhosts = [{ address = \"192.168.5.8\", port = 8080, protocol = \"tcp\" }]\n";

fn partition(name: &str, label: &str) -> String {
    format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\n")
}

fn site(more: &str) -> Result<Site, String> {
    let all = partition("front", "SECRET") + &partition("desk", "SECRET") + &partition("low", "UNCLASSIFIED");
    Site::parse(&format!("{SOUND}\n{all}{more}"))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_partitions_network_is_its_own_and_no_sessions_and_a_link_forwards_what_it_lists() {
    let site = site(&format!("{CARD}{BUS}")).unwrap();
    let front = site.partitions()[0].name();
    let [network] = site.networks_of(front).collect::<Vec<_>>()[..] else { panic!("one network") };
    assert_eq!(network.partition(), Some(front));
    assert_eq!(network.ports(), [(Protocol::Tcp, 80)]);
    let label = network.labels().low();
    assert_eq!(site.networks_at(label).count(), 0, "the compartment of the label has it, too");
    assert!(site.reachable(label).iter().all(|reach| !reach.address.to_string().starts_with("192.168.5.")));
    // `front` is the link's second end.
    assert_eq!(site.forwarder(&site.links()[0]), Some(1));
    assert_eq!(site.links()[0].ports(), [(Protocol::Tcp, 25)]);
    let plain = BUS.lines().take(4).map(|line| format!("{line}\n")).collect::<String>();
    let site = self::site(&format!("{CARD}{plain}")).unwrap();
    assert_eq!(site.forwarder(&site.links()[0]), None, "nothing is listed");
}

#[test]
fn what_gives_a_partition_no_network_of_its_own_is_refused() {
    let second = CARD.replace("192.168.5", "192.168.6").replace("fd05", "fd06");
    let both = CARD.to_owned() + BUS;
    for (more, said) in [
        (second.clone() + CARD, "a second interface `eth5`"),
        (CARD.replace("SECRET", "CONFIDENTIAL"), "and its partition `front` at SECRET"),
        (CARD.replace("\"front\"", "\"fronts\""), "did you mean `front`"),
        (CARD.replace("partition = \"front\"\n", ""), "has `ports` and no partition"),
        (CARD.replace("ports =", "services = [\"web\"]\nports ="), "and not in a partition"),
        (CARD.replace("5.9\"", "6.9\""), "192.168.6.9 is not on this network"),
        (CARD.replace("[{ port = 80", "[{ port = 80, protocol = \"tcp\" }, { port = 80"), "stands twice"),
        (BUS.to_owned(), "neither has a network"),
        (
            both.clone() + &second.replace("eth5", "eth6").replace("\"front\"", "\"desk\""),
            "each has a network of its own",
        ),
        (both.replace("5.8\"", "6.8\""), "192.168.6.8 is on no network of `front`"),
        (both.replace("5.8\"", "5.1\""), "192.168.5.1 is the interface's own address"),
        (both.replace("port = 25", "port = 80"), "tcp port 80 of one partition's networks stands twice"),
        (both.replace("10.9.0", "192.168.5"), "share addresses"),
        (both.replace("\"bus\"", "\"eth5\""), "is an interface of a network of the same partition"),
        (
            both.replace("10.9.0.1/30", "fd09::1/64").replace("10.9.0.2/30", "fd09::2/64"),
            "that `bus` leads to",
        ),
    ] {
        let why = site(&more).expect_err(said);
        assert!(why.contains(said), "{said}: {why}");
    }
}

#[test]
fn what_leaves_by_one_partitions_network_may_come_back_by_anothers_at_that_label_and_the_flow_check_knows_it()
{
    let guard = |name: &str, from: &str, to: &str, filter: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nkind = \"guard\"\nfrom = \"{from}\"\nto = \"{to}\"\nfilter = \"{filter}\"\nmessages = \"10 in 60s\"\n"
        )
    };
    let card = |interface: &str, partition: &str| {
        format!(
            "[[network]]\ninterface = \"{interface}\"\nlabel = \"CONFIDENTIAL\"\npartition = \"{partition}\"\naddress = \"192.168.{}.1/24\"\n",
            interface.len()
        )
    };
    let more = partition("mid", "CONFIDENTIAL")
        + &partition("next", "CONFIDENTIAL")
        + &partition("filter1", "SECRET")
        + &partition("filter2", "CONFIDENTIAL")
        + &guard("down1", "front", "mid", "filter1")
        + &guard("down2", "next", "low", "filter2")
        + &card("eth5", "mid");
    site(&more).unwrap();
    let why = site(&(more.clone() + &card("eth66", "next"))).expect_err("two guards one behind the other");
    assert!(
        why.contains(
            "front (SECRET) -[down1]-> mid (CONFIDENTIAL) -[eth5]-> its network (CONFIDENTIAL) -[eth66]-> next (CONFIDENTIAL) -[down2]-> low"
        ),
        "{why}"
    );
    let why = site(&(more + &card("eth66", "filter2"))).expect_err("a filter with a network");
    assert!(why.contains("is the filter of a guard, and has a network"), "{why}");
}

#[test]
fn what_leaves_by_a_partitions_network_may_come_back_at_a_label_above_and_the_flow_check_knows_it() {
    let guard = |name: &str, from: &str, to: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nkind = \"guard\"\nfrom = \"{from}\"\nto = \"{to}\"\nfilter = \"{name}\"\nmessages = \"10 in 60s\"\n"
        )
    };
    let card = |interface: &str, label: &str, partition: &str| {
        format!(
            "[[network]]\ninterface = \"{interface}\"\nlabel = \"{label}\"\npartition = \"{partition}\"\naddress = \"192.168.{}.1/24\"\n",
            interface.len()
        )
    };
    let more = |above: &str| {
        partition("mid", "CONFIDENTIAL")
            + &partition("above", above)
            + &partition("down1", "SECRET")
            + &partition("down2", above)
            + &guard("down1", "front", "mid")
            + &guard("down2", "above", "low")
            + &card("eth5", "CONFIDENTIAL", "mid")
            + &card("eth66", above, "above")
    };
    let why =
        site(&more("CONFIDENTIAL//MED")).expect_err("two guards, and between them the lattice's own way");
    assert!(
        why.contains(
            "front (SECRET) -[down1]-> mid (CONFIDENTIAL) -[eth5]-> its network (CONFIDENTIAL) -[upward]-> \
             its network (CONFIDENTIAL//MED) -[eth66]-> above (CONFIDENTIAL//MED) -[down2]-> low"
        ),
        "{why}"
    );
    // From SECRET on it is what the second guard is declared for.
    site(&more("SECRET//MED")).unwrap();
}
