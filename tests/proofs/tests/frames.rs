//! The model of the lengths before a message of the trusted path, held to what reads and writes them.

use levee_ipc::{CLASSES, FrameError, FrameReader, encode_frame};
use levee_proofs::{Case, Draw, Model, around, bits, none};

/// Octets before a message: its class, its length.
const HEADER: usize = 2;
const LARGEST: usize = 2 * HEADER + 16_384;

/// A message that takes exactly so many octets, where there is one: a list says its own length in one octet, two or three.
fn encoded(length: usize) -> Option<Result<usize, FrameError>> {
    if length == 0 {
        return Some(encode_frame(&()).map(|frame| frame.len()));
    }
    let list = match length {
        1..=128 => length - 1,
        130..=16_385 => length - 2,
        16_387.. => length - 3,
        _ => return None,
    };
    Some(encode_frame(&vec![0_u8; list]).map(|frame| frame.len()))
}

fn written(draw: &mut Draw, cases: &mut Vec<Case>) {
    let mut lengths = around(&[0, 128, 2_046, 8_190, 16_384], 4);
    lengths.extend((0..60).map(|_| draw.below(17_000)));
    for length in lengths {
        let Some(code) = encoded(length as usize) else { continue };
        let given = bits(64, length);
        cases.push(Case::truth(format!("(is-encoded {given})"), code.is_ok()));
        cases.extend(code.ok().map(|frame| Case::bits(format!("(frame {given})"), 64, frame as u64)));
    }
}

/// A reader with so many octets, of which the first four say class and length.
fn filled(filled: usize, class: u16, length: u16) -> FrameReader {
    let mut reader = FrameReader::default();
    let said = [class.to_be_bytes(), length.to_be_bytes()].concat();
    reader.space()[..4].copy_from_slice(&said);
    reader.advance(filled);
    reader
}

fn taken(draw: &mut Draw, cases: &mut Vec<Case>) {
    let classes = CLASSES.map(|class| u16::try_from(class).expect("16 bits"));
    for run in 0..3_000 {
        let any = draw.number() as u16;
        let class = if run % 4 == 0 { any } else { draw.one(&classes) };
        let class = if run % 16 == 1 { class.wrapping_add(1) } else { class };
        let edges = around(&[0, u64::from(class), u64::from(class) + 2, LARGEST as u64], 3);
        let edges: Vec<u64> = edges.into_iter().filter(|n| *n <= LARGEST as u64).collect();
        let octets = if run % 5 == 0 { draw.below(LARGEST as u64 + 1) } else { draw.one(&edges) } as usize;
        let near = class.saturating_sub(draw.below(5) as u16);
        let length = draw.one(&[0, 1, 2, any, near, class]);
        // Octets that did not come are zeros in a new reader: so is a length that is not all here.
        let mut reader = filled(octets, class, length);
        let code = reader.take::<Vec<u8>>();
        let given = format!("{} {}", bits(64, octets as u64), bits(16, class));
        let kind = match &code {
            Ok(None) => 0_u8,
            Err(FrameError::Length) => 1,
            Ok(Some(_)) | Err(FrameError::Malformed) => 2,
        };
        cases.push(Case::bits(format!("(taken {given} {})", bits(16, length)), 4, kind));
        if kind == 2 {
            let left = format!("(bvsub largest (left {given}))");
            cases.push(Case::bits(left, 64, reader.space().len() as u64));
        }
    }
}

fn advanced(draw: &mut Draw, cases: &mut Vec<Case>) {
    let edges = [0, 1, LARGEST - 1, LARGEST, LARGEST + 1, usize::MAX - 1, usize::MAX];
    for first in edges.into_iter().filter(|first| *first <= LARGEST) {
        for more in edges.into_iter().chain((0..6).map(|_| draw.sized() as usize)) {
            let mut reader = FrameReader::default();
            reader.advance(first);
            reader.advance(more);
            let term =
                format!("(bvsub largest (advanced {} {}))", bits(64, first as u64), bits(64, more as u64));
            cases.push(Case::bits(term, 64, reader.space().len() as u64));
        }
    }
}

#[test]
fn frames_are_written_and_read_by_the_lengths_that_the_model_says() {
    let mut draw = Draw::new(0x7e57_0005);
    let mut cases = Vec::new();
    written(&mut draw, &mut cases);
    taken(&mut draw, &mut cases);
    advanced(&mut draw, &mut cases);
    assert!(cases.len() > 3_000, "{} cases", cases.len());
    none(&Model::read("frames").compare(&cases));
}
