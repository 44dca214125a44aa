//! What each process may use is one table, and the documents have it.

use levee_warden::bounds::BOUNDS;

const ARCHITECTURE: &str = include_str!("../../../docs/ARCHITECTURE.md");

#[test]
fn the_table_of_what_each_process_may_use_is_the_one_that_the_documents_have() {
    for (name, memory, processes) in BOUNDS {
        let row = format!("| {name} | {memory} | {processes} | ");
        let why = ARCHITECTURE.lines().find_map(|line| line.strip_prefix(&row)?.strip_suffix(" |"));
        assert!(why.is_some_and(|why| !why.is_empty()), "ARCHITECTURE lacks, with why:\n{row}");
        assert_eq!(BOUNDS.iter().filter(|(other, ..)| *other == name).count(), 1, "{name}");
    }
}
