//! What a person types that nobody is to see: at a terminal, or as the first line of something.

use std::io::{self, BufRead};
use std::os::fd::AsFd;

use levee_sys::terminal::typed_unseen;
use zeroize::Zeroizing;

/// A passphrase, erased when dropped.
pub type Passphrase = Zeroizing<Vec<u8>>;

/// The first line, without its end.
pub fn line(from: impl BufRead) -> Result<Passphrase, String> {
    // Room for all of it, so that growing leaves no copy behind.
    let mut text = Zeroizing::new(Vec::with_capacity(1024));
    from.take(1024).read_until(b'\n', &mut text).map_err(|e| format!("standard input: {e}"))?;
    while let Some(b'\n' | b'\r') = text.last() {
        text.pop();
    }
    Ok(text)
}

/// Asks on the terminal, with echo off meanwhile.
pub fn ask(prompt: &str) -> Result<Passphrase, String> {
    let stdin = io::stdin();
    typed_unseen(stdin.as_fd(), || {
        eprint!("{prompt}");
        Ok(())
    })
    .map_err(|e| e.to_string())?;
    line(stdin.lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_without_its_end_is_the_password() {
        assert_eq!(*line(&b"correct horse\r\nmore"[..]).unwrap(), b"correct horse");
        assert_eq!(*line(&b"correct horse"[..]).unwrap(), b"correct horse");
    }
}
