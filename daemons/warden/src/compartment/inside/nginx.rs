//! nginx as Debian ships it: a page that names its label, the label's own documents to read and write, and the
//! documents of dominated labels to read.

use crate::compartment::PAGES;
use crate::compartment::service::Served;
use levee_policy::LabelName;

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

/// The first descriptor that a service inherits beside the standard ones.
const FIRST_LISTENER: usize = 3;

/// What people may do beside reading, where the site says `uploads = true`.
const WRITING: &str = "            dav_methods PUT DELETE MKCOL COPY MOVE;
            create_full_put_path on;
            dav_access user:rw group:r all:r;
            limit_conn uploads 64;
            # A full store.
            error_page 500 =507 @full;
";

/// An upload takes a descriptor beside its connection's for as long as it lasts: whoever holds many open leaves some to others.
const UPLOADS: &str = "    map $request_method $uploader {
        PUT $binary_remote_addr;
    }
    limit_conn_zone $uploader zone=uploads:1m;
    limit_conn_status 429;
";

/// What somebody below has written acts for nobody who reads it, by itself or within the page of all (as an index.html is): no script, plugin or form of a page does anything (Content Security Policy
/// Level 3, 6.1 and 6.4).
const HARMLESS: &str = "script-src 'none'; object-src 'none'; base-uri 'none'; form-action 'none'";

/// The same for documents of labels below.
const TRYING: &str = "            # Tried for real: the mount refuses.
            dav_methods PUT DELETE MKCOL COPY MOVE;
            error_page 409 500 =403 @dominated;
";

/// The files that it needs: path and content.
pub(super) fn files(service: &Served) -> [(String, String); 2] {
    [(path(service), configuration(service)), (format!("{PAGES}/index.html"), page(service))]
}

/// Where its configuration lies.
fn path(service: &Served) -> String {
    format!("{PAGES}/{}.conf", service.name)
}

/// Its program, arguments and environment. The listeners come along as descriptors 3, 4, …, in the order of its addresses; they must be
/// non-blocking.
pub(super) fn command(service: &Served) -> (String, Vec<String>, Vec<String>) {
    // nginx takes listeners over by this variable, as it does when it replaces its own program file.
    let inherited: String =
        (0..service.addresses.len()).map(|n| format!("{};", n.saturating_add(FIRST_LISTENER))).collect();
    // What is left of an upload that its own end has not seen would stay in the store for ever.
    let start = "rm -rf \"$1\"; rm -f /srv/own/.incoming/[0-9]*; mkdir -p \"$1\"; exec /usr/sbin/nginx -c \"$0\" -e stderr";
    (
        "/bin/sh".into(),
        ["sh", "-c", start, &path(service), &incoming(service)].map(Into::into).to_vec(),
        vec![format!("NGINX={inherited}")],
    )
}

/// Where uploads are until they have come whole: beside the documents, so that each is then renamed into its place.
fn incoming(service: &Served) -> String {
    format!("/srv/own/.incoming/{}", service.name)
}

fn configuration(service: &Served) -> String {
    let listen: String =
        service.addresses.iter().map(|address| format!("        listen {address};\n")).collect();
    // Label names have no character that means something to nginx's quoting (LabelName's own rule).
    let (label, name) = (service.label.as_str(), &service.name);
    let incoming = incoming(service);
    let (writing, trying) = if service.uploads { (WRITING, TRYING) } else { ("", "") };
    format!(
        r#"daemon off;
master_process on;
worker_processes 1;
pid /run/nginx-{name}.pid;
error_log stderr warn;
events {{
    # More than a mediator relays (12,500), so that its shares decide whose there are.
    worker_connections 16000;
}}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    server_tokens off;
    sendfile on;
    keepalive_timeout 65;
    client_max_body_size 0;
    client_body_temp_path {incoming};
{UPLOADS}    proxy_temp_path /run/proxy;
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
            root {PAGES};
            add_header X-Label "{label}" always; add_header Content-Security-Policy "{HARMLESS}" always;
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
            add_header X-Label "{label}" always; add_header Content-Security-Policy "{HARMLESS}" always;
            autoindex on;
            log_not_found off;
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

fn page(service: &Served) -> String {
    let label = service.label.as_str();
    let one = |label: &LabelName| {
        let directory = label.file_name();
        format!(
            "<h2>{label} (read-only)</h2>\n<!--# include virtual=\"/below/{directory}/\" stub=\"none\" -->\n"
        )
    };
    let below: String = service.below.iter().map(one).collect();
    let more = if service.more {
        "<h2>labels below that have documents (read-only)</h2>\n<!--# include virtual=\"/below/\" -->\n"
    } else {
        ""
    };
    format!(
        "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>{label}</title></head>\n<body>\n\
         <!--# block name=\"none\" --><p>no documents yet</p><!--# endblock -->\n\
         <h1>{label}</h1>\n<h2>{label}</h2>\n<!--# include virtual=\"/own/\" -->\n{below}{more}</body></html>\n"
    )
}
