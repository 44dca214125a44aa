//! `[[posture]]`: what tunnels must have, who may have sessions and which services are on, while an operator says so.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::cipher::Cipher;
use super::crypto::{Crypto, ciphers_of, exchanges_of};
use super::draft::Draft;
use super::exchange::Exchange;
use super::problem::ProblemKind;
use super::protection::Protection;
use super::quantity::duration;
use super::read::{Reader, Table};
use super::reference;
use super::server::MAX_SLOTS;
use super::values::{NAME, key_life, names, quantity};
use super::vault::{self, AeadLibrary, Vault, overlap, ranges};
use crate::label::{Label, Range};
use crate::names::{HostName, LabelName, PostureName, ServiceName, UserName};

/// The most postures of a site.
const MOST: usize = 16;
/// How long workstations have to follow, unless the site says otherwise.
const FOLLOW: Duration = Duration::from_secs(10);
/// What that may be, in milliseconds: two seconds are about what a change takes on a busy host.
const FOLLOWS: std::ops::RangeInclusive<u64> = 2_000..=60_000;

/// What a posture can say; it says some of it.
const SAYS: [&str; 14] = [
    "ciphers",
    "exchanges",
    "ml-kem",
    "key-life",
    "constant-rate",
    "aggfrag",
    "agree",
    "aead",
    "poll",
    "workers",
    "people",
    "hosts",
    "layers",
    "services",
];

/// Nobody, and no service.
static IN_DOUBT: LazyLock<Posture> = LazyLock::new(|| Posture {
    name: PostureName::in_doubt(),
    labels: None,
    floor: Vec::new(),
    ciphers: None,
    exchanges: None,
    ml_kem: false,
    people: Some(BTreeSet::new()),
    hosts: None,
    layered: None,
    services: Some(BTreeSet::new()),
    key_life: None,
    constant: false,
    aggfrag: false,
    agree: false,
    aead: None,
    poll: None,
    workers: None,
    follow: FOLLOW,
});

/// What counts while it is in force. What it does not say is as without it.
#[derive(Clone, Debug)]
pub struct Posture {
    name: PostureName,
    labels: Option<Vec<Range>>,
    floor: Vec<Range>,
    ciphers: Option<Vec<Cipher>>,
    exchanges: Option<Vec<Exchange>>,
    ml_kem: bool,
    people: Option<BTreeSet<UserName>>,
    hosts: Option<BTreeSet<HostName>>,
    /// Those that have the layers that it asks for, where it asks for any.
    layered: Option<BTreeSet<HostName>>,
    services: Option<BTreeSet<ServiceName>>,
    key_life: Option<Duration>,
    constant: bool,
    aggfrag: bool,
    agree: bool,
    aead: Option<AeadLibrary>,
    poll: Option<Duration>,
    workers: Option<u16>,
    follow: Duration,
}

impl Posture {
    /// The name of what is in force where no posture is.
    pub const DEFAULT: &str = "default";
    /// How long workstations have to follow where a posture ends.
    pub const FOLLOW: Duration = FOLLOW;

    /// What counts where nobody can know what does: nobody has sessions, and no service is on. No site has it among its own.
    pub fn in_doubt() -> &'static Self {
        &IN_DOUBT
    }

    /// Its name.
    pub fn name(&self) -> &PostureName {
        &self.name
    }

    /// The labels that it is for; `None`: all.
    pub fn labels(&self) -> Option<&[Range]> {
        self.labels.as_deref()
    }

    /// Whether it says anything of this label.
    pub fn covers(&self, label: &Label) -> bool {
        self.labels.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(label)))
    }

    /// What tunnels are sealed by, the preferred first; at least one. `None`: it does not say.
    pub fn ciphers(&self) -> Option<&[Cipher]> {
        self.ciphers.as_deref()
    }

    /// What keys are agreed by; at least one. `None`: it does not say.
    pub fn exchanges(&self) -> Option<&[Exchange]> {
        self.exchanges.as_deref()
    }

    /// Whether each IKE SA's keys are agreed by ML-KEM as well; else as without it.
    pub fn needs_ml_kem(&self) -> bool {
        self.ml_kem
    }

    /// Whether this person may have a session from this workstation at a label that it covers. Whom it does not name has none, where it
    /// names anybody or says that nobody has.
    pub fn admits(&self, user: &UserName, host: &HostName) -> bool {
        self.people.as_ref().is_none_or(|people| people.contains(user))
            && self.hosts.as_ref().is_none_or(|hosts| hosts.contains(host))
            && self.layers_suffice(host)
    }

    /// Whether this service is on at a label that it covers. One that it does not name is off, where it names any or says that none is on.
    pub fn offers(&self, service: &ServiceName) -> bool {
        self.services.as_ref().is_none_or(|services| services.contains(service))
    }

    /// How old keys may become; `None`: it does not say.
    pub fn key_life(&self) -> Option<Duration> {
        self.key_life
    }

    /// Whether packets are of one size and leave at `[vault] constant-rate-packets`, whatever there is to send; else as without it.
    pub fn is_constant(&self) -> bool {
        self.constant
    }

    /// Whether packets go in AGGFRAG payloads (RFC 9347) where the peer takes them; else as without it.
    pub fn aggregates(&self) -> bool {
        self.aggfrag
    }

    /// Whether two stacks must agree about every packet; else as without it.
    pub fn agrees(&self) -> bool {
        self.agree
    }

    /// The vault's cryptographic library; `None`: it does not say.
    pub fn aead(&self) -> Option<AeadLibrary> {
        self.aead
    }

    /// The longest time for which a vault looks for more before it sleeps; `None`: it does not say.
    pub fn poll(&self) -> Option<Duration> {
        self.poll
    }

    /// How many processes of a label's vault work side by side, 1 to 16; `None`: it does not say.
    pub fn workers(&self) -> Option<u16> {
        self.workers
    }

    /// How long workstations have to agree on new keys.
    pub fn follow(&self) -> Duration {
        self.follow
    }

    /// Whether sessions from this host travel in the layers that it asks for.
    pub fn layers_suffice(&self, host: &HostName) -> bool {
        self.layered.as_ref().is_none_or(|hosts| hosts.contains(host))
    }

    /// Whether at this label no posture before it in the file counts, nor the default.
    pub fn is_floor_of(&self, label: &Label) -> bool {
        self.floor.iter().any(|range| range.contains(label))
    }

    /// The labels of which it is the floor.
    pub fn floor(&self) -> &[Range] {
        &self.floor
    }

    /// The first key in which another asks for less than this one. Which library seals, how long a vault looks and how many workers it has
    /// is no matter of more or less.
    fn asked_less_by(&self, other: &Self) -> Option<&'static str> {
        fn within<T: PartialEq>(own: Option<&[T]>, other: Option<&[T]>) -> bool {
            own.is_none_or(|own| other.is_some_and(|other| other.iter().all(|one| own.contains(one))))
        }
        fn among<T: Ord>(own: &Option<BTreeSet<T>>, other: &Option<BTreeSet<T>>) -> bool {
            own.as_ref().is_none_or(|own| other.as_ref().is_some_and(|other| other.is_subset(own)))
        }
        let as_short = self.key_life.is_none_or(|own| other.key_life.is_some_and(|other| other <= own));
        let holds = [
            ("ciphers", within(self.ciphers(), other.ciphers())),
            ("exchanges", within(self.exchanges(), other.exchanges())),
            ("ml-kem", other.ml_kem || !self.ml_kem),
            ("key-life", as_short),
            ("constant-rate", other.constant || !self.constant),
            // At a constant rate packets go so, too.
            ("aggfrag", other.aggfrag || other.constant || !self.aggfrag),
            ("agree", other.agree || !self.agree),
            ("people", among(&self.people, &other.people)),
            ("hosts", among(&self.hosts, &other.hosts)),
            ("layers", among(&self.layered, &other.layered)),
            ("services", among(&self.services, &other.services)),
        ];
        holds.into_iter().find(|(_, holds)| !holds).map(|(key, _)| key)
    }

    /// What it does to those whom it does not admit, as what follows its name.
    pub fn refusal(&self, user: &UserName, host: &HostName, label: &LabelName) -> String {
        if std::ptr::eq(self, Self::in_doubt()) {
            return format!(
                "lets nobody have sessions at {label}: the site file does not have a range any more that was set"
            );
        }
        if self.layers_suffice(host) {
            return format!("does not let `{user}` have sessions at {label} from `{host}`");
        }
        format!("needs the layers esp and quic at {label}, and sessions from `{host}` have esp alone")
    }
}

/// SHA-256 of all that these say: where two sites have the same, the names mean the same in both.
pub(super) fn digest(postures: &[Posture]) -> [u8; 32] {
    // Every field is in what is printed for the programmer, and what it says is of the site file alone.
    Sha256::digest(format!("{postures:?}")).into()
}

/// Every `[[posture]]`; `None` if one could not be read.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    draft: &Draft,
    protections: &[Protection],
    (vault, crypto): (Option<&Vault>, Option<&Crypto>),
) -> Option<Vec<Posture>> {
    let tables = reader.tables(root.get("posture"), "[posture]", &reference::POSTURE.names());
    let read: Vec<_> = tables.iter().map(|keys| posture(reader, keys, draft, vault, crypto)).collect();
    let read: Vec<Posture> = read.into_iter().collect::<Option<_>>()?;
    for (number, (one, keys)) in read.iter().zip(&tables).enumerate() {
        if read.iter().take(number).any(|other| other.name == one.name) {
            let what = format!("there are two postures `{}`", one.name);
            reader.problem(ProblemKind::Duplicate, &keys.span(), what, "give one of them another name");
        }
        if number == MOST {
            let what = format!("there are more than {MOST} postures");
            reader.problem(ProblemKind::OutOfBounds, &keys.span(), what, "remove some");
        }
        fits_floors(reader, keys, one, read.get(..number).unwrap_or_default());
        if let Some(vault) = vault {
            fits(reader, keys, one, vault, protections);
        }
        if root.get("federation").is_some() {
            fits_several_servers(reader, keys, (vault, &read), one);
        }
    }
    Some(read)
}

fn posture(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    draft: &Draft,
    vault: Option<&Vault>,
    crypto: Option<&Crypto>,
) -> Option<Posture> {
    if !SAYS.iter().any(|key| keys.get(key).is_some()) {
        let what = "the posture changes nothing";
        let remedy = format!("write one of {}", SAYS.map(|key| format!("`{key}`")).join(", "));
        reader.problem(ProblemKind::MissingKey, &keys.span(), what, remedy);
        return None;
    }
    let name = name(reader, keys);
    let labels = match keys.get("labels") {
        None => Some(None),
        Some(_) => ranges(reader, keys, "labels", draft.vocabulary.as_ref()).map(Some),
    };
    let ciphers = match keys.get("ciphers") {
        None => Some(None),
        Some(value) => ciphers_of(reader, value, crypto, "posture").map(Some),
    };
    let exchanges = match keys.get("exchanges") {
        None => Some(None),
        Some(value) => exchanges_of(reader, value, crypto, "posture").map(Some),
    };
    let ml_kem = only_on(reader, keys, "ml-kem", "ML-KEM");
    let key_life = key_life(reader, keys);
    let constant = only_on(reader, keys, "constant-rate", "constant rate");
    let aggfrag = only_on(reader, keys, "aggfrag", "AGGFRAG");
    let agree = only_on(reader, keys, "agree", "stack");
    let (aead, poll) = (vault::aead(reader, keys), vault::poll(reader, keys));
    let slots = draft.server.as_ref().map_or(MAX_SLOTS, |server| server.slots);
    let workers = vault::workers(reader, keys, slots);
    let users = draft.users.whole.then(|| draft.users.read.iter().map(|user| &user.name.value));
    let people = names(reader, keys, "people", ("user", users));
    let hosts = draft.hosts.whole.then(|| draft.hosts.read.iter().map(|host| &host.name.value));
    let hosts = names(reader, keys, "hosts", ("host", hosts));
    let layered = super::layers::of_posture(reader, keys, draft, vault);
    let services = draft.services.whole.then(|| draft.services.read.iter().map(|one| &one.name.value));
    let services = names(reader, keys, "services", ("service", services));
    let follow = match keys.get("follow") {
        None => u64::try_from(FOLLOW.as_millis()).ok(),
        Some(value) => {
            let read = |text: &str| duration(text).and_then(|time| u64::try_from(time.as_millis()).ok());
            quantity(reader, value, "follow", read, FOLLOWS, "a time from \"2s\" to \"60s\"")
        }
    };
    let labels: Option<Vec<Range>> =
        labels?.map(|ranges| ranges.into_iter().map(|range| range.value).collect());
    let floor = floor(reader, keys, draft, labels.as_deref())?;
    let (people, hosts, layered, services) = (people?, hosts?, layered?, services?);
    let (name, ciphers, exchanges, ml_kem) = (name?, ciphers?, exchanges?, ml_kem?);
    let (key_life, constant, aggfrag, agree) = (key_life?, constant?, aggfrag?, agree?);
    let (aead, poll, workers) = (aead?, poll?, workers?);
    let follow = Duration::from_millis(follow?);
    Some(Posture {
        name,
        labels,
        floor,
        ciphers,
        exchanges,
        ml_kem,
        people,
        hosts,
        layered,
        services,
        key_life,
        constant,
        aggfrag,
        agree,
        aead,
        poll,
        workers,
        follow,
    })
}

/// The labels of which a posture is the floor, each one that it is for.
fn floor(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    draft: &Draft,
    labels: Option<&[Range]>,
) -> Option<Vec<Range>> {
    if keys.get("floor").is_none() {
        return Some(Vec::new());
    }
    let read = ranges(reader, keys, "floor", draft.vocabulary.as_ref())?;
    for range in &read {
        let is_own = labels.is_none_or(|own| own.iter().any(|own| own.includes(&range.value)));
        if !is_own {
            let what = "the posture is to be the floor of labels that it is not for";
            let remedy = "write them in its `labels` as well, or take them out of `floor`";
            reader.problem(ProblemKind::OutOfBounds, &range.span, what, remedy);
        }
    }
    Some(read.into_iter().map(|range| range.value).collect())
}

/// Nothing that an operator can set is less than a floor: a posture that stands after one asks for as much.
fn fits_floors(reader: &mut Reader<'_>, keys: &Table<'_>, posture: &Posture, before: &[Posture]) {
    let floors = before.iter().filter(|one| overlap(&one.floor, posture.labels.as_deref()));
    for floor in floors {
        if let Some(key) = floor.asked_less_by(posture) {
            let what = format!(
                "`{}` stands after `{}`, the floor of labels of it, and its `{key}` asks for less",
                posture.name, floor.name
            );
            let remedy = format!(
                "give it a `{key}` that asks for as much as that of `{0}`, put it before `{0}`, or give it `labels` without these",
                floor.name
            );
            reader.problem(ProblemKind::Overlap, &keys.span(), what, remedy);
        }
    }
}

/// Its name, which is not that of what is in force where none is.
fn name(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<PostureName> {
    let value = reader.need(keys, "name", "\"siege\"")?;
    let name = reader.parsed::<PostureName>(value, "posture's name", NAME)?;
    if name.value.as_str() == Posture::DEFAULT {
        let what = "`default` is what the other tables say";
        reader.problem(ProblemKind::BadValue, &name.span, what, "give the posture another name");
        return None;
    }
    Some(name.value)
}

/// What a posture has or says nothing of: what a label has anyway it cannot take away.
fn only_on(reader: &mut Reader<'_>, keys: &Table<'_>, key: &str, what: &str) -> Option<bool> {
    let Some(value) = keys.get(key) else { return Some(false) };
    let on = reader.boolean(value, key)?;
    if !on {
        let what = format!("a posture takes no {what} away");
        let remedy = format!("write `{key} = true`, or leave it out");
        reader.problem(ProblemKind::BadValue, &value.span(), what, remedy);
    }
    Some(on)
}

/// What a posture must be like where the site has several servers.
fn fits_several_servers(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    (vault, all): (Option<&Vault>, &[Posture]),
    posture: &Posture,
) {
    if posture.agree {
        let what = "a posture of a federation has redundant stacks, which keep no lease";
        reader.problem(ProblemKind::Overlap, &keys.span(), what, "take `agree` out");
    }
    if !posture.constant {
        return;
    }
    // A workstation hears of it from one of the servers, which may be the last to have it in force.
    if posture.follow < FOLLOW {
        let what = "with several servers a workstation hears of a constant rate from one of them, which may have it later than another: `follow` is too short for that";
        let remedy = format!("write `follow = \"{}s\"` or more, or leave it out", FOLLOW.as_secs());
        reader.problem(ProblemKind::OutOfBounds, &keys.span(), what, remedy);
    }
    let shares = |other: &Posture| {
        let overlap = |ranges: &Vec<Range>| overlap(ranges, posture.labels.as_deref());
        other.aggfrag && other.labels.as_ref().is_none_or(overlap)
    };
    if vault.is_some_and(|vault| overlap(&vault.aggfrag, posture.labels.as_deref())) || all.iter().any(shares)
    {
        let what = "`aggfrag`, of `[vault]` or a posture, has labels of this posture, and with several servers one does not know whether a \
                    workstation that asks for AGGFRAG payloads has heard of the constant rate";
        let remedy = "take these labels out of `aggfrag`, or `constant-rate` out of the posture";
        reader.problem(ProblemKind::Overlap, &keys.span(), what, remedy);
    }
}

/// What vaults and protections must be like for it.
fn fits(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    posture: &Posture,
    vault: &Vault,
    protections: &[Protection],
) {
    let Posture { constant, aggfrag, agree, aead, poll, workers, .. } = *posture;
    let has = |ranges: &[Range]| overlap(ranges, posture.labels.as_deref());
    let mut constants = protections.iter().filter(|one| one.constant);
    let may_be_constant = has(&vault.constant) || constants.any(|one| one.labels.as_deref().is_none_or(has));
    let agrees = agree || has(&vault.agree);
    let without = "take one of the two out, or give the posture `labels` without these";
    let faults = [
        (
            constant && agrees,
            "`agree`, here or in `[vault]`, is for labels of this posture, and stacks that must agree know no constant rate",
            without,
        ),
        (
            aggfrag && agrees || agree && (has(&vault.aggfrag) || may_be_constant),
            "`agree` and `aggfrag` or `constant-rate`, of it, `[vault]` or a protection, are for labels of this posture, and stacks that must agree know no AGGFRAG",
            without,
        ),
        (
            aggfrag && vault.has_second_tunnel(),
            "`layers` has \"quic\", in `[vault]` or at a host, whose datagrams have no room for AGGFRAG payloads",
            "take \"quic\" out of `layers`, or `aggfrag` out of the posture",
        ),
        (
            agrees && (aead.is_some() || poll.is_some() || workers.is_some()),
            "`agree`, here or in `[vault]`, is for labels of this posture, and leaves neither `aead` nor `poll` nor `workers` to choose",
            without,
        ),
        (
            agree && vault.beside,
            "some hosts have a second tunnel, and stacks that must agree do not know which",
            "take `agree` out, or \"quic\" out of the hosts' `layers`",
        ),
        (
            workers.is_some_and(|workers| workers > 1) && (constant || may_be_constant),
            "`constant-rate`, here, in `[vault]` or of a protection, is for labels of this posture, and each of several workers would have a rate of its own",
            "write `workers = 1`, or give the posture `labels` without these",
        ),
    ];
    for (_, what, remedy) in faults.into_iter().filter(|(is_so, ..)| *is_so) {
        reader.problem(ProblemKind::Overlap, &keys.span(), what, remedy);
    }
    if constant {
        super::protection::fits_a_rate(reader, keys, vault);
    }
}
