//! The lengths before a message of the trusted path, by exhaustion.

use levee_ipc::{CLASSES, FrameError, FrameReader};

/// What begins with these octets.
fn told(reader: &mut FrameReader, octets: &[u8]) -> Result<Option<u8>, FrameError> {
    reader.space()[..octets.len()].copy_from_slice(octets);
    reader.advance(octets.len());
    reader.take()
}

/// A message of one octet, 7, in its class, whatever is said of its length.
fn frame(class: usize, length: u16) -> Vec<u8> {
    let mut frame = vec![0; 2 + class];
    frame[..2].copy_from_slice(&u16::try_from(class).unwrap().to_be_bytes());
    frame[2..4].copy_from_slice(&length.to_be_bytes());
    frame[4] = 7;
    frame
}

#[test]
fn of_all_lengths_that_a_frame_can_say_of_its_message_one_is_right() {
    let mut reader = FrameReader::default();
    for class in CLASSES {
        let last = u16::try_from(class - 2).unwrap();
        // All in the first class; around each edge in the others, which are longer to erase.
        let all = (0..=u16::MAX)
            .filter(|length| class == CLASSES[0] || *length < 300 || length.abs_diff(last) < 300);
        for length in all {
            let expected = match length {
                1 => Ok(Some(7)),
                0 => Err(FrameError::Length),
                _ if length <= last => Err(FrameError::Malformed),
                _ => Err(FrameError::Length),
            };
            assert_eq!(told(&mut reader, &frame(class, length)), expected, "{length} of {class}");
            assert!(reader.is_empty(), "{length} of {class}: the next message begins behind the class");
        }
    }
}

#[test]
fn a_frame_is_of_one_of_its_classes_or_nothing() {
    for length in
        (0..=u16::MAX).filter(|l| l % 97 == 0 || CLASSES.iter().any(|c| c.abs_diff((*l).into()) < 20))
    {
        let found = told(&mut FrameReader::default(), &length.to_be_bytes());
        let expected = if CLASSES.contains(&length.into()) { Ok(None) } else { Err(FrameError::Length) };
        assert_eq!(found, expected, "{length}");
    }
}

#[test]
fn every_octet_behind_a_message_is_zero() {
    let mut reader = FrameReader::default();
    for class in &CLASSES[..2] {
        for at in 5..2 + class {
            let mut frame = frame(*class, 1);
            frame[at] = 1;
            assert_eq!(told(&mut reader, &frame), Err(FrameError::Malformed), "octet {at} of {class}");
        }
    }
}

#[test]
fn a_message_waits_for_its_last_octet() {
    for class in CLASSES {
        let frame = frame(class, 1);
        let mut reader = FrameReader::default();
        for octet in &frame[..frame.len() - 1] {
            assert_eq!(told(&mut reader, &[*octet]), Ok(None));
        }
        assert_eq!(told(&mut reader, &frame[frame.len() - 1..]), Ok(Some(7)));
    }
}
