//! What a label's program prints, as it comes out of its pipe: the same lines however the bytes are cut, visible, bounded, and no more
//! of them than the rate allows.
//!
//! Input: the length of the pieces, a byte of options, then what the program prints. Options: 1: it all comes at once; else each piece
//! comes two seconds after the last.

use std::time::Duration;

use levee_logger::{LINE, Source};

const NAME: &str = "web";

fn lines(bytes: &[u8], piece: usize, pause: Duration) -> Vec<String> {
    let mut now = Duration::from_secs(100);
    let (mut source, mut lines) = (Source::new(NAME, now), Vec::new());
    let mut write = |line: &str| lines.push(line.to_owned());
    for piece in bytes.chunks(piece) {
        source.take(piece, now, &mut write);
        now += pause;
        source.tick(now, &mut write);
    }
    source.finish(now, &mut write);
    assert!(!source.is_waiting());
    lines
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&[piece, options], bytes)) = input.split_first_chunk::<2>() else { return };
    let piece = usize::from(piece) + 1;
    let at_once = options & 1 != 0;
    let got = lines(bytes, piece, if at_once { Duration::ZERO } else { Duration::from_secs(2) });
    for line in &got {
        assert!(line.starts_with(NAME), "{line:?} pretends to be another's");
        // What is not text takes up to ten characters for one octet.
        assert!(line.len() <= LINE * 10 + 64, "{} octets", line.len());
        assert!(
            line.chars()
                .all(|c| !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
        );
    }
    if at_once {
        assert_eq!(got, lines(bytes, bytes.len().max(1), Duration::ZERO), "however the bytes are cut");
        // 400 at once, and how many were left out.
        assert!(got.len() <= 401, "{} lines", got.len());
    }
}
