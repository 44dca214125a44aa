//! Each property of each model holds for every value, and each way to break one is found. What the models are of, the names say.

use levee_proofs::{Model, none};
use std::path::Path;

fn judged(name: &str) {
    none(&Model::read(name).judge());
}

#[test]
fn the_half_of_a_sequence_number_that_is_not_sent_is_the_only_one_that_it_can_be() {
    judged("sequence");
}

#[test]
fn no_number_passes_the_window_twice_and_what_is_new_within_it_or_ahead_passes() {
    judged("replay");
}

#[test]
fn selectors_have_in_common_exactly_the_packets_that_both_let_pass() {
    judged("selectors");
}

#[test]
fn what_esp_seals_and_opens_is_as_long_as_it_says_and_nothing_goes_below_zero() {
    judged("esp_lengths");
}

#[test]
fn the_lengths_of_payloads_never_leave_their_message() {
    judged("ike_lengths");
}

#[test]
fn a_slot_is_one_that_there_is_and_the_whole_spi_goes_into_it() {
    judged("steering");
}

#[test]
fn labels_are_a_lattice_and_ranges_its_intervals() {
    judged("labels");
}

#[test]
fn frames_lie_within_what_has_come_and_what_is_written_is_read() {
    judged("frames");
}

#[test]
fn every_model_is_judged_and_compared_and_there_are_no_fewer_properties_than_promised() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(own.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let files = ["frames", "labels", "lengths", "replay", "selectors", "steering"];
    let mut compared: String = files.map(|file| read(&format!("tests/{file}.rs"))).concat();
    compared += &read("../../core/ike/src/wire/proofs.rs");
    let judged = read("tests/proved.rs");
    let names = Model::names();
    let mut problems = Vec::new();
    for name in &names {
        if !judged.contains(&format!("judged(\"{name}\")")) {
            problems.push(format!("{name}: not judged"));
        }
        if !compared.contains(&format!("Model::read(\"{name}\").compare")) {
            problems.push(format!("{name}: not compared"));
        }
    }
    none(&problems);
    let sizes = names.iter().map(|name| Model::read(name).size());
    let (properties, changes) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(properties >= 50 && changes >= 100, "{properties} properties, {changes} ways to break them");
}
