//! The sender: messages into blocks, blocks into datagrams.

use crate::Form;
use crate::block::{Filling, symbols};
use crate::header::{Header, Kind, Run};
use crate::seal::{Sealed, Secret};
use levee_esp::{AeadError, AeadProvider};

/// The sender of a run.
#[derive(Debug)]
pub struct Sender {
    form: Form,
    sealed: Sealed,
    filling: Filling,
    /// The number of the next block.
    block: u64,
    beats: u32,
}

impl Sender {
    /// Begins a run, which nobody has begun before with this key.
    ///
    /// # Errors
    /// The library's.
    pub fn new(form: Form, secret: &Secret, run: Run, library: &dyn AeadProvider) -> Result<Self, AeadError> {
        let sealed = secret.of_run(library, run)?;
        Ok(Self { form, sealed, filling: Filling::default(), block: 0, beats: 0 })
    }

    /// Goes on with another key. The run stays, and with it all numbers: of no two of its datagrams they are the same, whatever the key.
    ///
    /// # Errors
    /// The library's; then nothing has changed.
    pub fn rekey(&mut self, secret: &Secret, library: &dyn AeadProvider) -> Result<(), AeadError> {
        self.sealed = secret.of_run(library, self.sealed.run)?;
        Ok(())
    }

    /// Sends these messages, each with the next number; nothing in the place of one tells that it is missing. One that is longer than the
    /// form says, or empty, is missing, too. `out` is given the datagrams of a block at a time, one behind the other, each of
    /// [`Form::datagram`] octets.
    ///
    /// # Errors
    /// The library's.
    pub fn send<'a>(
        &mut self,
        messages: impl IntoIterator<Item = Option<&'a [u8]>>,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), AeadError> {
        for message in messages {
            let message = message.filter(|message| (1..=self.form.message).contains(&message.len()));
            if !self.filling.has_room(message.map_or(0, <[u8]>::len)) {
                self.flush(out)?;
            }
            self.filling.add(message);
        }
        self.flush(out)
    }

    /// The datagram that tells that it is there, and what it has sent so far.
    ///
    /// # Errors
    /// The library's.
    pub fn beat(&mut self) -> Result<Vec<u8>, AeadError> {
        let header = Header { run: self.sealed.run, block: self.block, kind: Kind::Beat(self.beats) };
        // In 31 bits there is room for sixty years without a block.
        self.beats = self.beats.wrapping_add(1) & (u32::MAX >> 1);
        let mut datagram = Vec::new();
        self.sealed.seal(&header, &self.filling.next().to_be_bytes(), &mut datagram)?;
        Ok(datagram)
    }

    fn flush(&mut self, out: &mut dyn FnMut(&[u8])) -> Result<(), AeadError> {
        let Some(block) = self.filling.take() else { return Ok(()) };
        let length = u32::try_from(block.len()).map_err(|_| AeadError)?;
        let mut datagrams = Vec::new();
        for (number, symbol) in (0..).zip(symbols(&self.form, &block)) {
            let kind = Kind::Symbol { length, number };
            let header = Header { run: self.sealed.run, block: self.block, kind };
            self.sealed.seal(&header, &symbol, &mut datagrams)?;
        }
        self.block = self.block.wrapping_add(1);
        // A number of a beat is used once with each block's.
        self.beats = 0;
        out(&datagrams);
        Ok(())
    }
}
