//! What the parts of a site are to each other: what one part says of another is told where it is wrong, and only there.

use levee_policy::{LabelName, Site};

const SMALL: &str = include_str!("../../../conf/small/site.toml");

fn read(text: &str) -> Result<Site, String> {
    Site::parse(text)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// The small site with some of its text replaced, and more at its end.
fn site(changes: &[(&str, &str)], more: &str) -> Result<Site, String> {
    let changed = changes.iter().fold(SMALL.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in the small site");
        text.replacen(from, to, 1)
    });
    read(&format!("{changed}\n{more}"))
}

/// That this is told, and nothing else.
#[track_caller]
fn told_alone(site: Result<Site, String>, said: &str) {
    let why = site.expect_err(said);
    assert!(why.contains(said) && why.lines().count() == 1, "{said}: {why}");
}

fn partition(name: &str, label: &str) -> String {
    format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\n")
}

fn network(interface: &str, label: &str, more: &str) -> String {
    let third = interface.bytes().last().unwrap();
    format!(
        "[[network]]\ninterface = \"{interface}\"\nlabel = \"{label}\"\naddress = \"192.168.{third}.1/24\"\n{more}\n"
    )
}

fn service(name: &str, port: u16, range: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"{range}\"\nmode = \"direct\"\ncommand = [\"/bin/x\"]\n"
    )
}

/// A label's name is as long as the range's longest level and all its categories make it.
#[test]
fn a_range_is_refused_where_its_longest_label_has_a_name_that_does_not_fit_and_is_told_how_long_that_is() {
    let name = |letter: char, length: usize| letter.to_string().repeat(length);
    let list =
        |names: &[String]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let levels = [name('a', 1), name('b', 23), name('c', 24)];
    let categories: Vec<String> = ('d'..='k').map(|letter| name(letter, 32)).collect();
    let trusts = [name('x', 1), name('y', 9), name('z', 2)];
    let kinds = [name('p', 5), name('q', 3)];
    let (mut taken, mut refused) = (0, 0);
    for with_integrity in [false, true] {
        let integrity =
            format!("integrity-levels = [{}]\nintegrity-categories = [{}]\n", list(&trusts), list(&kinds));
        let text = |clearance: &str| {
            let integrity = if with_integrity { integrity.as_str() } else { "" };
            format!(
                "[site]\nname = \"x\"\n[labels]\nlevels = [{}]\ncategories = [{}]\n{integrity}[server]\nname = \"s.example\"\n\
                 addresses = [\"192.0.2.1\"]\ninner-address = \"10.80.0.1\"\ninner-pool = \"10.80.1.0/24\"\n\
                 [[user]]\nname = \"u\"\nclearance = \"{clearance}\"\n",
                list(&levels),
                list(&categories)
            )
        };
        let some = |count: usize| {
            if count == 0 { String::new() } else { format!("//{}", categories[..count].join(",")) }
        };
        let bottom =
            if with_integrity { format!("@{}//{}", trusts[2], kinds.join(",")) } else { String::new() };
        for (low, high, count, least) in (0..3)
            .flat_map(|low| (low..3).map(move |high| (low, high)))
            .flat_map(|(low, high)| (5..=8).map(move |count| (low, high, count)))
            .flat_map(|(low, high, count)| (0..3).map(move |least| (low, high, count, least)))
        {
            let top = if with_integrity { format!("@{}", trusts[least]) } else { String::new() };
            let clearance = format!("{}{bottom}..{}{}{top}", levels[low], levels[high], some(count));
            // The names themselves, without what counts them.
            let level = (low..=high).map(|at| levels[at].len()).max().unwrap();
            let mut longest = level + 2 + categories[..count].join(",").len();
            if with_integrity {
                longest +=
                    1 + trusts[least..].iter().map(String::len).max().unwrap() + 2 + kinds.join(",").len();
            }
            let found = read(&text(&clearance));
            if longest <= LabelName::MAX {
                let site = found.unwrap_or_else(|why| panic!("{clearance}: {why}"));
                let range = site.users().next().unwrap().clearance().clone();
                // And every label of it does have one.
                let names = (range.labels(1 << 14))
                    .map(|all| all.map(|label| site.label_name(&label).unwrap().as_str().len()));
                assert_eq!(names.and_then(Iterator::max), Some(longest), "{clearance}");
                taken += 1;
            } else {
                let why = found.expect_err(&clearance);
                assert!(
                    why.contains(&format!("has a name of {longest} bytes, where 255 can be")),
                    "{longest}: {why}"
                );
                refused += 1;
            }
        }
    }
    assert!(taken > 20 && refused > 20, "{taken} {refused}");
}

#[test]
fn what_nobody_reaches_is_told_of_unless_who_might_could_not_be_read() {
    let narrow = [
        ("clearance = \"UNCLASSIFIED..SECRET//NATO,MED\"", "clearance = \"UNCLASSIFIED..SECRET\""),
        ("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED\""),
    ];
    let nato = service("nato", 99, "SECRET//NATO");
    told_alone(site(&narrow, &nato), "the service `nato` at SECRET//NATO is outside every clearance");
    // A network at its label reaches it, if it lists it.
    site(&narrow, &(nato.clone() + &network("eth1", "SECRET//NATO", "services = [\"nato\"]"))).unwrap();
    for other in ["", "services = [\"web\"]"] {
        told_alone(
            site(&narrow, &(nato.clone() + &network("eth1", "SECRET//NATO", other))),
            "the service `nato` at SECRET//NATO is outside every clearance",
        );
    }
    // So does a user, or a network, that has another fault: that one alone is told of.
    let unread = "[[user]]\nname = \"Eve\"\nclearance = \"SECRET//NATO\"\n";
    told_alone(site(&narrow, &(nato.clone() + unread)), "`Eve` is not a valid user name");
    let unread = network(
        "eth1",
        "SECRET//NATO",
        "services = [\"nato\"]\nhosts = [{ address = \"nowhere\", port = 1, protocol = \"tcp\" }]",
    );
    told_alone(site(&narrow, &(nato + &unread)), "`nowhere` is not a valid address");
}

#[test]
fn a_host_that_nobody_may_work_at_is_told_of_and_a_person_who_has_none() {
    let at = |label: &str| format!("[[host]]\nname = \"ws9\"\naccreditation = \"{label}\"\n");
    let users = [
        ("clearance = \"UNCLASSIFIED..SECRET//NATO,MED\"", "clearance = \"UNCLASSIFIED..SECRET\""),
        ("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED\""),
    ];
    site(&users, &at("SECRET..SECRET//NATO")).unwrap();
    let said = "no user is cleared for any label in the accreditation SECRET//NATO of `ws9`";
    told_alone(site(&users, &at("SECRET//NATO")), said);
    // Where a user could not be read it might be theirs, and where a host could not, that might be the person's.
    let unread = "[[user]]\nname = \"Eve\"\nclearance = \"SECRET//NATO\"\n";
    told_alone(site(&users, &(at("SECRET//NATO") + unread)), "`Eve` is not a valid user name");
    let person = "[[user]]\nname = \"eve\"\nclearance = \"SECRET//NATO\"\n";
    let hosts = [
        ("accreditation = \"UNCLASSIFIED..SECRET//NATO,MED\"", "accreditation = \"UNCLASSIFIED..SECRET\""),
        ("\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", "\"UNCLASSIFIED\""),
    ];
    told_alone(
        site(&hosts, person),
        "no host is accredited for any label in the clearance SECRET//NATO of `eve`",
    );
    let unread = at("SECRET//NATO").replace("ws9", "WS9");
    told_alone(site(&hosts, &(person.to_owned() + &unread)), "`WS9` is not a valid host name");
    // A site may be without either while it is being set up.
    let without = |what: &str| {
        let mut kept = String::new();
        let mut is_out = false;
        for line in SMALL.lines() {
            is_out = if line.starts_with('[') { line == what } else { is_out };
            if !is_out {
                kept += &format!("{line}\n");
            }
        }
        read(&kept)
    };
    without("[[host]]").unwrap();
    told_alone(without("[[user]]"), "is outside every clearance");
}

/// Nothing is said of what may have been lost with what is no TOML.
#[test]
fn where_the_file_is_broken_nothing_is_called_missing_or_out_of_reach() {
    let nato = service("nato", 99, "SECRET//NATO");
    let narrow = [
        ("clearance = \"UNCLASSIFIED..SECRET//NATO,MED\"", "clearance = \"UNCLASSIFIED..SECRET\""),
        ("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED\""),
    ];
    told_alone(site(&narrow, &format!("{nato}[[host]\n")), "this is not TOML");
}

#[test]
fn who_releases_needs_two_workstations_and_a_session_there_unless_some_could_not_be_read() {
    let parts = [("high", "SECRET"), ("filter", "SECRET"), ("low", "UNCLASSIFIED")];
    let parts = parts.map(|(name, label)| partition(name, label)).concat();
    let guard = "[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"high\"\nto = \"low\"\nfilter = \"filter\"\n\
                 messages = \"10 in 60s\"\nrelease = [\"ada\", \"mia\"]\n";
    let all = parts + guard;
    let mia = ("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED..SECRET\"");
    let ws2 = ("\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", "\"UNCLASSIFIED..SECRET\"");
    let nothing =
        ("range = \"UNCLASSIFIED..SECRET//NATO,MED\"", "range = \"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"");
    site(&[mia, ws2], &all).unwrap();
    let few = "fewer than two workstations are accredited for SECRET";
    told_alone(site(&[mia], &all), few);
    told_alone(
        site(&[mia, ws2, ("name = \"ws2\"", "name = \"WS2\"")], &all),
        "`WS2` is not a valid host name",
    );
    let nowhere = "nobody can have a session at SECRET, where messages are released";
    told_alone(site(&[mia, ws2, nothing], &all), nowhere);
    // A network of the compartment there can be reached, and a partition's cannot.
    site(&[mia, ws2, nothing], &(all.clone() + &network("eth1", "SECRET", ""))).unwrap();
    told_alone(site(&[mia, ws2, nothing], &(all.clone() + &network("eth1", "CONFIDENTIAL", ""))), nowhere);
    let owned = network("eth1", "SECRET", "partition = \"high\"");
    told_alone(site(&[mia, ws2, nothing], &(all.clone() + &owned)), nowhere);
    // Where one could not be read nothing is missing, and that alone is told.
    told_alone(
        site(&[mia, ws2, nothing], &(all.clone() + &service("Deep", 99, "SECRET"))),
        "`Deep` is not a valid service name",
    );
    let unread = network("eth1", "SECRET", "hosts = [{ address = \"x\", port = 1, protocol = \"tcp\" }]");
    told_alone(site(&[mia, ws2, nothing], &(all.clone() + &unread)), "`x` is not a valid address");
    // The label is that of the guard's writer, wherever that stands among the partitions.
    let nato = partition("other", "SECRET//NATO");
    site(&[mia, ws2], &(nato + &all)).unwrap();
}

#[test]
fn two_equal_networks_overlap_and_an_address_twice_is_told_once() {
    let net = |interface: &str, address: &str| {
        format!("[[network]]\ninterface = \"{interface}\"\nlabel = \"SECRET\"\naddress = \"{address}\"\n")
    };
    told_alone(
        site(&[], &net("eth1", "10.80.1.9/24")),
        "the network at `eth1` 10.80.1.0/24 overlaps the inner pool 10.80.1.0/24",
    );
    told_alone(
        site(&[], &(net("eth1", "192.168.1.1/24") + &net("eth2", "192.168.1.2/24"))),
        "the network at `eth2` 192.168.1.0/24 overlaps the network at `eth1` 192.168.1.0/24",
    );
    told_alone(
        site(&[("inner-address = \"10.80.0.1\"", "inner-address = \"10.77.0.1\"")], ""),
        "a second address `10.77.0.1`",
    );
}

#[test]
fn a_host_of_a_network_is_listed_once_for_each_port() {
    let hosts = |other: &str| {
        let one = "{ address = \"192.168.49.9\", port = 80, protocol = \"tcp\" }";
        network("eth1", "SECRET", &format!("hosts = [{one}, {other}]"))
    };
    told_alone(
        site(&[], &hosts("{ address = \"192.168.49.9\", port = 80, protocol = \"tcp\" }")),
        "this address, protocol and port stand twice",
    );
    for other in [
        "{ address = \"192.168.49.8\", port = 80, protocol = \"tcp\" }",
        "{ address = \"192.168.49.9\", port = 81, protocol = \"tcp\" }",
        "{ address = \"192.168.49.9\", port = 80, protocol = \"udp\" }",
    ] {
        assert_eq!(site(&[], &hosts(other)).unwrap().networks()[0].hosts().len(), 2);
    }
}

const BUS: &str = "[[link]]\nname = \"bus\"\nbetween = [\"desk\", \"front\"]\naddresses = [\"10.9.0.1/30\", \"10.9.0.2/30\"]\n";

#[test]
fn a_link_that_forwards_anything_is_between_a_partition_with_a_network_and_one_without() {
    let parts = partition("front", "SECRET") + &partition("desk", "SECRET") + &partition("back", "SECRET");
    let (port, host) = (
        "ports = [{ port = 25, protocol = \"tcp\" }]\n",
        "hosts = [{ address = \"192.168.49.8\", port = 1, protocol = \"tcp\" }]\n",
    );
    let card = |interface: &str, partition: &str| {
        network(interface, "SECRET", &format!("partition = \"{partition}\""))
    };
    let of = |more: &str| site(&[], &(parts.clone() + more));
    for forwarded in [port, host] {
        told_alone(of(&format!("{BUS}{forwarded}")), "neither has a network");
        let routed = of(&format!("{}{BUS}{forwarded}", card("eth1", "front"))).unwrap();
        let link = &routed.links()[0];
        assert!(link.is_routed() && routed.forwarder(link) == Some(1));
        assert_eq!(
            (link.ports().len(), link.hosts().len()),
            (usize::from(forwarded == port), usize::from(forwarded == host))
        );
    }
    let plain = of(BUS).unwrap();
    assert!(!plain.links()[0].is_routed());
    // Where the network could not be read, that alone is told.
    let unread = card("eth1", "front").replace("eth1", "a/b");
    told_alone(of(&format!("{unread}{BUS}{port}")), "`a/b` is not a valid interface name");
    // Between addresses of one family.
    let six = BUS.replace("10.9.0.1/30", "fd09::1/64").replace("10.9.0.2/30", "fd09::2/64");
    told_alone(
        of(&format!("{}{six}{port}", card("eth1", "front"))),
        "have no address of the family of `bus`",
    );
    // A host stands once.
    let twice = host.replace("}]", "}, { address = \"192.168.49.8\", port = 1, protocol = \"tcp\" }]");
    told_alone(
        of(&format!("{}{BUS}{twice}", card("eth1", "front"))),
        "this address, protocol and port stand twice",
    );
    let two = host.replace("}]", "}, { address = \"192.168.49.8\", port = 2, protocol = \"tcp\" }]");
    of(&format!("{}{BUS}{two}", card("eth1", "front"))).unwrap();
}

#[test]
fn a_port_of_one_partitions_networks_is_nothing_to_the_links_of_others() {
    let parts = ["front", "desk", "back", "side"].map(|name| partition(name, "SECRET")).concat();
    let card = |interface: &str, name: &str, more: &str| {
        network(interface, "SECRET", &format!("partition = \"{name}\"\n{more}"))
    };
    let port = "ports = [{ port = 25, protocol = \"tcp\" }]\n";
    let other =
        BUS.replace("bus", "rail").replace("10.9", "10.8").replace("desk", "side").replace("front", "back");
    // Each of two partitions with a network forwards port 25 to a neighbour of its own.
    let two = card("eth1", "front", "") + &card("eth2", "back", "") + BUS + port + &other + port;
    site(&[], &(parts.clone() + &two)).unwrap();
    // Its own port 25 is in a link's way.
    let own = card("eth1", "front", port) + &card("eth2", "back", "") + BUS + port + &other + port;
    told_alone(site(&[], &(parts + &own)), "tcp port 25 of one partition's networks stands twice");
}

#[test]
fn links_of_one_partition_have_no_address_in_common_and_those_of_others_may() {
    let parts = ["front", "desk", "back", "side"].map(|name| partition(name, "SECRET")).concat();
    let other = |between: &str, first: &str, second: &str| {
        format!("[[link]]\nname = \"rail\"\nbetween = [{between}]\naddresses = [\"{first}\", \"{second}\"]\n")
    };
    let with = |other: String| site(&[], &(parts.clone() + BUS + &other));
    // Whichever of the two is the wider.
    for (first, second) in
        [("10.9.0.1/24", "10.9.0.2/24"), ("10.9.0.1/31", "10.9.0.0/31"), ("10.9.0.1/30", "10.9.0.2/30")]
    {
        told_alone(
            with(other("\"front\", \"back\"", first, second)),
            "the links `bus` and `rail` of one partition have addresses in common",
        );
        with(other("\"side\", \"back\"", first, second)).unwrap();
    }
    with(other("\"front\", \"back\"", "10.9.1.1/30", "10.9.1.2/30")).unwrap();
}

/// Of two addresses each is a host's (RFC 3021); of more the first and the last are nobody's.
#[test]
fn the_ends_of_a_links_network_are_addresses_only_where_there_are_no_others() {
    let with = |first: &str, second: &str| {
        let link = BUS.replace("\"10.9.0.1/30\", \"10.9.0.2/30\"", &format!("\"{first}\", \"{second}\""));
        site(&[], &(partition("front", "SECRET") + &partition("desk", "SECRET") + &link))
    };
    for (first, second) in
        [("10.9.0.0/31", "10.9.0.1/31"), ("fd09::/127", "fd09::1/127"), ("10.9.0.1/30", "10.9.0.2/30")]
    {
        with(first, second).unwrap_or_else(|why| panic!("{first}: {why}"));
    }
    for (first, second) in [
        ("10.9.0.0/30", "10.9.0.1/30"),
        ("10.9.0.2/30", "10.9.0.3/30"),
        ("fd09::/126", "fd09::1/126"),
        ("10.9.0.0/29", "10.9.0.1/29"),
    ] {
        told_alone(with(first, second), "is no address that an interface can have");
    }
}

#[test]
fn an_interface_is_called_by_15_letters_and_not_by_16() {
    let with = |name: &str| {
        let link = BUS.replace("\"bus\"", &format!("\"{name}\""));
        site(&[], &(partition("front", "SECRET") + &partition("desk", "SECRET") + &link))
    };
    assert_eq!(with("a-name-of-15-ls").unwrap().links()[0].name().as_str().len(), 15);
    told_alone(with("a-name-of-16-let"), "no interface can be called `a-name-of-16-let`");
}

/// Where labels have an integrity SELinux, which has none, cannot be required.
#[test]
fn selinux_is_not_required_where_it_would_lose_integrity() {
    let with = |choice: &str| {
        let integrity = SMALL
            .replace("integrity-levels = []", "integrity-levels = [\"OPEN\"]")
            .replace("\"UNCLASSIFIED..SECRET//NATO,MED\"", "\"UNCLASSIFIED@OPEN..SECRET//NATO,MED@OPEN\"")
            .replace(
                "\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"",
                "\"UNCLASSIFIED@OPEN..CONFIDENTIAL//NATO,MED@OPEN\"",
            )
            .replace("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED@OPEN..CONFIDENTIAL//MED@OPEN\"")
            .replace("clearance = \"UNCLASSIFIED\"", "clearance = \"UNCLASSIFIED@OPEN\"");
        read(&integrity.replace("selinux = \"auto\"", &format!("selinux = \"{choice}\"")))
    };
    with("auto").unwrap();
    with("off").unwrap();
    told_alone(with("required"), "SELinux levels have no integrity, and this site's labels have");
}

#[test]
fn a_posture_may_turn_services_off_at_a_label_with_a_kernel_of_its_own() {
    let own = ("own-kernel = []", "own-kernel = [\"SECRET\"]");
    let posture = |labels: &str| format!("[[posture]]\nname = \"calm\"\n{labels}services = []\n");
    site(&[own], &posture("")).unwrap();
    site(&[own], &posture("labels = [\"CONFIDENTIAL..SECRET\"]\n")).unwrap();
}

#[test]
fn a_mediated_service_is_on_no_labelled_network_and_others_beside_it_may_be() {
    let domain = "[[domain]]\ndoi = 16\nlevels = { UNCLASSIFIED = 1, CONFIDENTIAL = 2, SECRET = 5 }\n";
    let mediated = service("audited", 99, "SECRET").replace("direct", "relay");
    let labelled = |services: &str| {
        network("eth1", "X", &format!("services = [{services}]"))
            .replace("label = \"X\"", "labels = \"CONFIDENTIAL..SECRET\"\ndomain = 16")
    };
    let with = |services: &str| site(&[], &(mediated.clone() + domain + &labelled(services)));
    with("\"web\"").unwrap();
    told_alone(
        with("\"web\", \"audited\""),
        "`audited` is mediated, and a labelled network has no mediated services",
    );
}

#[test]
fn a_labelled_network_has_64_prefixes_of_single_level_hosts() {
    let domain = "[[domain]]\ndoi = 16\nlevels = { UNCLASSIFIED = 1, CONFIDENTIAL = 2, SECRET = 5 }\n";
    let with = |count: usize| {
        let hosts: Vec<_> = (0..count)
            .map(|n| format!("{{ address = \"192.168.49.{n}/32\", label = \"SECRET\" }}"))
            .collect();
        let hosts =
            format!("labels = \"CONFIDENTIAL..SECRET\"\ndomain = 16\nunlabelled = [{}]", hosts.join(", "));
        site(&[], &(domain.to_owned() + &network("eth1", "X", "").replace("label = \"X\"", &hosts)))
    };
    assert_eq!(with(64).unwrap().networks()[0].unlabelled().len(), 64);
    told_alone(with(65), "the network `eth1` has more than 64 prefixes");
}

#[test]
fn a_wires_ends_are_two_hosts_of_one_network_and_who_sends_alone_knows_where_to() {
    let wire = |own: &str, peer: &str, more: &str| {
        format!(
            "wire = {{ interface = \"eth7\", address = \"{own}\", peer = \"{peer}\", port = 7700, label = \"SECRET\"{more} }}\n"
        )
    };
    let to = |wire: String| {
        let channel = "[[channel]]\nname = \"in\"\nkind = \"oneway\"\nto = \"high\"\n";
        site(&[], &(partition("high", "SECRET") + channel + &wire))
    };
    let datagram = |own: &str, peer: &str, more: &str| {
        to(wire(own, peer, more)).unwrap().channels()[0].wire().unwrap().datagram()
    };
    // What is left of a packet behind the headers of IP and UDP.
    assert_eq!(datagram("10.77.1.1/30", "10.77.1.2", ""), 1_472);
    assert_eq!(datagram("fd07::1/64", "fd07::2", ", mtu = 9000"), 8_952);
    for (own, peer) in [("fe80::1/64", "fe80::2"), ("::ffff:10.77.1.1/126", "::ffff:10.77.1.2")] {
        told_alone(to(wire(own, peer, "")), "is a link-local address, or one of IPv4 in another form");
    }
    // Nothing is sent to where the messages come from.
    let hardware = ", hardware = \"02:00:5e:00:53:02\"";
    told_alone(to(wire("10.77.1.1/30", "10.77.1.2", hardware)), "who receives sends nothing to `hardware`");
}

#[test]
fn another_servers_inner_addresses_are_those_that_the_file_gives_it() {
    let federation = "[federation]\netcd = [\"192.0.2.9:2379\"]\netcd-name = \"etcd.example\"\n[[federation.peer]]\nname = \"two.example\"\n\
                      address = \"192.0.2.2\"\ninner-address = [\"10.80.0.2\", \"fd80::2\"]\ninner-pool = [\"10.80.2.0/24\", \"fd82::/64\"]\n";
    let site = site(&[], federation).unwrap();
    let addresses: Vec<String> =
        site.federation().unwrap().peers()[0].inner_addresses().iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.80.0.2", "fd80::2"]);
}

#[test]
fn the_servers_address_is_one_that_others_reach_and_its_name_is_none() {
    let at = |from: &str, to: &str| site(&[(from, to)], "");
    told_alone(at("[\"10.77.0.1\"]", "[\"10.77.0.1\", \"fe80::1\"]"), "fe80::1 is a link-local address");
    told_alone(
        at("name = \"server.harbour.example\"", "name = \"192.0.2.1\""),
        "`192.0.2.1` is an address, and no DNS name",
    );
    at("[\"10.77.0.1\"]", "[\"10.77.0.1\", \"fd00::77\"]").unwrap();
}
