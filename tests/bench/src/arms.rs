//! What is compared.

/// Inner MTU of every tunnel, in bytes.
pub const MTU: u16 = 1_400;

/// One way from the client to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// The link itself, MTU 1,500.
    Bare,
    /// No way at all: what sealing and opening alone take.
    Aead,
    /// A vault at each end.
    Levee(Variant),
    /// The newest wireguard-go.
    WireguardGo,
    /// boringtun's command.
    Boringtun,
    /// strongSwan with its ESP in user mode.
    Libipsec,
    /// OpenVPN in user mode.
    OpenVpn,
}

/// What differs from a plain vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Nothing.
    Plain,
    /// It sleeps as soon as there is nothing.
    Blocking,
    /// An earlier program.
    Before,
    /// This library for every suite.
    Aead(&'static str),
    /// So many labels, each with a vault of its own at both ends.
    Labels(u16),
    /// So many security associations at the server.
    Associations(u32),
    /// So many workers for the label at each end, each with a queue and associations of its own.
    Workers(u16),
    /// AGGFRAG payloads (RFC 9347) and a large inner MTU.
    Aggfrag,
    /// Two stacks at the server that must agree about every packet.
    Agree,
}

impl Arm {
    /// All, in the order of the report.
    pub const ALL: [Self; 19] = [
        Self::Bare,
        Self::Aead,
        Self::Levee(Variant::Plain),
        Self::Levee(Variant::Before),
        Self::Levee(Variant::Blocking),
        Self::WireguardGo,
        Self::Boringtun,
        Self::Libipsec,
        Self::OpenVpn,
        Self::Levee(Variant::Aead("ring")),
        Self::Levee(Variant::Aead("aws-lc")),
        Self::Levee(Variant::Labels(10)),
        Self::Levee(Variant::Labels(100)),
        Self::Levee(Variant::Associations(10_000)),
        Self::Levee(Variant::Workers(2)),
        Self::Levee(Variant::Workers(3)),
        Self::Levee(Variant::Workers(4)),
        Self::Levee(Variant::Aggfrag),
        Self::Levee(Variant::Agree),
    ];

    /// As on the command line and in reports.
    pub fn name(self) -> String {
        match self {
            Self::Bare => "bare".into(),
            Self::Aead => "aead-alone".into(),
            Self::Levee(Variant::Plain) => "levee".into(),
            Self::Levee(Variant::Blocking) => "levee-blocking".into(),
            Self::Levee(Variant::Before) => "levee-before".into(),
            Self::Levee(Variant::Aead(library)) => format!("levee-{library}"),
            Self::Levee(Variant::Labels(labels)) => format!("levee-{labels}-labels"),
            Self::Levee(Variant::Associations(count)) => format!("levee-{count}-sas"),
            Self::Levee(Variant::Workers(count)) => format!("levee-{count}-workers"),
            Self::Levee(Variant::Aggfrag) => "levee-aggfrag".into(),
            Self::Levee(Variant::Agree) => "levee-agree".into(),
            Self::WireguardGo => "wireguard-go".into(),
            Self::Boringtun => "boringtun".into(),
            Self::Libipsec => "libipsec".into(),
            Self::OpenVpn => "openvpn".into(),
        }
    }

    /// Its place in the address plan.
    pub fn number(self) -> u8 {
        Self::ALL.iter().position(|arm| *arm == self).map_or(0, |place| place as u8)
    }

    /// Whether it stands only while it is measured: what is idle beside another may cost it something.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Levee(variant) if !matches!(variant, Variant::Plain | Variant::Blocking | Variant::Before))
    }
}
