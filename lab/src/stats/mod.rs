//! Statistics on per-block log ratios.
//!
//! A block holds every arm once, close together in time. The effect of an arm is the mean over blocks of
//! the log of (arm / baseline): whatever slows a whole block cancels. All intervals are on the log scale;
//! `exp` makes ratios of them. Distributions come from `statrs`; the bootstrap is Efron's BCa
//! (Efron and Tibshirani, An Introduction to the Bootstrap, 14.3).

pub mod factorial;
pub mod interval;
mod plain;
pub mod series;

pub use interval::{Interval, interval, p_value};
pub use plain::{CONFIDENCE, holm, mean, quantile, sd};
