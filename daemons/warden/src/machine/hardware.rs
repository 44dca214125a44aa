//! A machine's hardware, as data.

use serde::{Deserialize, Serialize};

use super::proto::{CONTROL_PORT, IN_PORT, OUT_PORT};

/// How the machine's processor is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accelerator {
    /// By the host's hardware.
    Kvm,
    /// By translation.
    Tcg {
        /// Kilohertz of the time-stamp counter, which such a machine has nothing to measure by.
        counter_khz: Option<u32>,
    },
}

/// A machine's hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// How its processor is made.
    pub accelerator: Accelerator,
    /// Mebibytes of memory.
    pub memory: u64,
    /// Processors.
    pub processors: u32,
    /// Whether it has a second disk and a port for documents of dominated labels.
    pub below: bool,
}

/// What each descriptor from 3 on is, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descriptor {
    /// The TAP device.
    Tap,
    /// The socket of a port.
    Port(u32),
    /// The image of the label's own store.
    Own,
    /// The image with the copies of dominated labels' documents.
    Below,
    /// The image of the services' programs, which it only reads.
    Programs,
}

impl Hardware {
    /// The descriptors that it is started with, from 3 on.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        let mut all = vec![
            Descriptor::Tap,
            Descriptor::Port(CONTROL_PORT),
            Descriptor::Port(OUT_PORT),
            // The disks are named in this order.
            Descriptor::Own,
            Descriptor::Programs,
        ];
        if self.below {
            all.extend([Descriptor::Port(IN_PORT), Descriptor::Below]);
        }
        all
    }
}
