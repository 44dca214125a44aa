//! What a program writes to its terminal, as the process reads it that stands between the two.
//!
//! Input: rows, columns, then parts, each behind two bytes of length; a part with the highest bit of its length is a new size of the
//! terminal.
//!
//! The program of the workstation is no library: the two files are compiled here as well.

#[path = "../../../tpe/src/screen/parser.rs"]
pub mod parser;
#[path = "../../../tpe/src/screen/text.rs"]
pub mod text;

use parser::{News, bounded, picture};
use text::Kept;

fn is_text(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&[rows, columns], mut rest)) = input.split_first_chunk::<2>() else { return };
    let mut size = (u16::from(rows & 0x3f), u16::from(columns & 0x7f));
    let mut parser = vt100::Parser::new_with_callbacks(bounded(size.0), bounded(size.1), 0, Kept::default());
    let mut dropped = 0;
    while let Some((&[high, low], tail)) = rest.split_first_chunk::<2>() {
        if high & 0x80 != 0 {
            rest = tail;
            size = (u16::from(high & 0x3f), u16::from(low & 0x7f));
            parser.screen_mut().set_size(bounded(size.0), bounded(size.1));
        } else {
            let (part, tail) = tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([high, low]))));
            rest = tail;
            parser.process(part);
        }
        let count = parser.callbacks().dropped();
        assert!(count >= dropped);
        dropped = count;
        let shown = picture(parser.screen());
        assert_eq!(shown.len(), usize::from(bounded(size.0).get()) + 1, "each row, and the cursor");
        for (place, news) in shown.iter().enumerate() {
            let length = postcard::to_allocvec(news).expect("it can be sent").len();
            assert!(length <= levee_ipc::MAX_MESSAGE, "{length} octets are no message");
            match news {
                News::Row { row, spans } => {
                    assert_eq!(usize::from(*row), place);
                    assert!(spans.len() <= usize::from(bounded(size.1).get()));
                    assert!(
                        spans.iter().all(|span| is_text(&span.text)),
                        "an order to the terminal in a row"
                    );
                }
                News::Cursor { row, column, .. } => {
                    assert!(*row < bounded(size.0).get() && *column <= bounded(size.1).get());
                }
                other => panic!("{other:?} in a picture"),
            }
        }
    }
    for line in parser.callbacks().lines(parser.screen()) {
        assert!(is_text(&line), "an order to the terminal in a line: {line:?}");
        assert!(line.len() <= 16 * 1024 + 4);
    }
}
