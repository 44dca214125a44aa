//! What sessions' tunnels were to cost by the laboratory's prices, beside what they have really used.

use super::used::{Time, Traffic, seconds};
use crate::output::milliseconds;
use levee_ipc::operator::{Priced, ServerStatus};
use levee_ipc::vault::SaReport;
use levee_prices::{Carried, Prices, Unpriced};
use serde::Serialize;

/// A session, as far as one can tell it from others at its label: their packets go through one vault and to the same services.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct SessionCost {
    pub(super) id: String,
    pub(super) label: String,
    /// Under the keys that it has now.
    #[serde(flatten)]
    pub(super) traffic: Traffic,
    /// What that was to cost, and what it has.
    #[serde(flatten)]
    pub(super) forecast: Forecast,
}

/// What it was to cost, and what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Forecast {
    Known(Known),
    Unknown { unpredicted: Unpriced },
}

/// Processor time of the label's vault, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Known {
    /// As if everything went in streams; at a constant rate, for as long as its label runs and its person is signed on.
    #[serde(rename = "predicted_ms", serialize_with = "milliseconds")]
    predicted_us: u64,
    /// As if each packet came alone.
    #[serde(rename = "predicted_most_ms", serialize_with = "milliseconds")]
    predicted_most_us: u64,
    /// Its share of what the vault has used, by octets; at a constant rate an equal share.
    #[serde(rename = "used_ms", serialize_with = "milliseconds")]
    used_us: u64,
    /// A thousand times what was used for what was predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_permille: Option<u64>,
}

impl Forecast {
    /// As cells: predicted, used, and the ratio.
    pub(super) fn cells(self) -> [String; 3] {
        let none = || "-".to_owned();
        match self {
            Self::Unknown { .. } => [none(), none(), none()],
            Self::Known(Known { predicted_us, predicted_most_us, used_us, ratio_permille }) => {
                let predicted = match predicted_us == predicted_most_us {
                    true => seconds(predicted_us),
                    false => format!("{} to {}", seconds(predicted_us), seconds(predicted_most_us)),
                };
                let ratio = ratio_permille.map(|n| format!("{}.{:02}", n / 1_000, n % 1_000 / 10));
                [predicted, seconds(used_us), ratio.unwrap_or_else(none)]
            }
        }
    }

    /// Why nothing is predicted.
    pub(super) fn unknown(self) -> Option<Unpriced> {
        match self {
            Self::Known(_) => None,
            Self::Unknown { unpredicted } => Some(unpredicted),
        }
    }
}

/// Puts it beside each session. `vaults` says what each label's vault has used and passed.
pub(super) fn put<'a>(
    sessions: &mut [SessionCost],
    status: &ServerStatus,
    priced: &Priced,
    vault: impl Fn(&str) -> (Time, &'a Traffic),
) {
    let alike: Vec<String> = sessions.iter().map(|session| session.label.clone()).collect();
    for session in sessions {
        let (time, all) = vault(&session.label);
        let beside = alike.iter().filter(|label| **label == session.label).count() as u64;
        let known = of(session, status, priced, (time.sum(), all, beside));
        session.forecast =
            known.map_or_else(|unpredicted| Forecast::Unknown { unpredicted }, Forecast::Known);
    }
}

fn of(
    session: &SessionCost,
    status: &ServerStatus,
    priced: &Priced,
    (time, all, beside): (u64, &Traffic, u64),
) -> Result<Known, Unpriced> {
    let prices = priced.prices.as_ref().map_err(|why| *why)?;
    let carried = priced.sessions.iter().find(|(id, _)| *id == session.id);
    // It has ended meanwhile, or there are more than are told of.
    let (_, carried) = carried.ok_or(Unpriced::NotMeasured)?;
    let carried = carried.ok_or(Unpriced::Otherwise)?;
    let at = status.vaults.iter().filter(|(label, _)| label.as_str() == session.label);
    let sas = at.flat_map(|(_, report)| &report.sas).filter(|sa| sa.session.to_string() == session.id);
    let (predicted_us, predicted_most_us, used_us) = match carried {
        Carried::Each => {
            let (least, most) = passed(prices, sas)?;
            let share = u128::from(time) * u128::from(session.traffic.octets());
            (least, most, whole(share.checked_div(u128::from(all.octets())).unwrap_or(0)))
        }
        Carried::Constant(_) => {
            // A session may be younger than both, which nobody tells: then less was used than is predicted.
            let signed_on = status.sessions.iter().find(|one| one.id == session.id).map(|one| one.age_ms);
            let label = status.compartments.iter().find(|one| one.label.as_str() == session.label);
            let age = signed_on.zip(label.map(|one| one.age_ms)).map(|(one, other)| one.min(other));
            let mut each = None;
            for sa in sas {
                each = Some(prices.of(sa.cipher, carried).and_then(|price| price.standing));
            }
            let each = each.flatten().ok_or(Unpriced::NotMeasured)?.middle();
            // The price is of a second.
            let predicted = whole(u128::from(each) * u128::from(age.ok_or(Unpriced::NotMeasured)?) / 1_000);
            (predicted, predicted, time.checked_div(beside).unwrap_or(0))
        }
    };
    let ratio = (u128::from(used_us) * 1_000).checked_div(u128::from(predicted_us));
    Ok(Known { predicted_us, predicted_most_us, used_us, ratio_permille: ratio.map(whole) })
}

/// For what passed under these keys: in streams, and packet by packet, where that is dearer and was measured.
fn passed<'a>(prices: &Prices, sas: impl Iterator<Item = &'a SaReport>) -> Result<(u64, u64), Unpriced> {
    let (mut least, mut most) = (0_u128, 0_u128);
    for sa in sas {
        let price = prices.of(sa.cipher, Carried::Each).ok_or(Unpriced::NotMeasured)?;
        let gigabyte = price.gigabyte.ok_or(Unpriced::NotMeasured)?.middle();
        let sum = |(one, other): (u64, u64)| u128::from(one) + u128::from(other);
        let stream = sum(sa.bytes) * u128::from(gigabyte) / 1_000_000_000;
        let alone = price.packet.map_or(0, |packet| sum(sa.packets) * u128::from(packet.middle()) / 1_000);
        least += stream;
        most += stream.max(alone);
    }
    Ok((whole(least), whole(most)))
}

fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
