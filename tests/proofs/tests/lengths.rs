//! The model of ESP's lengths, held to what seals, opens, gathers and answers.

use levee_esp::aggfrag::Aggregation;
use levee_esp::{
    Aead, AeadError, AeadProvider, DropReason, ESP_HEADER, InboundSa, Inner, NONCE, OutboundSa, SaKeys, Spi,
    Suite, TAG, TOO_BIG, sealed_length, too_big,
};
use levee_policy::site::{INNER_MTU, LAYERED_MTU};
use levee_proofs::{Case, Draw, Model, around, bits, none};

/// No cipher: the text stays as it is, so that any plaintext can be had.
struct Clear;

impl Aead for Clear {
    fn seal_in_place(&self, _: &[u8; NONCE], _: &[u8], _: &mut [u8]) -> Result<[u8; TAG], AeadError> {
        Ok([0; TAG])
    }

    fn open_within(
        &self,
        _: &[u8; NONCE],
        _: &[u8],
        buffer: &mut [u8],
        from: usize,
    ) -> Result<usize, AeadError> {
        let end = buffer.len().checked_sub(TAG).ok_or(AeadError)?;
        buffer.copy_within(from..end, 0);
        Ok(end - from)
    }
}

impl AeadProvider for Clear {
    fn name(&self) -> &'static str {
        "clear"
    }

    fn key(&self, _: Suite, _: &[u8]) -> Result<Box<dyn Aead>, AeadError> {
        Ok(Box::new(Self))
    }
}

const SPI: u32 = 0x0010_0001;

fn pair() -> (OutboundSa, InboundSa) {
    let keys = SaKeys::new(Suite::Aes128Gcm, &[1; 20]).expect("keys");
    let spi = Spi::new(SPI).expect("an SPI");
    let outbound = OutboundSa::new(spi, &keys, false, &Clear).expect("an association");
    (outbound, InboundSa::new(spi, &keys, false, &Clear).expect("an association"))
}

fn number(of: usize) -> String {
    bits(64, of as u64)
}

fn sealed(draw: &mut Draw, cases: &mut Vec<Case>) {
    let mut lengths = around(&[0, 4, 1_280, 1_400, 65_535, 1 << 32, (1 << 63) - 300], 5);
    lengths.extend((0..200).map(|_| draw.sized() >> 1).filter(|length| *length < (1 << 63) - 300));
    let (mut outbound, _) = pair();
    for inner in lengths.into_iter().map(|inner| inner as usize) {
        let given = number(inner);
        cases.push(Case::bits(format!("(sealed-length {given})"), 64, sealed_length(inner) as u64));
        if inner > 70_000 {
            continue;
        }
        let mut buffer = vec![0; sealed_length(inner)];
        let whole = outbound.seal(&mut buffer, inner, 4).expect("it is sealed");
        let text = &buffer[ESP_HEADER..whole - TAG];
        cases.push(Case::bits(format!("(text {given})"), 64, text.len() as u64));
        cases.push(Case::bits(format!("(padding {given})"), 64, u64::from(text[text.len() - 2])));
    }
}

/// A buffer with a datagram from `from` on, and in its text this many octets of padding, if there are so many.
fn datagram(buffer: usize, from: usize, padding: u8, sequence: u32) -> Vec<u8> {
    let mut octets = vec![0; buffer];
    let header = [SPI.to_be_bytes(), sequence.to_be_bytes()].concat();
    octets.iter_mut().skip(from).zip(header).for_each(|(to, octet)| *to = octet);
    let Some(end) = buffer.checked_sub(TAG).filter(|end| *end >= from + ESP_HEADER + 2) else {
        return octets;
    };
    octets[end - 2] = padding;
    let before = end - 2 - (from + ESP_HEADER);
    let row = (1..=padding).rev().take(before);
    row.enumerate().for_each(|(back, octet)| octets[end - 3 - back] = octet);
    octets
}

fn opened(draw: &mut Draw, cases: &mut Vec<Case>) {
    let (_, mut inbound) = pair();
    for sequence in 1..=2_400 {
        let from = draw.one(&[0_usize, 0, 1, 32, 33, 500]);
        let any = draw.below(600) as usize;
        let length = draw.one(&[0, 15, 16, 31, 32, 33, 35, 36, 37, 40, 44, 288, 292, any, any / 4 * 4]);
        // Also one that begins behind the buffer's end.
        let buffer = if draw.below(20) == 0 { from.saturating_sub(length) } else { from + length };
        let text = buffer.saturating_sub(from + ESP_HEADER + TAG);
        let any = draw.number() as u8;
        let near = text.saturating_sub(draw.below(4) as usize).min(255) as u8;
        let padding = draw.one(&[0, 1, 2, 3, 254, 255, any, near]);
        let code = inbound.open(&mut datagram(buffer, from, padding, sequence), from);
        let given = format!("{} {}", number(buffer), number(from));
        let is_open = code != Err(DropReason::Truncated);
        cases.push(Case::truth(format!("(is-open {given})"), is_open));
        if is_open {
            cases.push(Case::bits(format!("(opened {given})"), 64, text as u64));
            let given = format!("{} {}", number(text), bits(8, padding));
            cases.push(Case::truth(format!("(is-plain {given})"), code.is_ok()));
            let plain = |opened: levee_esp::Decrypted| {
                Case::bits(format!("(plain {given})"), 64, opened.length as u64)
            };
            cases.extend(code.map(plain));
        }
    }
}

fn gathered(draw: &mut Draw, cases: &mut Vec<Case>) {
    let mut packets = around(&[0, 34, 64, 1_500, 65_530], 5);
    packets.extend((0..100).map(|_| draw.below(1 << 16)));
    for packet in packets.into_iter().map(|packet| packet as u16) {
        let payload = Aggregation { packet, interval: None, fragment: true }.payload();
        cases.push(Case::bits(format!("(payload {})", bits(16, packet)), 64, payload as u64));
    }
}

fn answered(draw: &mut Draw, cases: &mut Vec<Case>) {
    let mut lengths = around(&[20, 44, 548, 576, 1_232, 1_280, 1_500, 65_530], 5);
    lengths.extend((0..100).map(|_| draw.below(4_000)));
    for length in lengths.into_iter().map(|length| length as usize) {
        let mut v4 = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 47, 0, 0, 10, 0, 0, 2, 10, 9, 0, 1];
        v4.resize(length.max(20), 0);
        v4[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 47, 64];
        for last in [2, 1] {
            v6.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        v6.resize(length.max(40), 0);
        v6[4..6].copy_from_slice(&(length.saturating_sub(40) as u16).to_be_bytes());
        for (name, packet) in [("v4", v4), ("v6", v6)] {
            let Ok(inner) = Inner::parse(&packet) else { continue };
            let written = too_big(&packet, &inner, 1_400, &mut [0; TOO_BIG]).expect("an answer");
            cases.push(Case::bits(format!("(too-big-{name} {})", number(packet.len())), 64, written as u64));
        }
    }
}

#[test]
fn esp_has_the_lengths_that_the_model_says() {
    let mut draw = Draw::new(0x7e57_0006);
    let mut cases = vec![
        Case::bits("inner-mtu".into(), 16, INNER_MTU),
        Case::bits("layered-mtu".into(), 16, LAYERED_MTU),
    ];
    sealed(&mut draw, &mut cases);
    opened(&mut draw, &mut cases);
    gathered(&mut draw, &mut cases);
    answered(&mut draw, &mut cases);
    assert!(cases.len() > 5_000, "{} cases", cases.len());
    none(&Model::read("esp_lengths").compare(&cases));
}
