//! Which posture is in force, and how it changes while sessions run: it is recorded, sessions that it does not allow end, the warden has
//! services that it has off end and vaults pass nothing to them, every vault is told of the ciphers and then the keyer, and the change is
//! over when nothing of these sessions and services is left and no vault has keys from before. Who has not followed in time is severed.

use crate::event::*;
use crate::federation::Setting;
use crate::sessions::{NOT_RECORDED, RETRY, SILENCE, Sessions};
use crate::state::*;
use crate::stored::Stored;
use crate::{SessionId, Time};
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::site::{Keying, Placed, Posture, Protected, Reach};
use levee_policy::{DomainName, LabelName, Site};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest reason, in octets.
const MOST_REASON: usize = 200;
/// What other servers set is taken up no more often.
const SELDOM: Duration = Duration::from_secs(5);
/// So long after this server's sessions had to follow, the other servers' had to: by then what was set has reached them.
const ELSEWHERE: Duration = Duration::from_secs(15);

/// A change that is recorded, until nothing is left that it does not allow.
struct Moving {
    operator: Option<OperatorId>,
    name: String,
    began: Time,
    /// When what is left is erased; `None` once that has been said.
    sever: Option<Time>,
    /// When vaults are killed that have been told so and do not say that it is: they live, and nobody else can be waited for longer.
    late: Option<Time>,
    /// Vaults that have not answered, and by which number.
    pending: BTreeMap<LabelName, u64>,
    /// Sessions that it does not allow, until nothing of them is left.
    ending: BTreeSet<SessionId>,
    /// The number by which the warden answers that services that are off have ended; `None`: it has.
    services: Option<u64>,
    /// Sessions whose vaults do not know yet that services are off, or on again.
    narrowing: BTreeSet<SessionId>,
    /// So many ended because it does not allow them.
    ended: usize,
    /// Why one of them is not over, though no packet of it passes.
    failed: Option<String>,
    severed: usize,
}

impl Moving {
    fn new(operator: Option<OperatorId>, name: String, began: Time) -> Self {
        Self {
            operator,
            name,
            began,
            sever: None,
            late: None,
            pending: BTreeMap::new(),
            ending: BTreeSet::new(),
            services: None,
            narrowing: BTreeSet::new(),
            ended: 0,
            failed: None,
            severed: 0,
        }
    }
}

/// Who has set a posture that is in force here, and waits for the site's other servers.
struct Waiting {
    operator: OperatorId,
    name: String,
}

/// A vault that may have what the run before was to have erased.
struct Overdue {
    /// By which it answers.
    number: u64,
    /// When it is told to erase it; then, when it is killed if it lives and has not said that it is; `None`: it was.
    at: Option<Time>,
    is_told: bool,
}

/// What is said of a range that the site does not have any more.
const IN_DOUBT: &str = "the site file does not have this range any more: at no label where this may count anybody has a session or a service is on, \
                        until the same posture is set without ranges (and then the default at some), or the default is";

/// Which postures are in force: where two share a label, the last counts.
#[derive(Default)]
pub(crate) struct Postures {
    setting: Setting,
    recording: bool,
    moving: Option<Moving>,
    /// What another server has said since, the last of it, and which.
    coming: Option<(DomainName, Setting)>,
    /// When another server's was taken up last.
    taken: Option<Time>,
    waiting: Option<Waiting>,
    /// Labels at which the run before had sessions: what a change was to erase there, their vaults may have still.
    before: BTreeSet<LabelName>,
    /// A change is recorded, by this run or the one before, which may have ended before it told them; and not that it was followed.
    untold: bool,
    /// What their vaults are asked.
    overdue: BTreeMap<LabelName, Overdue>,
    /// Sessions that what is in force does not allow, whose end could not be recorded: pursued, and not over.
    unended: BTreeSet<SessionId>,
}

impl Postures {
    fn placed(&self) -> impl DoubleEndedIterator<Item = &Placed> {
        self.setting.in_force.iter().map(|one| &one.what)
    }
}

fn named(in_force: &[InForce]) -> String {
    let names: Vec<String> = in_force.iter().map(|one| one.what.to_string()).collect();
    if names.is_empty() { Posture::DEFAULT.to_owned() } else { names.join(", ") }
}

/// How long workstations have to follow where this is in force from now on.
fn follow(site: &Site, in_force: &[InForce]) -> Duration {
    let postures = in_force.iter().filter_map(|one| site.posture(one.what.posture.as_ref()?));
    postures.map(Posture::follow).max().unwrap_or(Posture::FOLLOW)
}

/// Where postures were set, and which server says so, where it is another.
fn said_by(from: &DomainName, setting: &Setting) -> String {
    match &setting.at {
        Some(at) if at == from => format!("set at {at}"),
        Some(at) => format!("set at {at}, as {from} says"),
        None => format!("set, as {from} says"),
    }
}

fn entry(name: &str, reason: String) -> Entry {
    let (action, object, verdict) = (Action::Posture, name.into(), Verdict::Noted);
    Entry { user: None, host: None, label: None, action, object, verdict, reason }
}

impl Sessions {
    /// Takes up what the store has, before anything else happens. What the site does not have any more says nothing.
    /// A session that it does not allow ends, as one ends that the policy does not grant any more. Other servers are not told that nothing
    /// of before is left until it is so: what a run before had said to the warden may not have been done. `followed`: nothing of before was left
    /// when that run ended.
    pub fn take_postures(&mut self, (setting, followed): (Setting, bool), now: Time) {
        (self.postures.setting, self.postures.untold) = (setting, !followed);
        for doubted in self.in_doubt().map(ToString::to_string).collect::<Vec<_>>() {
            let denied = Entry { verdict: Verdict::Denied, ..entry(&doubted, IN_DOUBT.to_owned()) };
            self.say(Output::Audit(denied));
        }
        if !self.site.postures().is_empty() {
            self.postures.before = self.sessions.values().map(|one| one.record.label.clone()).collect();
        }
        self.await_posture_ends();
        let services = self.tell_warden();
        let barred = self.all_barred();
        let is_told = self.site.federation().is_some() && !self.postures.setting.in_force.is_empty();
        if is_told && services.is_some() {
            let name = named(&self.postures.setting.in_force);
            let ending = barred.iter().map(|(id, _)| *id).collect();
            self.postures.moving =
                Some(Moving { ending, services, ended: barred.len(), ..Moving::new(None, name, now) });
        }
        for (id, reason) in barred {
            self.close(id, &reason, is_told.then_some(Waiter::Posture(id)), now);
        }
    }

    /// What is in force of which nobody can know where: the site file has other labels since.
    fn in_doubt(&self) -> impl Iterator<Item = &Placed> {
        self.postures.placed().filter(|placed| self.site.is_in_doubt(placed))
    }

    /// That somebody is to set postures anew, and why.
    pub fn posture_alarm(&self) -> Option<String> {
        self.in_doubt().next().map(|doubted| format!("posture {doubted}: {IN_DOUBT}"))
    }

    /// What is in force, and whether a change is under way.
    pub fn postures(&self) -> (&[InForce], bool) {
        let Postures { setting, recording, moving, waiting, .. } = &self.postures;
        (&setting.in_force, *recording || moving.is_some() || waiting.is_some())
    }

    /// The same, with when and where it was set.
    pub fn setting(&self) -> &Setting {
        &self.postures.setting
    }

    pub(crate) fn posture_wished(&mut self, operator: OperatorId, wish: Wish, now: Time) {
        match self.posture_change(operator, &wish, now) {
            Err(why) => self.say(Output::Operator(operator, Err(why))),
            Ok(change) => {
                let lasting =
                    wish.lasting.map_or_else(String::new, |time| format!(" for {} s", time.as_secs()));
                let why = if wish.reason.is_empty() { "no reason given" } else { &wish.reason };
                let from = named(&self.postures.setting.in_force);
                let said = format!("by an operator{lasting}, after {from}: {why}");
                self.record_posture(change, said);
            }
        }
    }

    fn posture_change(&self, operator: OperatorId, wish: &Wish, now: Time) -> Result<PostureChange, String> {
        if self.postures().1 {
            return Err("another change of posture is under way".to_owned());
        }
        if wish.reason.len() > MOST_REASON || wish.reason.chars().any(char::is_control) {
            return Err(format!("a reason is one line of at most {MOST_REASON} octets"));
        }
        let what = self.site.place(&wish.what)?;
        let (name, until) = (what.to_string(), wish.lasting.map(|lasting| now.after(lasting)));
        let posture = what.posture.as_ref().and_then(|name| self.site.posture(name));
        let follow = posture.map_or(Posture::FOLLOW, Posture::follow);
        let in_force = self.postures.setting.in_force.clone();
        let to = self.next_setting(self.site.with(in_force, InForce { what, until }, |one| &one.what))?;
        Ok(PostureChange { operator: Some(operator), from: None, to, name, follow })
    }

    fn next_setting(&self, in_force: Vec<InForce>) -> Result<Setting, String> {
        self.postures.setting.next(self.site.server().name(), in_force)
    }

    /// Postures that were set at another server, as this one says. The last counts, and is taken up when what is under way here is over.
    /// What the site does not have is not obeyed, and keeps nothing else from being taken up.
    pub(crate) fn posture_set_elsewhere(&mut self, from: DomainName, setting: Setting, now: Time) {
        let Postures { setting: own, coming, .. } = &self.postures;
        let known = coming.as_ref().map_or(own, |(_, coming)| coming);
        if !setting.is_after(own) || !setting.is_after(known) {
            return;
        }
        // What is in doubt here already is no reason to take nothing up.
        let is_new = |one: &&InForce| !own.in_force.iter().any(|had| had.what == one.what);
        let mut new = setting.in_force.iter().filter(is_new);
        if let Some(why) = new.find_map(|one| self.site.place(&one.what).err()) {
            let said = format!("{}; it cannot be in force at this server: {why}", said_by(&from, &setting));
            let name = named(&setting.in_force);
            return self.say(Output::Audit(Entry { verdict: Verdict::Denied, ..entry(&name, said) }));
        }
        self.postures.coming = Some((from, setting));
        self.posture_due(now);
    }

    /// What a server has said that is believed no more is not taken up.
    pub(crate) fn posture_disowned(&mut self, server: &DomainName) {
        self.postures.coming.take_if(|(from, _)| from == server);
    }

    /// Takes up what another server has said, where nothing is under way and not too often. Whether it did.
    fn take_up(&mut self, now: Time) -> bool {
        let own = &self.postures.setting;
        let Some((from, setting)) = self.postures.coming.take_if(|(_, coming)| coming.is_after(own)) else {
            return false;
        };
        if let Some(at) = self.postures.taken.map(|taken| taken.after(SELDOM)).filter(|at| *at > now) {
            self.postures.coming = Some((from, setting));
            self.set_timer(at, Timer::Posture);
            return false;
        }
        self.postures.taken = Some(now);
        let follow = follow(&self.site, &setting.in_force);
        let said = format!("{}, after {}", said_by(&from, &setting), named(&self.postures.setting.in_force));
        let name = named(&setting.in_force);
        self.record_posture(
            PostureChange { operator: None, from: Some(from), to: setting, name, follow },
            said,
        );
        true
    }

    /// Who waits for what counts no more waits for nothing.
    fn answer_who_waits(&mut self) {
        let Some(Waiting { operator, name }) = self.postures.waiting.take() else { return };
        let now = named(&self.postures.setting.in_force);
        let said =
            format!("{name} was in force at this server; before all others had said so, it became {now}");
        self.say(Output::Operator(operator, Err(said)));
    }

    /// The others have what was set here, but for these. This is said once: who waits for this server itself is answered as well.
    pub(crate) fn posture_kept_elsewhere(&mut self, late: &[DomainName]) {
        if let Some(moving) = &mut self.postures.moving
            && let Some(operator) = moving.operator.take()
        {
            let why =
                format!("the posture is {}, but not all that it ends at this server is over", moving.name);
            return self.say(Output::Operator(operator, Err(why)));
        }
        let Some(Waiting { operator, name }) = self.postures.waiting.take() else { return };
        let result = match late {
            [] => Ok(()),
            late => {
                let late: Vec<&str> = late.iter().map(DomainName::as_str).collect();
                Err(format!(
                    "the posture is {name} at this server and at all others that have said so, but not at {}: where it runs, its \
                     own sessions may go on as before, until it hears of it; sessions of this server end there",
                    late.join(", ")
                ))
            }
        };
        self.say(Output::Operator(operator, result));
    }

    fn record_posture(&mut self, change: PostureChange, said: String) {
        self.postures.recording = true;
        let (entries, changes) =
            (vec![entry(&change.name, said)], vec![crate::Change::Postures(change.to.clone())]);
        self.commit(Purpose::Posture(change), entries, changes);
    }

    pub(crate) fn posture_recorded(&mut self, change: PostureChange, durable: bool, now: Time) {
        self.postures.recording = false;
        let PostureChange { operator, from, to, name, follow } = change;
        if !durable {
            match operator {
                Some(operator) => self.say(Output::Operator(operator, Err(NOT_RECORDED.to_owned()))),
                None => {
                    // What time has brought is found again; what another server has said is not.
                    if let Some(from) = from {
                        self.postures.taken = None;
                        self.postures.coming = self.postures.coming.take().or(Some((from, to)));
                    }
                    self.set_timer(now.after(RETRY), Timer::Posture);
                }
            }
            return;
        }
        let up = self.used_labels.iter().filter(|(_, used)| matches!(used.vault, Vault::Up { .. }));
        let before: Vec<_> =
            up.map(|(label, _)| (label.clone(), self.keying(label), self.plain(label))).collect();
        let reach: Vec<_> = self.sessions.keys().map(|id| (*id, self.reach(*id))).collect();
        self.postures.setting = to;
        self.postures.unended.clear();
        self.answer_who_waits();
        self.await_posture_ends();
        self.withdraw_barred_releases();
        let services = self.tell_warden();
        let mut pending = BTreeMap::new();
        for (label, before, plain) in before {
            let now = self.keying(&label);
            let narrower = now.is_narrower_than(&before);
            let otherwise = self.plain(&label) != plain;
            if now.ciphers != before.ciphers || narrower || otherwise {
                self.postures.overdue.remove(&label);
                let number = self.tell_vault_ciphers(&label, narrower || otherwise);
                // Before the keyer replaces what there is by its like.
                if otherwise {
                    self.tunnels_anew(&label);
                }
                self.tell_keyer_of(label.clone());
                pending.insert(label, number);
            } else if now != before {
                self.tell_keyer_of(label);
            }
        }
        let sever = now.after(follow);
        self.set_timer(sever, Timer::Posture);
        let setting = self.postures.setting.clone();
        self.say(Output::Set(setting, sever.after(ELSEWHERE), operator.is_some()));
        let barred = self.all_barred();
        let (ending, ended) = (barred.iter().map(|(id, _)| *id).collect(), barred.len());
        self.postures.untold = true;
        self.postures.moving = Some(Moving {
            sever: Some(sever),
            pending,
            ending,
            services,
            ended,
            ..Moving::new(operator, name, now)
        });
        self.tell_reach(reach, now);
        for (id, reason) in barred {
            self.close(id, &reason, Some(Waiter::Posture(id)), now);
        }
        self.finish_moving(now);
    }

    /// Every session that what is in force does not allow, and why; one that is on its way out counts until nothing of it is left.
    fn all_barred(&self) -> Vec<(SessionId, String)> {
        self.sessions.keys().filter_map(|id| Some((*id, self.barred_by_posture(*id)?))).collect()
    }

    /// Why what is in force, which may have come after its grant, does not allow this session: its person or workstation may have none, or
    /// its protection cannot be had, and nobody is given less.
    pub(crate) fn barred_by_posture(&self, id: SessionId) -> Option<String> {
        let Session { record, phase, .. } = self.sessions.get(&id)?;
        match phase {
            Phase::Making { grant, .. }
            | Phase::Returning { grant, .. }
            | Phase::Open(Open { grant, .. }) => self.barred(record, grant.action().protected()),
            // Nothing is asked of its tunnel any more.
            Phase::Closing(_) => self.barred(record, &Protected::default()),
        }
    }

    /// The same of one that has not begun.
    pub(crate) fn barred(&self, record: &Stored, protected: &Protected) -> Option<String> {
        let (posture, name) = (self.posture_at(&record.label), self.posture_named(&record.label));
        let (user, device, label) = (&record.user, &record.device, &record.label);
        if let Some(posture) = posture.filter(|posture| !posture.admits(user, device)) {
            return Some(format!(
                "the posture became {name}, which {}",
                posture.refusal(user, device, label)
            ));
        }
        if protected.names.is_empty() || !protected.among(self.site.ciphers_under(posture)).is_empty() {
            return None;
        }
        Some(format!("the posture became {name}, under which protection {} cannot be had", protected.words()))
    }

    /// A session that the change does not allow is over; or nothing of it passes, and why it is not over.
    pub(crate) fn ended_for_posture(&mut self, id: SessionId, result: Result<(), &str>, now: Time) {
        let Some(moving) = &mut self.postures.moving else { return };
        if moving.ending.remove(&id) {
            if let Err(why) = result {
                moving.failed = Some(why.to_owned());
                self.postures.unended.insert(id);
            }
            self.finish_moving(now);
        }
    }

    /// Nothing of a session is left, however late.
    pub(crate) fn ended_late(&mut self, id: SessionId) {
        let Postures { unended, moving, .. } = &mut self.postures;
        if unended.remove(&id) && unended.is_empty() && moving.is_none() {
            self.say(Output::Kept);
        }
    }

    /// The posture that counts at a label now, if one does.
    pub fn posture_at(&self, label: &LabelName) -> Option<&Posture> {
        let label = self.site.label(label)?;
        self.site.posture_at(&label, self.postures.placed())
    }

    /// Its name: all that a person at the label is told of what is in force, since it may name labels above.
    fn posture_named(&self, label: &LabelName) -> String {
        self.posture_at(label).map_or(Posture::DEFAULT, |posture| posture.name().as_str()).to_owned()
    }

    /// How a label's keys are agreed now.
    fn keying(&self, label: &LabelName) -> Keying {
        let keying = self.site.keying_under(self.posture_at(label));
        // What is no label of the site has nothing.
        let ciphers = if self.site.label(label).is_some() { keying.ciphers } else { Vec::new() };
        Keying { ciphers, ..keying }
    }

    /// Tells a label's vault, and then the keyer: what it agrees on is to find a vault that takes it.
    pub(crate) fn tell_ciphers(&mut self, label: &LabelName, now: Time) {
        let anew = self.postures.untold && self.postures.before.contains(label);
        let number = self.tell_vault_ciphers(label, anew);
        self.tell_keyer_of(label.clone());
        // Once: who had not followed when the run before ended has as long again.
        if self.postures.before.remove(label) {
            let sever = now.after(follow(&self.site, &self.postures.setting.in_force));
            let overdue = Overdue { number, at: Some(sever), is_told: false };
            self.postures.overdue.insert(label.clone(), overdue);
            self.set_timer(sever, Timer::Posture);
        }
    }

    /// `anew`: what there is is to be replaced in any case. One that is to answer already answers by the same number: told another, as where
    /// its mediator begins anew, it would have nothing to say to the first, nor erase anything by it.
    fn tell_vault_ciphers(&mut self, label: &LabelName, anew: bool) -> u64 {
        let Postures { moving, overdue, .. } = &self.postures;
        let asked = moving.as_ref().and_then(|moving| moving.pending.get(label));
        let asked = asked.or_else(|| overdue.get(label).map(|overdue| &overdue.number)).copied();
        let number = asked.unwrap_or_else(|| self.number());
        let ciphers = self.keying(label).ciphers;
        self.say(Output::Vault(label.clone(), ToVault::Ciphers(number, ciphers, anew)));
        number
    }

    fn tell_keyer_of(&mut self, label: LabelName) {
        let keying = self.keying(&label);
        self.say(Output::Keying(label, keying));
    }

    /// What a label's tunnels must have for which nothing was asked: how their packets go.
    fn plain(&self, label: &LabelName) -> Protected {
        self.tunnel(label, &Protected::default())
    }

    /// What a tunnel must have now for which this was asked.
    pub fn tunnel(&self, label: &LabelName, protected: &Protected) -> Protected {
        let known = self.site.label(label);
        let tunnel = known.map(|known| self.site.protected_under(&known, protected, self.posture_at(label)));
        tunnel.unwrap_or_else(|| protected.clone())
    }

    /// A keyer that is new has been told nothing.
    pub(crate) fn tell_keyer_ciphers(&mut self) {
        let up = self.used_labels.iter().filter(|(_, used)| matches!(used.vault, Vault::Up { .. }));
        let labels: Vec<LabelName> = up.map(|(label, _)| label.clone()).collect();
        labels.into_iter().for_each(|label| self.tell_keyer_of(label));
    }

    /// Nothing old is left at a label.
    pub(crate) fn moved(&mut self, label: &LabelName, number: u64, severed: Vec<SessionId>, now: Time) {
        let Postures { moving, overdue, .. } = &mut self.postures;
        match moving {
            Some(moving) if moving.pending.get(label) == Some(&number) => {
                moving.pending.remove(label);
            }
            _ if overdue.get(label).is_some_and(|overdue| overdue.number == number) => {
                overdue.remove(label);
                self.followed();
            }
            _ => return,
        }
        let name = self.posture_named(label);
        let reason = format!("its workstation did not follow in time when the posture became {name}");
        for id in severed {
            let here = self.sessions.get(&id).is_some_and(|session| session.record.label == *label);
            if here && self.live(id).is_some() {
                if let Some(moving) = &mut self.postures.moving {
                    moving.severed += 1;
                }
                self.close_here(id, &reason, now);
            }
        }
        self.finish_moving(now);
    }

    /// Tells the warden what is in force, where the site has services turned off by any posture; the number by which it answers.
    fn tell_warden(&mut self) -> Option<u64> {
        if self.site.postures().is_empty() {
            return None;
        }
        let (number, in_force) = (self.number(), self.postures.placed().cloned().collect());
        self.say(Output::Postures(number, in_force));
        Some(number)
    }

    /// Nothing runs any more of what is off.
    pub(crate) fn postures_kept(&mut self, number: u64, now: Time) {
        if let Some(moving) = &mut self.postures.moving
            && moving.services.take_if(|told| *told == number).is_some()
        {
            self.finish_moving(now);
        }
    }

    /// Tells the vaults, which pass nothing to a service that is off, of sessions that could reach this before the change.
    fn tell_reach(&mut self, before: Vec<(SessionId, Option<Vec<Reach>>)>, now: Time) {
        let told = self.tell_changed(before, now);
        if let Some(moving) = &mut self.postures.moving {
            moving.narrowing.extend(told);
        }
    }

    /// A session's vault has what it was told last, or has nothing of it.
    pub(crate) fn reach_told(&mut self, id: SessionId, now: Time) {
        self.access_reached(id);
        if let Some(moving) = &mut self.postures.moving
            && moving.narrowing.remove(&id)
        {
            self.finish_moving(now);
        }
    }

    /// A vault is dead or has no session left: the next one has no keys from before, and is told what may be reached.
    pub(crate) fn moved_with_its_vault(&mut self, label: &LabelName, now: Time) {
        self.accesses_gone(label);
        self.postures.overdue.remove(label);
        let Some(moving) = &mut self.postures.moving else { return };
        let here = |id: &SessionId| self.sessions.get(id).is_some_and(|one| one.record.label == *label);
        let narrowing = moving.narrowing.len();
        moving.narrowing.retain(|id| !here(id));
        if moving.pending.remove(label).is_some() || moving.narrowing.len() < narrowing {
            self.finish_moving(now);
        }
    }

    /// The store says that nothing of before is left, once it is so: also of what the run before was to have replaced, whatever was changed since.
    fn followed(&mut self) {
        let Postures { moving, before, overdue, untold, .. } = &mut self.postures;
        if *untold && moving.is_none() && before.is_empty() && overdue.is_empty() {
            *untold = false;
            self.commit(Purpose::Nothing, vec![], vec![crate::Change::Followed]);
        }
    }

    fn finish_moving(&mut self, now: Time) {
        let is_over = |moving: &mut Moving| {
            moving.pending.is_empty()
                && moving.ending.is_empty()
                && moving.services.is_none()
                && moving.narrowing.is_empty()
        };
        let Some(moving) = self.postures.moving.take_if(is_over) else { return };
        let took = now.since(moving.began).as_millis();
        let followed = match moving.severed {
            0 => "every session followed".to_owned(),
            count => format!("{count} sessions did not follow, and end"),
        };
        let mut said = format!("no keys from before are left, after {took} ms; {followed}");
        if moving.ended > 0 {
            said.push_str(&format!("; sessions that it does not allow: {} ended", moving.ended));
        }
        let result = match moving.failed {
            None => Ok(()),
            Some(why) => {
                said.push_str(&format!(", but {why}"));
                Err(format!("the posture is {}, but not all that it ends is over: {why}", moving.name))
            }
        };
        self.say(Output::Audit(entry(&moving.name, said)));
        self.followed();
        if self.postures.unended.is_empty() {
            self.say(Output::Kept);
        }
        match moving.operator {
            Some(operator) if result.is_ok() && self.site.federation().is_some() => {
                self.postures.waiting = Some(Waiting { operator, name: moving.name });
            }
            Some(operator) => self.say(Output::Operator(operator, result)),
            None => {}
        }
        // What ended, or came, meanwhile.
        self.posture_due(now);
    }

    fn await_posture_ends(&mut self) {
        let ends: Vec<Time> = self.postures.setting.in_force.iter().filter_map(|one| one.until).collect();
        for end in ends {
            self.set_timer(end, Timer::Posture);
        }
    }

    pub(crate) fn posture_due(&mut self, now: Time) {
        self.overdue_due(now);
        if let Some(moving) = &mut self.postures.moving {
            let pending = moving.pending.iter().map(|(label, number)| (label.clone(), *number));
            let pending: Vec<(LabelName, u64)> = pending.collect();
            if moving.sever.take_if(|at| *at <= now).is_some() {
                let late = now.after(SILENCE);
                moving.late = Some(late);
                self.set_timer(late, Timer::Posture);
                for (label, number) in pending {
                    self.say(Output::Vault(label, ToVault::Sever(number)));
                }
            } else if moving.late.take_if(|at| *at <= now).is_some() {
                pending.iter().for_each(|(label, _)| self.kill(label));
            }
            return;
        }
        if self.postures.recording || self.take_up(now) {
            return;
        }
        let over = |one: &InForce| one.until.is_some_and(|until| until <= now);
        let (ended, to): (Vec<InForce>, Vec<InForce>) =
            self.postures.setting.in_force.iter().cloned().partition(over);
        if ended.is_empty() {
            return;
        }
        let to = self.site.seen(to, |one| &one.what);
        let (name, said) = (named(&to), format!("the time of {} is over", named(&ended)));
        // Where it cannot be counted, time brings nothing more: what is in force stays.
        let Ok(to) = self.next_setting(to) else { return };
        self.record_posture(
            PostureChange { operator: None, from: None, to, name, follow: Posture::FOLLOW },
            said,
        );
    }

    /// What the run before was to have erased is, or its vault is killed as in any change.
    fn overdue_due(&mut self, now: Time) {
        let late = now.after(SILENCE);
        let mut due = Vec::new();
        for (label, Overdue { number, at, is_told }) in &mut self.postures.overdue {
            if at.take_if(|at| *at <= now).is_some() {
                *at = (!*is_told).then_some(late);
                due.push((label.clone(), *number, std::mem::replace(is_told, true)));
            }
        }
        for (label, number, is_late) in due {
            if is_late {
                self.kill(&label);
            } else {
                self.set_timer(late, Timer::Posture);
                self.say(Output::Vault(label, ToVault::Sever(number)));
            }
        }
    }
}
