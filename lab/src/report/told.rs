//! What a run can say of an arm on some work: beyond this machine's noise, within it, or nothing.

use super::Run;
use super::read;
use crate::analysis::{Effect, Obs, Verdict, contrast};
use crate::design::Layout;
use crate::experiment::{Arm, Drive, Mediation, Unit, Use};
use crate::place::Home;
use levee_stats::Interval;

/// The work whose effects are of the family.
pub fn units(run: &Run) -> Vec<Unit> {
    let units = run.manifest.experiment.units(Some(&run.manifest.form));
    units.into_iter().filter(|u| u.usage == Use::Effect).collect()
}

/// What can be said of an arm on some work.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// It was not measured, or too seldom.
    Nothing,
    /// It is within what this machine differs from itself.
    Same(Interval),
    /// It is beyond that.
    Differs(Interval),
}

/// An arm over the baseline, as the family of effects has it.
pub fn over_baseline(run: &Run, layout: Layout, arm: &str, workload: &str) -> Told {
    let of = |e: &&Effect| e.workload == workload && e.layout == layout && e.arm == arm;
    match run.summary.effects.iter().find(of).map(|e| (e.verdict, e.cost)) {
        Some((Verdict::Cost | Verdict::Gain, Some(c))) => Told::Differs(c),
        Some((Verdict::Floor, Some(c))) => Told::Same(c),
        _ => Told::Nothing,
    }
}

/// Arms that are mediated, each with the one that is not and goes the same way.
pub fn mediated(run: &Run) -> Vec<(&Arm, &Arm)> {
    let ran = read::arms(run);
    let arms: Vec<&Arm> = run.manifest.experiment.arms.iter().filter(|a| ran.contains(&a.name)).collect();
    let bare = |arm: &Arm| {
        let drive = Drive { mediation: Mediation::None, ..arm.drive };
        arms.iter().copied().find(|a| a.drive == drive && a.tool.is_none())
    };
    let by_us = arms.iter().copied().filter(|a| a.drive.mediation != Mediation::None && a.tool.is_none());
    by_us.filter_map(|arm| Some((arm, bare(arm)?))).collect()
}

/// Arms of levee's at a second server, each with the one that goes the same way to the server that holds the session itself.
pub fn elsewhere(run: &Run) -> Vec<(&Arm, &Arm)> {
    let ran = read::arms(run);
    let arms: Vec<&Arm> = run.manifest.experiment.arms.iter().filter(|a| ran.contains(&a.name)).collect();
    let here = |arm: &Arm| {
        let drive = Drive { session: Home::Here, ..arm.drive };
        arms.iter().copied().find(|a| a.drive == drive && a.tool.is_none())
    };
    let away = arms.iter().copied().filter(|a| a.drive.session == Home::Elsewhere && a.drive.needs_levee());
    away.filter_map(|arm| Some((arm, here(arm)?))).collect()
}

/// Arms of levee's present programs, each with the one by its earlier programs.
pub fn earlier(run: &Run) -> Vec<(&Arm, &Arm)> {
    let ran = read::arms(run);
    let arms: Vec<&Arm> = run.manifest.experiment.arms.iter().filter(|a| ran.contains(&a.name)).collect();
    let by = |before: bool, drive: Drive| {
        let drive = Drive { before, ..drive };
        arms.iter().copied().find(|a| a.drive == drive && a.tool.is_none())
    };
    let olds = arms.iter().filter(|a| a.drive.before);
    olds.filter_map(|old| Some((by(false, old.drive)?, *old))).collect()
}

/// What the second of two arms adds to the first, from the same blocks; outside the family that Holm's adjustment covers.
pub fn added(run: &Run, layout: Layout, (base, arm): (&str, &str), workload: &str) -> Told {
    let floor = run.summary.floors.iter().find(|f| f.workload == workload && f.layout == layout);
    let floor = floor.map_or(f64::INFINITY, |f| f.floor);
    let obs = Obs::of(&run.samples);
    let c = contrast(&obs, &(workload.to_owned(), layout), base, arm, run.manifest.seed);
    match c.filter(|_| run.manifest.measures(arm, workload)) {
        Some(c) if c.excludes_none() && c.estimate.abs() > floor => Told::Differs(c),
        Some(c) => Told::Same(c),
        None => Told::Nothing,
    }
}
