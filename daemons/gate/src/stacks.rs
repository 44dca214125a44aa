//! A stack as the gate sees it: a channel on which each question has one answer.

use std::time::{Duration, Instant};

use levee_daemon::{Fatal, Watched};
use levee_ipc::agree::{FromStack, ToStack};
use levee_ipc::{Channel, RecvError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How long a stack may take to answer. It answers in a fraction of a millisecond; more is doubt.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// One of the two stacks.
pub struct Stack {
    name: &'static str,
    channel: Watched<Channel>,
}

impl Stack {
    /// The stack at the other end of `channel`.
    pub fn new(name: &'static str, channel: Watched<Channel>) -> Self {
        Self { name, channel }
    }

    /// Asks. The answer is to be taken before the next question.
    ///
    /// # Errors
    /// When it is gone or does not read.
    pub fn ask(&self, question: &ToStack) -> Result<(), Fatal> {
        self.channel.try_send(question).map_err(|why| self.lost(&why))
    }

    /// Its answer.
    ///
    /// # Errors
    /// When it is gone, says what is no answer, or says nothing within [`PATIENCE`].
    pub fn answer(&self) -> Result<FromStack, Fatal> {
        self.answer_within(PATIENCE)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// As [`Stack::ask`] and [`Stack::answer`].
    pub fn tell(&self, question: &ToStack) -> Result<FromStack, Fatal> {
        self.ask(question)?;
        self.answer()
    }

    /// As [`Stack::answer`], with another limit.
    ///
    /// # Errors
    /// As there.
    pub fn answer_within(&self, limit: Duration) -> Result<FromStack, Fatal> {
        let end = Instant::now() + limit;
        loop {
            match self.channel.try_recv() {
                Ok(received) => return Ok(received.message),
                Err(RecvError::Empty) => {}
                Err(why) => return Err(self.lost(&why)),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.lost(&format!("no answer within {limit:?}")));
            }
            let left = Timespec::try_from(left).map_err(|why| self.lost(&why))?;
            match poll(&mut [PollFd::new(&*self.channel, PollFlags::IN)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => return Err(self.lost(&why)),
            }
        }
    }

    /// What it has said, if anything.
    ///
    /// # Errors
    /// When it is gone, or says what is no answer.
    pub fn has_said(&self) -> Result<Option<FromStack>, Fatal> {
        match self.channel.try_recv() {
            Ok(received) => Ok(Some(received.message)),
            Err(RecvError::Empty) => Ok(None),
            Err(why) => Err(self.lost(&why)),
        }
    }

    /// It said something else than it was asked.
    pub fn out_of_turn(&self, said: &FromStack) -> Fatal {
        self.lost(&format!("{said:?} was not asked for"))
    }

    fn lost(&self, why: &dyn std::fmt::Display) -> Fatal {
        Fatal::new("ask the stacks", format!("{}: {why}", self.name))
    }
}
