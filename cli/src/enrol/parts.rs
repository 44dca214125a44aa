//! Which files are made together, and whether all of them are there. No private key is replaced because another file is not there: it may
//! have signed or opened what nothing else does.

use std::path::{Path, PathBuf};

/// Files of one directory that are made together.
pub struct Part {
    /// Their directory, below the state directory.
    directory: String,
    /// What is where the keys are used, all of it or nothing; of several names with `|` between them one is there.
    private: &'static [&'static str],
    /// What is public.
    public: &'static [&'static str],
    /// What makes them anew.
    remedy: String,
    /// Of an authority: copies of its certificate, which whoever it has signed for has.
    copies: &'static [&'static str],
    /// The same within each host's bundle.
    bundled: Option<&'static str>,
}

/// What there is of a part.
pub struct There {
    /// Private keys that are there.
    keys: Vec<PathBuf>,
    /// Private keys that are not.
    no_keys: Vec<PathBuf>,
    /// Public files that are there.
    files: Vec<PathBuf>,
    /// Public files that are not.
    no_files: Vec<PathBuf>,
}

/// Files of a part are missing, and others are there.
#[derive(Debug, PartialEq, Eq)]
pub struct NotWhole {
    /// What is missing.
    pub missing: Vec<PathBuf>,
    /// One that is there, a private key where there is one.
    pub there: PathBuf,
    /// What to do.
    pub remedy: String,
}

impl std::fmt::Display for NotWhole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let missing: Vec<String> = self.missing.iter().map(|path| path.display().to_string()).collect();
        let are = if missing.len() == 1 { "is" } else { "are" };
        write!(f, "{} {are} not there, and {} is", missing.join(", "), self.there.display())
    }
}

impl Part {
    /// The authority of the site.
    pub fn authority() -> Self {
        let remedy = "a bundle's authority.pem is a copy of ca.pem; else make the whole site anew: levee enrol all SITE --force";
        let part = Self::new("authority", &["ca.key|ca.uri"], &["ca.pem"], remedy);
        Self { copies: &["server/authority.pem"], bundled: Some("authority.pem"), ..part }
    }

    /// The authority for etcd and its clients.
    pub fn federation_authority() -> Self {
        let remedy = "server/federation-authority.pem is a copy of federation-ca.pem; else make the whole site anew: levee enrol all SITE --force";
        let part =
            Self::new("authority", &["federation-ca.key|federation-ca.uri"], &["federation-ca.pem"], remedy);
        Self { copies: &["server/federation-authority.pem"], ..part }
    }

    /// etcd's own.
    pub fn etcd() -> Self {
        Self::new(
            "etcd",
            &["tls.key"],
            &["chain.pem", "authority.pem"],
            "make etcd's anew: levee enrol etcd SITE --force",
        )
    }

    /// The server's.
    pub fn server() -> Self {
        let remedy = "make the server's keys anew: levee enrol server SITE --force";
        // `audit.pub` is made where the keys are used, as they are.
        let keys = &["tls.key", "ike.key", "audit.key", "audit.pub"];
        Self::new("server", keys, &["chain.pem", "ike-chain.pem", "authority.pem"], remedy)
    }

    /// The server's as etcd's client.
    pub fn federation_client() -> Self {
        let public = &["federation-chain.pem", "federation-authority.pem"];
        let remedy = "have another follow it: levee enrol rotate SITE federation";
        Self::new("server", &["federation.key"], public, remedy)
    }

    /// A host's bundle.
    pub fn host(name: &str) -> Self {
        let public = &["chain.pem", "ike-chain.pem", "authority.pem", "workstation.toml"];
        let remedy =
            format!("make this host's bundle anew, and copy it: levee enrol host SITE {name} --force");
        Self::new(&format!("hosts/{name}"), &["device.key", "ike.key"], public, &remedy)
    }

    /// The second tunnel's authority.
    pub fn layer_authority() -> Self {
        let remedy = "layer/authority.pem is a copy of ca.pem; else make the whole site anew: levee enrol all SITE --force";
        let part = Self::new("layer/authority", &["ca.key"], &["ca.pem"], remedy);
        let copies = &["layer/authority.pem", "gateway/layer/authority.pem"];
        Self { copies, bundled: Some("layer/authority.pem"), ..part }
    }

    /// An end of the second tunnel.
    pub fn layer_end(directory: &str, whose: &str) -> Self {
        let remedy = format!("have another follow it: levee enrol rotate SITE layer{whose}");
        Self::new(directory, &["layer.key"], &["chain.pem", "authority.pem"], &remedy)
    }

    /// All that a site has: of several servers, of a second tunnel whose end at the server lies there, and of these hosts, of which some have
    /// two layers.
    pub fn all<'a>(
        is_federated: bool,
        layer: Option<&str>,
        hosts: impl Iterator<Item = (&'a str, bool)>,
    ) -> Vec<Self> {
        let mut all = vec![Self::authority(), Self::server()];
        if is_federated {
            all.extend([Self::federation_authority(), Self::federation_client(), Self::etcd()]);
        }
        if let Some(end) = layer {
            all.extend([Self::layer_authority(), Self::layer_end(end, "")]);
        }
        for (name, is_layered) in hosts {
            all.push(Self::host(name));
            if is_layered && layer.is_some() {
                all.push(Self::layer_of(name));
            }
        }
        all
    }

    /// A host's end of the second tunnel.
    pub fn layer_of(name: &str) -> Self {
        Self::layer_end(&format!("hosts/{name}/layer"), &format!(" {name}"))
    }

    fn new(
        directory: &str,
        private: &'static [&'static str],
        public: &'static [&'static str],
        remedy: &str,
    ) -> Self {
        Self {
            directory: directory.to_owned(),
            private,
            public,
            remedy: remedy.to_owned(),
            copies: &[],
            bundled: None,
        }
    }

    /// What of it is there.
    pub fn there(&self, state: &Path) -> There {
        let directory = state.join(&self.directory);
        let found =
            |names: &&str| names.split('|').map(|name| directory.join(name)).find(|path| path.exists());
        let first = |names: &&str| names.split('|').next().map(|name| directory.join(name));
        let missing =
            |all: &[&str]| all.iter().filter(|names| found(names).is_none()).filter_map(first).collect();
        There {
            keys: self.private.iter().filter_map(found).collect(),
            no_keys: missing(self.private),
            files: self.public.iter().filter_map(found).collect(),
            no_files: missing(self.public),
        }
    }

    /// Whether it is there as a whole, or not at all. Private keys may be elsewhere, all of them: the authority's, off line, and those for
    /// which somebody has asked with a request.
    ///
    /// # Errors
    /// A part of it is.
    pub fn is_whole(&self, state: &Path) -> Result<bool, NotWhole> {
        let There { keys, no_keys, files, no_files } = self.there(state);
        let lost_key = !keys.is_empty() && !no_keys.is_empty();
        match keys.first().or(files.first()) {
            None => Ok(false),
            Some(_) if no_files.is_empty() && !lost_key => Ok(true),
            Some(there) => Err(NotWhole {
                missing: if lost_key { [no_keys, no_files].concat() } else { no_files },
                there: there.clone(),
                remedy: format!("put back what is missing, or {}", self.remedy),
            }),
        }
    }

    /// Of an authority that is not here: who has its certificate. Another in its place would be believed by nobody that the first has
    /// signed for.
    pub fn is_elsewhere(&self, state: &Path) -> Option<NotWhole> {
        let hosts = state.join("hosts");
        let bundles = self.bundled.map(|_| std::fs::read_dir(&hosts));
        // Who cannot be asked may have it.
        let unread = match &bundles {
            Some(Err(e)) if e.kind() != std::io::ErrorKind::NotFound => Some(hosts),
            _ => None,
        };
        let bundles = bundles.into_iter().flatten().flatten().flatten().map(|bundle| bundle.path());
        let bundled = bundles.filter_map(|bundle| Some(bundle.join(self.bundled?))).chain(unread);
        let there =
            self.copies.iter().map(|copy| state.join(copy)).chain(bundled).find(|copy| copy.exists())?;
        let missing = self.there(state).no_files;
        let remedy = format!("put back what is missing, or {}", self.remedy);
        (!missing.is_empty()).then_some(NotWhole { missing, there, remedy })
    }

    /// Its certificates' files.
    pub fn chains(&self, state: &Path) -> Vec<PathBuf> {
        let directory = state.join(&self.directory);
        self.public
            .iter()
            .filter(|name| name.ends_with("chain.pem"))
            .map(|name| directory.join(name))
            .collect()
    }

    /// What makes it anew.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Private keys of which none is there, though what they are for is.
    pub fn keys_elsewhere(&self, state: &Path) -> Option<Vec<PathBuf>> {
        let there = self.there(state);
        (there.keys.is_empty() && !there.files.is_empty()).then_some(there.no_keys)
    }
}
