//! What a file of prices is believed, and what is told by it.

use levee_policy::site::Cipher;
use levee_prices::{Book, Carried, Date, Host, MOST_OCTETS, MOST_PRICES, Measured, Unpriced};
use proptest::prelude::*;

const FILE: &str = include_str!("prices.toml");
const CPUINFO: &str = "processor\t: 0\nmodel name\t: A Processor\ncpu MHz\t: 1\n\nprocessor\t: 1\nmodel name\t: A Processor\ncpu MHz\t: 2\n";
/// When the file's were measured.
const THEN: u64 = 1_795_564_800;
const DAY: u64 = 86_400;

fn here() -> Host {
    Host::of(CPUINFO, "6.1.0\n")
}

fn why(text: &str, now: u64) -> Option<Unpriced> {
    Book::read(Some(text.as_bytes()), &here()).at(now).err()
}

#[test]
fn a_tunnel_that_was_measured_has_its_price_beside_what_it_is_without_what_was_asked() {
    let book = Book::read(Some(FILE.as_bytes()), &here());
    let (aes, chacha) = ((Cipher::Aes256Gcm, Carried::Each), (Cipher::ChaCha20Poly1305, Carried::Each));
    let told = book.forecast(THEN + DAY, Some(chacha), Some(aes)).unwrap();
    assert_eq!(told.price.gigabyte.unwrap().all(), [1_200_000, 1_280_000, 1_400_000]);
    let words = told.to_string();
    assert!(
        words.starts_with("by the laboratory's run of 2026-11-25: chacha20-poly1305; 1.280 s "),
        "{words}"
    );
    assert!(
        words.contains("(1.200 to 1.400)") && words.contains("(without it: aes-256-gcm; 0.640 s"),
        "{words}"
    );
    let same = book.forecast(THEN, Some(aes), Some(aes)).unwrap();
    assert!(same.without.is_none() && same.to_string().contains("a round trip 11.000 µs longer"), "{same}");
    assert!(same.to_string().contains("1.040 octets on the wire for one"), "{same}");
    let constant = Carried::at(Some(std::time::Duration::from_millis(4)));
    let quiet = book.forecast(THEN, Some((Cipher::Aes256Gcm, constant)), None).unwrap().to_string();
    assert!(
        quiet.contains("a packet every 4.000 ms; 9.500 ms of the server's processor time in a second"),
        "{quiet}"
    );
}

#[test]
fn what_was_not_measured_has_no_price() {
    let book = Book::read(Some(FILE.as_bytes()), &here());
    let told = |kind| book.forecast(THEN, kind, None).unwrap_err();
    assert_eq!(told(Some((Cipher::Aes128Gcm, Carried::Each))), Unpriced::NotMeasured);
    assert_eq!(told(Some((Cipher::Aes256Gcm, Carried::Constant(2_000)))), Unpriced::NotMeasured);
    assert_eq!(told(None), Unpriced::Otherwise);
}

#[test]
fn prices_that_are_not_there_not_whole_of_another_host_or_old_are_not_told() {
    assert_eq!(why(FILE, THEN), None);
    assert_eq!(why(FILE, THEN + 179 * DAY), None);
    assert_eq!(why(FILE, THEN + 181 * DAY), Some(Unpriced::Old));
    assert_eq!(why(FILE, THEN - 2 * DAY), Some(Unpriced::Old));
    assert_eq!(Book::read(None, &here()).at(THEN).err(), Some(Unpriced::Absent));
    for (word, other) in [
        ("A Processor", "B Processor"),
        ("processors = 2", "processors = 4"),
        ("6.1.0", "6.1.1"),
        ("\"0.1.0\"", "\"0.0.9\""),
    ] {
        assert_eq!(why(&FILE.replace(word, other), THEN), Some(Unpriced::OtherHost), "{word}");
    }
    for (word, other) in [
        ("version = 1", "version = 2"),
        ("[600000, 640000, 700000]", "[600000, 740000, 700000]"),
        ("[600000, 640000, 700000]", "[600000, 640000]"),
        ("[600000, 640000, 700000]", "[600000, 640000, 1000000000001]"),
        ("[600000, 640000, 700000]", "[-1, 640000, 700000]"),
        ("[600000, 640000, 700000]", "[0.5, 640000, 700000]"),
        ("chacha20-poly1305", "aes-256-gcm"),
        ("chacha20-poly1305", "none"),
        ("interval = 4000", "interval = 0"),
        ("interval = 4000", "interval = 1000001"),
        ("standing-wire", "standing-fire"),
        ("A Processor", "A\\u001bProcessor"),
        ("[host]", "[hosts]"),
    ] {
        let text = FILE.replace(word, other);
        assert_ne!(text, FILE, "{word}");
        assert_eq!(why(&text, THEN), Some(Unpriced::Damaged), "{word} {other}");
    }
    let long = format!("{FILE}#{}", " ".repeat(MOST_OCTETS));
    assert_eq!(why(&long, THEN), Some(Unpriced::Damaged));
    let many: String =
        (1..40).map(|n| format!("[[price]]\ncipher = \"aes-128-gcm\"\ninterval = {n}\n")).collect();
    assert_eq!(why(&format!("{FILE}{many}"), THEN), Some(Unpriced::Damaged));
}

/// With one word of the file in another's place.
fn with(word: &str, other: &str) -> String {
    let text = FILE.replace(word, other);
    assert_ne!(text, FILE, "{word}");
    text
}

#[test]
fn a_file_is_believed_to_the_ends_of_its_bounds_and_not_beyond() {
    let filled = |octets: usize| format!("{FILE}#{}", " ".repeat(octets - FILE.len() - 1));
    assert_eq!(why(&filled(MOST_OCTETS), THEN), None);
    assert_eq!(why(&filled(MOST_OCTETS + 1), THEN), Some(Unpriced::Damaged));
    for (octets, is) in [(128, Unpriced::OtherHost), (129, Unpriced::Damaged)] {
        assert_eq!(why(&with("A Processor", &"P".repeat(octets)), THEN), Some(is), "{octets}");
    }
    let prices = |count| {
        let more = (1..=count).map(|n| format!("[[price]]\ncipher = \"aes-128-gcm\"\ninterval = {n}\n"));
        format!("{FILE}{}", more.collect::<String>())
    };
    // Three of them are the file's own.
    assert_eq!(why(&prices(MOST_PRICES - 3), THEN), None);
    assert_eq!(why(&prices(MOST_PRICES - 2), THEN), Some(Unpriced::Damaged));
    for (measure, is) in [
        ("[1000000000000, 1000000000000, 1000000000000]", None),
        ("[0, 0, 0]", None),
        ("[600000, 600000, 599999]", Some(Unpriced::Damaged)),
        ("[600001, 600000, 600000]", Some(Unpriced::Damaged)),
    ] {
        assert_eq!(why(&with("[600000, 640000, 700000]", measure), THEN), is, "{measure}");
    }
}

#[test]
fn prices_are_told_to_the_last_second_of_half_a_year_and_from_a_day_ahead_on() {
    assert_eq!(why(FILE, THEN + 180 * DAY), None);
    assert_eq!(why(FILE, THEN + 180 * DAY + 1), Some(Unpriced::Old));
    assert_eq!(why(FILE, THEN - DAY), None);
    assert_eq!(why(FILE, THEN - DAY - 1), Some(Unpriced::Old));
}

#[test]
fn a_measure_is_handed_on_as_it_was_read_with_its_middle_in_the_middle() {
    let book = Book::read(Some(FILE.as_bytes()), &here());
    let told = book.forecast(THEN, Some((Cipher::Aes256Gcm, Carried::Each)), None).unwrap();
    let gigabyte = told.price.gigabyte.unwrap();
    assert_eq!((gigabyte.middle(), <[u64; 3]>::from(gigabyte)), (640_000, [600_000, 640_000, 700_000]));
    assert_eq!(Measured::try_from(gigabyte.all()), Ok(gigabyte));
}

#[test]
fn a_day_is_named_as_the_calendar_does() {
    for (seconds, day) in [
        (0, "1970-01-01"),
        (951_782_400, "2000-02-29"),
        (THEN - 1, "2026-11-24"),
        (4_102_444_800, "2100-01-01"),
    ] {
        assert_eq!(Date(seconds).to_string(), day);
    }
    assert!(!Date(u64::MAX).to_string().is_empty());
}

proptest! {
    #[test]
    fn no_text_is_more_than_a_file_that_cannot_be_read(text in proptest::collection::vec(any::<u8>(), 0..512), at in 0..FILE.len(), now: u64) {
        let _ = Book::read(Some(&text), &here()).at(now);
        let mut changed = FILE.as_bytes().to_vec();
        let end = changed.len().min(at + text.len());
        changed.splice(at..end, text);
        let book = Book::read(Some(&changed), &here());
        for kind in [(Cipher::Aes256Gcm, Carried::Each), (Cipher::Aes256Gcm, Carried::Constant(4_000))] {
            let _ = book.forecast(now, Some(kind), None).map(|told| told.to_string());
        }
    }
}
