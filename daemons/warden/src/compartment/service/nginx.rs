//! nginx as Debian ships it: a page that names its label, the label's own documents to read and write, and the
//! documents of dominated labels to read.

use std::net::SocketAddr;

use levee_policy::site::Needs;
use levee_policy::{LabelName, ServiceName};

use super::Launch;

/// A directory that is moved into itself is one that nginx does not come to the end of. The way to it is compared as it is written.
const MOVING: &str = r#"        set $way "$http_destination $uri";
        if ($http_destination ~ "%[^/]*/.|[^:]//|[^!-~]") {
            set $way odd;
        }
        if (-d $request_filename) {
            set $way "directory $way";
        }
        if ($way ~ "^directory (odd$|(https?://[^/]*)?(/(own|below)/.+?)(/[^ ]*)? \3/?$)") {
            return 403 "not written: a directory goes neither into itself nor to a name in one whose name is escaped\n";
        }
"#;

/// Where its page lies inside.
const PAGE: &str = "/etc/nginx/levee/index.html";
/// What people may do beside reading, where the site says `uploads = true`.
const WRITING: &str = "            dav_methods PUT DELETE MKCOL COPY MOVE;
            create_full_put_path on;
            dav_access user:rw group:r all:r;
            # A full store.
            error_page 500 =507 @full;
";
/// The same for documents of labels below.
const TRYING: &str = "            # Tried for real: the mount refuses.
            dav_methods PUT DELETE MKCOL COPY MOVE;
            error_page 409 500 =403 @dominated;
";
/// The first descriptor that a service inherits beside the standard ones.
const FIRST_LISTENER: usize = 3;

/// One instance of nginx, in the compartment of one label.
#[derive(Debug, Clone)]
pub struct Nginx {
    /// The service that it is: there may be several in one compartment.
    pub service: ServiceName,
    /// The label that its page names.
    pub label: LabelName,
    /// The directories in `/srv/below`, each with the label that it is a copy of.
    pub below: Vec<(String, LabelName)>,
    /// There may be others in `/srv/below` later.
    pub more: bool,
    /// What it listens on: the listeners' own addresses, in the order in which it inherits them.
    pub listen: Vec<SocketAddr>,
    /// Whether people may change the label's documents by it.
    pub uploads: bool,
    /// What the service asks for.
    pub needs: Needs,
}

impl Nginx {
    /// The files it needs inside: path and content.
    pub fn files(&self) -> Vec<(String, String)> {
        vec![(self.path(), self.configuration()), (PAGE.into(), self.page())]
    }

    /// Where its configuration lies inside.
    fn path(&self) -> String {
        format!("/etc/nginx/levee/{}.conf", self.service)
    }

    /// How it is started. The listeners come along as descriptors 3, 4, …, in the order of `listen`; they must be
    /// non-blocking.
    pub fn launch(&self) -> Launch {
        // nginx takes listeners over by this variable, as it does when it replaces its own program file.
        let inherited: String =
            (0..self.listen.len()).map(|n| format!("{};", n.saturating_add(FIRST_LISTENER))).collect();
        Launch {
            program: "/usr/sbin/nginx".into(),
            argv: ["nginx", "-c", &self.path(), "-e", "stderr"].map(Into::into).to_vec(),
            env: vec![format!("NGINX={inherited}"), "PATH=/usr/bin:/usr/sbin".into()],
            needs: self.needs.clone(),
        }
    }

    fn configuration(&self) -> String {
        let listen: String =
            self.listen.iter().map(|address| format!("        listen {address};\n")).collect();
        // Label names have no character that means something to nginx's quoting (LabelName's own rule).
        let (label, service) = (self.label.as_str(), &self.service);
        let (writing, trying) = if self.uploads { (WRITING, TRYING) } else { ("", "") };
        format!(
            r#"daemon off;
master_process on;
worker_processes 1;
pid /run/nginx-{service}.pid;
error_log stderr warn;
events {{
    worker_connections 1024;
}}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    server_tokens off;
    sendfile on;
    keepalive_timeout 65;
    client_max_body_size 0;
    # Beside the documents, so that a finished upload is renamed into its place.
    client_body_temp_path /srv/own/.incoming;
    proxy_temp_path /run/proxy;
    fastcgi_temp_path /run/fastcgi;
    uwsgi_temp_path /run/uwsgi;
    scgi_temp_path /run/scgi;
    server {{
{listen}        server_name _;
        root /srv;
        add_header X-Label "{label}" always;
        # What begins with a dot is the services' own, and is nobody's to read, to write or to move something to.
        location ~ /\. {{
            return 404;
        }}
        if ($http_destination ~* "(/|%2f)(\.|%2e)") {{
            return 403 "not written: names that begin with a dot are the services' own\n";
        }}
        # What a move or copy replaces is removed with all in it: it has a name of its own beneath /own/ (or /below/, where the mount refuses).
        if ($http_destination !~* "^$|^(https?://[^/]*)?/(own|below)/([^/%]|%(?!2f))") {{
            return 403 "not written: the destination is a name beneath /own/\n";
        }}
{MOVING}        location = / {{
            root /etc/nginx/levee;
            ssi on;
            ssi_silent_errors on;
            try_files /index.html =404;
        }}
        # The services' own lie in it: it is neither removed nor copied as a whole.
        location = /own/ {{
            autoindex on;
        }}
        location /own/ {{
            autoindex on;
{writing}        }}
        location /below/ {{
            autoindex on;
{trying}        }}
        location @full {{
            internal;
            return 507 "not written: the store of {label} is full or refuses\n";
        }}
        location @dominated {{
            internal;
            return 403 "not written: {label} may read this label and not write to it\n";
        }}
        location / {{
            return 404;
        }}
    }}
}}
"#
        )
    }

    fn page(&self) -> String {
        let label = self.label.as_str();
        let below: String = self
            .below
            .iter()
            .map(|(directory, label)| {
                format!("<h2>{label} (read-only)</h2>\n<!--# include virtual=\"/below/{directory}/\" -->\n")
            })
            .collect();
        let more = if self.more {
            "<h2>labels below that have documents (read-only)</h2>\n<!--# include virtual=\"/below/\" -->\n"
        } else {
            ""
        };
        format!(
            "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>{label}</title></head>\n<body>\n\
             <h1>{label}</h1>\n<h2>{label}</h2>\n<!--# include virtual=\"/own/\" -->\n{below}{more}</body></html>\n"
        )
    }
}
