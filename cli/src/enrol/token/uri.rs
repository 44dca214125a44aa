//! PKCS#11 URIs (RFC 7512): which object of which token, and how it is reached.

use std::fmt;
use std::path::PathBuf;

/// A URI is not longer than this, in octets.
const MOST: usize = 1_024;

/// Which private key, of which token. Two objects or tokens that fit are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uri {
    /// The token's label, serial number, model and manufacturer, as far as they are said.
    pub token: Option<String>,
    pub serial: Option<String>,
    pub model: Option<String>,
    pub manufacturer: Option<String>,
    /// The object's label: CKA_LABEL.
    pub object: Option<String>,
    /// CKA_ID.
    pub id: Option<Vec<u8>>,
    /// `module-path`: the library that speaks with the token.
    pub module: PathBuf,
    /// `pin-source`: the file that has the PIN. None: it is asked for.
    pub pin: Option<PathBuf>,
}

impl Uri {
    /// Reads a URI.
    ///
    /// # Errors
    /// Why it is none that levee can use; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "pkcs11:token=NAME;object=NAME?module-path=/FILE&pin-source=/FILE";
        let rest = text.strip_prefix("pkcs11:").filter(|_| text.len() <= MOST);
        let rest = rest.ok_or_else(|| format!("not a PKCS#11 URI (RFC 7512): {FORM}"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Self::default();
        let (mut module, mut seen) = (None, Vec::new());
        let attributes =
            path.split(';').map(|one| (one, true)).chain(query.split('&').map(|one| (one, false)));
        for (attribute, in_path) in attributes.filter(|(one, _)| !one.is_empty()) {
            let (name, value) =
                attribute.split_once('=').ok_or_else(|| format!("`{attribute}` has no value"))?;
            if seen.contains(&name) {
                return Err(format!("`{name}` is there twice"));
            }
            seen.push(name);
            match (name, in_path) {
                ("token", true) => uri.token = Some(words(name, value)?),
                ("serial", true) => uri.serial = Some(words(name, value)?),
                ("model", true) => uri.model = Some(words(name, value)?),
                ("manufacturer", true) => uri.manufacturer = Some(words(name, value)?),
                ("object", true) => uri.object = Some(words(name, value)?),
                ("id", true) => uri.id = Some(octets(name, value)?),
                ("type", true) if value == "private" => {}
                ("type", true) => return Err(format!("`type={value}`: an authority's key is `private`")),
                ("module-path", false) => module = Some(file(name, value)?),
                ("pin-source", false) => {
                    uri.pin = Some(file(name, value.strip_prefix("file:").unwrap_or(value))?);
                }
                ("pin-value", false) => {
                    return Err("a PIN is not written into a URI, where others can read it: write it into a file of mode 600 that \
                                `pin-source` names, or leave it out, and it is asked for"
                        .to_owned());
                }
                _ => return Err(format!("`{name}` is not an attribute that levee knows: {FORM}")),
            }
        }
        uri.module = module.ok_or_else(|| {
            "it does not say which library speaks with the token: ?module-path=/usr/lib/softhsm/libsofthsm2.so, \
             for instance"
                .to_owned()
        })?;
        if uri.token.is_none() && uri.serial.is_none() {
            return Err(
                "it says neither the token's label nor its serial number: token=NAME, or serial=NUMBER"
                    .to_owned(),
            );
        }
        if uri.object.is_none() && uri.id.is_none() {
            return Err("it says neither the key's label nor its CKA_ID: object=NAME, or id=%01".to_owned());
        }
        Ok(uri)
    }

    /// Whether it names the same key in the same way.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.token, &self.serial, &self.object, &self.id)
            == (&other.token, &other.serial, &other.object, &other.id)
    }

    /// The token by its label, or its serial number.
    pub fn token_name(&self) -> String {
        self.token.as_ref().or(self.serial.as_ref()).cloned().unwrap_or_default()
    }

    /// The token and the key, without how they are reached.
    pub fn name(&self) -> String {
        let whole = self.to_string();
        whole.split(";type=").next().unwrap_or_default().to_owned()
    }

    /// The same token, and another key of it: with this behind its name.
    ///
    /// # Errors
    /// The key has no name.
    pub fn beside(&self, behind: &str) -> Result<Self, String> {
        let object =
            self.object.as_ref().ok_or("the key needs a name, since others are named by it: object=NAME")?;
        Ok(Self { object: Some(format!("{object}{behind}")), id: None, ..self.clone() })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pkcs11:")?;
        let strings = [
            ("token", &self.token),
            ("serial", &self.serial),
            ("model", &self.model),
            ("manufacturer", &self.manufacturer),
            ("object", &self.object),
        ];
        for (name, value) in strings {
            if let Some(value) = value {
                write!(f, "{name}={};", escaped(value.as_bytes()))?;
            }
        }
        if let Some(id) = &self.id {
            let id: String = id.iter().map(|octet| format!("%{octet:02X}")).collect();
            write!(f, "id={id};")?;
        }
        let path = |path: &PathBuf| escaped(path.as_os_str().as_encoded_bytes());
        write!(f, "type=private?module-path={}", path(&self.module))?;
        self.pin.as_ref().map_or(Ok(()), |pin| write!(f, "&pin-source={}", path(pin)))
    }
}

/// What may stand as it is in both parts of a URI (RFC 7512 2.3); all else is escaped.
fn escaped(octets: &[u8]) -> String {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~/".contains(&octet);
    octets
        .iter()
        .map(|&octet| if plain(octet) { char::from(octet).to_string() } else { format!("%{octet:02X}") })
        .collect()
}

fn octets(name: &str, value: &str) -> Result<Vec<u8>, String> {
    let fault = || format!("`{name}={value}`: a `%` needs two hexadecimal digits behind it");
    let mut all = Vec::new();
    let mut rest = value.bytes();
    while let Some(octet) = rest.next() {
        all.push(match octet {
            b'%' => {
                let pair = [rest.next().ok_or_else(fault)?, rest.next().ok_or_else(fault)?];
                let digits = std::str::from_utf8(&pair)
                    .ok()
                    .filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(fault)?
            }
            octet => octet,
        });
    }
    if all.is_empty() { Err(format!("`{name}` is empty")) } else { Ok(all) }
}

fn words(name: &str, value: &str) -> Result<String, String> {
    let text = String::from_utf8(octets(name, value)?).ok().filter(|text| !text.contains(char::is_control));
    text.ok_or_else(|| format!("`{name}` is no text"))
}

fn file(name: &str, value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(words(name, value)?);
    if path.is_absolute() { Ok(path) } else { Err(format!("`{name}` needs a path from the root: /…")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_says_which_key_and_is_written_as_it_is_read() {
        let text = "pkcs11:token=The%20token;serial=00c0;object=levee%3bauthority;id=%01%fF;type=private?module-path=/usr/lib/a.so&pin-source=file:/etc/pin";
        let uri = Uri::parse(text).unwrap();
        assert_eq!((uri.token.as_deref(), uri.serial.as_deref()), (Some("The token"), Some("00c0")));
        assert_eq!(
            (uri.object.as_deref(), uri.id.as_deref()),
            (Some("levee;authority"), Some(&[1, 255][..]))
        );
        assert_eq!(
            (uri.module.to_str(), uri.pin.as_ref().unwrap().to_str()),
            (Some("/usr/lib/a.so"), Some("/etc/pin"))
        );
        assert_eq!(Uri::parse(&uri.to_string()).unwrap(), uri);
        let beside = uri.beside("-federation").unwrap();
        assert_eq!((beside.object.as_deref(), &beside.id), (Some("levee;authority-federation"), &None));
        assert_eq!(Uri::parse(&beside.to_string()).unwrap(), beside);
    }

    #[test]
    fn what_is_no_uri_or_has_a_pin_in_it_is_refused_with_a_reason() {
        let good = "pkcs11:token=a;object=b?module-path=/c";
        Uri::parse(good).unwrap();
        for (text, why) in [
            ("", "not a PKCS#11 URI"),
            ("PKCS11:token=a", "not a PKCS#11 URI"),
            (&format!("{good}{}", " ".repeat(MOST)), "not a PKCS#11 URI"),
            ("pkcs11:token=a;object=b", "which library"),
            ("pkcs11:object=b?module-path=/c", "neither the token's"),
            ("pkcs11:token=a?module-path=/c", "neither the key's"),
            ("pkcs11:token=a;object=b?module-path=c", "path from the root"),
            ("pkcs11:token=a;token=b;object=b?module-path=/c", "twice"),
            ("pkcs11:token=a;object=b;type=public?module-path=/c", "is `private`"),
            ("pkcs11:token=a;object=b?module-path=/c&pin-value=1234", "not written into a URI"),
            ("pkcs11:token=a;object=b;slot-id=1?module-path=/c", "`slot-id` is not"),
            ("pkcs11:token=a;object=b;module-path=/c", "`module-path` is not"),
            ("pkcs11:token=;object=b?module-path=/c", "empty"),
            ("pkcs11:token=a;object=%0A?module-path=/c", "no text"),
            ("pkcs11:token=a;object=%1?module-path=/c", "hexadecimal"),
            ("pkcs11:token=a;object=%+1?module-path=/c", "hexadecimal"),
            ("pkcs11:token;object=b?module-path=/c", "no value"),
        ] {
            let refused = Uri::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
