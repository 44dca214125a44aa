//! What each process may use is one table, and the documents have it.

use levee_warden::bounds::{BOUNDS, SERVER_UNIT, WORKSTATION_UNIT};

const ARCHITECTURE: &str = include_str!("../../../docs/ARCHITECTURE.md");

#[test]
fn the_table_of_what_each_process_may_use_is_the_one_that_the_documents_have() {
    for bound in BOUNDS {
        let row = format!("| {} | {} | {} | {} |", bound.name, bound.memory, bound.processes, bound.why);
        assert!(ARCHITECTURE.contains(&row), "ARCHITECTURE lacks:\n{row}");
        assert_eq!(BOUNDS.iter().filter(|other| other.name == bound.name).count(), 1, "{}", bound.name);
    }
}

#[test]
fn the_units_bound_what_runs_in_their_own_group_by_the_sum_of_what_that_may_use() {
    let units = [
        (include_str!("../../../conf/systemd/levee@.service"), SERVER_UNIT),
        (include_str!("../../../conf/systemd/levee-workstation.service"), WORKSTATION_UNIT),
    ];
    for (text, unit) in units {
        for line in [format!("MemoryMax={}M", unit.memory), format!("TasksMax={}", unit.processes)] {
            assert_eq!(text.lines().filter(|one| **one == line).count(), 1, "no {line} in\n{text}");
        }
    }
}
