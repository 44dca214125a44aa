//! What the warden has been told in numbers, in words for operators.

use levee_ipc::warden::{CompartmentStatus, FramesState, Role, UpflowCounters};
use levee_policy::LabelName;

/// How the frames were kept.
pub fn frames(state: &FramesState) -> Vec<(String, u64)> {
    let FramesState { groups, ended, late, median, most, killed, ran, .. } = state;
    let all = [
        ("frames: groups of processes", *groups),
        ("frames: slots ended", *ended),
        ("frames: slots that began late", *late),
        ("frames: µs until all had stopped, median", u64::from(*median)),
        ("frames: µs until all had stopped, 999 of 1,000", u64::from(*most)),
        ("frames: groups killed that did not stop", *killed),
        ("frames: slots in which a group that was stopped used a processor", *ran),
    ];
    all.map(|(what, count)| (what.to_owned(), count)).into()
}

/// What upflow left behind, by stage and reason, before what else is counted of a label.
pub fn left_behind(running: &mut [CompartmentStatus], upflow: &[(LabelName, Role, UpflowCounters)]) {
    for compartment in running {
        let mut all = Vec::new();
        for (_, role, counters) in upflow.iter().filter(|(label, ..)| *label == compartment.label) {
            let stage =
                if *role == Role::Snapshot { "documents not given upward" } else { "documents not received" };
            all.extend(counters.left_behind().map(|(why, count)| (format!("{stage}: {why}"), count)));
        }
        all.sort();
        compartment.counters.splice(0..0, all);
    }
}

/// What was rotated, and from which to which, of what `levee enrol rotate` wrote; and whether it is known to have ended. What cannot be read
/// is told so.
pub fn rotation(text: &[u8], begun: bool) -> (String, bool, String) {
    let said = std::str::from_utf8(text).ok().and_then(|text| text.trim_end().split_once('\n'));
    let (object, mut reason) = said.map_or_else(
        || ("keys".to_owned(), "a rotation that cannot be read".to_owned()),
        |(object, reason)| (object.to_owned(), reason.replace('\n', " ")),
    );
    if begun {
        reason.push_str("; begun, and not known to have ended");
    }
    (object, said.is_some() && !begun, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::warden::IsolationForm;

    #[test]
    fn what_was_rotated_is_told_and_what_may_not_have_ended_or_cannot_be_read_is_told_so() {
        let told = |text: &[u8], begun| {
            let (object, done, reason) = rotation(text, begun);
            assert!(done == (reason == "from a to b"), "{reason}");
            format!("{object}: {reason}")
        };
        assert_eq!(told(b"IKE's key\nfrom a to b\n", false), "IKE's key: from a to b");
        let begun = told(b"audit log's key\nfrom c\nto d\n", true);
        assert_eq!(begun, "audit log's key: from c to d; begun, and not known to have ended");
        for unreadable in [&b"\xff\n1"[..], b"one line", b""] {
            assert_eq!(told(unreadable, false), "keys: a rotation that cannot be read");
        }
    }
    #[test]
    fn what_each_stage_left_behind_has_its_reason_and_what_is_0_is_left_out() {
        let status = |label: &str| CompartmentStatus {
            label: label.parse().unwrap(),
            form: IsolationForm::Compartment,
            slot: 1,
            init: 1,
            vault: 1,
            age_ms: 0,
            services: Vec::new(),
            off: Vec::new(),
            vault_starts: 1,
            counters: vec![("dropped".to_owned(), 3)],
        };
        let mut running = [status("SECRET"), status("UNCLASSIFIED")];
        let upflow = [
            (running[0].label.clone(), Role::Copy, UpflowCounters { failed: 1, ..UpflowCounters::default() }),
            (
                running[0].label.clone(),
                Role::Snapshot,
                UpflowCounters { leased: 4, files: 9, special: 2, ..UpflowCounters::default() },
            ),
        ];
        left_behind(&mut running, &upflow);
        let told = running.map(|status| {
            status
                .counters
                .iter()
                .map(|(what, count)| format!("{what}: {count}"))
                .collect::<Vec<_>>()
                .join("; ")
        });
        let expected = [
            "documents not given upward: leased: 4; documents not given upward: neither file nor directory: 2; \
             documents not received: failed: 1; dropped: 3",
            "dropped: 3",
        ];
        assert_eq!(told, expected);
    }
}
