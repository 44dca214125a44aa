//! Two PPKs of one host, between two keyers, each a process, on real sockets.

mod world;

use levee_ipc::keyer::FromKeyer;
use std::time::Duration;
use world::*;

#[test]
fn a_host_comes_by_either_of_two_ppks_and_sessiond_is_told_who_has_the_newer_one_also_one_that_is_new() {
    const OLD: SharedPpk = SharedPpk {
        host: Some("ws1"),
        id: "ws1-2026",
        mandatory: true,
        key: Some(b"a PPK of 32 octets and some more"),
    };
    const NEW: SharedPpk =
        SharedPpk { id: "ws1-2026.00c0ffee", key: Some(b"another of 32 octets, or of more"), ..OLD };
    for (here, newer) in [(OLD, false), (NEW, true)] {
        let pair = Pair::start(&[], &[NEW, OLD], &[SharedPpk { host: None, ..here }]);
        let told = || match pair.server.said() {
            FromKeyer::NewPpk { device, id } => {
                assert_eq!((device.as_str(), id.as_str()), ("ws1", NEW.id));
            }
            other => panic!("{other:?}"),
        };
        pair.connect(record(1, "SECRET"));
        if newer {
            told();
        }
        pair.answer("SECRET", Some(record(1, "SECRET")));
        assert_eq!(keys(&pair.secret).outbound, keys(&pair.at_workstation).inbound);
        let sessiond = pair.server.another_sessiond();
        assert!(matches!(next(&sessiond), FromKeyer::Passes(_)));
        if newer {
            let said: FromKeyer = next(&sessiond);
            assert!(matches!(said, FromKeyer::NewPpk { .. }), "{said:?}");
        }
        assert!(silent(&sessiond, Duration::ZERO));
    }
}
