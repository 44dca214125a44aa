//! How a child's packets go.

use levee_ike::Aggfrag;
use levee_ipc::vault::{Aggregation, Carriage};

/// Octets of an ESP packet with AGGFRAG payload (RFC 9347): as many as one with a packet of the usual inner MTU of 1,400 has.
const PACKET: u16 = 1_436;

/// What was agreed is not what was to be.
#[derive(Debug)]
pub struct Otherwise;

/// How a child's packets go, by what its session is to have and what the peer agreed to.
///
/// # Errors
/// The two do not go together.
pub fn aggregation(wanted: Carriage, agreed: Option<Aggfrag>) -> Result<Option<Aggregation>, Otherwise> {
    let with =
        |Aggfrag { fragments }, interval| Aggregation { packet: PACKET, interval, fragment: fragments };
    match (wanted, agreed) {
        (Carriage::Each, None) => Ok(None),
        (Carriage::Each, Some(_)) => Err(Otherwise),
        (Carriage::Aggfrag, agreed) => Ok(agreed.map(|agreed| with(agreed, None))),
        (Carriage::Constant { interval }, Some(agreed)) => Ok(Some(with(agreed, Some(interval)))),
        // It would show what goes on.
        (Carriage::Constant { .. }, None) => Err(Otherwise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RATE: Duration = Duration::from_millis(4);

    /// What is asked for is had, or there are no keys: a constant rate above all, without which what goes on would show.
    #[test]
    fn packets_go_as_the_session_is_to_have_it_or_not_at_all() {
        let agreed = |fragments| Some(Aggfrag { fragments });
        let carried = |wanted, agreed| aggregation(wanted, agreed).ok();
        let with = |interval, fragment| Some(Some(Aggregation { packet: PACKET, interval, fragment }));
        assert_eq!(carried(Carriage::Each, None), Some(None));
        assert_eq!(
            carried(Carriage::Each, agreed(true)),
            None,
            "the peer asked for more than there is to be"
        );
        assert_eq!(carried(Carriage::Aggfrag, None), Some(None), "the peer does not take them");
        assert_eq!(carried(Carriage::Constant { interval: RATE }, None), None);
        for fragments in [true, false] {
            assert_eq!(carried(Carriage::Aggfrag, agreed(fragments)), with(None, fragments));
            let constant = Carriage::Constant { interval: RATE };
            assert_eq!(carried(constant, agreed(fragments)), with(Some(RATE), fragments));
        }
    }
}
