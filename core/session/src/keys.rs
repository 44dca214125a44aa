//! What the keyer may agree keys for: asked at each negotiation, answered from what is so at that moment.

use crate::event::*;
use crate::sessions::{DENIALS, DENIALS_PERIOD, Sessions};
use crate::state::*;
use crate::{SessionId, Time};
use levee_policy::audit::{Event as Entry, Verdict};
use levee_policy::{HostName, LabelName};
use std::collections::BTreeSet;

impl Sessions {
    /// A TPE, authenticated by its certificate, wants keys at a label. `accreditation` is the range in its certificate.
    pub(crate) fn wanted(
        &mut self,
        ticket: u64,
        device: &HostName,
        label: &LabelName,
        accreditation: Option<&str>,
        now: Time,
    ) {
        match self.may_have_keys(device, label, accreditation) {
            Err(_) if self.is_wanted_of_theirs(ticket, device, label, accreditation, now) => {}
            Ok(record) => self.say(Output::Keys(ticket, Some(record))),
            Err(reason) => {
                self.say(Output::Keys(ticket, None));
                self.keys_denied(Some(device), Some(label), &reason, now);
            }
        }
    }

    fn may_have_keys(
        &self,
        device: &HostName,
        label: &LabelName,
        accreditation: Option<&str>,
    ) -> Result<KeyRecord, String> {
        // The site file decides, and did when the session was opened; the certificate may only narrow that.
        self.is_accredited(label, accreditation)?;
        let id = self.by_device.get(device).ok_or("it has no session")?;
        let session = self.sessions.get(id).ok_or("it has no session")?;
        match &session.phase {
            _ if session.record.label != *label => Err("its session is at another label".into()),
            Phase::Open(_) if session.vault == InVault::Ready => {
                self.key_record(*id).ok_or_else(|| "it has no session".into())
            }
            Phase::Open(_) => Err("its label's vault is not up".into()),
            Phase::Making { .. } | Phase::Returning { .. } => Err("its session is not open yet".into()),
            Phase::Closing(_) => Err("its session is over".into()),
        }
    }

    pub(crate) fn is_accredited(&self, label: &LabelName, accreditation: Option<&str>) -> Result<(), String> {
        let point = self.site.label(label).ok_or("the site has no such label")?;
        let text = accreditation.ok_or("its certificate has no accreditation")?;
        let range = self.site.vocabulary().parse_range(text);
        let range = range.map_err(|_| "the accreditation in its certificate is not of this site")?;
        if range.contains(&point) { Ok(()) } else { Err(format!("its certificate is accredited for {text}")) }
    }

    pub(crate) fn key_record(&self, id: SessionId) -> Option<KeyRecord> {
        let session = self.sessions.get(&id)?;
        let Phase::Open(Open { grant, .. }) = &session.phase else { return None };
        let reach: BTreeSet<_> = grant.action().reach().iter().map(|reach| reach.address).collect();
        Some(KeyRecord {
            id,
            device: session.record.device.clone(),
            label: session.record.label.clone(),
            inner: session.record.inner.clone(),
            reach: reach.into_iter().collect(),
        })
    }

    /// A negotiation was refused. The peer is authenticated, but may ask as often as it likes: the first few are
    /// written one by one, the others are counted.
    pub(crate) fn keys_denied(
        &mut self,
        device: Option<&HostName>,
        label: Option<&LabelName>,
        reason: &str,
        now: Time,
    ) {
        let (since, denials) = self.denials.get_or_insert((now, 0));
        if now.since(*since) >= DENIALS_PERIOD {
            (*since, *denials) = (now, 0);
        }
        *denials += 1;
        if *denials > DENIALS {
            return self.count("keys that were refused", device.cloned(), None);
        }
        self.say(Output::Audit(Entry {
            user: None,
            host: device.cloned(),
            label: label.filter(|label| self.site.label(label).is_some()).cloned(),
            action: "negotiate".into(),
            object: label.map_or_else(|| "no label".to_owned(), ToString::to_string),
            verdict: Verdict::Denied,
            reason: reason.to_owned(),
        }));
    }

    /// A TPE's certificate is revoked, or may be: its session ends as any other does.
    pub(crate) fn device_out(&mut self, device: &HostName, why: &str, now: Time) {
        if let Some(id) = self.by_device.get(device).copied() {
            self.close(id, why, None, now);
        }
    }

    /// The label's vault has the session's record again, and none of its keys; or the keyer is another one.
    pub(crate) fn keys_lost(&mut self, id: SessionId) {
        if let Some(record) = self.key_record(id) {
            self.say(Output::Renew(record));
        }
    }

    /// The keyer cannot reach the session's TPE: it is asked, over the trusted path, to come to the keyer.
    pub(crate) fn renew(&mut self, id: SessionId) {
        let Some(Session { phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id) else { return };
        match open.link {
            Link::Attached(client) => self.reply(client, Reply::Renew),
            Link::Detached(_) => open.renewing = true,
            // A workstation comes by itself where a packet waits.
            Link::Elsewhere => {}
        }
    }

    /// The keyer is another one: it knows no TPE. The vaults keep the keys that they have.
    pub(crate) fn keyer_came(&mut self) {
        let open: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.vault == InVault::Ready && matches!(session.phase, Phase::Open(_)))
            .map(|(id, _)| *id)
            .collect();
        for id in open {
            self.keys_lost(id);
        }
    }
}
