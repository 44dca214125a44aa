//! Of what counts while an operator says so, and what a person may ask for: postures, protections.

use super::section::{RANGES, Section, may, must};
use crate::names::NAME;

/// `[[posture]]`
pub(in crate::site) const POSTURE: Section = Section {
    head: "[[posture]]",
    needed: false,
    means: "What tunnels must have, and who may have sessions, while an operator says so: `levee posture set`, which changes them while they run. What it does not say is as without it; `default` is what the other tables say. They stand in order, from the one that asks for least.",
    keys: &[
        must("name", NAME, "Its name; not `default`."),
        may(
            "labels",
            RANGES,
            "all labels",
            "At which labels, at most: `levee posture set --labels` can say fewer. Where postures in force share one, the last that was set counts.",
        ),
        may(
            "floor",
            RANGES,
            "none",
            "Labels of `labels` at which nothing less than this posture counts, whatever is set: no posture that stands before it in the file, and not `default`. Those that stand after it may ask for no less there.",
        ),
        may(
            "ciphers",
            "a list of \"aes-256-gcm\", \"aes-128-gcm\" and \"chacha20-poly1305\"",
            "those of `[crypto] suites`",
            "What tunnels and IKE's own messages are sealed by, the preferred first: some of those that `[crypto] suites` has.",
        ),
        may(
            "exchanges",
            "a list of \"X25519\", \"P-256\" and \"P-384\"",
            "those of `[crypto] suites`",
            "What keys are agreed by: some of the curves that `[crypto] suites` has. IKE SAs that were agreed by others get new keys first, and then the tunnels.",
        ),
        may(
            "ml-kem",
            "true",
            "what `[crypto] suites` has",
            "The keys of IKE SAs are agreed by ML-KEM as well. Workstations with levee have it at any time; other clients that cannot lose their sessions.",
        ),
        may(
            "key-life",
            "a time from \"1m\" to \"1h\"",
            "an hour or so",
            "How old keys may become: they are replaced before, and erased then. Where it is less than before, all keys are replaced before the change is acknowledged. A protection's counts where it is less.",
        ),
        may(
            "constant-rate",
            "true",
            "what the label has",
            "Packets have one size and leave at `[vault] constant-rate-packets`, whatever there is to send. Workstations are told over the trusted path; what goes otherwise is gone before the change is acknowledged. With `[federation]`, where `follow` is 10 s or more and at labels that are not in `[vault] aggfrag`.",
        ),
        may(
            "aggfrag",
            "true",
            "what the label has",
            "Packets go in AGGFRAG payloads, as with `[vault] aggfrag`, where the client takes them, which workstations with levee do. The longest inner packet stays as it is without the posture.",
        ),
        may(
            "agree",
            "true",
            "what the label has",
            "Two stacks must agree about every packet, as with `[vault] agree`. The label's vault ends for it, and another begins: its tunnels agree on new keys, and packets of that moment are lost. Not with `[federation]`.",
        ),
        may(
            "aead",
            "\"fastest\", \"ring\" or \"aws-lc\"",
            "that of `[vault]`",
            "The library that seals packets. Another vault begins for it, as with `agree`.",
        ),
        may(
            "poll",
            "a time from \"0us\" to \"10ms\"",
            "that of `[vault]`",
            "A vault looks for more packets at most this long before it sleeps. Another vault begins for it, as with `agree`.",
        ),
        may(
            "workers",
            "a number from 1 to 16",
            "that of `[vault]`",
            "How many processes of a label's vault work side by side. Another vault begins for it, as with `agree`. A label has as many of the server's `slots` as it may have workers.",
        ),
        may(
            "people",
            "a list of names of people",
            "everybody",
            "Who may have sessions. Nobody else opens one, and sessions of others end before the change is acknowledged. An empty list lets nobody.",
        ),
        may("hosts", "a list of names of hosts", "all", "From which workstations. As `people`."),
        may(
            "layers",
            "[\"esp\", \"quic\"]",
            "any",
            "The tunnels that sessions must travel in. From hosts whose `layers` are not these nobody opens one, and sessions from there end before the change is acknowledged.",
        ),
        may(
            "services",
            "a list of names of services",
            "all",
            "Which services are on. Others refuse who comes, and what runs of them ends before the change is acknowledged; for that every program at the label ends, and those that are on start again.",
        ),
        may(
            "follow",
            "a time from \"2s\" to \"60s\"",
            "\"10s\"",
            "How long workstations have to agree on new keys. Then the old ones are gone, and sessions without others end.",
        ),
    ],
};

/// `[[protection]]`
pub(in crate::site) const PROTECTION: Section = Section {
    head: "[[protection]]",
    needed: false,
    means: "What a person may ask of a session's tunnel, by `levee-tpe level LABEL --protection NAME`, and a service by `protection`: more than every tunnel at the label has. What was asked for by several counts together. What cannot be had is refused, and nothing less is given.",
    keys: &[
        must("name", NAME, "Its name."),
        may("labels", RANGES, "all labels", "At which labels it may be asked for."),
        may(
            "ciphers",
            "a list of \"aes-256-gcm\", \"aes-128-gcm\" and \"chacha20-poly1305\"",
            "what the label has",
            "What the tunnel is sealed by: of these, what the posture in force has. Where it has none the session ends.",
        ),
        may(
            "key-life",
            "a time from \"1m\" to \"1h\"",
            "about an hour",
            "How old the tunnel's keys become: they are replaced before, and those that could not be are erased then.",
        ),
        may(
            "constant-rate",
            "true or false",
            "what the label has",
            "Whether its packets have one size and leave at `[vault] constant-rate-packets`, whatever there is to send.",
        ),
    ],
};
