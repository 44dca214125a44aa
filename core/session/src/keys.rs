//! What the keyer may agree keys for: asked at each negotiation, answered from what is so at that moment.

use crate::event::*;
use crate::sessions::{DENIALS, DENIALS_PERIOD, Sessions};
use crate::state::*;
use crate::{SessionId, Time, rules};
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::decision::Keys;
use levee_policy::{Grant, HostName, LabelName};

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
            Ok((id, grant)) if self.is_at_hand(id) => {
                let record = self.key_record(id, grant);
                self.say(Output::Keys(ticket, record));
            }
            Ok((id, grant)) => {
                if let Err(reason) = self.waits_for_label(ticket, id, grant, now) {
                    self.no_keys(ticket, self.refusal(Some(device), Some(label), reason), now);
                }
            }
            Err(denied) => self.no_keys(ticket, *denied, now),
        }
    }

    fn no_keys(&mut self, ticket: u64, denied: Entry, now: Time) {
        self.say(Output::Keys(ticket, None));
        self.keys_denied(denied, now);
    }

    /// The policy's grant of keys, for the session that this TPE has.
    fn may_have_keys(
        &self,
        device: &HostName,
        label: &LabelName,
        accreditation: Option<&str>,
    ) -> Result<(SessionId, Grant<Keys>), Box<Entry>> {
        let not = |reason| Box::new(self.refusal(Some(device), Some(label), reason));
        let id = *self.by_device.get(device).ok_or_else(|| not("it has no session"))?;
        match self.sessions.get(&id).map(|session| &session.phase) {
            Some(Phase::Open(Open { grant, .. })) => {
                let keys = rules::keys(&self.site, grant, device, label, accreditation);
                keys.map(|keys| (id, keys)).map_err(|denial| Box::new(denial.audit().clone()))
            }
            Some(Phase::Making { .. } | Phase::Returning { .. }) => Err(not("its session is not open yet")),
            Some(Phase::Closing(_)) => Err(not("its session is over")),
            None => Err(not("it has no session")),
        }
    }

    /// Whether the session's vault has its record.
    fn is_at_hand(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.vault == InVault::Ready)
    }

    pub(crate) fn key_record(&self, id: SessionId, grant: Grant<Keys>) -> Option<KeyRecord> {
        let session = self.sessions.get(&id)?;
        if !matches!(session.phase, Phase::Open(_)) {
            return None;
        }
        let protected = self.tunnel(&session.record.label, grant.action().protected());
        Some(KeyRecord::new(id, session.record.inner.clone(), protected, grant))
    }

    /// Why there are no keys now, whatever the policy says.
    pub(crate) fn refusal(
        &self,
        device: Option<&HostName>,
        label: Option<&LabelName>,
        reason: &str,
    ) -> Entry {
        Entry {
            user: None,
            host: device.cloned(),
            label: label.filter(|label| self.site.label(label).is_some()).cloned(),
            action: Action::Negotiate,
            object: label.map_or_else(|| "no label".to_owned(), ToString::to_string),
            verdict: Verdict::Denied,
            reason: reason.to_owned(),
        }
    }

    /// A negotiation was refused. The peer is authenticated, but may ask as often as it likes: the first few are
    /// written one by one, the others are counted.
    pub(crate) fn keys_denied(&mut self, denied: Entry, now: Time) {
        let (since, denials) = self.denials.get_or_insert((now, 0));
        if now.since(*since) >= DENIALS_PERIOD {
            (*since, *denials) = (now, 0);
        }
        *denials += 1;
        if *denials > DENIALS {
            return self.count("keys that were refused", denied.host, None);
        }
        self.say(Output::Audit(denied));
    }

    /// A TPE's certificate is revoked, or may be: its session ends as any other does.
    pub(crate) fn device_out(&mut self, device: &HostName, why: &str, now: Time) {
        self.withdraw_releases(None, Some(device));
        self.unprepare(device, why, now);
        if let Some(id) = self.by_device.get(device).copied() {
            self.close(id, why, None, now);
        }
    }

    /// The label's vault has the session's record again, and none of its keys; or the keyer is another one.
    pub(crate) fn keys_lost(&mut self, id: SessionId) {
        let Some(Session { phase: Phase::Open(open), .. }) = self.sessions.get(&id) else { return };
        let grant = open.grant.keys_again();
        if let Some(record) = self.key_record(id, grant) {
            self.say(Output::Renew(record));
        }
    }

    /// The keyer cannot reach the session's TPE: it is asked, over the trusted path, to come to the keyer.
    pub(crate) fn renew(&mut self, id: SessionId) {
        let Some(Session { phase: Phase::Open(open), .. }) = self.sessions.get_mut(&id) else { return };
        match open.link {
            Link::Attached(client) => self.reply_renew(client, id),
            Link::Detached(_) => open.renewing = true,
            // A workstation comes by itself where a packet waits.
            Link::Elsewhere => {}
        }
    }

    /// Asks a session's TPE to come with keys for what its tunnel must be now.
    pub(crate) fn reply_renew(&mut self, client: ClientId, id: SessionId) {
        let Some(Session { record, phase: Phase::Open(open), .. }) = self.sessions.get(&id) else { return };
        let protected = self.tunnel(&record.label, open.grant.action().protected());
        self.reply(client, Reply::Renew(protected));
    }

    /// The tunnels of a label's sessions must be others than they are: the keyer is told what counts, and each TPE comes with other keys.
    pub(crate) fn tunnels_anew(&mut self, label: &LabelName) {
        let open =
            |session: &Session| session.record.label == *label && matches!(session.phase, Phase::Open(_));
        let ids: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| open(session)).map(|(id, _)| *id).collect();
        for id in ids {
            self.keys_lost(id);
            self.renew(id);
        }
    }

    /// The keyer is another one: it knows no TPE. The vaults keep the keys that they have.
    pub(crate) fn keyer_came(&mut self) {
        self.tell_keyer_ciphers();
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
