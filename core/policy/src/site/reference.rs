//! The reference of the site file: every table and key there is, what it means, its form and its default.
//!
//! The parser takes the names of keys from here, so that no key is read that is not described, and none is described that is not read.
//! `levee check --explain`, site.toml(5) and `docs/site.md` print it.

mod apart;
mod posture;
mod section;

use crate::names::NAME;

pub use section::{Key, Section};
use section::{RANGES, may, must};

pub(super) use apart::{CHANNEL, FRAMES, GATEWAY, LINK, PARTITION, PROCESSORS, SLOT, WIRE};
pub(super) use posture::{POSTURE, PROTECTION};

const RANGE: &str = "a range of labels: \"LOW..HIGH\", or one label";
const LAYERS: &str = "[\"esp\"] or [\"esp\", \"quic\"]";
const DNS_NAME: &str = "a DNS name in lower case";
const ADDRESS: &str = "an IPv4 or IPv6 address";
const ADDRESSES: &str = "an address, or a list with one IPv4 and one IPv6 address";
const POOLS: &str = "a network with its prefix length, or a list of them";
const PORT: &str = "1 to 65535";

/// `[site]`
pub(super) const SITE: Section = Section {
    head: "[site]",
    needed: true,
    means: "Which site this is.",
    keys: &[must(
        "name",
        "a lower-case letter, then up to 11 of a-z, 0-9 and '-'",
        "The site's name. State is kept in /var/lib/levee/NAME, sockets are in /run/levee/NAME.",
    )],
};

/// `[labels]`
pub(super) const LABELS: Section = Section {
    head: "[labels]",
    needed: true,
    means: "The lattice. A label is written LEVEL//CATEGORY,CATEGORY, and @LEVEL//CATEGORY after it where the site has integrity levels.",
    keys: &[
        must(
            "levels",
            "a list of 1 to 256 names, lowest first",
            "The levels. Whoever is cleared for one may be cleared for those below it.",
        ),
        may(
            "categories",
            "a list of at most 1024 names",
            "[]",
            "The categories. A label has any of them; nobody reads what has a category that they lack.",
        ),
        may(
            "integrity-levels",
            "a list of at most 256 names, lowest first",
            "[]",
            "Levels of trust in information. With them every label has an integrity part; information flows from higher to lower integrity.",
        ),
        may("integrity-categories", "a list of at most 1024 names", "[]", "Categories of integrity."),
        may(
            "colours",
            "a table: LEVEL = \"red\", \"green\", \"yellow\", \"blue\", \"magenta\", \"cyan\", \"white\" or \"orange\"",
            "from green at the lowest level to red at the highest",
            "The colour of each level's banner, and the pattern beside it. By default seven levels differ. Where some levels are named, the others have none.",
        ),
    ],
};

/// `[server]`
pub(super) const SERVER: Section = Section {
    head: "[server]",
    needed: true,
    means: "The server itself. The host's firewall must let in 7443/tcp, 500/udp and 4500/udp, or what is written here instead.",
    keys: &[
        must("name", DNS_NAME, "Its name: what its certificate says and workstations check."),
        must(
            "addresses",
            "a list of IPv4 and IPv6 addresses",
            "Outer addresses, where workstations find it. The host must have them.",
        ),
        may("trusted-path-port", PORT, "7443", "Where it takes sign-ons (TCP)."),
        may("ike-port", PORT, "500", "Where it takes IKE (UDP)."),
        may("tunnel-port", PORT, "4500", "Where it takes IKE and ESP in UDP (RFC 3948)."),
        may(
            "layer-port",
            PORT,
            "4433",
            "Where it takes the second tunnel (QUIC over UDP), with [vault] layers.",
        ),
        must(
            "inner-address",
            ADDRESSES,
            "At every label, the services of that label answer here. Levels are networks of their own: the address is the same at each.",
        ),
        must("inner-pool", POOLS, "Where sessions' own addresses come from: at least four for each host."),
        may("names", "a list of DNS names", "[]", "Further names of the inner address."),
        may("slots", "1 to 4095", "64", "Labels, and workers of labels, that run at once."),
        may(
            "grace",
            "a time from \"1s\" to \"1h\"",
            "\"30s\"",
            "How long a session outlives its trusted path.",
        ),
        may(
            "longest-session",
            "a time from \"1m\" to \"168h\"",
            "no end",
            "So long after they signed on, a person is signed off and must sign on again, whatever levels they changed to. They are told five minutes before.",
        ),
        may(
            "idle-lock",
            "a time from \"5s\" to \"24h\"",
            "no lock",
            "So long after a person's last key or command, their session is locked: no packet of it passes, at server or workstation, until they prove themselves again. Who has no session is signed off. After a restart of sessiond sessions come back locked.",
        ),
    ],
};

/// `[limits]`
pub(super) const LIMITS: Section = Section {
    head: "[limits]",
    needed: false,
    means: "What each label's compartment may use.",
    keys: &[
        may("memory", "a size from \"16M\" to \"1T\"", "\"512M\"", "Memory."),
        may("processes", "8 to 32768", "256", "Processes and threads."),
        may(
            "cpu",
            "a share of one processor from \"1%\" to \"102400%\"",
            "\"100%\"",
            "Processor time; \"200%\" is two processors.",
        ),
        may(
            "store",
            "a size from \"4M\" to \"1T\"",
            "\"64M\"",
            "The label's store. Its size is set when it is made.",
        ),
        may(
            "stores",
            "a size from \"16M\" to \"1024T\"",
            "\"64G\"",
            "All labels together: stores, snapshots of them, copies of lower ones. A label beyond it does not start.",
        ),
        may(
            "first-labels",
            "1 to 100000",
            "128",
            "Labels at which one person may be the first, on one server: for that their store is made, which stays. At others they have no session until somebody else was there.",
        ),
        may(
            "changes",
            "1 to 100000",
            "30",
            "Changes of level of one person in a minute; twice as many at once. More are refused and counted. At each workstation as many sign-ons, unlockings, new passwords and sessions taken up again, each counted for itself.",
        ),
        may(
            "carried",
            "1 to 100000",
            "600",
            "Files carried out of sessions or into them by one person in a minute; twice as many at once. More are refused and counted.",
        ),
        may(
            "connections",
            "1 to 100000",
            "50",
            "Connections of one person, or one host of a single-level network, to mediated services in a second, and of all hosts of one network sixteen times as many; ten times as many at once. More are refused and counted.",
        ),
    ],
};

/// `[vault]`
pub(super) const VAULT: Section = Section {
    head: "[vault]",
    needed: false,
    means: "How each label's packets are sealed and sent.",
    keys: &[
        may(
            "layers",
            LAYERS,
            "[\"esp\"]",
            "The tunnels that sessions' packets travel in. With \"quic\" all ESP and IKE goes within a second one, which shares as little with the first as one host allows (`levee check` says what); if either is down nothing passes. `layers` of a host is for its sessions alone, which then pass by no other way whatever others have; where any host has \"quic\" the longest inner packet of all is of 1,280 octets.",
        ),
        may(
            "aead",
            "\"fastest\", \"ring\" or \"aws-lc\"",
            "\"fastest\"",
            "The library that seals packets. \"fastest\" tries at the start.",
        ),
        may(
            "poll",
            "a time from \"0us\" to \"10ms\"",
            "\"100us\"",
            "A vault looks for more packets at most this long before it sleeps, only while they come so soon and nobody else wants the processor. \"0us\": never. It is for the server's; a workstation's has the default, and never looks while the workstation lives on a battery.",
        ),
        may(
            "workers",
            "1 to 16, and no more than slots",
            "1",
            "Processes that share a label's traffic, each with a slot of its own.",
        ),
        may(
            "agree",
            RANGES,
            "[]",
            "Where two stacks, written separately, must agree about every packet before it passes. Slow.",
        ),
        may(
            "aggfrag",
            RANGES,
            "[]",
            "Where packets go many in one, and large ones in pieces (RFC 9347). One stream is faster.",
        ),
        may("aggfrag-mtu", "1400 to 60000", "9000", "The inner MTU there, in octets; elsewhere it is 1400."),
        may(
            "constant-rate",
            RANGES,
            "[]",
            "Where packets have one size and leave at one rate, traffic or not. An onlooker learns nothing from them.",
        ),
        may("constant-rate-packets", "1 to 20000", "250", "How many a second, for each session, each way."),
    ],
};

/// `[crypto]`
pub(super) const CRYPTO: Section = Section {
    head: "[crypto]",
    needed: false,
    means: "Keys and algorithms.",
    keys: &[
        may(
            "keys",
            "\"P-256\" or \"P-384\"",
            "\"P-256\"",
            "The curve of every key that `levee enrol` makes.",
        ),
        may(
            "suites",
            "\"default\", \"cnsa\" or \"cnsa-ml-kem\"",
            "\"default\"",
            "What IKE, ESP and the trusted path use. \"cnsa\" needs keys on P-384.",
        ),
    ],
};

/// `[isolation]`
pub(super) const ISOLATION: Section = Section {
    head: "[isolation]",
    needed: false,
    means: "What keeps labels apart that are on one server.",
    keys: &[
        may(
            "own-kernel",
            RANGES,
            "[]",
            "Labels whose compartment is a small virtual machine, with a kernel of its own. They have no mediated services and no single-level networks.",
        ),
        may(
            "assurance",
            "\"normal\" or \"high\"",
            "\"normal\"",
            "With \"high\", levee check warns where labels far apart share a kernel, and levee up wants an installed levee, whose programs have a manifest.",
        ),
        may(
            "processor",
            "\"emulated\" or \"kvm\"",
            "\"emulated\"",
            "How such a machine's processor is made: by translation, on any host; or by the host's hardware, where it has KVM.",
        ),
        may(
            "kernel-root",
            "an absolute path",
            "\"/\"",
            "Where the machines' kernel, the package linux-image-cloud-amd64, is installed or unpacked.",
        ),
        may(
            "selinux",
            "\"auto\", \"required\" or \"off\"",
            "\"auto\"",
            "Whether what is in a compartment carries its label's SELinux level too. With \"auto\", where the host's policy has levee's module. With \"required\", the server does not start unless SELinux enforces it.",
        ),
        may(
            "selinux-domain",
            "the doi of a [[domain]]",
            "none",
            "Whose numbers these levels and their categories have. Without it, a number is the place in the site's list, from 0.",
        ),
    ],
};

/// `[audit]`
pub(super) const AUDIT: Section = Section {
    head: "[audit]",
    needed: false,
    means: "The audit log.",
    keys: &[may(
        "checkpoints",
        "a list of \"syslog\" and absolute paths, at most 4",
        "[]",
        "Where each signed checkpoint is sent. Best on another host: whoever has the log and all its checkpoints can cut its end.",
    )],
};

/// `[[user]]`
pub(super) const USER: Section = Section {
    head: "[[user]]",
    needed: false,
    means: "A person. `levee user add` gives them their first password.",
    keys: &[
        must("name", NAME, "What they sign on as."),
        must("clearance", RANGE, "At which labels they may work."),
        may(
            "export",
            RANGE,
            "nowhere",
            "At which labels they may carry files out of sessions (`levee-tpe run --export`). Each is recorded.",
        ),
        may("import", RANGE, "nowhere", "At which labels they may carry files into sessions."),
        may(
            "second-factor",
            "\"totp\"",
            "none",
            "What they show at sign-on beside their password. \"totp\": a code of six digits that their telephone shows (RFC 6238). `levee user totp` makes its seed.",
        ),
    ],
};

/// `[[host]]`
pub(super) const HOST: Section = Section {
    head: "[[host]]",
    needed: false,
    means: "A workstation. `levee enrol` makes its bundle.",
    keys: &[
        must(
            "name",
            "1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
            "The name in its certificate.",
        ),
        must("accreditation", RANGE, "At which labels sessions may be had there."),
        may(
            "ppk",
            "{ id = \"NAME\", mandatory = true or false }",
            "none",
            "A post-quantum preshared key (RFC 8784), made by `levee enrol`.",
        ),
        may("layers", LAYERS, "those of [vault]", "The same for its sessions alone; no fewer than there."),
    ],
};

/// `ppk = { … }` of a host.
pub(super) const PPK: Section = Section {
    head: "`ppk`",
    needed: false,
    means: "A host's post-quantum preshared key (RFC 8784).",
    keys: &[
        must("id", "1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit", "Its PPK_ID."),
        may("mandatory", "true or false", "true", "Whether the host gets no keys without it."),
    ],
};

/// `[[service]]`
pub(super) const SERVICE: Section = Section {
    head: "[[service]]",
    needed: false,
    means: "A service. Each label of its range has a process of its own, which is started by the first connection.",
    keys: &[
        must("name", NAME, "Its name."),
        must("port", PORT, "Where it answers, at the inner address."),
        must("protocol", "\"tcp\" or \"udp\"", "Its transport protocol."),
        must("range", RANGE, "At which labels there is one."),
        must(
            "mode",
            "\"direct\", \"itself\", \"relay\" or \"handoff\"",
            "How its connections are decided. \"direct\": by the selectors of the session's security association; the program gets the listening \
             socket as descriptor 3 (sd_listen_fds(3)), and is started by the first connection; one that binds its port itself cannot. \"itself\": as \"direct\", but the program binds its port \
             itself, on all addresses or on those in LEVEE_ADDRESSES (on 127.0.0.1 nobody reaches it); it finds the port in LEVEE_PORT, and runs as long as the label does. \"relay\": the label's mediator decides about each connection, records it, and copies its bytes. \
             \"handoff\": the mediator decides, records it, and gives the connection to a process of its own.",
        ),
        may(
            "socket",
            "\"stdio\" or \"listen-fds\"",
            "\"stdio\"",
            "With \"handoff\": the connection is descriptors 0 and 1, as inetd does; or descriptor 3, as systemd does with Accept=yes.",
        ),
        may(
            "audit",
            "\"synced\" or \"written\"",
            "\"synced\"",
            "With \"relay\" or \"handoff\": when a connection goes on. \"synced\": its record is on the disk. \"written\": its record is written, and on the \
             disk within 10 ms, or with a sync that everybody waits for where the disk takes more than 5 for one; a crash of the host may lose that much, and the log then says so.",
        ),
        may("program", "\"nginx\"", "`command` stands instead", "A program that levee configures itself."),
        may(
            "command",
            "a list: the program's absolute path, then its arguments",
            "`program` stands instead",
            "Any other program.",
        ),
        may(
            "uploads",
            "true or false",
            "false",
            "With nginx: whether people may write documents by HTTP (PUT, DELETE, MKCOL, COPY, MOVE).",
        ),
        may(
            "needs",
            "a list of \"async-io\", \"corked-sends\", \"locks\", \"message-queues\", \"netlink\", \"own-sandbox\", \"pidfd\", \"proc\", \"shared-futex\", \"sysv-ipc\", \"terminals\"",
            "[]",
            "Groups of system calls that it has beyond what every service has. Some leak to other labels whose services have them too: \
             conf/seccomp/service.toml says how much.",
        ),
        may(
            "software",
            "a list of names of packages, and of paths beneath /usr",
            "[]",
            "What it needs of the host's programs beside its own package and what that depends on.",
        ),
        may(
            "protection",
            "a [[protection]]'s name",
            "what every tunnel has",
            "What it asks of the tunnels of all sessions at its labels. Where that cannot be had no session opens there.",
        ),
        may(
            "people",
            "a list of names of people",
            "its `owners`; without these everybody",
            "Who of those cleared for a label reaches it there. Hosts of networks do not.",
        ),
        may(
            "owners",
            "a list of names of people",
            "none",
            "Who decides that, each at the labels at which they have sessions (`levee-tpe access`): they let others reach it, and take that back, while \
             it runs. `people` is how it begins. An owner always reaches it. Not with `[federation]`.",
        ),
    ],
};

/// `[[network]]`
pub(super) const NETWORK: Section = Section {
    head: "[[network]]",
    needed: false,
    means: "A network of the host's: of one label (`label`), or one whose packets carry a CIPSO label each (`labels` and `domain`).",
    keys: &[
        must(
            "interface",
            "1 to 15 letters, digits, '.', '_', '-' or '@'",
            "The host's interface. While levee runs it is in the label's network, in its partition's, or where its packets are parted.",
        ),
        may("label", "one label", "none", "What everything on it is."),
        may(
            "labels",
            "a range of at most 64 labels",
            "none",
            "In place of `label`: which labels its packets carry. Each goes to the compartment of its label; others are dropped.",
        ),
        may("domain", "the DOI of a [[domain]]", "none", "What the numbers in its packets' labels mean."),
        may(
            "unlabelled",
            "a list of { address, label }",
            "[]",
            "Beside `labels`: its single-level hosts, which neither write labels nor read them. Who they are and at which label.",
        ),
        may(
            "partition",
            "the name of a [[partition]] at the label",
            "none",
            "Which partition has the interface, in place of the label's compartment: up while it runs. Sessions do not reach it.",
        ),
        must(
            "address",
            "an address with its prefix length, or a list of them",
            "The server's address there.",
        ),
        may(
            "services",
            "a list of names of services",
            "[]",
            "Which of the site's services its hosts may use. A network of a partition has none.",
        ),
        may(
            "ports",
            "a list of { port, protocol }",
            "[]",
            "Which ports of its partition its hosts may reach.",
        ),
        may(
            "hosts",
            "a list of { address, port, protocol }",
            "[]",
            "Which services of its hosts sessions at the label may use, or its partition's programs. A session may begin 4,096 connections to them at once, and 50 a second; more are dropped and counted.",
        ),
        may(
            "neighbours",
            "a number of hosts, from 1 to 65535",
            "an equal part of 256",
            "How many hosts of it, in IPv4 and in IPv6, are heard within five minutes; of several labels each hears an equal part. The table of \
             them is one for the whole machine, with 1,024 entries each where `gc_thresh3` says no more; a host in made-up names takes up to twice \
             as many as this.",
        ),
    ],
};

/// `ports = [{ … }]` of a network or a link.
pub(super) const OPEN_PORT: Section = Section {
    head: "a partition's port",
    needed: false,
    means: "A port of a partition that hosts outside may reach.",
    keys: &[
        must("port", PORT, "Its number."),
        must("protocol", "\"tcp\" or \"udp\"", "Its transport protocol."),
    ],
};

/// `hosts = [{ … }]` of a network or a link.
pub(super) const NETWORK_HOST: Section = Section {
    head: "a network's host",
    needed: false,
    means: "A service on a single-level network.",
    keys: &[
        must("address", ADDRESS, "Its host."),
        must("port", PORT, "Its port."),
        must("protocol", "\"tcp\" or \"udp\"", "Its transport protocol."),
    ],
};

/// `unlabelled = [{ … }]` of a network.
pub(super) const SINGLE_LEVEL: Section = Section {
    head: "single-level hosts",
    needed: false,
    means: "Hosts of a labelled network whose packets carry no label. Where prefixes are within each other, the longest counts.",
    keys: &[
        must(
            "address",
            "a prefix with its length",
            "Their addresses: within the network's own. What comes from there with a label is dropped.",
        ),
        must(
            "label",
            "one label of the network's",
            "At which they are. What another label sends there is dropped; what theirs sends leaves without a label.",
        ),
    ],
};

/// `[[domain]]`
pub(super) const DOMAIN: Section = Section {
    head: "[[domain]]",
    needed: false,
    means: "A domain of interpretation: which numbers other hosts' labels (CIPSO, CALIPSO, SELinux) have for this site's. `levee label` translates by it. A label that has no numbers here is refused.",
    keys: &[
        must("doi", "1 to 4294967295", "The number that packets name the domain by."),
        may(
            "tag",
            "\"bitmap\", \"enumerated\", \"ranged\" or \"permissive\"",
            "\"bitmap\"",
            "How its labels are written in CIPSO: tag 1, 2, 5 or 6 (FIPS 188).",
        ),
        must(
            "levels",
            "a table: LEVEL = 0 to 255",
            "Their numbers for levels. A higher level has a higher number.",
        ),
        may("categories", "a table: CATEGORY = 0 to 1023", "none", "Their numbers for categories."),
    ],
};

/// `[federation]`
pub(super) const FEDERATION: Section = Section {
    head: "[federation]",
    needed: false,
    means: "Other servers of the same site, whose sessions this one takes as well.",
    keys: &[
        must("etcd", "a list of 1 to 9 addresses with their ports", "etcd's members."),
        must("etcd-name", DNS_NAME, "The name in their certificates."),
        may(
            "lease",
            "whole seconds from \"3s\" to \"60s\"",
            "\"10s\"",
            "How long a server that is cut off may go on, and how long the others wait for it.",
        ),
        must("peer", "[[federation.peer]], 1 to 64 of them", "The other servers."),
    ],
};

/// `[[federation.peer]]`
pub(super) const PEER: Section = Section {
    head: "[[federation.peer]]",
    needed: false,
    means: "Another server of the site.",
    keys: &[
        must("name", DNS_NAME, "Its `[server] name`."),
        must("address", ADDRESS, "Its outer address."),
        may("tunnel-port", PORT, "4500", "Its tunnel port."),
        must("inner-address", ADDRESSES, "Its inner address."),
        must("inner-pool", POOLS, "Its inner pool."),
        may("names", "a list of DNS names", "[]", "Its further names."),
    ],
};

/// What the file itself has: its tables, in the order in which they are best written.
pub const SECTIONS: &[&Section] = &[
    &SITE,
    &LABELS,
    &SERVER,
    &LIMITS,
    &CRYPTO,
    &AUDIT,
    &ISOLATION,
    &FRAMES,
    &SLOT,
    &PROCESSORS,
    &VAULT,
    &GATEWAY,
    &USER,
    &HOST,
    &PPK,
    &SERVICE,
    &NETWORK,
    &NETWORK_HOST,
    &SINGLE_LEVEL,
    &OPEN_PORT,
    &PARTITION,
    &CHANNEL,
    &WIRE,
    &LINK,
    &DOMAIN,
    &FEDERATION,
    &PEER,
    &POSTURE,
    &PROTECTION,
];

/// The names of the file's own tables.
pub(super) fn tables() -> Vec<&'static str> {
    let own = |section: &&&Section| section.head.starts_with('[') && !section.word().contains('.');
    SECTIONS.iter().filter(own).map(|section| section.word()).collect()
}

/// What the reference has under a name: a table (`server`), a key (`grace`), or a key of a table (`server.grace`).
pub fn find(name: &str) -> Vec<(&'static Section, Option<&'static Key>)> {
    let mut found = Vec::new();
    for section in SECTIONS {
        if section.word() == name {
            found.push((*section, None));
        }
        let key = match name.rsplit_once('.') {
            Some((table, key)) if table == section.word() => key,
            Some(_) => continue,
            None => name,
        };
        found.extend(section.keys.iter().filter(|one| one.name == key).map(|key| (*section, Some(key))));
    }
    found
}
