//! The log against crashes, full files and disks, and a signer that dies.

use super::files::FIRST_KEY;
use super::lengths::records;
use super::*;
use levee_policy::audit::{Report, Verifier};
use std::path::Path;

use hpke::kem::DhP384HkdfSha384;
use hpke::{Deserializable as _, Kem as _, Serializable as _};
use levee_policy::audit::{AuditKey, Hex};

pub(super) const START: Time = Time::from_millis(1_700_000_000_000);

/// A signer without a key: it chains what it is told.
struct Signer(Chain);

impl Signer {
    /// Does all that the log asks of it.
    fn serve(&mut self, log: &mut AuditLog, last: bool, now: Time) {
        while let Some(question) = log.ask_signer(last, now) {
            let answer = self.answer(question);
            log.heard_signer(answer, now);
            assert!(log.sync());
        }
    }

    fn answer(&mut self, question: ToSigner) -> FromSigner {
        if let ToSigner::AuditRecords { from, digests } = &question {
            assert_eq!(*from, self.0.count);
            self.0 = digests.iter().fold(self.0, |chain, digest| chain.with(&Hash(*digest)));
        }
        let (count, hash) = (self.0.count, self.0.hash.0);
        match question {
            ToSigner::AuditCheckpoint => {
                FromSigner::Checkpoint { count, hash, signature: vec![0; 64], kept_back: false }
            }
            _ => FromSigner::Chained { count, hash },
        }
    }
}

fn auditor() -> Auditor {
    use base64::Engine as _;
    let (_, key) = DhP384HkdfSha384::derive_keypair(&[7; 48]);
    let der = [crate::auditor::P384, &key.to_bytes()].concat();
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&path, format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")).unwrap();
    Auditor::read(File::open(&path).unwrap().into()).unwrap()
}

/// The first key, as the auditor opens it.
fn first_key(place: &Path) -> AuditKey {
    let text = std::fs::read_to_string(place.join(FIRST_KEY)).unwrap();
    let Hex(sealed) = text.trim().to_owned().try_into().unwrap();
    let (key, sealed) = sealed.split_at(97);
    let first = hpke::single_shot_open::<hpke::aead::AesGcm256, hpke::kdf::HkdfSha384, DhP384HkdfSha384>(
        &hpke::OpModeR::Base,
        &DhP384HkdfSha384::derive_keypair(&[7; 48]).0,
        &<DhP384HkdfSha384 as hpke::Kem>::EncappedKey::from_bytes(key).unwrap(),
        crate::auditor::INFO,
        sealed,
        &[],
    );
    AuditKey::from_bytes(first.unwrap().try_into().unwrap())
}

#[test]
fn a_checkpoint_covers_even_a_single_record_after_a_minute_and_then_nothing_is_due() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    let mut signer = Signer(Chain::START);
    assert!(log.write(&[(Weight::Grant, lost(1))], START, true));
    // The record that the log begins, and this one.
    signer.serve(&mut log, false, START);
    assert_eq!(signer.0.count, 2);
    let due = log.deadline().unwrap();
    assert_eq!(due, START.after(CHECKPOINT_TIME));
    // A signer that dies is asked again, not at once and again at once.
    assert!(matches!(log.ask_signer(false, due), Some(ToSigner::AuditCheckpoint)));
    log.signer_lost(due);
    assert!(matches!(log.ask_signer(false, due), Some(ToSigner::AuditChain)), "how far is the next one?");
    log.heard_signer(signer.answer(ToSigner::AuditChain), due);
    assert!(log.ask_signer(false, due).is_none());
    assert_eq!(log.deadline(), Some(due.after(CHECKPOINT_TIME)));
    let due = due.after(CHECKPOINT_TIME);
    assert!(matches!(log.ask_signer(false, due), Some(ToSigner::AuditCheckpoint)));
    assert_eq!(log.deadline(), None);
    log.heard_signer(signer.answer(ToSigner::AuditCheckpoint), due);
    assert!(log.sync());
    signer.serve(&mut log, false, due);
    assert_eq!((log.records(), signer.0.count, log.deadline()), (3, 3, None));
    assert!(log.ask_signer(true, due.after(CHECKPOINT_TIME)).is_none());
}

#[test]
fn what_is_kept_of_other_servers_logs_asks_for_no_checkpoint_or_two_servers_would_never_rest() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    let mut signer = Signer(Chain::START);
    let due = START.after(CHECKPOINT_TIME);
    signer.serve(&mut log, false, due);
    assert!(log.sync() && log.deadline().is_none());
    let witness = Event { action: Action::Witness, ..lost(1) };
    assert!(log.write(&[(Weight::Note, witness.clone())], due, false) && log.sync());
    let far = due.after(CHECKPOINT_TIME * 60);
    assert_eq!(log.deadline(), None);
    signer.serve(&mut log, false, far);
    let signed = signer.0.count;
    // Any other record does, and covers it.
    assert!(log.write(&[(Weight::Note, witness), (Weight::Note, lost(1))], far, false) && log.sync());
    assert_eq!(log.deadline(), Some(far.after(CHECKPOINT_TIME)));
    signer.serve(&mut log, false, far.after(CHECKPOINT_TIME));
    assert!(signer.0.count > signed, "{} {signed}", signer.0.count);
}

#[test]
fn the_first_key_is_sealed_for_the_auditor_and_no_file_ever_has_it() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    let key = first_key(place.path());
    let digits: String = key.expose().iter().map(|byte| format!("{byte:02x}")).collect();
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(32).any(|window| window == key.expose()));
        assert!(!bytes.windows(64).any(|window| window == digits.as_bytes()));
    }
    fill(&mut log, 3);
    let (_, report) = read(place.path());
    assert!(report.is_sound() && report.lines == 5, "{report:#?}");
}

#[test]
fn a_log_that_is_not_the_one_that_the_signer_has_chained_is_not_gone_on_with() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let copy = tempfile::tempdir().unwrap();
    let mut log = open(place, FULL).unwrap();
    let mut signer = Signer(Chain::START);
    for n in 0..9 {
        if n == 4 {
            // What whoever is root, or has taken sessiond over, may put back later.
            for name in [LOG, STATE] {
                std::fs::copy(place.join(name), copy.path().join(name)).unwrap();
            }
        }
        assert!(log.write(&[(Weight::Grant, lost(n))], START, true));
    }
    signer.serve(&mut log, true, START);
    let end = log.sealer.chain();
    assert_eq!(end, signer.0);
    drop(log);
    let open_with = |known: Chain| open_after(place, FULL, known).map(|log| log.told.behind() as u64);
    assert!(matches!(open_with(end), Ok(0)));
    // A signer whose disk lost the last second is told again; one that knows something else, or more, is believed.
    let log = std::fs::read_to_string(place.join(LOG)).unwrap();
    let known = |records: usize| {
        let lines = log.split_inclusive('\n').take(records);
        lines.fold(Chain::START, |chain, line| chain.with(&Chain::digest(line.as_bytes())))
    };
    assert!(matches!(open_with(known(4)), Ok(behind) if behind == end.count - 4));
    assert!(matches!(open_with(Chain::START), Ok(behind) if behind == end.count));
    for wrong in [
        Chain { hash: Hash([9; 32]), ..end },
        Chain { hash: Hash([9; 32]), ..known(4) },
        end.with(&Hash([1; 32])),
    ] {
        assert!(open_with(wrong).is_err_and(|error| error.to_string().contains("signer/audit.chain")));
    }
    // An older log and its state, which are whole in themselves.
    for name in [LOG, STATE] {
        std::fs::copy(copy.path().join(name), place.join(name)).unwrap();
    }
    assert!(open_with(end).is_err_and(|error| error.to_string().contains("shorter than levee-signer")));
}

#[test]
fn while_the_signer_takes_nothing_only_ends_are_written_beyond_a_bound() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    // As if so many had been written.
    for _ in 0..MOST_BEHIND {
        log.told.push(Hash([1; 32]));
    }
    assert!(!log.write(&[(Weight::Grant, lost(1))], START, true), "no grant");
    assert!(log.write(&[(Weight::End, lost(1))], START, true), "an end");
    assert_eq!(log.alarm().as_deref(), Some(BEHIND));
}

#[test]
fn a_signer_that_knows_another_log_ends_all_grants() {
    for said in [
        FromSigner::Chained { count: 1, hash: [9; 32] },
        FromSigner::Chained { count: 2, hash: [9; 32] },
        FromSigner::Refused,
    ] {
        let place = tempfile::tempdir().unwrap();
        let mut log = open(place.path(), FULL).unwrap();
        assert!(log.ask_signer(false, START).is_some());
        log.heard_signer(said, START);
        assert!(!log.write(&[(Weight::Grant, lost(1))], START, true));
    }
}

#[test]
fn a_record_that_is_only_written_is_on_the_disk_soon_and_a_crash_of_the_host_before_loses_it_and_nothing_else()
 {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut log = open(place, FULL).unwrap();
    let mut signer = Signer(Chain::START);
    assert!(log.write(&[(Weight::Connection, lost(1))], START, true));
    let on_the_disk = std::fs::read(place.join(LOG)).unwrap();
    let before = records(&on_the_disk).to_vec();
    assert!(log.write(&[(Weight::Connection, lost(2))], START, false));
    assert!(log.deadline().is_some_and(|due| due >= START.after(LAZY)), "nobody waits for it");
    log.sync_soon(START);
    assert!(log.deadline().is_some_and(|due| due <= START.after(Duration::from_millis(10))));
    // What is written is there if sessiond is killed, in its place; the signer is told what the disk has.
    let written = std::fs::read(place.join(LOG)).unwrap();
    assert!(written.starts_with(&before) && records(&written).len() > before.len());
    let state = std::fs::read(place.join(STATE)).unwrap();
    assert_eq!(open(place, FULL).unwrap().records(), 3);
    while let Some(question @ ToSigner::AuditRecords { .. }) = log.ask_signer(false, START) {
        let answer = signer.answer(question);
        log.heard_signer(answer, START);
    }
    assert_eq!(signer.0.count, 2);
    assert!(log.sync());
    assert_eq!(log.synced, 3);
    drop(log);
    // A crash of the host before that sync.
    std::fs::write(place.join(LOG), &on_the_disk).unwrap();
    std::fs::write(place.join(STATE), &state).unwrap();
    let log = open_after(place, FULL, signer.0).unwrap();
    assert_eq!(log.records(), 2);
}

#[test]
fn of_what_was_not_synced_a_crash_of_the_host_may_leave_any_part_and_the_log_goes_on_from_what_was() {
    for gap in 0..4 {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let mut log = open(place, FULL).unwrap();
        fill(&mut log, 2);
        let known = log.told.known();
        let synced = log.records();
        let state = std::fs::read(place.join(STATE)).unwrap();
        let before = log.end;
        for n in 0..4 {
            assert!(log.write(&[(Weight::Connection, lost(n))], START, false));
        }
        drop(log);
        // Of what was written since, the disk has all but one record: it writes in an order of its own.
        let mut all = std::fs::read(place.join(LOG)).unwrap();
        let tail = &mut all[usize::try_from(before).unwrap()..];
        let lines: Vec<usize> = tail.split_inclusive(|octet| *octet == b'\n').map(<[u8]>::len).collect();
        let from: usize = lines[..gap].iter().sum();
        tail[from..from + lines[gap]].fill(0);
        std::fs::write(place.join(LOG), &all).unwrap();
        std::fs::write(place.join(STATE), &state).unwrap();
        // Without a crash of the host somebody else wrote there.
        if gap < 2 {
            assert!(matches!(open_after(place, FULL, known), Err(AuditError::Foreign(_))), "{gap}");
        }
        let directory = File::open(place).unwrap();
        let mut log = AuditLog::open(directory.as_fd(), &auditor(), known, true, START).unwrap();
        assert_eq!(log.records(), synced + u64::try_from(gap).unwrap());
        let said = log.torn().expect("it is said");
        let name = format!("audit.torn-{:020}", log.records());
        assert!(said.reason.contains(&name), "{said:?}");
        let kept = std::fs::read(place.join(&name)).unwrap();
        assert_eq!(kept, records(&all)[usize::try_from(before).unwrap() + from..]);
        fill(&mut log, 1);
        let report = read(place).1;
        assert!(report.is_sound(), "{report:#?}");
    }
}

#[test]
fn after_a_crash_of_the_host_what_was_synced_must_be_there_all_the_same() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut log = open(place, FULL).unwrap();
    fill(&mut log, 4);
    let known = log.told.known();
    drop(log);
    let whole = records(&std::fs::read(place.join(LOG)).unwrap()).to_vec();
    let lines: Vec<&[u8]> = whole.split_inclusive(|octet| *octet == b'\n').collect();
    let directory = File::open(place).unwrap();
    for changed in 0..lines.len() {
        let mut all: Vec<Vec<u8>> = lines.iter().map(|line| line.to_vec()).collect();
        all[changed].fill(0);
        std::fs::write(place.join(LOG), all.concat()).unwrap();
        let opened = AuditLog::open(directory.as_fd(), &auditor(), known, true, START);
        assert!(matches!(opened, Err(AuditError::Foreign(_))), "{changed}");
    }
}

/// A log in `place` whose files are full after so many bytes.
pub(super) fn open(place: &Path, full: u64) -> Result<AuditLog, AuditError> {
    open_after(place, full, Chain::START)
}

/// The same, and how far the signer knows it.
pub(super) fn open_after(place: &Path, full: u64, known: Chain) -> Result<AuditLog, AuditError> {
    let directory = File::open(place).unwrap();
    AuditLog::open(directory.as_fd(), &auditor(), known, false, START).map(|log| AuditLog { full, ..log })
}

/// Writes so many records and a checkpoint behind them.
pub(super) fn fill(log: &mut AuditLog, records: u64) {
    for n in 0..records {
        assert!(log.write(&[(Weight::Grant, lost(n))], START, true));
    }
    Signer(log.told.known()).serve(log, true, START);
}

/// The parts of the log, oldest first, and what reading them one after the other says.
pub(super) fn read(place: &Path) -> (Vec<String>, Report) {
    let mut names: Vec<String> = std::fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    // `-` comes before `.`
    names.sort();
    let mut verifier = Verifier::new(Some(first_key(place)), |_: &[u8], _: &[u8]| true);
    for name in &names {
        for line in
            records(&std::fs::read(place.join(name)).unwrap()).split_inclusive(|octet| *octet == b'\n')
        {
            verifier.line(line);
        }
    }
    (names, verifier.finish(None))
}

#[test]
fn a_full_file_is_closed_at_a_checkpoint_and_the_next_goes_on_from_it() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), 2_000).unwrap();
    fill(&mut log, 3);
    assert_eq!(read(place.path()).0, [LOG], "not full yet");
    fill(&mut log, 12);
    let full = format!("audit-{:020}.jsonl", 0);
    assert_eq!(read(place.path()).0, [full.as_str(), LOG]);
    assert_eq!(std::fs::metadata(place.path().join(LOG)).unwrap().len(), 0);
    fill(&mut log, 2);
    let known = log.told.known();
    drop(log);
    // The next start reads the last one alone: what the full one says is the auditor's to read.
    let moved = place.path().join("moved-away");
    std::fs::rename(place.path().join(&full), &moved).unwrap();
    let mut log = open_after(place.path(), 2_000, known).unwrap();
    assert_eq!(log.records(), 21);
    std::fs::rename(&moved, place.path().join(&full)).unwrap();
    fill(&mut log, 12);
    fill(&mut log, 1);
    let (names, report) = read(place.path());
    assert_eq!(names, [full.as_str(), &format!("audit-{:020}.jsonl", 18), LOG]);
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!((report.lines, report.checkpoints), (36, 5));
    // A part that is not there is missed.
    std::fs::remove_file(place.path().join(&names[1])).unwrap();
    assert!(!read(place.path()).1.is_sound());
}

#[test]
fn a_crash_at_any_moment_of_going_on_in_another_file_loses_nothing() {
    let state = |place: &Path| std::fs::read(place.join(STATE)).unwrap();
    // What the disk has of the state may be older than all of it, of before the last records or before the turn.
    for (older, step) in (0..3).flat_map(|older| (0..3).map(move |step| (older, step))) {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let mut log = open(place, 1_000).unwrap();
        let oldest = state(place);
        log.full = u64::MAX;
        fill(&mut log, 8);
        let before = state(place);
        log.turn_over();
        let states = [oldest, before, state(place)];
        // The signer may not know the last record yet, which stands in the full part.
        let known = if older == 1 { Chain::START } else { log.told.known() };
        drop(log);
        // The new file has no name yet, or the full one has its old name still.
        let full = place.join(part_name(0));
        if step > 0 {
            std::fs::remove_file(place.join(LOG)).unwrap();
        }
        if step > 1 {
            std::fs::rename(&full, place.join(LOG)).unwrap();
            if older == 2 {
                // The state is written last.
                continue;
            }
        }
        std::fs::write(place.join(STATE), &states[older]).unwrap();
        let mut log =
            open_after(place, 1_000, known).unwrap_or_else(|e| panic!("state {older}, step {step}: {e}"));
        assert_eq!(log.records(), 10, "state {older}, step {step}");
        fill(&mut log, 2);
        fill(&mut log, 8);
        let known = log.told.known();
        drop(log);
        assert_eq!(open_after(place, 1_000, known).unwrap().records(), 22);
        let (_, report) = read(place);
        assert!(report.is_sound() && report.lines == 22, "state {older}, step {step}: {report:#?}");
    }
}

#[test]
fn without_its_state_no_log_is_begun_over_the_parts_of_another_and_its_first_key_stays() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let mut log = open(place, 1_000).unwrap();
    fill(&mut log, 8);
    drop(log);
    assert_eq!(std::fs::metadata(place.join(LOG)).unwrap().len(), 0, "the full part is closed");
    let key = std::fs::read(place.join(FIRST_KEY)).unwrap();
    std::fs::remove_file(place.join(STATE)).unwrap();
    let refused = || open(place, 1_000).err().map(|error| error.to_string()).unwrap();
    for _ in 0..2 {
        let said = refused();
        assert!(said.contains("has no state") && said.contains("sessiond/audit*"), "{said}");
        assert_eq!(std::fs::read(place.join(FIRST_KEY)).unwrap(), key);
        assert!(!place.join(STATE).exists());
    }
    // Nor where the part that is written to is not there.
    std::fs::remove_file(place.join(LOG)).unwrap();
    refused();
    assert_eq!(std::fs::read(place.join(FIRST_KEY)).unwrap(), key);
    // With all of it moved away, a new one is.
    std::fs::remove_file(place.join(part_name(0))).unwrap();
    assert_eq!(open(place, 1_000).unwrap().records(), 1);
    assert_ne!(std::fs::read(place.join(FIRST_KEY)).unwrap(), key);
}

#[test]
fn without_room_for_another_file_the_log_goes_on_in_the_one_there_is() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), 1_000).unwrap();
    // Something that cannot be replaced stands where the file in the making goes.
    std::fs::create_dir_all(place.path().join(NEW).join("in-the-way")).unwrap();
    fill(&mut log, 8);
    fill(&mut log, 8);
    assert_eq!(read(place.path()).0, [LOG]);
    std::fs::remove_dir_all(place.path().join(NEW)).unwrap();
    fill(&mut log, 1);
    let (names, report) = read(place.path());
    assert_eq!(names.len(), 2);
    assert!(report.is_sound() && report.lines == 21, "{report:#?}");
}

#[test]
fn a_line_without_an_end_is_not_read_into_memory() {
    let place = tempfile::tempdir().unwrap();
    drop(open(place.path(), FULL).unwrap());
    let file = File::options().write(true).open(place.path().join(LOG)).unwrap();
    // A gigabyte of nothing, of which the disk has none.
    file.set_len(1 << 30).unwrap();
    let error = open(place.path(), FULL).err().map(|e| e.to_string()).unwrap();
    assert!(error.contains("does not go on from its state"), "{error}");
}

/// Bytes that the disk keeps for the log's file.
fn kept(place: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(place.join(LOG)).unwrap().blocks() * 512
}

#[test]
fn the_disk_keeps_room_for_each_end_and_for_grants_beside_notes() {
    assert_eq!((Weight::End.reserve(1_000), Weight::Grant.reserve(0)), (0, 16 * FOR_END));
    assert_eq!(Weight::Grant.reserve(1_000), 1_016 * FOR_END);
    for weight in [Weight::Note, Weight::Connection] {
        assert_eq!(weight.reserve(1_000), FOR_GRANTS + 1_016 * FOR_END, "{weight:?}");
    }
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    assert!(kept(place.path()) >= log.end + Weight::Note.reserve(0), "before the first record of this run");
    let sessions = 5_000;
    log.expect_ends(sessions);
    for weight in [Weight::Grant, Weight::Note, Weight::Connection] {
        assert!(log.write(&[(weight, lost(1))], START, true));
        assert!(kept(place.path()) >= log.end + weight.reserve(sessions), "{weight:?}");
    }
    // Not every record asks the disk: some room is kept beyond what must be.
    let before = log.allocated;
    assert!(log.allocated >= log.end + Weight::Note.reserve(sessions) + AHEAD / 2);
    assert!(log.write(&[(Weight::Note, lost(1))], START, true));
    assert_eq!(log.allocated, before);
    // An end asks for itself alone, and takes what was kept.
    assert!(log.write(&[(Weight::End, lost(1))], START, true));
    assert_eq!(log.allocated, before);
    // Nor does another run give that back before it has said anything, when somebody else would have it.
    let (before, chain) = (kept(place.path()), log.told.known());
    drop(log);
    let mut log = open_after(place.path(), FULL, chain).unwrap();
    assert!(kept(place.path()) >= before, "{} of {before}", kept(place.path()));
    log.expect_ends(sessions);
    // Another file has as much from its beginning.
    fill(&mut log, 1);
    let most = log.end;
    log.full = 1;
    fill(&mut log, 1);
    assert!(log.base > 0 && log.end == 0, "it has begun");
    assert!(kept(place.path()) >= Weight::Note.reserve(sessions));
    let full = std::fs::metadata(place.path().join(part_name(0))).unwrap();
    assert!(full.len() > most, "the full one has all its records");
    use std::os::unix::fs::MetadataExt as _;
    assert!(full.blocks() * 512 < full.len() + FOR_GRANTS, "and keeps no room");
}

#[test]
fn notes_for_which_there_is_no_room_are_counted_and_told_once_there_is_some() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    let note = (Weight::Note, lost(77));
    // The ends of so many sessions need more than any disk has.
    log.expect_ends(1 << 50);
    assert!(log.write(&[note.clone(), note.clone()], START, true), "nothing depends on a note");
    assert!(log.write(&[note], START, true));
    assert_eq!(log.lost, 3);
    for weight in [Weight::Grant, Weight::Connection] {
        assert!(!log.write(&[(weight, lost(1))], START, true), "{weight:?}");
    }
    assert_eq!((log.records(), log.lost), (1, 3), "only notes are lost");
    assert_eq!(log.alarm().as_deref(), Some(FULL_DISK));
    assert!(log.write(&[(Weight::End, lost(1))], START, true), "there is room for an end");
    assert_eq!(log.records(), 2);
    log.expect_ends(0);
    assert_eq!(log.alarm(), None, "there is room again");
    assert!(log.write(&[], START, true));
    assert_eq!((log.records(), log.lost), (3, 0));
    let said = std::fs::read(place.path().join(LOG)).unwrap();
    let said = String::from_utf8_lossy(records(&said));
    assert!(said.lines().last().unwrap().contains("3 notes before this one"), "{said}");
    assert!(log.write(&[], START, true));
    assert_eq!(log.records(), 3, "told once");
    fill(&mut log, 1);
    assert!(read(place.path()).1.is_sound(), "what had no room left no gap");
}

#[test]
fn what_nothing_waits_for_is_synced_within_its_time_and_no_sooner() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    assert!(log.write(&[(Weight::Note, lost(1))], START, false));
    assert_eq!((log.records(), log.synced), (2, 1));
    // Later ones wait for the first.
    let later = START.after(LAZY / 2);
    assert!(log.write(&[(Weight::Note, lost(1))], later, false));
    assert_eq!((log.deadline(), log.synced), (Some(START.after(LAZY)), 1));
    // Soon is not later than it was to be.
    log.sync_soon(START.after(LAZY));
    assert_eq!(log.deadline(), Some(START.after(LAZY)));
    assert!(log.write(&[], START.after(LAZY - Duration::from_millis(1)), false));
    assert_eq!(log.synced, 1);
    assert!(log.write(&[], START.after(LAZY), false));
    assert_eq!(log.synced, 3);
    // What is needed is synced with all before it.
    assert!(log.write(&[(Weight::Note, lost(1))], START, false));
    assert!(log.write(&[(Weight::Grant, lost(1))], START, true));
    assert_eq!(log.synced, 5);
    // The signer hears of nothing that the disk may not have.
    assert!(log.write(&[(Weight::Note, lost(1))], START, false));
    let Some(ToSigner::AuditRecords { digests, .. }) = log.ask_signer(false, START) else {
        panic!("five are")
    };
    assert_eq!(digests.len(), 5);
}

/// A log with a thread that syncs it, and what waits until that has ended.
fn with_syncer(place: &Path) -> (AuditLog, impl Fn(&mut AuditLog)) {
    let mut log = open(place, FULL).unwrap();
    log.sync_by(Syncer::start(Syncer::bell().unwrap()).unwrap());
    let bell = log.bell().unwrap();
    let hear = move |log: &mut AuditLog| {
        let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut ready = [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut ready, Some(&limit)).unwrap(), 1, "it ends");
        log.heard_syncer();
    };
    (log, hear)
}

#[test]
fn what_nobody_waits_for_is_synced_while_the_log_goes_on_and_the_state_says_no_more_than_the_disk_has() {
    let place = tempfile::tempdir().unwrap();
    let (mut log, hear) = with_syncer(place.path());
    let state = || std::fs::read(place.path().join(STATE)).unwrap();
    let of = |log: &AuditLog| saved(&log.sealer, log.base).to_vec();
    let soon = START.after(SOON);
    assert!(log.write(&[(Weight::Connection, lost(1))], START, false));
    log.sync_soon(START);
    log.sync_due(START);
    assert!(log.under_way.is_none(), "not yet");
    let first = of(&log);
    log.sync_due(soon);
    assert_eq!((log.synced, log.deadline()), (1, log.uncovered), "it is under way, and nobody waits");
    // What comes meanwhile is not what the disk has when the sync has ended.
    assert!(log.write(&[(Weight::Connection, lost(2))], soon, false));
    log.sync_soon(soon);
    hear(&mut log);
    assert_eq!((log.synced, state()), (2, first));
    assert_eq!(log.deadline(), Some(soon.after(SOON)), "the next one is due in its time");
    // What is waited for is on the disk with all before it, whatever the thread does; its end is no step back.
    log.sync_due(soon.after(SOON));
    assert!(log.under_way.is_some());
    assert!(log.write(&[(Weight::Grant, lost(3))], soon.after(SOON), true));
    let last = of(&log);
    assert_eq!((log.synced, state(), log.under_way.is_some()), (4, last.clone(), false));
    // That it rings is no other end.
    hear(&mut log);
    assert_eq!((log.synced, state()), (4, last));
}

#[test]
fn the_end_of_a_run_waits_for_what_is_under_way_and_a_slow_disk_is_waited_for_by_everybody() {
    let place = tempfile::tempdir().unwrap();
    let (mut log, hear) = with_syncer(place.path());
    let soon = START.after(SOON);
    assert!(log.write(&[(Weight::Connection, lost(1))], START, false));
    log.sync_soon(START);
    log.sync_due(soon);
    assert_eq!(log.synced, 1);
    assert!(log.sync());
    assert_eq!(log.synced, 2, "the last sync of a run is of all there is");
    hear(&mut log);
    // A sync that is not heard of: records that come meanwhile wait no longer than for it to be late.
    assert!(log.write(&[(Weight::Connection, lost(2))], soon, false));
    log.sync_soon(soon);
    log.sync_due(soon.after(SOON));
    let begun = soon.after(SOON);
    assert!(log.write(&[(Weight::Connection, lost(3))], begun, false));
    log.sync_soon(begun);
    assert_eq!((log.synced, log.deadline()), (2, Some(begun.after(SOON))));
    log.sync_due(begun.after(SOON));
    assert_eq!(log.synced, 4, "as without a thread");
}

#[test]
fn a_sync_that_fails_behind_the_log_ends_all_grants() {
    let place = tempfile::tempdir().unwrap();
    let (mut log, hear) = with_syncer(place.path());
    // What cannot be synced: a pipe has nothing to be synced to (fsync(2), EINVAL).
    let fails = |log: &mut AuditLog| {
        let file = std::mem::replace(&mut log.file, Arc::new(File::from(rustix::pipe::pipe().unwrap().0)));
        log.unsynced = Some(START);
        log.sync_due(START);
        log.file = file;
    };
    fails(&mut log);
    hear(&mut log);
    assert!(!log.write(&[(Weight::Connection, lost(1))], START, false));
    assert!(!log.write(&[(Weight::Grant, lost(1))], START, true));
    assert_eq!(log.alarm().as_deref(), Some(BROKEN));
    // Nor does a grant go on that is synced before anybody has heard of it: the kernel tells of a failure once.
    let place = tempfile::tempdir().unwrap();
    let (mut log, _) = with_syncer(place.path());
    fails(&mut log);
    assert!(!log.write(&[(Weight::Grant, lost(1))], START, true));
}

#[test]
fn the_signer_is_asked_one_thing_at_a_time_and_for_a_checkpoint_after_so_many_records() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    let mut signer = Signer(Chain::START);
    assert!(!log.waits_for_signer());
    let question = log.ask_signer(false, START).unwrap();
    assert!(log.waits_for_signer() && log.ask_signer(true, START).is_none());
    log.heard_signer(signer.answer(question), START);
    assert!(!log.waits_for_signer());
    let signed = log.signed;
    let told = |log: &mut AuditLog, signer: &mut Signer| {
        while let Some(question) = log.ask_signer(false, START) {
            let asks = matches!(question, ToSigner::AuditCheckpoint);
            let answer = signer.answer(question);
            log.heard_signer(answer, START);
            if asks {
                return true;
            }
        }
        false
    };
    while signer.0.count < signed + CHECKPOINT - 1 {
        assert!(log.write(&[(Weight::Grant, lost(1))], START, true));
        assert!(!told(&mut log, &mut signer), "{} of {CHECKPOINT}", signer.0.count - signed);
    }
    assert!(log.write(&[(Weight::Grant, lost(1))], START, true));
    assert!(told(&mut log, &mut signer), "now one is due");
    assert_eq!(log.signed, signed + CHECKPOINT + 1, "it is a record itself");
    assert_eq!(log.uncovered, None, "and all of them are covered");
    assert!(log.sync());
    assert!(
        !told(&mut log, &mut signer),
        "of the checkpoint the signer is told, and asked for none about it"
    );
    // Behind records that came meanwhile, a checkpoint does not cover all.
    assert!(log.write(&[(Weight::Grant, lost(1))], START, true));
    assert!(!told(&mut log, &mut signer));
    let due = START.after(CHECKPOINT_TIME);
    assert!(matches!(log.ask_signer(false, due), Some(ToSigner::AuditCheckpoint)));
    assert!(log.write(&[(Weight::Grant, lost(1))], due, true));
    assert_eq!(log.deadline(), None, "while one is made");
    log.heard_signer(signer.answer(ToSigner::AuditCheckpoint), due);
    assert_eq!(log.uncovered, Some(due.after(CHECKPOINT_TIME)), "the last record has none yet");
}

#[test]
fn places_that_take_no_checkpoint_are_told_of_once_and_so_is_that_they_do_again() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), FULL).unwrap();
    let mut signer = Signer(Chain::START);
    let mut said = Vec::new();
    for kept_back in [false, true, true, false, false] {
        assert!(log.write(&[(Weight::Grant, lost(1))], START, true));
        while let Some(question) = log.ask_signer(true, START) {
            let last = matches!(question, ToSigner::AuditCheckpoint);
            let answer = match signer.answer(question) {
                FromSigner::Checkpoint { count, hash, signature, .. } => {
                    FromSigner::Checkpoint { count, hash, signature, kept_back }
                }
                other => other,
            };
            log.heard_signer(answer, START);
            assert!(log.sync());
            if last {
                break;
            }
        }
        let all = std::fs::read_to_string(place.path().join(LOG)).unwrap();
        let count = |what| all.matches(what).count();
        said.push((count("does not take them"), count("each place takes them again")));
    }
    assert_eq!(said, [(0, 0), (1, 0), (1, 0), (1, 1), (1, 1)]);
}

#[test]
fn digests_are_read_from_the_part_that_has_them() {
    let place = tempfile::tempdir().unwrap();
    let mut log = open(place.path(), 1_000).unwrap();
    for _ in 0..4 {
        fill(&mut log, 6);
    }
    let base = log.base;
    let (names, _) = read(place.path());
    assert!(names.len() > 2, "{names:?}");
    let lines = |name: &String| std::fs::read_to_string(place.path().join(name)).unwrap();
    let all: Vec<Hash> = names
        .iter()
        .flat_map(|name| {
            let text = lines(name);
            text.split_inclusive('\n').map(|line| Chain::digest(line.as_bytes())).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(all.len() as u64, log.records());
    let directory = File::open(place.path()).unwrap();
    for from in 0..=all.len() {
        let read = digests_from(directory.as_fd(), from as u64, base).unwrap();
        assert!(read == all[from..], "from {from}: {} of {}", read.len(), all.len() - from);
    }
    // Parts before the one that has the first are not opened.
    let first = place.path().join(part_name(0));
    std::fs::remove_file(&first).unwrap();
    std::os::unix::fs::symlink("nowhere", &first).unwrap();
    assert!(digests_from(directory.as_fd(), 0, base).is_err());
    let second: u64 = names[1].trim_start_matches("audit-").trim_end_matches(".jsonl").parse().unwrap();
    assert!(digests_from(directory.as_fd(), second, base).is_ok());
    assert!(digests_from(directory.as_fd(), second - 1, base).is_err());
}
