//! The calling process's own identity and capabilities. For processes with one thread.

use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use crate::Result;
use crate::error::Step;
use crate::spawn;

/// Becomes this uid and gid, without supplementary groups.
pub fn become_identity(uid: Uid, gid: Gid) -> Result<()> {
    let step = || format!("become uid {} and gid {}", uid.as_raw(), gid.as_raw());
    rustix::thread::set_thread_groups(&[]).step(step)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).step(step)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step(step)
}

/// Keeps only the capabilities `keep`, and those only until the next exec: the bounding, inheritable and
/// ambient sets are emptied.
pub fn keep_capabilities(keep: CapabilitySet) -> Result<()> {
    spawn::drop_bounding(CapabilitySet::empty()).step(|| "empty the bounding set".into())?;
    rustix::thread::clear_ambient_capability_set().step(|| "empty the ambient set".into())?;
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).step(|| "drop the capabilities".into())
}
