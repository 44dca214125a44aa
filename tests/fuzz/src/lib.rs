//! What each fuzz target does with its input. A target is a function of octets that panics when something is wrong.
//!
//! `fuzz/` runs them with libFuzzer (coverage-guided, sanitised, by `make fuzz`); `tests/replay.rs` runs them over the saved corpora
//! with an ordinary compiler, and for a few seconds over random changes of them.
//!
//! Begin reading with any target: each is a file.

pub mod attacker;
pub mod audit_log;
pub mod certificate;
pub mod esp_aggfrag;
pub mod esp_coalesce;
pub mod esp_open;
pub mod esp_send;
#[expect(missing_docs, reason = "a program's own files are compiled here; nobody else calls them")]
pub mod etcd;
pub mod federation;
pub mod guard;
pub mod ike_exchange;
pub mod ike_parse;
pub mod ipc_frame;
pub mod ipc_message;
pub mod kernel;
pub mod labelled;
pub mod layer;
pub mod logger_lines;
pub mod oneway;
pub mod prices;
pub mod site_file;
pub mod statement;
pub mod terminal;
pub mod upflow_receive;
