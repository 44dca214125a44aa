//! Why nothing was enrolled or rotated.

use super::parts::NotWhole;
use super::pki::PkiError;
use levee_policy::site::Curve;
use levee_policy::{ChannelName, HostName, PpkId};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why nothing was enrolled.
#[derive(Debug)]
pub enum EnrolError {
    /// The file is there already.
    Exists(PathBuf),
    /// A part of what is made together is there.
    NotWhole(NotWhole),
    /// There is no authority to sign with.
    NoAuthority(PathBuf),
    /// The site file has no such host.
    UnknownHost(String),
    /// The site has no such channel from or to another host.
    NoChannel(String),
    /// The site file gives the host no PPK.
    NoPpk(HostName),
    /// It gives it one, which was not made yet.
    NoPpkYet(PathBuf, HostName),
    /// The site file says that keys are on this curve, and the authority's is not.
    OtherCurve(Curve),
    /// This file has no public key on P-384.
    NoAuditor(PathBuf),
    /// There is no private key here that could be rotated.
    NoKey(PathBuf),
    /// The authority that was rotated is still the one that vouches for these.
    StillNeeded(Vec<String>),
    /// No rotation was begun.
    NotBegun,
    /// The host has not been seen to use its new PPK.
    NotUsed(HostName, PpkId),
    /// The key of a one-way channel is not followed by another.
    Channel(ChannelFault),
    /// The audit log, which would say so, cannot be read.
    AuditLog(String),
    /// A host's name is missing, or one is too many.
    WhoseKey,
    /// The site has one server.
    NoFederation,
    /// The site has one tunnel.
    NoLayer,
    /// An authority's key and its token do not fit.
    Token(TokenFault),
    /// A request for certificates that is none, and why.
    Request(PathBuf, String),
    /// What somebody has written into a bundle cannot be kept, since it cannot be read.
    Bundle(PathBuf, String),
    /// A file could not be read or written.
    File(PathBuf, io::Error),
    /// A key or certificate could not be made.
    Pki(PkiError),
    /// A text could not be written as TOML.
    Toml(toml::ser::Error),
}

impl fmt::Display for EnrolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(path) => {
                write!(
                    f,
                    "{} is there already; --force replaces it, and what it signed or named",
                    path.display()
                )
            }
            Self::NotWhole(lost) => write!(f, "{lost}: {}", lost.remedy),
            Self::NoAuthority(path) => {
                write!(f, "there is no authority at {}; make one: levee enrol authority", path.display())
            }
            Self::UnknownHost(name) => write!(f, "the site file has no host {name}"),
            Self::NoChannel(name) => {
                write!(f, "the site file has no channel `{name}` from or to another host: one with `wire`")
            }
            Self::NoPpk(host) => {
                write!(
                    f,
                    "the site file gives the host {host} no PPK; add, for instance, ppk = {{ id = \"{host}\" }}"
                )
            }
            Self::NoPpkYet(path, host) => {
                write!(f, "there is no {}; levee enrol ppk SITE {host} makes the first", path.display())
            }
            Self::OtherCurve(curve) => write!(
                f,
                "the site file says that keys are {curve}, and the authority's is not; make the whole site anew: \
                 levee enrol all --force"
            ),
            Self::NoAuditor(path) => write!(
                f,
                "{} has no public key on P-384 in PEM; the auditor makes one on a machine of theirs: levee audit key FILE",
                path.display()
            ),
            Self::Token(fault) => fault.fmt(f),
            Self::Request(path, why) => write!(f, "{}: {why}", path.display()),
            Self::NoKey(path) => write!(
                f,
                "there is no {} that could be rotated: whoever has the key makes another with `levee enrol request --force`, and \
                 `levee enrol sign --force` answers it",
                path.display()
            ),
            Self::StillNeeded(whose) => write!(
                f,
                "the authority before this one has signed for {} still: rotate their keys (levee enrol rotate SITE trusted-path, ike, \
                 host NAME; or federation, and levee enrol etcd SITE --force; or layer, layer NAME), copy the bundles, then --finish",
                whose.join(", ")
            ),
            Self::NotBegun => {
                f.write_str("no rotation of it was begun: the same without --finish begins one")
            }
            Self::NotUsed(host, id) => write!(
                f,
                "the audit log does not say that {host} has used its new PPK, {id}: copy the bundle's ppk.key to it, `levee reload` there, \
                 and have somebody sign on and open a session; or --force, and {host} gets no keys until it has the new one"
            ),
            Self::AuditLog(why) => write!(
                f,
                "whether the host has used its new PPK is not known ({why}); --force ends the old one all the same"
            ),
            Self::Channel(fault) => fault.fmt(f),
            Self::WhoseKey => f.write_str(
                "`host` and `ppk` need the host's name behind them and `channel` the channel's, `layer` may have one, and the others have none: \
                 levee enrol rotate SITE host NAME",
            ),
            Self::NoFederation => f.write_str("the site file has no [federation]"),
            Self::NoLayer => f.write_str("the site file has no second tunnel"),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Pki(error) => error.fmt(f),
            Self::Bundle(path, why) => write!(
                f,
                "{}: {why}; what is in it is kept where a bundle is made anew: mend it, or remove it",
                path.display()
            ),
            Self::Toml(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EnrolError {}

impl From<ChannelFault> for EnrolError {
    fn from(fault: ChannelFault) -> Self {
        Self::Channel(fault)
    }
}

impl From<PkiError> for EnrolError {
    fn from(error: PkiError) -> Self {
        Self::Pki(error)
    }
}

/// Why an authority's key and its token do not fit.
#[derive(Debug)]
pub enum TokenFault {
    /// The key is in a token, by this file, and in a file as well.
    TwoKeys(PathBuf),
    /// The key is in a token, by this file, and it is not said which key of which token the other one is to have.
    InToken(PathBuf),
    /// The authority is there, and its key is not the one of the token that was named.
    NotThisToken(PathBuf),
    /// The second tunnel's keys are of a kind that tokens seldom have.
    SecondTunnel,
}

impl From<TokenFault> for EnrolError {
    fn from(fault: TokenFault) -> Self {
        Self::Token(fault)
    }
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoKeys(path) => write!(
                f,
                "{} says that the authority's key is in a token, and a file beside it has a key: remove the one that is not its",
                path.display()
            ),
            Self::InToken(path) => write!(
                f,
                "the authority's key is in a token, by {}: say which key the new one has: --token URI (another object= where one \
                 follows the other)",
                path.display()
            ),
            Self::NotThisToken(path) => write!(
                f,
                "{} is there already, with another key: levee enrol rotate SITE authority --token URI has one in a token follow it",
                path.display()
            ),
            Self::SecondTunnel => f.write_str(
                "the second tunnel's authority has its key in a file (Ed25519): leave out --token",
            ),
        }
    }
}

/// Why the key of a one-way channel is not followed by another.
#[derive(Debug)]
pub enum ChannelFault {
    /// It has no key here.
    NoneYet(PathBuf, ChannelName),
    /// A file that should have a key.
    NoKey(PathBuf),
    /// The key that is to follow another is the same.
    Same(PathBuf),
    /// The server that runs here has opened nothing that was sealed with the next key, which is known by this.
    NotHeard(ChannelName, String),
    /// Whether it has is not known.
    Unknown(ChannelName, String),
}

impl fmt::Display for ChannelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneYet(path, channel) => write!(
                f,
                "there is no {}; levee enrol channel SITE {channel} makes the first, or copy it from the other host",
                path.display()
            ),
            Self::NoKey(path) => {
                write!(
                    f,
                    "{} is not 64 hexadecimal digits: copy it from the other host again",
                    path.display()
                )
            }
            Self::Same(path) => write!(
                f,
                "{} is the key that is in use: copy there the one that `levee enrol rotate` has made at the other host",
                path.display()
            ),
            Self::NotHeard(channel, key) => write!(
                f,
                "nothing has come by {channel} that is sealed with its next key, {key}: `levee enrol rotate SITE channel {channel} --finish` \
                 and `levee reload` at the host that sends, and `levee reload` here if that was not done; or --force, and what is sealed \
                 with the old key is lost"
            ),
            Self::Unknown(channel, why) => write!(
                f,
                "whether anything has come by {channel} that is sealed with its next key is not known ({why}); --force ends the old one all \
                 the same, and what is sealed with it is lost"
            ),
        }
    }
}
