//! The negotiation of one child SA, in IKE_AUTH and in CREATE_CHILD_SA (RFC 7296 1.2, 1.3, 2.9; RFC 9478).

use crate::api::{
    Aggfrag, ChildDecision, ChildError, ChildEstablished, CommandError, Event, IkeId, InnerAddress, NewChild,
    Output, Path, Resource, Role,
};
use crate::crypto::Secret;
use crate::crypto::keys::{EspKeys, child_keys};
use crate::crypto::suite::{ChildSuite, Chosen, Prf, choose_child};
use crate::drops::Drop;
use crate::endpoint::Ctx;
use crate::wire::{
    Chain, CpAttribute, CpKind, Fields, Notify, NotifyKind, Proposal, SecurityLabel, Selector,
    TrafficSelectors, kind, narrow, within,
};

/// An SPI that ESP may use (RFC 4303 2.1: 0 to 255 are reserved).
pub(crate) fn usable_spi(spi: u32) -> bool {
    spi >= 256
}

/// A child SA as the IKE SA remembers it: all but its keys.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) inbound: u32,
    pub(crate) outbound: u32,
    pub(crate) label: Option<SecurityLabel>,
    pub(crate) local: Vec<Selector>,
    pub(crate) remote: Vec<Selector>,
    /// The child, by its inbound SPI, in whose place this one came.
    pub(crate) replaces: Option<u32>,
    pub(crate) aggfrag: Option<Aggfrag>,
    /// Our resource and the peer's, where both were named.
    pub(crate) resource: Option<(Resource, Resource)>,
}

/// A peer's request for a child, as far as it can be granted at all.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) chosen: Chosen<ChildSuite>,
    pub(crate) outbound: u32,
    pub(crate) labels: Vec<SecurityLabel>,
    /// The peer's side (TSi) and ours (TSr).
    pub(crate) remote: Vec<Selector>,
    pub(crate) local: Vec<Selector>,
    pub(crate) wants_address: bool,
    pub(crate) aggfrag: Option<Aggfrag>,
    pub(crate) resource: Option<Resource>,
}

impl Offered {
    /// Reads a request. An error is the notification to answer with.
    pub(crate) fn read(fields: &Fields<'_>, in_auth: bool, ctx: &mut Ctx<'_>) -> Result<Self, NotifyKind> {
        let (Some(sa), Some(ts_i), Some(ts_r)) = (&fields.sa, &fields.ts_i, &fields.ts_r) else {
            return Err(NotifyKind::InvalidSyntax);
        };
        let labels = common_labels(ts_i, ts_r);
        let proposals = ctx.config.child_at(labels.iter().flatten());
        let Some(chosen) = choose_child(proposals, sa, in_auth) else {
            ctx.counters.count(Drop::NoProposal);
            return Err(NotifyKind::NoProposalChosen);
        };
        let outbound = esp_spi(&chosen.spi).ok_or(NotifyKind::NoProposalChosen)?;
        let labels = labels.ok_or(NotifyKind::TsUnacceptable)?;
        let wants_address = matches!(&fields.cp, Some((CpKind::Request, asked))
            if asked.iter().any(|a| matches!(a, CpAttribute::Address4(_) | CpAttribute::Address6(_))));
        Ok(Self {
            chosen,
            outbound,
            labels,
            remote: ts_i.ranges.clone(),
            local: ts_r.ranges.clone(),
            wants_address,
            aggfrag: aggfrag(fields),
            resource: resource(fields),
        })
    }
}

/// RFC 9347 5.1.1: the D bit of USE_AGGFRAG's octet: no fragments.
const DONT_FRAGMENT: u8 = 1;
/// The C bit: the sender is to be told of congestion. Nobody here measures it.
const CONGESTION: u8 = 2;

/// Whether the peer wants AGGFRAG payloads, and how. Not where it asks for what cannot be given: then nothing is said of it in answer.
fn aggfrag(fields: &Fields<'_>) -> Option<Aggfrag> {
    let said = fields.notify(NotifyKind::UseAggfrag)?;
    match *said.data {
        [flags] if flags & CONGESTION == 0 => Some(Aggfrag { fragments: flags & DONT_FRAGMENT == 0 }),
        _ => None,
    }
}

/// Appends the wish for AGGFRAG payloads, or the consent: fragments are welcome, nothing is measured.
fn push_aggfrag(chain: &mut Chain) {
    chain.push(kind::NOTIFY, Notify::write(NotifyKind::UseAggfrag, &[0]));
}

/// The resource that the peer names. One whose name is too long to keep counts as none: the notification is a hint (RFC 9611 5.1).
fn resource(fields: &Fields<'_>) -> Option<Resource> {
    Resource::new(fields.notify(NotifyKind::SaResourceInfo)?.data)
}

fn push_resource(chain: &mut Chain, ours: &Resource) {
    chain.push(kind::NOTIFY, Notify::write(NotifyKind::SaResourceInfo, ours.as_bytes()));
}

fn esp_spi(spi: &[u8]) -> Option<u32> {
    let spi = u32::from_be_bytes(spi.try_into().ok()?);
    usable_spi(spi).then_some(spi)
}

/// RFC 9478 2.2: the labels that stand in TSi and TSr both, to choose one from; none at all in either for an unlabelled SA. A
/// label in one alone is a contradiction.
fn common_labels(ts_i: &TrafficSelectors, ts_r: &TrafficSelectors) -> Option<Vec<SecurityLabel>> {
    let mut both = Vec::new();
    for label in &ts_i.labels {
        if ts_r.labels.contains(label) && !both.contains(label) {
            both.push(label.clone());
        }
    }
    let unlabelled = ts_i.labels.is_empty() && ts_r.labels.is_empty();
    (unlabelled || !both.is_empty()).then_some(both)
}

/// A request that was granted, before it has keys.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) child: Child,
    pub(crate) chosen: Chosen<ChildSuite>,
    pub(crate) assign: Vec<InnerAddress>,
}

/// Applies a decision to a request. `Ok(Err(_))` is a refusal with its notification; `Err` means that the decision itself was
/// wrong and the question stays open. A granted child's SPI is taken.
pub(crate) fn decide(
    offered: &Offered,
    decision: &ChildDecision,
    ike: IkeId,
    ctx: &mut Ctx<'_>,
) -> Result<Result<Granted, NotifyKind>, CommandError> {
    let (spi, label, local, remote, assign, ours, granted) = match decision {
        ChildDecision::Accept { spi, label, local, remote, assign, resource, aggfrag } => {
            (spi, label, local, remote, assign, resource, *aggfrag)
        }
        ChildDecision::NoMore => return Ok(Err(NotifyKind::TsMaxQueue)),
        ChildDecision::Later => return Ok(Err(NotifyKind::TemporaryFailure)),
        ChildDecision::Refuse => return Ok(Err(NotifyKind::TsUnacceptable)),
    };
    // The label is exact: RFC 9478 knows no narrowing of labels, and levee's policy none of SAs without one where one was asked for.
    let fits = match label {
        None => offered.labels.is_empty(),
        Some(l) => offered.labels.contains(l),
    };
    if !fits {
        return Err(CommandError::WrongLabel);
    }
    if !usable_spi(*spi) || ctx.spis.contains_key(spi) {
        return Err(CommandError::SpiInUse);
    }
    let (local, remote) = (narrow(&offered.local, local), narrow(&offered.remote, remote));
    if local.is_empty() || remote.is_empty() {
        return Ok(Err(NotifyKind::TsUnacceptable));
    }
    ctx.spis.insert(*spi, ike);
    let child = Child {
        inbound: *spi,
        outbound: offered.outbound,
        label: label.clone(),
        local,
        remote,
        replaces: None,
        aggfrag: offered.aggfrag.filter(|_| granted),
        resource: ours.clone().zip(offered.resource.clone()),
    };
    let assign = if offered.wants_address { assign.clone() } else { Vec::new() };
    Ok(Ok(Granted { child, chosen: offered.chosen.clone(), assign }))
}

/// Appends the SA payload of an answer.
pub(crate) fn push_answer_sa(chain: &mut Chain, granted: &Granted) {
    if granted.child.aggfrag.is_some() {
        push_aggfrag(chain);
    }
    chain.push(kind::SA, |out| Proposal::write_all(&[granted.chosen.answer(granted.child.inbound)], out));
}

/// Appends the selectors of an answer: TSi is the peer's side.
pub(crate) fn push_answer_ts(chain: &mut Chain, child: &Child) {
    chain.push(kind::TS_I, |out| TrafficSelectors::write(&child.remote, child.label.as_ref(), out));
    chain.push(kind::TS_R, |out| TrafficSelectors::write(&child.local, child.label.as_ref(), out));
    if let Some((ours, _)) = &child.resource {
        push_resource(chain, ours);
    }
}

/// Appends the assigned addresses of an answer.
pub(crate) fn push_assigned(chain: &mut Chain, assign: &[InnerAddress]) {
    if assign.is_empty() {
        return;
    }
    let attributes: Vec<CpAttribute> = assign
        .iter()
        .map(|a| match *a {
            InnerAddress::Address(std::net::IpAddr::V4(a)) => CpAttribute::Address4(Some(a)),
            InnerAddress::Address(std::net::IpAddr::V6(a)) => CpAttribute::Address6(Some((a, 128))),
            InnerAddress::Dns(std::net::IpAddr::V4(a)) => CpAttribute::Dns4(Some(a)),
            InnerAddress::Dns(std::net::IpAddr::V6(a)) => CpAttribute::Dns6(Some(a)),
        })
        .collect();
    chain.push(kind::CP, |out| CpAttribute::write_all(CpKind::Reply, &attributes, out));
}

/// Appends the SA payload of a request of ours.
pub(crate) fn push_request_sa(chain: &mut Chain, wanted: &NewChild, with_key_exchange: bool, ctx: &Ctx<'_>) {
    if wanted.aggfrag {
        push_aggfrag(chain);
    }
    let offers: Vec<Proposal> = (1u8..)
        .zip(ctx.config.child_at(&wanted.label))
        .map(|(number, p)| Proposal { number, ..p.offer(wanted.spi, with_key_exchange) })
        .collect();
    chain.push(kind::SA, |out| Proposal::write_all(&offers, out));
}

/// Appends the selectors of a request of ours: TSi is our side.
pub(crate) fn push_request_ts(chain: &mut Chain, child: &NewChild) {
    chain.push(kind::TS_I, |out| TrafficSelectors::write(&child.local, child.label.as_ref(), out));
    chain.push(kind::TS_R, |out| TrafficSelectors::write(&child.remote, child.label.as_ref(), out));
    if let Some(ours) = &child.resource {
        push_resource(chain, ours);
    }
}

/// Appends the wish for inner addresses, of whichever family the peer has.
pub(crate) fn push_address_request(chain: &mut Chain, child: &NewChild) {
    if child.want_address {
        use CpAttribute::{Address4, Address6, Dns4, Dns6};
        let asked = [Address4(None), Address6(None), Dns4(None), Dns6(None)];
        chain.push(kind::CP, |out| CpAttribute::write_all(CpKind::Request, &asked, out));
    }
}

/// The addresses assigned by an answer.
pub(crate) fn assigned(fields: &Fields<'_>) -> Vec<InnerAddress> {
    let Some((CpKind::Reply, attributes)) = &fields.cp else { return Vec::new() };
    attributes
        .iter()
        .filter_map(|a| a.address().map(InnerAddress::Address).or_else(|| a.dns().map(InnerAddress::Dns)))
        .collect()
}

/// Checks the answer to a request of ours: one proposal out of those offered, our label exactly, selectors within ours.
pub(crate) fn read_answer(
    wanted: &NewChild,
    fields: &Fields<'_>,
    in_auth: bool,
    ctx: &Ctx<'_>,
) -> Result<(Child, ChildSuite), ChildError> {
    let (Some(sa), Some(ts_i), Some(ts_r)) = (&fields.sa, &fields.ts_i, &fields.ts_r) else {
        return Err(ChildError::BadAnswer("no SA or TS payload"));
    };
    let [proposal] = sa.as_slice() else { return Err(ChildError::BadAnswer("not one proposal")) };
    let chosen = choose_child(ctx.config.child_at(&wanted.label), std::slice::from_ref(proposal), in_auth)
        .ok_or(ChildError::BadAnswer("algorithms that were not offered"))?;
    let outbound = esp_spi(&chosen.spi).ok_or(ChildError::BadAnswer("SPI"))?;
    // RFC 9478 2.2: the answer has the one label that was asked for, in both payloads; none where none was.
    let label: Vec<SecurityLabel> = wanted.label.iter().cloned().collect();
    if ts_i.labels != label || ts_r.labels != label {
        return Err(ChildError::BadAnswer("another label"));
    }
    let narrowed = |answer: &TrafficSelectors, ours: &[Selector]| {
        answer.unknown == 0 && !answer.ranges.is_empty() && within(&answer.ranges, ours)
    };
    let aggfrag = aggfrag(fields);
    if (aggfrag.is_none() || !wanted.aggfrag) && fields.notify(NotifyKind::UseAggfrag).is_some() {
        return Err(ChildError::BadAnswer("AGGFRAG that was not asked for"));
    }
    if !narrowed(ts_i, &wanted.local) || !narrowed(ts_r, &wanted.remote) {
        return Err(ChildError::BadAnswer("selectors that were not asked for"));
    }
    let child = Child {
        inbound: wanted.spi,
        outbound,
        label: wanted.label.clone(),
        local: ts_i.ranges.clone(),
        remote: ts_r.ranges.clone(),
        replaces: None,
        aggfrag,
        resource: wanted.resource.clone().zip(resource(fields)),
    };
    Ok((child, chosen.suite))
}

/// What the keys of a child follow from, and whom to tell.
pub(crate) struct Making<'a> {
    pub(crate) ike: IkeId,
    pub(crate) peer: usize,
    /// Our role in the exchange.
    pub(crate) role: Role,
    pub(crate) prf: Prf,
    pub(crate) sk_d: &'a Secret,
    pub(crate) shared: Option<&'a Secret>,
    pub(crate) ni: &'a [u8],
    pub(crate) nr: &'a [u8],
    pub(crate) path: Path,
    pub(crate) udp: bool,
    pub(crate) rekeys: Option<u32>,
}

/// Derives a child's keys and hands them out. This is the only place where they exist.
pub(crate) fn establish(child: &Child, suite: ChildSuite, m: &Making<'_>, ctx: &mut Ctx<'_>) {
    let (from_initiator, from_responder): (EspKeys, EspKeys) =
        child_keys(m.prf, m.sk_d, &suite, m.shared.map(|s| s.as_slice()), m.ni, m.nr);
    let (outbound_keys, inbound_keys) = match m.role {
        Role::Initiator => (from_initiator, from_responder),
        Role::Responder => (from_responder, from_initiator),
    };
    ctx.out.push_back(Output::Event(Event::ChildEstablished(ChildEstablished {
        ike: m.ike,
        role: m.role,
        peer: m.peer,
        inbound: child.inbound,
        outbound: child.outbound,
        inbound_keys,
        outbound_keys,
        label: child.label.clone(),
        local: child.local.clone(),
        remote: child.remote.clone(),
        suite,
        rekeys: m.rekeys,
        path: m.path,
        udp: m.udp,
        aggfrag: child.aggfrag,
        resource: child.resource.as_ref().map(|(_, theirs)| theirs.clone()),
    })));
}

#[cfg(test)]
mod tests;
