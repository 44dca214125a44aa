//! The laboratory's statistics: effects on per-block log ratios with intervals, and how much a channel carries.
//!
//! They may not know of levee, of arms or of files: numbers come in and go out. They are a crate of their own because they alone of the
//! laboratory must be fast where all else is built for tests. Begin reading with `interval.rs`, then `factorial.rs` and `capacity.rs`.
//!
//! A block holds every arm once, close together in time. The effect of an arm is the mean over blocks of
//! the log of (arm / baseline): whatever slows a whole block cancels. All intervals are on the log scale;
//! `exp` makes ratios of them. Distributions come from `statrs`; the bootstrap is Efron's BCa
//! (Efron and Tibshirani, An Introduction to the Bootstrap, 14.3).

#![forbid(unsafe_code)]

pub mod capacity;
pub mod factorial;
pub mod interval;
mod plain;
pub mod series;

pub use interval::{Interval, interval, p_value};
pub use plain::{CONFIDENCE, holm, mean, quantile, sd};
