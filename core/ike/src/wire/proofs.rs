//! The model of the lengths in IKEv2's messages (`tests/proofs/models/ike_lengths.smt2`), held to what reads and writes them.

use super::payload::{Fields, Problem, Shape, shape};
use super::{Chain, Exchange, GENERIC, Header, Reader, TrafficSelectors, kind};
use levee_proofs::{Case, Draw, Model, bits, none};

fn number(of: usize) -> String {
    bits(64, of as u64)
}

/// What a length may be said to be where it is this one: it, one beside, an edge, or any.
fn claim(draw: &mut Draw, right: usize) -> u16 {
    let (any, right) = (draw.number() as u16, right as u16);
    let near = [right, right, right.wrapping_add(1), right.wrapping_sub(1), right.wrapping_add(4)];
    let edge = draw.one(&[0, 1, 3, 4, 5, 8, 0x7fff, 0xfffe, 0xffff, any]);
    if draw.below(4) == 0 { edge } else { draw.one(&near) }
}

fn headers(draw: &mut Draw, cases: &mut Vec<Case>) {
    let (next, exchange) = (kind::NONCE, Exchange::Init);
    let header =
        Header { spi_i: 1, spi_r: 0, next, exchange, from_initiator: true, response: false, message_id: 0 };
    for run in 0..300_u64 {
        let length = if run < 40 { run } else { draw.below(70_000) } as usize;
        let said = draw.one(&[length, length, length + 1, length ^ 1 << 16, length | 1 << 31, 28]);
        let mut datagram = header.write(said).to_vec();
        datagram.resize(length, 0);
        let code = Header::parse(&datagram);
        let given = format!("{} {}", number(length), bits(32, said as u32));
        cases.push(Case::truth(format!("(is-message {given})"), code.is_ok()));
        let body = |(_, body): (Header, &[u8])| {
            Case::bits(format!("(body {})", number(length)), 64, body.len() as u64)
        };
        cases.extend(code.map(body));
    }
}

fn parts(draw: &mut Draw, cases: &mut Vec<Case>) {
    for _ in 0..600 {
        let octets = vec![0; draw.below(300) as usize];
        let head = draw.one(&[0, 4, 8, 20]);
        let said = claim(draw, octets.len() + head);
        let mut reader = Reader::new(&octets, "part");
        let code = reader.counted(said, head);
        let (said, head) = (bits(16, said), number(head));
        cases.push(Case::truth(format!("(is-counted {} {said} {head})", number(octets.len())), code.is_ok()));
        let counted = |mut part: Reader<'_>| {
            Case::bits(format!("(counted {said} {head})"), 64, part.rest().len() as u64)
        };
        cases.extend(code.map(counted));
    }
}

/// A kind that nobody knows: with the critical bit it is told, where it is all there.
const UNKNOWN: u8 = 200;

/// Lengths of payloads; as many as a message may have and one more, at first, and then few.
fn lengths(draw: &mut Draw, run: usize) -> Vec<usize> {
    let many = if run < 6 { 93 + run } else { draw.below(6) as usize };
    (0..many).map(|_| 4 + draw.below(24) as usize).collect()
}

/// A chain of so many octets with payloads of these lengths, as it says. All but the last are of a kind that may have anything inside.
fn chain(octets: usize, said: &[u16], last: [u8; 2]) -> (u8, Vec<u8>) {
    let mut chain = vec![0; octets];
    let mut at = 0_usize;
    for (place, length) in said.iter().enumerate() {
        let (is_last, is_next_last) = (place + 1 == said.len(), place + 2 == said.len());
        let next = if is_last {
            0
        } else if is_next_last {
            last[0]
        } else {
            kind::VENDOR
        };
        let [high, low] = length.to_be_bytes();
        let header = [next, if is_last { last[1] } else { 0 }, high, low];
        chain.iter_mut().skip(at).zip(header).for_each(|(to, octet)| *to = octet);
        // Behind one that has not its own header nothing is looked at.
        at = at.saturating_add(usize::from(*length).max(GENERIC));
    }
    let first = match said.len() {
        0 => 0,
        1 => last[0],
        _ => kind::VENDOR,
    };
    (first, chain)
}

/// The model walks a chain, each of whose payloads has a length that is said of it.
fn chains(draw: &mut Draw, cases: &mut Vec<Case>) {
    for run in 0..1_500 {
        let lengths = lengths(draw, run);
        let (many, right) = (lengths.len(), lengths.iter().sum::<usize>());
        let more = draw.one(&[0, 0, 0, 1, 3, 4, 8]);
        let less = draw.one(&[0, 0, 0, 0, 1, 3, 4, 8]);
        let octets = if run < 6 { right } else { (right + more).saturating_sub(less) };
        let wrong = if run < 6 { many } else { draw.below(2 * many as u64 + 1) as usize };
        let said = lengths.iter().enumerate();
        let said =
            said.map(|(place, length)| if place == wrong { claim(draw, *length) } else { *length as u16 });
        let said: Vec<u16> = said.collect();
        let (mut left, mut goes) = (number(octets), String::from("(and true"));
        for length in &said {
            goes += &format!(" (is-payload {left} {})", bits(16, *length));
            left = format!("(behind {left} {})", bits(16, *length));
        }
        let (first, octets) = chain(octets, &said, [kind::VENDOR, 0]);
        let code = Fields::parse(first, &octets).is_ok();
        cases.push(Case::truth(format!("{goes} (is-end {left} {}))", number(many)), code));
        // Whatever is behind it, the last payload is told where it is all there.
        let (first, octets) = chain(octets.len(), &said, [UNKNOWN, 0x80]);
        let code = Fields::parse(first, &octets);
        let is_told = matches!(code, Err(Problem::Critical(UNKNOWN)));
        let term = format!("{goes} (bvule {} most-payloads))", number(many));
        if many > 0 {
            cases.push(Case::truth(term, is_told));
        }
    }
}

fn encrypted(draw: &mut Draw, cases: &mut Vec<Case>) {
    for _ in 0..1_000 {
        let any = draw.below(400) as usize;
        let length = draw.one(&[0, 3, 4, 5, 6, 7, 8, 9, 12, any]);
        let said = claim(draw, length);
        let numbers = [0_u16, 1, 2, 3, 0xff, 0x100, 0xffff];
        let (part, total) = (draw.one(&numbers), draw.one(&numbers));
        let mut body =
            [[kind::NONCE, 0], said.to_be_bytes(), part.to_be_bytes(), total.to_be_bytes()].concat();
        body.resize(length, 0);
        let given = format!("{} {}", number(length), bits(16, said));
        let code = shape(kind::SK, &body);
        cases.push(Case::truth(format!("(is-sealed {given})"), code.is_ok()));
        if let Ok(Shape::Sealed { data, .. }) = code {
            cases.push(Case::bits(format!("(sealed {})", bits(16, said)), 64, data.len() as u64));
        }
        // What is not all there says another number, or none.
        let [p, t] = [4, 6].map(|at| match body.get(at..at + 2) {
            Some([high, low]) => u16::from_be_bytes([*high, *low]),
            _ => 0,
        });
        let code = shape(kind::SKF, &body);
        let term = format!("(is-fragment {given} {} {})", bits(16, p), bits(16, t));
        cases.push(Case::truth(term, code.is_ok()));
        if let Ok(Shape::Fragment { data, .. }) = code {
            cases.push(Case::bits(format!("(fragment {})", bits(16, said)), 64, data.len() as u64));
        }
    }
}

fn written(draw: &mut Draw, cases: &mut Vec<Case>) {
    for run in 0..120_u64 {
        let inside = if run < 20 { 65_522 + run } else { draw.below(66_000) } as usize;
        let before = draw.below(50) as usize;
        let mut chain = Chain::new();
        chain.push(kind::VENDOR, |out| out.resize(out.len() + before, 1));
        let length = chain.bytes().len();
        chain.push(kind::VENDOR, |out| out.resize(out.len() + inside, 2));
        let now = chain.bytes().len();
        let pushed = format!("(pushed {} {})", number(length), number(inside));
        cases.push(Case::bits(pushed, 64, now as u64));
        if let Some([high, low]) = chain.bytes().get(length + 2..length + 4) {
            let said = u16::from_be_bytes([*high, *low]);
            cases.push(Case::bits(format!("(said {})", number(inside)), 16, said));
        }
    }
}

fn deletions(draw: &mut Draw, cases: &mut Vec<Case>) {
    for _ in 0..1_000 {
        let spis = draw.below(12) as usize;
        let (protocol, size) =
            draw.one(&[(1, 0), (1, 4), (2, 4), (3, 4), (3, 4), (3, 8), (0, 4), (4, 4), (2, 0)]);
        let count = claim(draw, spis);
        let length =
            (4 + 4 * spis).saturating_sub(draw.one(&[0, 0, 0, 1, 4, 5])) + draw.one(&[0, 0, 0, 1, 4]);
        let mut body = [&[protocol, size][..], &count.to_be_bytes(), &vec![1; 4 * spis + 4]].concat();
        body.truncate(length);
        let mut chain = Chain::new();
        chain.push(kind::DELETE, |out| out.extend(&body));
        let code = Fields::parse(chain.first(), chain.bytes());
        let given =
            format!("{} {} {} {}", number(body.len()), bits(8, protocol), bits(8, size), bits(16, count));
        cases.push(Case::truth(format!("(is-delete {given})"), code.is_ok()));
    }
}

fn selectors(draw: &mut Draw, cases: &mut Vec<Case>) {
    for run in 0..1_500_usize {
        let many = if run < 4 { 63 + run } else { draw.below(4) as usize };
        let count = if run >= 4 && draw.below(8) == 0 { many + 1 } else { many };
        let mut body = vec![count as u8, 0, 0, 0];
        let mut octets = Vec::new();
        let mut goes = format!("(and (is-number-of-selectors {})", bits(8, count as u8));
        let mut said = Vec::new();
        for _ in 0..many {
            let any = draw.below(60) as usize;
            let (kind, right) =
                draw.one(&[(7, 12), (8, 36), (10, 1), (10, 1_024), (10, 1_025), (9, any), (10, any)]);
            // As many as there may be, and more, are all right.
            let (kind, right) = if run < 4 { (10, 1) } else { (kind, right) };
            let right =
                if run >= 4 && draw.below(12) == 0 { draw.one(&[0, 11, 12, 13, 36, 40]) } else { right };
            let wrong =
                if run >= 4 && draw.below(8) == 0 { claim(draw, 4 + right) } else { 4 + right as u16 };
            octets.extend([kind, 0]);
            octets.extend(wrong.to_be_bytes());
            // Ports and addresses of which each is the same twice; for a label, its octets.
            octets.resize(octets.len() + right, 1);
            said.push((kind, wrong));
            if usize::from(wrong) != 4 + right {
                break;
            }
        }
        let mut left = number(octets.len());
        for (kind, wrong) in &said {
            goes += &format!(" (is-selector {left} {} {})", bits(8, *kind), bits(16, *wrong));
            left = format!("(behind {left} {})", bits(16, *wrong));
        }
        // What is behind a length that is wrong is not what was meant: all that can be told is that it was the last.
        let is_told = said.len() == count || said.iter().any(|(_, wrong)| *wrong < 4);
        body.append(&mut octets);
        let code = TrafficSelectors::parse(&body);
        if is_told || count == 0 {
            cases.push(Case::truth(format!("{goes} (= {left} {}))", number(0)), code.is_ok()));
        }
    }
}

#[test]
fn messages_have_the_lengths_that_the_model_says() {
    let mut draw = Draw::new(0x7e57_0008);
    let mut cases = Vec::new();
    headers(&mut draw, &mut cases);
    parts(&mut draw, &mut cases);
    chains(&mut draw, &mut cases);
    encrypted(&mut draw, &mut cases);
    written(&mut draw, &mut cases);
    deletions(&mut draw, &mut cases);
    selectors(&mut draw, &mut cases);
    assert!(cases.len() > 6_000, "{} cases", cases.len());
    none(&Model::read("ike_lengths").compare(&cases));
}
