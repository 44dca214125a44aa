//! The receiver of a one-way channel from another host, and a wire on which anybody says anything, the holder of the key too.
//!
//! Input: actions. Each is a byte for its kind, then what the kind says. The cipher here is none, so that what is opened is what was said: all
//! that is behind a tag can be reached. Whatever comes, a bounded number of blocks is kept, numbers only grow within a sender's life, and
//! nothing is waited for longer than it may be.

use levee_esp::{Aead, AeadError, AeadProvider, NONCE, Suite, TAG};
use levee_oneway::{Form, Header, Heard, KEY, Keys, Kind, OVERHEAD, Receiver, Run, Secret, Sender};
use std::time::Duration;

/// Octets of a message, at most.
const MESSAGE: usize = 3_000;
const MS: Duration = Duration::from_millis(1);

/// A cipher that changes nothing, and whose tag is 16 times the octet 7.
#[derive(Debug)]
struct None7;

impl AeadProvider for None7 {
    fn name(&self) -> &'static str {
        "none"
    }

    fn key(&self, _: Suite, _: &[u8]) -> Result<Box<dyn Aead>, AeadError> {
        Ok(Box::new(Self))
    }
}

impl Aead for None7 {
    fn seal_in_place(&self, _: &[u8; NONCE], _: &[u8], _: &mut [u8]) -> Result<[u8; TAG], AeadError> {
        Ok([7; TAG])
    }

    fn open_within(
        &self,
        _: &[u8; NONCE],
        _: &[u8],
        buffer: &mut [u8],
        from: usize,
    ) -> Result<usize, AeadError> {
        let text = buffer.get(from..).and_then(|rest| rest.strip_suffix(&[7; TAG])).ok_or(AeadError)?;
        Ok(text.len())
    }
}

fn form() -> Form {
    Form::new(512 + OVERHEAD, MESSAGE, 10).expect("a form")
}

fn secret() -> Secret {
    of_key(0)
}

fn of_key(octet: u8) -> Secret {
    Secret::new([octet; KEY].into(), "fuzz")
}

struct World {
    receiver: Receiver<None7>,
    sender: Sender,
    now: Duration,
    run: Option<Run>,
    /// The number behind the last message of the run that is heard.
    behind: u64,
}

impl World {
    fn take(&mut self, mut datagram: Vec<u8>) {
        self.receiver.receive(self.now, &mut datagram);
        self.look();
    }

    fn look(&mut self) {
        // Of another sender they begin anew, behind the rest of the one before it.
        let mut anew = self.run != self.receiver.run();
        self.run = self.receiver.run();
        for heard in self.receiver.heard(self.now) {
            let (number, next) = match heard {
                Heard::Message(number, message) => {
                    assert!((1..=MESSAGE).contains(&message.len()), "a message of {}", message.len());
                    (number, number.saturating_add(1))
                }
                Heard::Missing(next) => (next, next),
            };
            assert!(number >= self.behind || std::mem::take(&mut anew), "numbers go back");
            self.behind = next;
        }
        if anew {
            self.behind = 0;
        }
        assert!(self.receiver.blocks() <= 8, "{} blocks", self.receiver.blocks());
        if let Some(due) = self.receiver.due() {
            assert!(due > self.now && due <= self.now + Duration::from_secs(1), "{due:?} at {:?}", self.now);
        }
    }

    /// Does what an action says; what is left of the input.
    fn act<'a>(&mut self, input: &'a [u8]) -> Option<&'a [u8]> {
        let (&kind, rest) = input.split_first()?;
        match kind & 3 {
            // Time passes.
            0 => {
                let (&ms, rest) = rest.split_first()?;
                self.now += MS * u32::from(ms);
                self.look();
                // Keys follow each other: 1 after 0, or 2, of which nothing is known.
                if kind & 4 != 0 {
                    let next = (kind & 8 != 0).then(|| of_key(1));
                    self.receiver.rekey(Keys { current: of_key(kind >> 4 & 3), next });
                    self.look();
                }
                Some(rest)
            }
            // A sender that does what it should, and a wire that loses what a bit says.
            1 => {
                let ([high, low, lost, fill], rest) = rest.split_first_chunk()?;
                let length = usize::from(u16::from_be_bytes([*high, *low])) % (MESSAGE + 2);
                let (message, mut sent) = (vec![*fill; length], Vec::new());
                let size = form().datagram();
                let out = &mut |block: &[u8]| sent.extend(block.chunks(size).map(<[u8]>::to_vec));
                self.sender.send([Some(&message[..])], out).expect("no cipher fails");
                sent.push(self.sender.beat().expect("no cipher fails"));
                for (number, datagram) in sent.into_iter().enumerate() {
                    if lost >> (number % 8) & 1 == 0 {
                        self.take(datagram);
                    }
                }
                Some(rest)
            }
            // Whoever has the key says anything: in these bytes its run, the block, its length, the symbol's number, and what is in it.
            2 => {
                let ([began, near, block, long, length, number, most, fill], rest) =
                    rest.split_first_chunk()?;
                let block = if near & 1 == 0 { u64::from(*block) } else { u64::MAX - u64::from(*block) };
                let length = u32::from(u16::from_be_bytes([*long, *length])) * 2 + u32::from(near >> 1 & 1);
                let run = Run { began: u64::from(began & 3), random: 1 };
                let most = usize::from(*most).min(rest.len());
                let (text, rest) = rest.split_at(most);
                let (kind, size) = match near & 4 {
                    0 => (Kind::Symbol { length, number: u32::from(*number) }, 512),
                    _ => (Kind::Beat(u32::from(*number)), 8),
                };
                let mut datagram = Header { run, block, kind }.write().to_vec();
                datagram.extend(text.iter().copied().chain(std::iter::repeat(*fill)).take(size));
                datagram.extend([7; TAG]);
                self.take(datagram);
                Some(rest)
            }
            // A stranger says anything.
            _ => {
                let ([high, low], rest) = rest.split_first_chunk()?;
                let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
                let (datagram, rest) = rest.split_at(length);
                self.take(datagram.to_vec());
                Some(rest)
            }
        }
    }
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    if let Some(Ok(header)) = input.first_chunk().map(Header::read) {
        assert_eq!(Some(&header.write()), input.first_chunk(), "it is one thing alone");
    }
    let honest = Run { began: 1, random: 2 };
    let sender = Sender::new(form(), &secret(), honest, &None7).expect("no cipher fails");
    let receiver = Receiver::new(form(), secret(), None7);
    let mut world = World { receiver, sender, now: Duration::ZERO, run: None, behind: 0 };
    let mut rest = input;
    for _ in 0..64 {
        let Some(more) = world.act(rest) else { break };
        rest = more;
    }
    // Nobody says anything more: nothing is waited for, and nothing is kept.
    for _ in 0..40 {
        world.now += Duration::from_secs(1);
        world.look();
    }
    assert_eq!(world.receiver.due(), None);
}
