//! From the file's text to a site: every table is read whole before anything is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range as Span;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::Draft;
use super::problem::{Problem, ProblemKind};
use super::read::{At, Reader, Table};
use super::services::DraftService;
use super::services::service;
use super::tables::{DraftHost, DraftNetwork, DraftServer, DraftUser, ReadTables};
use super::values::{NAME, port_or, quantity as read_quantity, range, unknown_word};
use super::{
    Audit, Colour, Crypto, Host, HostPpk, Isolation, Limits, MAX_SLOTS, Network, SecondFactor, Server,
    Service, Site, User, Vault, check, domains, federation, frames, gateway, layers, networks, partition,
    posture, processors, protection, quantity, reference,
};
use crate::names::{HostName, ServiceName, SiteName, UserName};
use crate::vocabulary::{NameList, Vocabulary, nearest};

/// A site file is not larger than this, in bytes.
const MAX_TEXT: usize = 4 << 20;

impl Site {
    /// Reads a site file.
    ///
    /// # Errors
    /// Every problem of the file, in its order. A file with any problem at all is not a site.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        site(text)
    }
}

fn site(text: &str) -> Result<Site, Vec<Problem>> {
    let mut reader = Reader::new(text);
    if text.len() > MAX_TEXT {
        reader.problem(
            ProblemKind::TooLarge,
            &(0..1),
            format!("the file has {} bytes", text.len()),
            format!("keep it below {MAX_TEXT}"),
        );
        return Err(reader.finish());
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    if let Some(format) = (!errors.is_empty()).then(|| another_format(text)).flatten() {
        let remedy = "write it in TOML (https://toml.io); `levee init` writes one to begin with";
        reader.problem(
            ProblemKind::Syntax,
            &(0..1),
            format!("this looks like {format}: a site file is TOML"),
            remedy,
        );
        return Err(reader.finish());
    }
    for error in &errors {
        reader.syntax(error);
    }
    let whole = root.span();
    match build(&mut reader, root.get_ref(), whole) {
        Some(site) if reader.is_clean() => Ok(site),
        _ => Err(reader.finish()),
    }
}

/// What a file that is not TOML seems to be, by its first line that says anything: then one problem is told and not one for each line.
fn another_format(text: &str) -> Option<&'static str> {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    if first.bytes().any(|byte| byte == 0) {
        return Some("no text at all");
    }
    if first.starts_with(['{', '<']) {
        return Some(if first.starts_with('{') { "JSON" } else { "XML" });
    }
    let name = first.strip_suffix(':').or_else(|| first.split_once(": ").map(|(name, _)| name));
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    (first == "---" || name.is_some_and(is_name)).then_some("YAML")
}

fn build<'t>(reader: &mut Reader<'_>, root: &'t DeTable<'t>, whole: Span<usize>) -> Option<Site> {
    let root = reader.table(root, whole.start..whole.start, "the site file", &reference::tables());
    let name = site_name(reader, &root);
    let (vocabulary, colours) = labels(reader, &root);
    let server = server(reader, &root);
    let limits = limits(reader, &root);
    let slots = server.as_ref().map_or(MAX_SLOTS, |server| server.slots);
    let mut vault = Vault::read(reader, &root, vocabulary.as_ref(), slots);
    let crypto = Crypto::read(reader, &root);
    let audit = Audit::read(reader, &root);
    let isolation = Isolation::read(reader, &root, vocabulary.as_ref());
    let frames = frames::read(reader, &root, vocabulary.as_ref());
    let processors = processors::read(reader, &root, vocabulary.as_ref());
    let federation = federation::read(reader, &root, vault.as_ref());
    let gateway = gateway::Gateway::read(reader, &root, vault.as_ref(), server.as_ref());
    let words = vocabulary.as_ref();
    let users = tables(reader, &root, &reference::USER, |reader, keys| user(reader, words, keys));
    let hosts = tables(reader, &root, &reference::HOST, |reader, keys| host(reader, words, keys));
    if let Some(vault) = &mut vault {
        layers::beside(reader, vault, &hosts, server.as_ref(), root.get("federation").is_some());
    }
    let services =
        tables(reader, &root, &reference::SERVICE, |reader, keys| service(reader, words, &users, keys));
    let networks =
        tables(reader, &root, &reference::NETWORK, |reader, keys| networks::read(reader, words, keys));
    let domains = domains::read(reader, &root, words);
    let protections = protection::read(reader, &root, words, vault.as_ref(), crypto.as_ref());
    if let Some(protections) = &protections {
        protection::check_services(reader, &services.read, protections);
    }
    let whole_federation = federation.is_some();
    let federation = federation.flatten();
    let parts = partition::read(reader, &root, words, limits.as_ref());
    let draft = Draft { vocabulary, server, users, hosts, services, networks, federation, parts };
    let known = protections.as_deref().unwrap_or_default();
    let postures = posture::read(reader, &root, &draft, known, (vault.as_ref(), crypto.as_ref()));
    check::all(reader, &draft);
    let (vocabulary, served) = (draft.vocabulary.as_ref(), (&*draft.networks.read, &*draft.services.read));
    networks::check_labelled(reader, served, vocabulary, domains.as_deref());
    if let Some((isolation, own_kernel)) = &isolation {
        super::isolation::check(reader, own_kernel, &draft);
        isolation.check_selinux(reader, root.get("isolation"), vocabulary, domains.as_deref());
    }
    if let Some(Some(frames)) = &frames {
        frames::check(reader, frames, processors.as_deref().unwrap_or_default(), &draft);
    }
    let layered = layers::of_hosts(vault.as_ref(), &draft.hosts);
    let (server, parts) = (draft.server?, draft.parts?);
    if !whole_federation {
        return None;
    }
    Some(Site {
        name: name?,
        vocabulary: draft.vocabulary?,
        colours,
        server: built_server(server),
        limits: limits?,
        vault: vault?,
        crypto: crypto?,
        audit: audit?,
        isolation: isolation?.0,
        frames: frames?.map(|frames| frames.value),
        processors: processors?,
        users: (draft.users.read.into_iter()).map(built_user).collect(),
        hosts: (draft.hosts.read.into_iter()).map(|host| built_host(host, &layered)).collect(),
        services: (draft.services.read.into_iter()).map(built_service).collect(),
        networks: (draft.networks.read.into_iter()).map(built_network).collect(),
        federation: draft.federation.map(|draft| draft.federation),
        gateway: gateway?,
        domains: domains?,
        partitions: parts.partitions.into_iter().map(|(.., partition)| partition).collect(),
        channels: parts.channels.into_iter().map(partition::ReadChannel::into_channel).collect(),
        links: parts.links.into_iter().map(super::link::ReadLink::into_link).collect(),
        postures: postures?,
        protections: protections?,
    })
}

fn built_server(server: DraftServer) -> Server {
    Server {
        name: server.name.value,
        addresses: values(server.addresses),
        trusted_path_port: server.trusted_path_port,
        ike_port: server.ike_port.value,
        tunnel_port: server.tunnel_port.value,
        layer_port: server.layer_port.value,
        inner_addresses: values(server.inner_addresses),
        inner_pools: values(server.inner_pools),
        names: values(server.names),
        slots: server.slots,
        grace: server.grace,
        longest_session: server.longest_session,
        idle_lock: server.idle_lock,
    }
}

fn built_host(host: DraftHost, layered: &BTreeSet<HostName>) -> (HostName, Host) {
    let (name, ppk) = (host.name.value, host.ppk.map(|ppk| ppk.value));
    let (accreditation, layered) = (host.accreditation.value, layered.contains(&name));
    (name.clone(), Host { name, accreditation, ppk, layered })
}

fn built_user(user: DraftUser) -> (UserName, User) {
    let DraftUser { name, clearance, carried: [export, import], second_factor } = user;
    let (name, clearance) = (name.value, clearance.value);
    (name.clone(), User { name, clearance, export, import, second_factor })
}

fn built_service(service: DraftService) -> (ServiceName, Service) {
    let DraftService { protocol, mode, program, uploads, needs, software, recorded, access, .. } = service;
    let (name, port, range) = (service.name.value, service.port.value, service.range.value);
    let protection = service.protection.map(|name| name.value);
    let service = Service {
        name: name.clone(),
        port,
        protocol,
        range,
        mode,
        program,
        uploads,
        needs,
        software,
        recorded,
        protection,
        access,
    };
    (name, service)
}

fn built_network(network: DraftNetwork) -> Network {
    Network {
        interface: network.interface.value,
        labels: network.labels.value,
        domain: network.domain.map(|domain| domain.value),
        unlabelled: values(network.unlabelled),
        neighbours: network.neighbours,
        partition: network.partition.map(|partition| partition.value),
        addresses: values(network.addresses),
        services: values(network.services),
        ports: values(network.ports),
        hosts: values(network.hosts),
    }
}

fn values<T>(items: Vec<At<T>>) -> Vec<T> {
    items.into_iter().map(|item| item.value).collect()
}

/// The tables of one kind.
fn tables<'t, T>(
    reader: &mut Reader<'_>,
    root: &Table<'t>,
    section: &reference::Section,
    read: impl Fn(&mut Reader<'_>, &Table<'t>) -> Option<T>,
) -> ReadTables<T> {
    let name = section.word();
    let tables = reader.tables(root.get(name), &format!("[{name}]"), &section.names());
    let all = tables.iter().map(|keys| read(reader, keys)).collect();
    ReadTables::of(all, reader.has_all(root, name))
}

fn site_name(reader: &mut Reader<'_>, root: &Table<'_>) -> Option<SiteName> {
    let value = reader.need_table(root, "site", "`name = \"harbour\"`")?;
    let keys = reader.subtable(value, "[site]", &reference::SITE.names())?;
    let name = reader.need(&keys, "name", "\"harbour\"")?;
    Some(reader.parsed(name, "site name", "a lower-case letter, then up to 11 of a-z, 0-9 and '-'")?.value)
}

fn labels(reader: &mut Reader<'_>, root: &Table<'_>) -> (Option<Vocabulary>, BTreeMap<u8, Colour>) {
    let mut colours = BTreeMap::new();
    let Some(value) = reader.need_table(root, "labels", "`levels = [\"UNCLASSIFIED\", \"SECRET\"]`") else {
        return (None, colours);
    };
    let Some(keys) = reader.subtable(value, "[labels]", &reference::LABELS.names()) else {
        return (None, colours);
    };
    let mut spans: BTreeMap<&str, Vec<Span<usize>>> = BTreeMap::new();
    let mut whole: BTreeMap<&str, Span<usize>> = BTreeMap::new();
    let mut read = |reader: &mut Reader<'_>, list: NameList, needed: bool| -> Option<Vec<String>> {
        let key = list.key();
        let value = if needed { reader.need(&keys, key, "[\"LOW\", \"HIGH\"]") } else { keys.get(key) };
        let Some(value) = value else { return (!needed).then(Vec::new) };
        let names = reader.strings(value, key)?;
        whole.insert(key, value.span());
        spans.insert(key, names.iter().map(|name| name.span.clone()).collect());
        Some(names.iter().map(|name| name.value.to_owned()).collect())
    };
    let levels = read(reader, NameList::Levels, true);
    let categories = read(reader, NameList::Categories, false);
    let integrity_levels = read(reader, NameList::IntegrityLevels, false);
    let integrity_categories = read(reader, NameList::IntegrityCategories, false);
    let vocabulary = match (levels, categories, integrity_levels, integrity_categories) {
        (Some(a), Some(b), Some(c), Some(d)) => {
            let (vocabulary, errors) = Vocabulary::read(a, b, c, d);
            // Where all names have a meaning, what is written in them can be read and its faults be told as well.
            let usable = errors.iter().all(|error| error.again);
            for error in errors {
                if error.again {
                    reader.doubt_words();
                }
                let key = error.list.key();
                let entry = error.index.and_then(|index| spans.get(key)?.get(index));
                let span = entry.or(whole.get(key)).cloned().unwrap_or(keys.span());
                let kind = match error.index {
                    Some(_) if error.again => ProblemKind::Duplicate,
                    Some(_) => ProblemKind::BadValue,
                    None => ProblemKind::OutOfBounds,
                };
                reader.problem(kind, &span, error.what, error.remedy);
            }
            usable.then_some(vocabulary)
        }
        _ => None,
    };
    if let Some(value) = keys.get("colours") {
        colour_table(reader, value, vocabulary.as_ref(), &mut colours);
    }
    (vocabulary, colours)
}

fn colour_table<'t>(
    reader: &mut Reader<'_>,
    value: &'t Spanned<DeValue<'t>>,
    vocabulary: Option<&Vocabulary>,
    colours: &mut BTreeMap<u8, Colour>,
) {
    const COLOURS: &[(&str, Colour)] = &[
        ("red", Colour::Red),
        ("green", Colour::Green),
        ("yellow", Colour::Yellow),
        ("blue", Colour::Blue),
        ("magenta", Colour::Magenta),
        ("cyan", Colour::Cyan),
        ("white", Colour::White),
        ("orange", Colour::Orange),
    ];
    let Some(vocabulary) = vocabulary else { return };
    let mut levels: Vec<&str> = vocabulary.levels().collect();
    if let (true, DeValue::Table(table)) = (reader.doubts_words(), value.get_ref()) {
        let declared = levels.clone();
        let names = table.keys().map(|key| key.get_ref().as_ref());
        levels.extend(names.filter(|name| nearest(name, declared.iter().copied()).is_none()));
    }
    let Some(keys) = reader.subtable(value, "`colours`", &levels) else { return };
    for (level, value) in keys.iter() {
        let Some(word) = reader.string(value, level.value) else { continue };
        let colour = COLOURS.iter().find(|(name, _)| *name == word.value);
        match (colour, vocabulary.level(level.value)) {
            (Some((_, colour)), Some(number)) => {
                colours.insert(number, *colour);
            }
            (None, _) => unknown_word(reader, &word, "colour", COLOURS.iter().map(|(name, _)| *name)),
            // An unknown level has been told as an unknown key.
            (Some(_), None) => {}
        }
    }
}

fn server(reader: &mut Reader<'_>, root: &Table<'_>) -> Option<DraftServer> {
    let value = reader.need_table(
        root,
        "server",
        "`name = \"server.harbour.example\"`, `addresses = [\"192.0.2.1\"]`, `inner-address = \"10.80.0.1\"` and `inner-pool = \"10.80.1.0/24\"`",
    )?;
    let keys = reader.subtable(value, "[server]", &reference::SERVER.names())?;
    pub(super) const NAME: &str = "a DNS name in lower case, such as \"server.harbour.example\"";
    const OUTER: &str = "an IPv4 or IPv6 address, such as \"192.0.2.1\"";
    const ADDRESS: &str = "an IPv4 or IPv6 address, such as \"10.80.0.1\"";
    let name = (reader.need(&keys, "name", "\"server.harbour.example\""))
        .and_then(|value| reader.parsed(value, "server name", NAME));
    let addresses = (reader.need(&keys, "addresses", "[\"192.0.2.1\"]"))
        .and_then(|value| reader.parsed_list(value, ("addresses", "address"), OUTER));
    let trusted_path_port = port_or(reader, &keys, "trusted-path-port", 7443);
    let ike_port = port_or(reader, &keys, "ike-port", 500);
    let tunnel_port = port_or(reader, &keys, "tunnel-port", 4500);
    let layer_port = port_or(reader, &keys, "layer-port", 4433);
    let inner_addresses = (reader.need(&keys, "inner-address", "\"10.80.0.1\""))
        .and_then(|value| reader.one_or_more(value, "inner-address", ADDRESS));
    let inner_pools = (reader.need(&keys, "inner-pool", "\"10.80.1.0/24\"")).and_then(|value| {
        reader.one_or_more(value, "inner-pool", "a network with its prefix length, such as \"10.80.1.0/24\"")
    });
    let names = match keys.get("names") {
        Some(value) => reader.parsed_list(value, ("names", "name"), NAME),
        None => Some(Vec::new()),
    };
    let slots = match keys.get("slots") {
        Some(value) => reader.integer(value, "slots", 1..=u64::from(MAX_SLOTS)),
        None => Some(64),
    };
    let milliseconds =
        |text: &str| quantity::duration(text).and_then(|time| u64::try_from(time.as_millis()).ok());
    let longest_session = match keys.get("longest-session") {
        Some(value) => {
            const FORM: &str = "a time from \"1m\" to \"168h\"";
            const BOUNDS: std::ops::RangeInclusive<u64> = 60_000..=604_800_000;
            read_quantity(reader, value, "longest-session", milliseconds, BOUNDS, FORM).map(Some)
        }
        None => Some(None),
    };
    let idle_lock = match keys.get("idle-lock") {
        Some(value) => {
            const FORM: &str = "a time from \"5s\" to \"24h\"";
            const BOUNDS: std::ops::RangeInclusive<u64> = 5_000..=86_400_000;
            read_quantity(reader, value, "idle-lock", milliseconds, BOUNDS, FORM).map(Some)
        }
        None => Some(None),
    };
    let grace = match keys.get("grace") {
        Some(value) => read_quantity(
            reader,
            value,
            "grace",
            milliseconds,
            1_000..=3_600_000,
            "a time from \"1s\" to \"1h\"",
        ),
        None => Some(30_000),
    };
    Some(DraftServer {
        span: keys.span(),
        name: name?,
        addresses: addresses?,
        trusted_path_port: trusted_path_port?.value,
        ike_port: ike_port?,
        tunnel_port: tunnel_port?,
        layer_port: layer_port?,
        inner_addresses: inner_addresses?,
        inner_pools: inner_pools?,
        names: names?,
        slots: u16::try_from(slots?).ok()?,
        grace: Duration::from_millis(grace?),
        longest_session: longest_session?.map(Duration::from_millis),
        idle_lock: idle_lock?.map(Duration::from_millis),
    })
}

fn limits(reader: &mut Reader<'_>, root: &Table<'_>) -> Option<Limits> {
    let default = Limits::default();
    let Some(value) = root.get("limits") else { return Some(default) };
    let keys = reader.subtable(value, "[limits]", &reference::LIMITS.names())?;
    let memory = match keys.get("memory") {
        Some(value) => {
            let form = "a size from \"16M\" to \"1T\"";
            read_quantity(reader, value, "memory", quantity::size, 16 << 20..=1 << 40, form)
        }
        None => Some(default.memory),
    };
    let processes = match keys.get("processes") {
        Some(value) => reader.integer(value, "processes", 8..=32_768),
        None => Some(u64::from(default.processes)),
    };
    let cpu = match keys.get("cpu") {
        Some(value) => {
            let form = "a share of one processor from \"1%\" to \"102400%\"";
            read_quantity(reader, value, "cpu", quantity::percent, 1..=102_400, form)
        }
        None => Some(u64::from(default.cpu_percent)),
    };
    let store = match keys.get("store") {
        Some(value) => {
            let form = "a size from \"4M\" to \"1T\"";
            read_quantity(reader, value, "store", quantity::size, 4 << 20..=1 << 40, form)
        }
        None => Some(default.store),
    };
    let stores = match keys.get("stores") {
        Some(value) => {
            let form = "a size from \"16M\" to \"1024T\"";
            read_quantity(reader, value, "stores", quantity::size, 16 << 20..=1 << 50, form)
        }
        None => Some(default.stores),
    };
    let mut rate = |key, default: u32| match keys.get(key) {
        Some(value) => u32::try_from(reader.integer(value, key, 1..=100_000)?).ok(),
        None => Some(default),
    };
    let (changes, carried) = (rate("changes", default.changes), rate("carried", default.carried));
    let connections = rate("connections", default.connections);
    let first_labels = rate("first-labels", default.first_labels);
    Some(Limits {
        memory: memory?,
        processes: u32::try_from(processes?).ok()?,
        cpu_percent: u32::try_from(cpu?).ok()?,
        store: store?,
        stores: stores?,
        first_labels: first_labels?,
        changes: changes?,
        carried: carried?,
        connections: connections?,
    })
}

fn user(reader: &mut Reader<'_>, vocabulary: Option<&Vocabulary>, keys: &Table<'_>) -> Option<DraftUser> {
    let name = reader.need(keys, "name", "\"ada\"");
    let name = name.and_then(|value| reader.parsed(value, "user name", NAME));
    let clearance = range(reader, vocabulary, keys, "clearance");
    let mut carried = |key| match keys.get(key) {
        Some(_) => range(reader, vocabulary, keys, key).map(|range| Some(range.value)),
        None => Some(None),
    };
    let (export, import) = (carried("export"), carried("import"));
    let second_factor = match keys.get("second-factor") {
        Some(value) => second_factor(reader, value).map(Some),
        None => Some(None),
    };
    let carried = [export?, import?];
    Some(DraftUser { name: name?, clearance: clearance?, carried, second_factor: second_factor? })
}

fn second_factor(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<SecondFactor> {
    let word = reader.string(value, "second-factor")?;
    if word.value == "totp" {
        return Some(SecondFactor::Totp);
    }
    unknown_word(reader, &word, "second factor", ["totp"].into_iter());
    None
}

fn host(reader: &mut Reader<'_>, vocabulary: Option<&Vocabulary>, keys: &Table<'_>) -> Option<DraftHost> {
    let name = reader.need(keys, "name", "\"ws1\"");
    let name = name.and_then(|value| reader.parsed(value, "host name", &NAME.replace("32", "64")));
    let accreditation = range(reader, vocabulary, keys, "accreditation");
    let ppk = match keys.get("ppk") {
        Some(value) => HostPpk::read(reader, value).map(Some),
        None => Some(None),
    };
    let layered = layers::read(reader, keys);
    Some(DraftHost { name: name?, accreditation: accreditation?, ppk: ppk?, layered: layered? })
}
