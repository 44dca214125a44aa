//! Randomised complete blocks: every arm once per block, the baseline twice.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How client and server share the processors.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Client and server on processors of their own.
    Apart,
    /// Both on one processor.
    Together,
}

impl Layout {
    /// The name as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Apart => "apart",
            Layout::Together => "together",
        }
    }
}

/// One trial to be made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trial {
    /// Its block, from 0.
    pub block: usize,
    /// The workload's id.
    pub workload: String,
    /// The layout.
    pub layout: Layout,
    /// The arm's name.
    pub arm: String,
    /// 1 for the second copy of the baseline, else 0.
    pub copy: u8,
}

/// Every trial in the order in which it is to be made. Within a block the (workload, layout) units come
/// in random order; within a unit the arms do, and the second copy of the baseline is one of them: trials
/// that are compared lie as near in time as they can. An arm that does not measure a workload in a block (`measures`, of
/// block, arm and workload id) is left out there.
pub fn plan(
    seed: u64,
    blocks: usize,
    units: &[(String, Layout)],
    arms: &[String],
    baseline: &str,
    measures: impl Fn(usize, &str, &str) -> bool,
) -> Vec<Trial> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut out = Vec::new();
    for block in 0..blocks {
        let mut units = units.to_vec();
        units.shuffle(&mut rng);
        for (workload, layout) in units {
            let able = || arms.iter().filter(|a| measures(block, a, &workload));
            let mut here: Vec<(&String, u8)> = able().map(|a| (a, 0)).collect();
            here.extend(able().filter(|a| *a == baseline).map(|a| (a, 1)));
            here.shuffle(&mut rng);
            out.extend(here.into_iter().map(|(arm, copy)| Trial {
                block,
                workload: workload.clone(),
                layout,
                arm: arm.clone(),
                copy,
            }));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn small(seed: u64) -> Vec<Trial> {
        let units = [("A".to_owned(), Layout::Apart), ("B".to_owned(), Layout::Together)];
        plan(seed, 3, &units, &["base".to_owned(), "x".to_owned()], "base", |_, _, _| true)
    }

    #[test]
    fn every_block_holds_every_arm_once_and_the_baseline_twice() {
        let p = small(1);
        assert_eq!(p.len(), 3 * 2 * 3);
        assert_eq!(p.iter().collect::<HashSet<_>>().len(), p.len());
        for b in 0..3 {
            assert_eq!(p.iter().filter(|t| t.block == b && t.arm == "base").count(), 4);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_another() {
        assert_eq!(small(1), small(1));
        assert!((2..6).any(|s| small(s) != small(1)));
    }
}
