//! One slot after the other.

use crate::clock::{Clock, Told};
use crate::group::{Fault, Group};
use levee_daemon::{Descriptors, Events, Fatal, Kit, One, Order, Warden, begin};
use levee_ipc::warden::frames::{Frame, FramesPart};
use levee_sys::sandbox::Sandbox;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const FILTER: &str = include_str!("../../../conf/seccomp/frames.toml");
/// How often the warden is told how it goes.
const TOLD: Duration = Duration::from_secs(1);
/// Between two looks at what is to stop, at first; each pause is twice the one before, up to the other.
const SOON: Duration = Duration::from_micros(20);
const LATER: Duration = Duration::from_millis(1);
/// Numbers that the warden is told of what is stuck.
const STUCK: usize = 16;

/// What the warden gives before the first frame.
#[derive(Default)]
struct Given {
    frame: One<Frame>,
}

impl Kit for Given {
    type Part = FramesPart;

    fn take(&mut self, part: FramesPart, _: Descriptors) -> Result<(), Fatal> {
        match part {
            FramesPart::Frame(frame) => self.frame.put(frame),
            other => Err(Fatal::new("take a part", format!("{other:?} comes later"))),
        }
    }
}

/// The groups, and what has been seen of them.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    told: Told,
}

/// Takes the frame, then keeps it until the warden says stop or is gone.
///
/// # Errors
/// What is missing or wrong with what the warden gave, a sandbox that cannot be entered, or a group that cannot be told to stop or to run.
pub fn run() -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(()) };
    let frame = given.frame.needed("frame")?;
    let clock = Clock::new(frame, Instant::now());
    let mut clock = clock.ok_or_else(|| Fatal::new("take the frame", "it has no slot"))?;
    let mut events = Events::new()?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    let mut warden = confined.ready(&mut events, ())?;
    let mut groups = Groups::default();
    let mut tell = Instant::now() + TOLD;
    loop {
        let left = clock.end().saturating_duration_since(Instant::now());
        if !events.wait(Some(left))?.is_empty() && !hear(&mut warden, &mut groups, clock.slot())? {
            return Ok(());
        }
        if Instant::now() >= clock.end() {
            groups.change(&mut clock)?;
        }
        if Instant::now() >= tell {
            tell = Instant::now() + TOLD;
            warden.say(groups.told.state());
        }
    }
}

/// Does what the warden says; false when it is time to end.
fn hear(warden: &mut Warden<FramesPart>, groups: &mut Groups, slot: u16) -> Result<bool, Fatal> {
    // One at a time: a slot ends while the warden has much to say.
    match warden.hear()? {
        Some(Order::Stop) => Ok(false),
        Some(Order::Take(FramesPart::Group { number, slots }, with)) => {
            groups.add(Group::new(number, slots, reins(with)?), slot)?;
            Ok(true)
        }
        Some(Order::Take(part, _)) => Err(Warden::unwanted(&part)),
        None => Ok(true),
    }
}

impl Groups {
    fn add(&mut self, mut group: Group, slot: u16) -> Result<(), Fatal> {
        let run = group.is_for(slot);
        if there(group.tell(run))?.is_some() && there(group.has_used())?.is_some() {
            self.all.push(group);
        }
        self.count();
        Ok(())
    }

    fn count(&mut self) {
        self.told.state.groups = u64::try_from(self.all.len()).unwrap_or(u64::MAX);
    }

    /// Stops what is not for the next slot, waits until it has stopped and the margin is over, and begins the next.
    fn change(&mut self, clock: &mut Clock) -> Result<(), Fatal> {
        let next = clock.next_slot();
        self.look_for_stuck()?;
        self.look_for_dying(clock)?;
        self.tell_all(|group| group.runs && !group.is_for(next), false)?;
        // From now on: who keeps the frames may have been late itself, which is nobody else's fault.
        self.stopped(clock, Instant::now())?;
        let stopped = Instant::now();
        self.all
            .iter_mut()
            .filter(|group| group.is_fresh())
            .try_for_each(|group| there(group.has_used()).map(drop))?;
        let begin = clock.next_begin(stopped);
        let late = begin == stopped;
        self.told.ended(stopped.saturating_duration_since(clock.end()), late);
        if !late {
            std::thread::sleep(begin.saturating_duration_since(Instant::now()));
        }
        self.tell_all(|group| !group.runs && group.is_for(next), true)?;
        clock.turn(stopped);
        Ok(())
    }

    /// Tells these groups; those that are gone are forgotten.
    fn tell_all(&mut self, which: impl Fn(&Group) -> bool, run: bool) -> Result<(), Fatal> {
        let mut fault = None;
        self.all.retain_mut(|group| {
            if !which(group) || fault.is_some() {
                return true;
            }
            there(group.tell(run)).map_or_else(
                |why| {
                    fault = Some(why);
                    true
                },
                |told| told.is_some(),
            )
        });
        self.count();
        fault.map_or(Ok(()), Err)
    }

    /// Waits until all that was told to stop at this moment has stopped; kills what has not in time. What even that does not stop is in a call of the
    /// kernel's that nothing interrupts: nothing of its program runs any more.
    fn stopped(&mut self, clock: &Clock, told: Instant) -> Result<(), Fatal> {
        let late_at = told + clock.margin();
        let kill_at = told + clock.patience();
        let give_up = kill_at + clock.patience();
        let (mut late, mut killed, mut pause) = (false, false, SOON);
        while self.is_waited_for()? {
            let now = Instant::now();
            if now >= give_up {
                return self.give_up();
            }
            if now >= late_at && !late {
                late = true;
                self.kill_if(|group| group.is_late(now, clock.late()))?;
            }
            if now >= kill_at && !killed {
                killed = true;
                self.kill_if(|_| true)?;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LATER);
        }
        Ok(())
    }

    /// What was told to stop and has not.
    fn stopping(&mut self) -> impl Iterator<Item = Result<&mut Group, Fatal>> {
        let waited_for = self.all.iter_mut().filter(|group| !group.runs && !group.over);
        waited_for.filter_map(|group| match there(group.has_stopped()) {
            Ok(Some(false)) => Some(Ok(group)),
            Ok(_) => None,
            Err(why) => Some(Err(why)),
        })
    }

    fn is_waited_for(&mut self) -> Result<bool, Fatal> {
        Ok(self.stopping().next().transpose()?.is_some())
    }

    /// Kills those that are still to stop and of which this holds.
    fn kill_if(&mut self, mut holds: impl FnMut(&mut Group) -> bool) -> Result<(), Fatal> {
        let mut killed = 0_u64;
        for group in self.stopping() {
            let group = group?;
            if holds(group) {
                there(group.kill())?;
                killed += 1;
            }
        }
        self.told.state.killed = self.told.state.killed.saturating_add(killed);
        Ok(())
    }

    /// What was killed and is not gone holds up no slot but this one.
    fn give_up(&mut self) -> Result<(), Fatal> {
        self.stopping().try_for_each(|group| {
            group?.over = true;
            Ok(())
        })
    }

    /// Who has used a processor while stopped, for longer than the margin, in the slot that ends: they end late, as it were, in the midst of
    /// it, and that counts as it does at the end of their own.
    fn look_for_dying(&mut self, clock: &Clock) -> Result<(), Fatal> {
        let (now, mut ran, mut killed) = (Instant::now(), 0_u64, 0_u64);
        for group in self.all.iter_mut().filter(|group| !group.runs && !group.over) {
            let used = there(group.has_used())?.unwrap_or_default();
            if Duration::from_micros(used) <= clock.margin() {
                continue;
            }
            ran += 1;
            if group.is_late(now, clock.late()) {
                there(group.kill())?;
                killed += 1;
            }
        }
        self.told.state.ran = self.told.state.ran.saturating_add(ran);
        self.told.state.killed = self.told.state.killed.saturating_add(killed);
        Ok(())
    }

    /// What was killed and is not gone; and what was let run and does not, at the end of its slot, since somebody else has stopped it.
    /// Forgets what was killed and is gone.
    fn look_for_stuck(&mut self) -> Result<(), Fatal> {
        let (mut stuck, mut gone) = (Vec::new(), Vec::new());
        for group in self.all.iter().filter(|group| group.runs || group.over) {
            let held = if group.over { Ok(true) } else { group.is_held() };
            match there(held.and_then(|held| Ok((held, group.has_stopped()?))))? {
                Some((true, _)) => stuck.push(group.number),
                Some(_) => {}
                None => gone.push(group.number),
            }
        }
        self.all.retain(|group| !gone.contains(&group.number));
        stuck.truncate(STUCK);
        self.told.state.stuck = stuck;
        Ok(())
    }
}

fn reins(with: Descriptors) -> Result<[OwnedFd; 4], Fatal> {
    with.all().try_into().map_err(|_| Fatal::new("take a group", "it has not four descriptors"))
}

/// What the group says; nothing if it is gone.
fn there<T>(result: Result<T, Fault>) -> Result<Option<T>, Fatal> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Gone) => Ok(None),
        Err(Fault::Kernel(why)) => Err(Fatal::new("tell a group of processes", why)),
    }
}
