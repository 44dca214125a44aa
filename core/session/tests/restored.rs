//! Sessions that the store has when a server starts: which of them are taken up, and why the others are not.

use levee_policy::audit::{Action, Verdict};
use levee_policy::{Site, UserName};
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const NOW: Time = Time::from_millis(1_000_000_000);

fn stored(number: u8, device: &str, inner: &str) -> Stored {
    Stored {
        id: SessionId::from_random([number; 16]),
        user: "ada".parse().unwrap(),
        device: device.parse().unwrap(),
        fingerprint: [1; 32],
        label: "CONFIDENTIAL".parse().unwrap(),
        inner: vec![inner.parse().unwrap()],
        opened: NOW,
        protection: None,
    }
}

/// What it says of these, as it starts: each record of a restoring, whether it was granted, and why; and what the store is to forget.
fn starts(
    site: &str,
    stored: Vec<Stored>,
    disabled: Option<&str>,
    away: Duration,
) -> (Sessions, Vec<(SessionId, bool, String)>, Vec<SessionId>) {
    let site = Arc::new(Site::parse(site).unwrap());
    let disabled = disabled.map(|name| name.parse::<UserName>().unwrap());
    let mut machine = Sessions::resumed(site, stored.clone(), [], disabled, [7; 16], away, NOW);
    let (mut entries, mut forgotten) = (Vec::new(), Vec::new());
    while let Some(output) = machine.poll() {
        match output {
            Output::Commit(_, logged, changes) => {
                entries.extend(logged);
                forgotten.extend(changes.into_iter().filter_map(|change| match change {
                    Change::Remove(id, ..) => Some(id),
                    _ => None,
                }));
            }
            Output::Audit(entry) => entries.push(entry),
            _ => {}
        }
    }
    let restored = entries.into_iter().filter(|entry| entry.action == Action::Restore).map(|entry| {
        let of = stored.iter().find(|one| one.id.to_string() == entry.object).expect("one of them");
        (of.id, entry.verdict == Verdict::Granted, entry.reason)
    });
    let restored = restored.collect();
    (machine, restored, forgotten)
}

#[test]
fn of_two_with_one_name_workstation_or_address_the_second_is_not_believed() {
    let first = stored(1, "ws1", "10.80.1.7");
    for second in
        [stored(2, "ws1", "10.80.1.8"), stored(1, "ws2", "10.80.1.8"), stored(2, "ws2", "10.80.1.7")]
    {
        let both = vec![first.clone(), second.clone()];
        let (machine, restored, forgotten) = starts(SITE, both, None, Duration::ZERO);
        let verdicts: Vec<bool> = restored.iter().map(|(_, granted, _)| *granted).collect();
        assert_eq!((verdicts, forgotten), (vec![true, false], vec![second.id]), "{second:?}");
        assert_eq!(restored[1].2, "the store has another session of this host or address");
        assert!(machine.shown().map(|shown| shown.device).eq([first.device.clone()]));
    }
    let both = vec![first.clone(), stored(2, "ws2", "10.80.1.8")];
    let (machine, restored, _) = starts(SITE, both, None, Duration::ZERO);
    assert!(restored.iter().all(|(_, granted, _)| *granted));
    assert_eq!(machine.shown().len(), 2);
}

#[test]
fn why_one_is_not_taken_up_is_recorded() {
    let federated = [
        SITE,
        r#"
[federation]
etcd = ["10.77.0.9:2379"]
etcd-name = "etcd.harbour.example"
lease = "4s"
[[federation.peer]]
name = "two.harbour.example"
address = "10.77.0.2"
inner-address = "10.80.0.2"
inner-pool = "10.80.2.0/24"
"#,
    ]
    .concat();
    let (grace, none) = (Duration::from_secs(30), Duration::ZERO);
    for (site, inner, disabled, away, why) in [
        (SITE, "10.80.1.7", Some("mia"), grace - Duration::from_millis(1), None),
        (SITE, "10.80.1.7", Some("ada"), none, Some("its person is disabled")),
        (SITE, "10.80.1.7", None, grace, Some("nobody watched over it for longer than its grace time")),
        (SITE, "192.0.2.7", None, none, Some("its inner address is not of the site's pool any more")),
        (&federated, "10.80.1.7", None, none, Some("its server's lease went with its run")),
    ] {
        let one = stored(1, "ws1", inner);
        let (_, restored, _) = starts(site, vec![one.clone()], disabled, away);
        let granted = "after a restart, until its workstation comes back".to_owned();
        let expected = (one.id, why.is_none(), why.map_or(granted, str::to_owned));
        assert_eq!(restored, [expected]);
    }
}
