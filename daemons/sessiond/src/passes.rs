//! Passes that the keyer made: one by one they go to those who are signed on, each by its own trusted path.

use levee_ipc::client::Reply;
use levee_ipc::keyer::Pass;
use std::collections::VecDeque;

/// The most that are kept.
const MOST: usize = 512;
/// When there are fewer, more are asked for.
const FEW: usize = 128;
/// What goes out with a session that was opened: for its first keys, and for keys anew while the trusted path is down.
const EACH: usize = 6;

/// A stock of passes of one keyer.
#[derive(Default)]
pub struct Passes {
    stock: VecDeque<Pass>,
    asked: bool,
}

impl Passes {
    /// Another keyer, whose passes are to come: those of the one before are good for nothing.
    pub fn renewed(&mut self) {
        *self = Self { stock: VecDeque::new(), asked: true };
    }

    /// More came.
    pub fn add(&mut self, passes: Vec<Pass>) {
        self.asked = false;
        self.stock.extend(passes.into_iter().take(MOST.saturating_sub(self.stock.len())));
    }

    /// Puts passes into a reply that is to have some. Where there are none, the keyer sees a stranger.
    pub fn give(&mut self, reply: &mut Reply) {
        match reply {
            Reply::Opened(opened) => opened.passes = self.take(),
            Reply::Renew { passes, .. } => *passes = self.take(),
            _ => {}
        }
    }

    fn take(&mut self) -> Vec<Pass> {
        let count = self.stock.len().min(EACH);
        self.stock.drain(..count).collect()
    }

    /// Whether the keyer is to be asked for more: once for each time that it answers.
    pub fn wanted(&mut self) -> bool {
        self.stock.len() < FEW && !std::mem::replace(&mut self.asked, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: usize) -> Vec<Pass> {
        let secret = levee_ipc::Secret::new(vec![1; 32]).unwrap();
        (0..count).map(|n| Pass { name: [n as u8; 16], secret: secret.clone() }).collect()
    }

    fn given(passes: &mut Passes) -> Vec<u8> {
        let mut reply = Reply::Renew { passes: Vec::new(), carriage: Default::default() };
        passes.give(&mut reply);
        let Reply::Renew { passes, .. } = reply else { panic!("another reply") };
        passes.iter().map(|pass| pass.name[0]).collect()
    }

    #[test]
    fn no_pass_is_given_twice_and_more_are_asked_for_in_time() {
        let mut passes = Passes::default();
        passes.renewed();
        assert!(!passes.wanted(), "the first come unasked");
        passes.add(some(8));
        assert_eq!(given(&mut passes), [0, 1, 2, 3, 4, 5]);
        assert!(passes.wanted());
        assert!(!passes.wanted(), "asked for");
        assert_eq!(given(&mut passes), [6, 7]);
        assert!(given(&mut passes).is_empty());
        passes.add(some(2));
        assert!(passes.wanted());
        passes.renewed();
        assert!(given(&mut passes).is_empty(), "another keyer");
    }

    #[test]
    fn the_stock_is_bounded() {
        let mut passes = Passes::default();
        passes.add(some(10_000));
        passes.add(some(10_000));
        assert_eq!(passes.stock.len(), MOST);
        assert!(!passes.wanted());
        // With as many as are few enough nobody is asked, and with one fewer somebody is.
        let mut passes = Passes::default();
        passes.add(some(FEW));
        assert!(!passes.wanted());
        let mut passes = Passes::default();
        passes.add(some(FEW - 1));
        assert!(passes.wanted());
    }
}
