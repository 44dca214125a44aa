//! Whom the keyer hears.

use levee_policy::LabelName;

/// What is waited for.
#[derive(Clone, Debug)]
pub enum Source {
    Warden,
    /// sessiond, or on a workstation the tpe.
    Asker,
    Signer,
    /// A worker of a label's vault.
    Vault(LabelName, u16),
    /// By its number.
    Socket(u64),
}
