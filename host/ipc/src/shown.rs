//! What a message on the trusted path does not have, since it would show by its length on the wire.

use crate::client::Reply;
use crate::encode_frame;

/// Takes the names of services out where the message would be of another of [`crate::CLASSES`] with them: labels would be told apart.
pub fn hide_names(reply: &mut Reply) {
    let length = |reply: &Reply| encode_frame(reply).map(|frame| frame.len());
    let with = length(reply);
    let Reply::Opened(opened) = reply else { return };
    let names = std::mem::take(&mut opened.offered);
    if with.is_ok()
        && with == length(reply)
        && let Reply::Opened(opened) = reply
    {
        opened.offered = names;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CLASSES;
    use crate::client::{Offered, Opened, Reached};
    use crate::vault::Carriage;
    use levee_policy::site::Protected;
    use levee_policy::{LabelName, ServiceName};
    use levee_session::SessionId;
    use std::time::Duration;

    /// A session that reaches so many services, with names of this length.
    fn opened(services: usize, name: usize) -> Reply {
        let reach = (1..=services)
            .map(|port| Reached {
                address: "10.80.0.1".parse().unwrap(),
                protocol: 6,
                port: u16::try_from(port).unwrap(),
            })
            .collect();
        let named = |number: usize| Offered {
            service: ServiceName::new(&format!("{number:0name$}")).unwrap(),
            protocol: 6,
            port: 80,
        };
        Reply::Opened(Box::new(Opened {
            session: SessionId::from_random([1; 16]),
            label: LabelName::new("SECRET").unwrap(),
            colour: None,
            inner: vec!["10.81.0.5".parse().unwrap()],
            services: vec!["10.80.0.1".parse().unwrap()],
            names: Vec::new(),
            reach,
            offered: (0..10).map(named).collect(),
            mtu: 1_400,
            carriage: Carriage::Each,
            protected: Protected::default(),
            costs: Err(levee_prices::Unpriced::Absent),
            tunnel_port: 4_500,
            others: Vec::new(),
            grace: Duration::from_secs(30),
            passes: Vec::new(),
        }))
    }

    #[test]
    fn names_of_services_do_not_show_by_the_length_of_a_message() {
        let named = |reply: &Reply| matches!(reply, Reply::Opened(opened) if !opened.offered.is_empty());
        let class = |reply: &Reply| encode_frame(reply).unwrap().len() - 2;
        let mut seen = std::collections::BTreeSet::new();
        for services in 1..1_000 {
            let (mut short, mut long) = (opened(services, 1), opened(services, 32));
            let before = [class(&short), class(&long)];
            hide_names(&mut short);
            hide_names(&mut long);
            assert_eq!(class(&short), class(&long), "{services} services");
            assert!(named(&short) || before[0] > class(&short), "not taken out without need");
            seen.insert((before[0] == before[1], named(&short), named(&long)));
            assert!(CLASSES.contains(&class(&long)));
        }
        assert!(seen.contains(&(true, true, true)) && seen.contains(&(false, true, false)), "{seen:?}");
        let mut other = Reply::Alive;
        hide_names(&mut other);
        assert!(matches!(other, Reply::Alive));
    }
}
