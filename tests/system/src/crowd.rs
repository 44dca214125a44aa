//! Many people at many workstations who do the same thing at the same moment.

use crate::{Done, World};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Somebody at a workstation, and the label at which they work.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The workstation.
    pub workstation: String,
    /// The person.
    pub user: String,
    /// Their label.
    pub label: String,
}

/// Has everybody do something at the same moment. What each got, and how long it took.
pub fn all<T: Send>(seats: &[Seat], act: impl Fn(&Seat) -> T + Sync) -> Vec<(Duration, T)> {
    let start = Barrier::new(seats.len());
    let (act, start) = (&act, &start);
    std::thread::scope(|scope| {
        let run = |seat| {
            move || {
                start.wait();
                let begun = Instant::now();
                let got = act(seat);
                (begun.elapsed(), got)
            }
        };
        let threads: Vec<_> = seats.iter().map(|seat| scope.spawn(run(seat))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    })
}

/// What is wrong with a page that is to be of one of these labels and of no other.
pub fn fault(page: &Done, label: &str, seats: &[Seat]) -> Option<String> {
    if page.status != 0 {
        return Some(format!("{label}: status {}: {}", page.status, page.err.trim()));
    }
    let heading = |label: &str| page.out.contains(&format!("<h1>{label}</h1>"));
    if !heading(label) {
        return Some(format!("{label}: this is not its page: {}", page.out));
    }
    let other = seats.iter().find(|seat| seat.label != label && heading(&seat.label))?;
    Some(format!("{label}: its page is also that of {}", other.label))
}

/// Writes a document, under a name that is the same for everybody, that says at which label it is.
pub fn write_mark(world: &World, seat: &Seat, site: &str) -> Done {
    let url = format!("{site}own/mark");
    let curl = ["curl", "-sS", "--fail", "--max-time", "20", "-X", "PUT", "--data-binary", &seat.label, &url];
    world.run(&seat.workstation, &curl)
}

/// Reads it again.
pub fn read_mark(world: &World, seat: &Seat, site: &str) -> Done {
    world.fetch(&seat.workstation, &format!("{site}own/mark"))
}
