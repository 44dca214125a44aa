//! Everything that belongs to one label is hostile for a while. The form of `make soak` that has the time.

use levee_hostile::MOST;
use levee_ipc::log::LARGEST;
use levee_system::soak;
use std::time::Duration;

#[test]
fn a_label_of_which_everything_is_hostile_costs_no_other_label_anything() {
    let found = soak::run(Duration::from_secs(20));
    println!("{found:#?}");
    assert!(found.ends > 3, "the twins were at work: {}", found.ends);
    assert!(found.pages.values().all(|pages| *pages > 3), "{:?}", found.pages);
    assert_eq!(found.lost, Vec::<String>::new());
    assert!(found.grown(MOST).is_empty(), "{:?}", found.grown(MOST));
    assert!(
        found.largest_log <= LARGEST,
        "a logger that is taken over fills the disk: {}",
        found.largest_log
    );
    assert!(!found.alarms.is_empty(), "and the operator is told");
}
