//! Several people at workstations of their own, each at another level, all at the same moment. (`make crowd` has a hundred.)

use levee_system::World;
use levee_system::crowd::{Seat, all, fault, read_mark, write_mark};
use std::fmt::Write as _;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const WIKI: &str = "http://www.harbour.example:8001/";
const LABELS: [&str; 6] =
    ["UNCLASSIFIED", "CONFIDENTIAL", "SECRET", "UNCLASSIFIED//MED", "CONFIDENTIAL//NATO", "SECRET//NATO,MED"];

#[test]
fn six_people_at_once_at_six_labels_have_each_their_own_page_and_documents() {
    // Two services of the same program at each label.
    let (_, web) = SITE.split_once("[[service]]").unwrap();
    let mut site = format!("{SITE}\n[[service]]{}", web.replace("\"web\"", "\"wiki\"").replace("80", "8001"));
    let mut seats = Vec::new();
    for (number, label) in (1..).zip(LABELS) {
        let (workstation, user) = (format!("seat{number}"), format!("person{number}"));
        let range = "UNCLASSIFIED..SECRET//NATO,MED";
        write!(site, "\n[[host]]\nname = \"{workstation}\"\naccreditation = \"{range}\"\n").unwrap();
        write!(site, "\n[[user]]\nname = \"{user}\"\nclearance = \"{range}\"\n").unwrap();
        seats.push(Seat { workstation, user, label: label.to_owned() });
    }
    let names: Vec<&str> = seats.iter().map(|seat| seat.workstation.as_str()).collect();
    let world = World::up("crowd", &site, &names);
    all(&seats, |seat| world.login(&seat.workstation, &seat.user).ok());
    all(&seats, |seat| world.level(&seat.workstation, &seat.label).ok());
    for page in [PAGE, WIKI] {
        let pages = all(&seats, |seat| fault(&world.fetch(&seat.workstation, page), &seat.label, &seats));
        assert!(pages.iter().all(|(_, fault)| fault.is_none()), "{pages:?}");
    }
    all(&seats, |seat| write_mark(&world, seat, PAGE).ok());
    all(&seats, |seat| assert_eq!(read_mark(&world, seat, PAGE).ok(), seat.label));
    assert_eq!(world.status()["session_count"], seats.len());
    all(&seats, |seat| world.tpe(&seat.workstation, &["logout"]).ok());
    assert_eq!(world.status()["session_count"], 0);
    all(&seats, |seat| world.run(&seat.workstation, &["true"]).refused());
}
