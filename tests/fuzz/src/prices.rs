//! The file of prices, which whoever has taken sessiond over may have written, and what is told of it.

use levee_policy::site::Cipher;
use levee_prices::{Book, Carried, Host, MOST_OCTETS, Unpriced};

/// The host of the saved corpus.
fn here() -> Host {
    Host { processor: "fuzz".into(), processors: 2, kernel: "6.1".into(), levee: "0".into() }
}

/// The input is the file, read on a day of 2026. What is told is of numbers and levee's own words, and is the same after a message of
/// levee's; a comment changes nothing, and a key that nobody knows makes it no file of prices.
pub fn run(input: &[u8]) {
    told(input);
}

/// The same: of how many tunnels something was told.
pub fn told(input: &[u8]) -> usize {
    const NOW: u64 = 1_795_000_000;
    let book = Book::read(Some(input), &here());
    let Ok(prices) = book.at(NOW) else { return 0 };
    assert!(input.len() <= MOST_OCTETS, "a file that is too long is read");
    if input.len() + 16 <= MOST_OCTETS {
        let behind = |text: &str| Book::read(Some(&[input, b"\n", text.as_bytes()].concat()), &here());
        assert_eq!(behind("# a comment").at(NOW), Ok(prices), "a comment changes what is read");
        assert_eq!(behind("[unknown]").at(NOW), Err(Unpriced::Damaged), "an unknown table is read");
    }
    let mut count = 0;
    for cipher in Cipher::all() {
        for carried in [Carried::Each, Carried::Constant(4_000)] {
            let kind = Some((*cipher, carried));
            let Ok(forecast) = book.forecast(NOW, kind, Some((*cipher, Carried::Each))) else { continue };
            let told = forecast.to_string();
            assert!(told.len() < 2_000 && !told.chars().any(char::is_control), "{told}");
            let sent = postcard::to_allocvec(&forecast).expect("a forecast is a message");
            assert_eq!(postcard::from_bytes(&sent), Ok(forecast), "it arrives as another");
            count += 1;
        }
    }
    count
}
