//! Notify payloads (RFC 7296 3.10).

use super::{Malformed, Reader};

macro_rules! kinds {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// The notify types that levee sends or understands; the comment is the registry's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum NotifyKind {
            $(#[doc = $text] $name,)*
            /// An error type (below 16384) not listed here: the exchange failed.
            OtherError(u16),
            /// A status type not listed here: ignored (RFC 7296 3.10.1).
            OtherStatus(u16),
        }

        impl NotifyKind {
            pub(crate) fn code(self) -> u16 {
                match self {
                    $(Self::$name => $code,)*
                    Self::OtherError(c) | Self::OtherStatus(c) => c,
                }
            }

            pub(crate) fn from_code(code: u16) -> Self {
                match code {
                    $($code => Self::$name,)*
                    0..=16383 => Self::OtherError(code),
                    _ => Self::OtherStatus(code),
                }
            }

            /// The registry's name, or the number.
            pub(crate) fn name(self) -> String {
                match self {
                    $(Self::$name => $text.to_owned(),)*
                    Self::OtherError(c) | Self::OtherStatus(c) => format!("notify {c}"),
                }
            }
        }
    };
}

kinds! {
    UnsupportedCriticalPayload = 1, "UNSUPPORTED_CRITICAL_PAYLOAD";
    InvalidIkeSpi = 4, "INVALID_IKE_SPI";
    InvalidMajorVersion = 5, "INVALID_MAJOR_VERSION";
    InvalidSyntax = 7, "INVALID_SYNTAX";
    InvalidMessageId = 9, "INVALID_MESSAGE_ID";
    InvalidSpi = 11, "INVALID_SPI";
    NoProposalChosen = 14, "NO_PROPOSAL_CHOSEN";
    InvalidKePayload = 17, "INVALID_KE_PAYLOAD";
    AuthenticationFailed = 24, "AUTHENTICATION_FAILED";
    SinglePairRequired = 34, "SINGLE_PAIR_REQUIRED";
    NoAdditionalSas = 35, "NO_ADDITIONAL_SAS";
    InternalAddressFailure = 36, "INTERNAL_ADDRESS_FAILURE";
    FailedCpRequired = 37, "FAILED_CP_REQUIRED";
    TsUnacceptable = 38, "TS_UNACCEPTABLE";
    InvalidSelectors = 39, "INVALID_SELECTORS";
    UnacceptableAddresses = 40, "UNACCEPTABLE_ADDRESSES";
    TemporaryFailure = 43, "TEMPORARY_FAILURE";
    ChildSaNotFound = 44, "CHILD_SA_NOT_FOUND";
    StateNotFound = 47, "STATE_NOT_FOUND";
    TsMaxQueue = 48, "TS_MAX_QUEUE";
    InitialContact = 16384, "INITIAL_CONTACT";
    SetWindowSize = 16385, "SET_WINDOW_SIZE";
    AdditionalTsPossible = 16386, "ADDITIONAL_TS_POSSIBLE";
    NatDetectionSourceIp = 16388, "NAT_DETECTION_SOURCE_IP";
    NatDetectionDestinationIp = 16389, "NAT_DETECTION_DESTINATION_IP";
    Cookie = 16390, "COOKIE";
    UseTransportMode = 16391, "USE_TRANSPORT_MODE";
    RekeySa = 16393, "REKEY_SA";
    EspTfcPaddingNotSupported = 16394, "ESP_TFC_PADDING_NOT_SUPPORTED";
    NonFirstFragmentsAlso = 16395, "NON_FIRST_FRAGMENTS_ALSO";
    MobikeSupported = 16396, "MOBIKE_SUPPORTED";
    UpdateSaAddresses = 16400, "UPDATE_SA_ADDRESSES";
    Cookie2 = 16401, "COOKIE2";
    ChildlessSupported = 16418, "CHILDLESS_IKEV2_SUPPORTED";
    FragmentationSupported = 16430, "IKEV2_FRAGMENTATION_SUPPORTED";
    SignatureHashAlgorithms = 16431, "SIGNATURE_HASH_ALGORITHMS";
    UsePpk = 16435, "USE_PPK";
    PpkIdentity = 16436, "PPK_IDENTITY";
    NoPpkAuth = 16437, "NO_PPK_AUTH";
    IntermediateSupported = 16438, "INTERMEDIATE_EXCHANGE_SUPPORTED";
    AdditionalKeyExchange = 16441, "ADDITIONAL_KEY_EXCHANGE";
    UseAggfrag = 16442, "USE_AGGFRAG";
    SaResourceInfo = 16444, "SA_RESOURCE_INFO";
    // RFC 7296 3.10.1: 40960 to 65535 are for private use.
    LeveePass = 50_229, "LEVEE_PASS";
    LeveePadding = 50_230, "LEVEE_PADDING";
}

impl NotifyKind {
    /// Types below 16384 report errors (RFC 7296 3.10.1).
    pub(crate) fn is_error(self) -> bool {
        self.code() < 16384
    }
}

/// A Notify payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notify<'a> {
    /// 0 when the notification is not about a child SA.
    pub(crate) protocol: u8,
    pub(crate) kind: NotifyKind,
    pub(crate) spi: &'a [u8],
    pub(crate) data: &'a [u8],
}

impl<'a> Notify<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(body, "notify payload");
        let (protocol, spi_size, kind) = (r.u8()?, r.u8()?, NotifyKind::from_code(r.u16()?));
        let spi = r.take(usize::from(spi_size))?;
        Ok(Self { protocol, kind, spi, data: r.rest() })
    }

    /// The body of a notification that is about the IKE SA.
    pub(crate) fn write(kind: NotifyKind, data: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
        move |out| {
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&kind.code().to_be_bytes());
            out.extend_from_slice(data);
        }
    }

    /// The body of a notification that is about an ESP SA.
    pub(crate) fn write_esp(kind: NotifyKind, spi: u32, data: &[u8]) -> impl FnOnce(&mut Vec<u8>) {
        move |out| {
            out.extend_from_slice(&[3, 4]);
            out.extend_from_slice(&kind.code().to_be_bytes());
            out.extend_from_slice(&spi.to_be_bytes());
            out.extend_from_slice(data);
        }
    }
}
