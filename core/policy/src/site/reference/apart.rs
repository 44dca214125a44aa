//! Of what is there without sessions, and of when what runs: partitions, channels, frames.

use super::section::{RANGES, Section, may, must};
use crate::names::PARTITION_NAME;

/// `[frames]`
pub(in crate::site) const FRAMES: Section = Section {
    head: "[frames]",
    needed: false,
    means: "When what may run: time is cut into frames, all alike, and a frame into slots. A label's compartment, its partitions and levee's own processes at it \
            run in its slots alone, on all processors that no `[[processors]]` names; a slot that nobody uses stays unused. At any time run what writes down what it says (its logger), guards, and what carries one-way channels. A label that has processors for itself alone runs at any time.",
    keys: &[
        must("slot", "[[frames.slot]], 1 to 64 of them", "The slots, in their order."),
        may(
            "margin",
            "a time from \"0us\" to \"10ms\"",
            "\"500us\"",
            "Between the end of a slot and the beginning of the next: what ran stops in it. Where that takes longer, the next one begins later, and `levee status` counts it.",
        ),
        may(
            "stop",
            "a time from \"1ms\" to \"500ms\"",
            "\"100ms\", or less where the frame leaves less",
            "What has not stopped so long after its slot is killed. All slots' times and margins, with `stop` once for each slot and once more, are 500 ms at most: a \
             vault that stands still for longer could be taken for hung.",
        ),
        may(
            "late",
            "how many ends of slots in what time, such as \"2 in 60s\"",
            "any number",
            "How often what is at a label, its compartment, a partition or one of levee's own processes there, may take longer than the margin to stop: what does more often is killed. Who ends late on purpose tells all others \
             something by when their slots begin: this bounds it. What dies in others' slots, by a signal that was due, and frees its memory there for longer than the margin, counts as late. A program that waits for a slow disk ends late, too, and so does any on a host that is busy with other programs than levee's: this is for hosts that do nothing else.",
        ),
    ],
};

/// `[[frames.slot]]`
pub(in crate::site) const SLOT: Section = Section {
    head: "[[frames.slot]]",
    needed: false,
    means: "A slot of the frame.",
    keys: &[
        may("labels", RANGES, "all labels", "Whose it is. A label may have several slots."),
        must("time", "a time from \"1ms\" to \"50ms\"", "How long it takes."),
    ],
};

/// `[[processors]]`
pub(in crate::site) const PROCESSORS: Section = Section {
    head: "[[processors]]",
    needed: false,
    means: "Processors that labels have for themselves: their compartments, their partitions and levee's own processes at them run there and nowhere else, and nothing \
            else of levee's does. All other labels and processes have the processors that no table names, of which there must be one. Other programs of the host, and the \
            kernel for whoever asks it, are not kept away: `isolcpus` at the kernel's start does that for the former.",
    keys: &[
        must(
            "numbers",
            "numbers and ranges, such as \"2-3,6\"",
            "Which, as the host numbers them. None may be in two tables.",
        ),
        must(
            "labels",
            RANGES,
            "Whose they are. No label may be in two tables. Where one table has several, these share its processors, and need slots of `[frames]` as all others do.",
        ),
    ],
};

/// `[[partition]]`
pub(in crate::site) const PARTITION: Section = Section {
    head: "[[partition]]",
    needed: false,
    means: "A compartment that is there as long as the server runs, with or without sessions: a host name, processes, files, an empty network and a \
            share of the machine of its own. Nobody reaches it but by channels, links and, where [[network]] names it, a network.",
    keys: &[
        must("name", PARTITION_NAME, "Its name, and its host name."),
        must("label", "one label", "What everything in it is."),
        must(
            "command",
            "a list: the program's absolute path, then its arguments",
            "What runs in it. When it ends, the partition ends.",
        ),
        may(
            "root",
            "the absolute path of a directory, or of an image (squashfs or EROFS)",
            "the host's programs",
            "Its root file system, in which `command` is. It is copied into memory when the partition starts, up to 4 GiB; again when the directory's or the \
             image's own time has changed. All of it is read-only, root's, and without devices; /etc/passwd, group, hosts, hostname, resolv.conf and \
             nsswitch.conf are levee's, and /dev, /proc, /run, /srv, /tmp and /var begin empty. An image needs squashfs-tools or erofs-utils.",
        ),
        may("memory", "a size from \"16M\" to \"1T\"", "that of [limits]", "Memory that it may use."),
        may(
            "reserved",
            "a size from \"1M\" to \"1T\"",
            "nothing",
            "Memory that others' need does not take from it: memory.min with cgroup v2; a soft limit with v1, which is no guarantee.",
        ),
        may("processes", "8 to 32768", "that of [limits]", "Processes and threads."),
        may(
            "cpu",
            "a share of one processor from \"1%\" to \"102400%\"",
            "that of [limits]",
            "Processor time that it may use.",
        ),
        may(
            "weight",
            "1 to 10000",
            "100",
            "Its share of the processors while others want them, too; a label's compartment has 100.",
        ),
        may(
            "disk",
            "a size from \"4M\" to \"1T\"",
            "`store` of [limits]",
            "Its files, at /srv/own. Allocated when they are made.",
        ),
        may(
            "restart",
            "how often in what time: 0 to 100 times in 1s to 1h",
            "\"3 in 60s\"",
            "How often it is started again when it ends; then it is off until `levee partition start`.",
        ),
        may(
            "needs",
            "as those of a service",
            "[]",
            "Groups of system calls that it has beyond what every service has.",
        ),
        may(
            "software",
            "as that of a service",
            "[]",
            "What it needs of the host's programs beside its own package.",
        ),
    ],
};

/// `[[channel]]`
pub(in crate::site) const CHANNEL: Section = Section {
    head: "[[channel]]",
    needed: false,
    means: "A way for messages from one partition to another, and none back. Its ends are descriptors of the partitions' programs, from 3 on, named by LISTEN_FDNAMES: sockets that keep messages whole. levee check closes \
            the flow by all channels together and shows the shortest way to where the lattice forbids it.",
    keys: &[
        must("name", PARTITION_NAME, "Its name."),
        must(
            "kind",
            "\"oneway\" or \"guard\"",
            "\"oneway\": to a label that dominates. \"guard\": to one that does not, which is the one exception to the lattice: what `filter` lets through passes within these bounds, each with a record in the audit log before it passes.",
        ),
        may(
            "from",
            "the name of a partition",
            "none: it must have it, unless it has `wire` and `to`",
            "Who writes.",
        ),
        may(
            "to",
            "the name of a partition",
            "none: it must have it, unless it has `wire` and `from`",
            "Who reads.",
        ),
        may(
            "wire",
            "a table: a channel's wire",
            "none: both ends are here",
            "Of kind \"oneway\": the other end is on another host, in the place of `from` or `to`. There is a network for this channel alone between the two.",
        ),
        may(
            "size",
            "a size from \"1K\" to \"64K\"; of a guard to \"32K\"",
            "the most",
            "What one message may have, for a guard before its filter and behind it. A larger one is not passed, and counted.",
        ),
        may(
            "rate",
            "a size from \"1K\" to \"1G\"",
            "\"1M\"",
            "Bytes that it takes from the writer in a second, whatever the reader does.",
        ),
        may(
            "numbered",
            "true or false",
            "false",
            "Whether each message begins with its number (eight bytes, big end first), so that the reader knows of those that are missing. Of a guard's those have one that pass.",
        ),
        may(
            "filter",
            "the name of a partition",
            "none: a guard must have it",
            "The partition, at the label of `from` and without another channel, whose program sees each message: it reads one, and answers with what may pass, or with nothing, which refuses it, before it gets the next.",
        ),
        may(
            "messages",
            "so many in what time (1s to 24h), such as \"10 in 60s\"",
            "none: a guard must have it",
            "Messages that may pass by a guard.",
        ),
        may(
            "octets",
            "so many in what time, such as \"64K in 60s\"",
            "`messages` of `size`",
            "Octets that may pass by a guard.",
        ),
        may(
            "answer",
            "a time from \"100ms\" to \"10m\"",
            "\"5s\"",
            "How long a guard's filter may take for one message. Then the message is refused, and the filter started again.",
        ),
        may(
            "hours",
            "a time of day in UTC, such as \"08:00-18:00\"",
            "all day",
            "When messages may pass by a guard.",
        ),
        may(
            "schema",
            "a JSON Schema of draft 2020-12, of 16384 octets at most",
            "anything may pass",
            "What passes by a guard is JSON that fits it, written anew by levee: no other spelling passes. A word that no schema has is refused, and `format` is held.",
        ),
        may(
            "release",
            "a list of 2 to 64 names of users",
            "nobody is asked",
            "Of whom two different ones release each message that the filter lets through, from two workstations, each in a session at the label of `from`, where they are shown it (levee-tpe release). One of them can refuse it.",
        ),
        may(
            "release-within",
            "a time from \"10s\" to \"24h\"",
            "\"1h\"",
            "How long a message waits for them. Then it is refused. At most 16 of a guard wait. What they release beyond `messages` or `octets` waits in the guard until it may pass.",
        ),
    ],
};

/// `wire` of a channel
pub(in crate::site) const WIRE: Section = Section {
    head: "a channel's wire",
    needed: false,
    means: "The network between two hosts by which a one-way channel passes: best through a data diode, which this host's own rules are no substitute for. \
            Both ends have one key, which `levee enrol channel` makes. The two hosts' site files are held against each other by `levee check --beside`.",
    keys: &[
        must(
            "interface",
            "the name of an interface",
            "The interface, which nobody but the channel has while the server runs.",
        ),
        must("address", "an address with its prefix length", "This host's address there."),
        must("peer", "an address of the same network", "The other host's."),
        may(
            "hardware",
            "a hardware address, such as \"02:00:5e:00:53:02\"",
            "none: who sends must have it, who receives must not",
            "That of the other host's interface, or of the diode: nobody can be asked for it.",
        ),
        must("port", "1 to 65535", "The UDP port, the same at both ends."),
        must(
            "label",
            "one label",
            "That of the partition at the other end. Of a channel to there it must dominate that of `from`; of one from there that of `to` must dominate it.",
        ),
        may("mtu", "1280 to 9000", "1500", "Octets of the longest packet, the same at both ends."),
        may(
            "repair",
            "a share from \"0%\" to \"100%\"",
            "\"10%\"",
            "What is sent beside what there is to send, so that as much of it may get lost; the same at both ends. Of each block, which is 128 KiB at most, four datagrams more.",
        ),
    ],
};

/// `[[link]]`
pub(in crate::site) const LINK: Section = Section {
    head: "[[link]]",
    needed: false,
    means: "A network of two partitions at one label: an interface in each, with a wire between them that nobody else has. A partition with neither a link nor a [[network]] has no network at all.",
    keys: &[
        must(
            "name",
            "a lower-case letter, then up to 14 of a-z, 0-9 and '-'",
            "Its name, and that of both interfaces.",
        ),
        must("between", "the names of two partitions", "Who has it. Both are at one label."),
        must(
            "addresses",
            "two addresses of one network, with its prefix length",
            "The addresses of the two, in the same order.",
        ),
        may(
            "ports",
            "a list of { port, protocol }",
            "[]",
            "Where one of the two has a [[network]]: which ports of the other are reached by hosts there, under that one's addresses. That one's \
             kernel forwards, while it runs.",
        ),
        may(
            "hosts",
            "a list of { address, port, protocol }",
            "[]",
            "Where one of the two has a [[network]]: which services of hosts there the other reaches, under that one's address.",
        ),
    ],
};

/// `[gateway]`
pub(in crate::site) const GATEWAY: Section = Section {
    head: "[gateway]",
    needed: false,
    means: "A host in front of the server at which the second tunnel ends: then the two layers are two hosts'. Between the two it is the tunnel within that goes, \
            by UDP at [server] layer-port, and the server takes it from there alone. `levee enrol` makes its bundle, and it runs `levee up --gateway BUNDLE`. Its kernel \
            routes the trusted path, to [server] trusted-path-port, and nothing else.",
    keys: &[
        must(
            "addresses",
            "a list of IPv4 and IPv6 addresses",
            "Where workstations find the second tunnel, at [server] layer-port.",
        ),
        must(
            "inside",
            "an IPv4 or IPv6 address",
            "Its address on the network that it has in common with the server, whose first address is there.",
        ),
    ],
};
