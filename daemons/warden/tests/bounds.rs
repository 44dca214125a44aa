//! What each process may use is one table, and the documents have it.

use levee_warden::bounds::BOUNDS;

const ARCHITECTURE: &str = include_str!("../../../docs/ARCHITECTURE.md");

#[test]
fn the_table_of_what_each_process_may_use_is_the_one_that_the_documents_have() {
    for bound in BOUNDS {
        let row = format!("| {} | {} | {} | {} |", bound.name, bound.memory, bound.processes, bound.why);
        assert!(ARCHITECTURE.contains(&row), "ARCHITECTURE lacks:\n{row}");
        assert_eq!(BOUNDS.iter().filter(|other| other.name == bound.name).count(), 1, "{}", bound.name);
    }
}
