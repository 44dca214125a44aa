//! Labels and the lattice they form.
#![forbid(unsafe_code)]

mod names;

pub use names::{
    DomainName, HostName, InterfaceName, InvalidName, LabelName, ServiceName, SiteName, UserName,
};
