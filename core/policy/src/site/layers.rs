//! Which tunnels sessions' packets travel in, where that is not the same for all: `layers` of a host, and of a posture.

use super::draft::Draft;
use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::tables::{DraftHost, DraftServer, ReadTables};
use super::vault::{Tunnel, Vault, layers};
use crate::names::HostName;
use std::collections::BTreeSet;

/// Whether the sessions of a host, or those that a posture lets be, travel within a second tunnel; `Some(None)`: it does not say.
pub(super) fn read(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Option<At<bool>>> {
    let Some(value) = keys.get("layers") else { return Some(None) };
    let layers = layers(reader, keys)?;
    Some(Some(At::new(layers.contains(&Tunnel::Quic), value.span())))
}

/// Whether some hosts' sessions travel within a second tunnel where others' do not: told to the vault, with what it must be like for it.
pub(super) fn beside(
    reader: &mut Reader<'_>,
    vault: &mut Vault,
    hosts: &ReadTables<DraftHost>,
    server: Option<&DraftServer>,
    is_federation: bool,
) {
    let said = || hosts.read.iter().filter_map(|host| host.layered.as_ref());
    if vault.is_layered() {
        if let Some(less) = said().find(|layered| !layered.value) {
            let what = "`[vault] layers` has \"quic\", and a host has no less than that";
            let remedy = "take `layers` out here, or take \"quic\" out there and give it to the other hosts";
            reader.problem(ProblemKind::Overlap, &less.span, what, remedy);
        }
        return;
    }
    let Some(first) = said().find(|layered| layered.value) else { return };
    vault.beside = true;
    let mut refuse = |what: &str, remedy: &str| {
        reader.problem(ProblemKind::Overlap, &first.span, what, remedy);
    };
    if vault.agrees_anywhere() || !vault.aggfrag.is_empty() || !vault.constant.is_empty() {
        refuse(
            "a second tunnel beside none goes with neither `agree` nor `aggfrag` nor `constant-rate` of `[vault]`",
            "empty these, or take \"quic\" out of the host's `layers`",
        );
    }
    if is_federation {
        refuse(
            "a host of a federation has a second tunnel, which reaches one server",
            "take \"quic\" out of the host's `layers`",
        );
    }
    let on_loopback = |server: &DraftServer| server.addresses.iter().any(|one| one.value.is_loopback());
    if server.is_some_and(on_loopback) {
        refuse(
            "the server has a loopback address, at which nothing tells what came within a second tunnel from what did not",
            "give `addresses` those that others reach, or write `layers = [\"esp\", \"quic\"]` in `[vault]`",
        );
    }
}

/// The hosts whose sessions travel within a second tunnel.
pub(super) fn of_hosts(vault: Option<&Vault>, hosts: &ReadTables<DraftHost>) -> BTreeSet<HostName> {
    let all = vault.is_some_and(Vault::is_layered);
    let within = |host: &&DraftHost| all || host.layered.as_ref().is_some_and(|layered| layered.value);
    hosts.read.iter().filter(within).map(|host| host.name.value.clone()).collect()
}

/// A posture's: the hosts that have what it asks for. A posture says that a second tunnel is needed or nothing: a layer that sessions have
/// anyway it cannot take away.
pub(super) fn of_posture(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    draft: &Draft,
    vault: Option<&Vault>,
) -> Option<Option<BTreeSet<HostName>>> {
    let Some(needed) = read(reader, keys)? else { return Some(None) };
    if !needed.value {
        let (what, remedy) =
            ("a posture takes no layer away", "write `layers = [\"esp\", \"quic\"]`, or leave it out");
        reader.problem(ProblemKind::BadValue, &needed.span, what, remedy);
        return None;
    }
    let hosts = of_hosts(vault, &draft.hosts);
    if hosts.is_empty() && draft.hosts.whole {
        let what = "no host has a second tunnel, so this would let nobody have a session";
        let remedy =
            "write `layers = [\"esp\", \"quic\"]` at the hosts that are to have it, or `hosts = []` here";
        reader.problem(ProblemKind::BadValue, &needed.span, what, remedy);
    }
    Some(Some(hosts))
}
