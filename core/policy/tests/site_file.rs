//! Site files with faults: each is told at its place, with the nearest valid name and a remedy.

use levee_policy::site::{
    AeadLibrary, Colour, Curve, Mode, Passed, ProblemKind, Program, Protocol, Selinux, Suites,
};
use levee_policy::{Problem, Range, Site};
use std::time::Duration;

/// A sound site, to be spoilt in one place.
const SOUND: &str = r#"[site]
name = "harbour"
[labels]
levels = ["LOW", "MID", "HIGH"]
categories = ["NATO", "MED"]
colours = { LOW = "green", HIGH = "red" }
[server]
name = "server.example"
addresses = ["192.0.2.1"]
trusted-path-port = 7443
ike-port = 500
tunnel-port = 4500
inner-address = "10.80.0.1"
inner-pool = "10.80.1.0/24"
names = ["www.example"]
slots = 64
grace = "30s"
[limits]
memory = "512M"
processes = 256
cpu = "100%"
store = "64M"
[[user]]
name = "ada"
clearance = "LOW..HIGH//NATO,MED"
[[user]]
name = "ugo"
clearance = "LOW"
[[host]]
name = "ws1"
accreditation = "LOW..HIGH//NATO,MED"
[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "LOW..HIGH//NATO"
mode = "direct"
program = "nginx"
[[service]]
name = "mail"
port = 143
protocol = "tcp"
range = "MID..HIGH//MED"
mode = "direct"
command = ["/usr/sbin/imapd", "-n"]
[[network]]
interface = "ship0"
label = "HIGH//NATO"
address = "192.168.7.1/24"
services = ["web"]
hosts = [{ address = "192.168.7.9", port = 80, protocol = "tcp" }]
"#;

/// One fault: what is replaced by what, and what must then be told.
struct Case {
    from: &'static str,
    to: &'static str,
    /// The text at which the problem must point, in the line that must hold it; the first such.
    at: &'static str,
    kind: &'static str,
    nearest: Option<&'static str>,
    /// Part of the words.
    what: &'static str,
    /// Part of the remedy.
    remedy: &'static str,
}

const fn case(
    from: &'static str,
    to: &'static str,
    at: &'static str,
    kind: &'static str,
    nearest: Option<&'static str>,
    what: &'static str,
    remedy: &'static str,
) -> Case {
    Case { from, to, at, kind, nearest, what, remedy }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Keys and types.
    case("levels =", "levls =", "levls", "unknown-key", Some("levels"), "unknown key `levls` in [labels]", "did you mean `levels`?"),
    case("[limits]", "[limit]", "limit]", "unknown-key", Some("limits"), "unknown key `limit` in the site file", "did you mean `limits`?"),
    case("grace = \"30s\"", "zzz = 1", "zzz", "unknown-key", None, "unknown key `zzz` in [server]", "remove it; [server] takes"),
    case("clearance = \"LOW\"", "", "[[user]]\nname = \"ugo\"", "missing-key", None, "[user] has no `clearance`", "add, for instance, `clearance ="),
    case("[site]\nname = \"harbour\"\n", "", "[labels]", "missing-key", None, "the site file has no `site`", "`levee init` writes"),
    case("name = \"harbour\"", "name = 5", "5", "wrong-type", None, "the site name is an integer", "write a string in quotes: a lower-case letter"),
    case("slots = 64", "slots = \"64\"", "\"64\"", "wrong-type", None, "`slots` is a string", "write an integer"),
    case("names = [\"www.example\"]", "names = \"www.example\"", "\"www.example\"", "wrong-type", None, "`names` is a string", "a list in brackets"),
    case("[limits]", "[[limits]]", "[[limits]]", "wrong-type", None, "[limits] is an array", "write a table"),
    case("slots = 64", "slots = 64\nslots = 65", "slots = 65", "syntax", None, "duplicate key", "stands once in its place"),
    case("[[user]]\nname = \"ada\"", "[user]\nname = \"ada\"", "user]]", "syntax", None, "duplicate key", "at the first one too: [[user]]"),
    case("\"harbour\"", "“harbour”", "“harbour”", "syntax", None, "string values must be quoted", "straight quotes"),
    case("slots = 64", "slots = = 64", "= 64", "syntax", None, "this is not TOML", "https://toml.io"),
    // Names and values.
    case("\"harbour\"", "\"Harbour\"", "\"Harbour\"", "bad-value", None, "`Harbour` is not a valid site name", "a lower-case letter"),
    case("\"harbour\"", "\"harbour-at-the-sea\"", "\"harbour-at-the-sea\"", "bad-value", None, "is not a valid site name", "up to 11"),
    case("\"ugo\"", "\"../ugo\"", "\"../ugo\"", "bad-value", None, "`../ugo` is not a valid user name", "a letter or digit"),
    case("\"server.example\"", "\"-server\"", "\"-server\"", "bad-value", None, "not a valid server name", "a DNS name"),
    case("\"192.0.2.1\"", "\"192.0.2.256\"", "\"192.0.2.256\"", "bad-value", None, "not a valid address", "an IPv4 or IPv6 address"),
    case("port = 80\nprotocol = \"tcp\"\nrange", "port = 0\nprotocol = \"tcp\"\nrange", "0\nprotocol", "out-of-bounds", None, "`port` is 0", "from 1 to 65535"),
    case("port = 143", "port = 65536", "65536", "out-of-bounds", None, "`port` is 65536", "from 1 to 65535"),
    case("slots = 64", "slots = 4096", "4096", "out-of-bounds", None, "`slots` is 4096", "from 1 to 4095"),
    case("slots = 64", "slots = -1", "-1", "out-of-bounds", None, "`slots` is -1", "from 1 to 4095"),
    case("\"30s\"", "\"30\"", "\"30\"", "bad-value", None, "`30` is not a valid grace", "\"1s\" to \"1h\""),
    case("\"30s\"", "\"2h\"", "\"2h\"", "out-of-bounds", None, "`grace` is 2h", "\"1s\" to \"1h\""),
    case("grace = \"30s\"", "longest-session = \"30s\"", "\"30s\"", "out-of-bounds", None, "`longest-session` is 30s", "\"1m\" to \"168h\""),
    case("grace = \"30s\"", "idle-lock = \"4s\"", "\"4s\"", "out-of-bounds", None, "`idle-lock` is 4s", "\"5s\" to \"24h\""),
    case("[limits]", "[audit]\ncheckpoints = [\"relative\"]\n[limits]", "\"relative\"", "bad-value", None, "`relative` is no place for checkpoints", "absolute path"),
    case("[limits]", "[audit]\ncheckpoint = []\n[limits]", "checkpoint", "unknown-key", Some("checkpoints"), "unknown key `checkpoint` in [audit]", "did you mean `checkpoints`?"),
    case("[limits]", "[vault]\naead = \"rng\"\n[limits]", "\"rng\"", "unknown-name", Some("ring"), "`rng` is no AEAD library", "did you mean `ring`?"),
    case("[limits]", "[crypto]\nkeys = \"P-348\"\n[limits]", "\"P-348\"", "unknown-name", Some("P-384"), "`P-348` is no curve", "did you mean `P-384`?"),
    case("[limits]", "[crypto]\ncurve = \"P-384\"\n[limits]", "curve", "unknown-key", None, "unknown key `curve` in [crypto]", "[crypto] takes `keys`"),
    case("[limits]", "[crypto]\nsuites = \"csna\"\n[limits]", "\"csna\"", "unknown-name", Some("cnsa"), "`csna` is no name of suites", "did you mean `cnsa`?"),
    case("[limits]", "[crypto]\nsuites = \"cnsa\"\nkeys = \"P-256\"\n[limits]", "\"P-256\"", "bad-value", None, "keys on P-256 do not fit it", "keys = \"P-384\""),
    case("[limits]", "[vault]\npoll = \"1s\"\n[limits]", "\"1s\"", "bad-value", None, "`1s` is not a valid poll", "\"0us\" to \"10ms\""),
    case("[limits]", "[vault]\npoll = \"11ms\"\n[limits]", "\"11ms\"", "out-of-bounds", None, "`poll` is 11ms", "\"0us\" to \"10ms\""),
    case("[limits]", "[vault]\nworkers = 0\n[limits]", "0\n[limits]", "out-of-bounds", None, "`workers` is 0", "from 1 to 16"),
    case("[limits]", "[vault]\nworkers = 17\n[limits]", "17", "out-of-bounds", None, "`workers` is 17", "from 1 to 16"),
    // Postures.
    case("[limits]", "[[posture]]\nname = \"siege\"\n[limits]", "[[posture]]", "missing-key", None, "the posture changes nothing", "write one of `ciphers`, `exchanges`, `ml-kem`, `key-life`, `constant-rate`, `aggfrag`, `agree`, `aead`, `poll`, `workers`, `people`, `hosts`, `layers`, `services`"),
    case("[limits]", "[[posture]]\nciphers = [\"aes-256-gcm\"]\n[limits]", "[[posture]]", "missing-key", None, "[posture] has no `name`", "add, for instance"),
    case("[limits]", "[[posture]]\nname = \"default\"\nciphers = [\"aes-256-gcm\"]\n[limits]", "\"default\"", "bad-value", None, "what the other tables say", "another name"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nciphers = [\"aes-265-gcm\"]\n[limits]", "\"aes-265-gcm\"", "unknown-name", Some("aes-256-gcm"), "`aes-265-gcm` is no cipher", "did you mean `aes-256-gcm`?"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nciphers = []\n[limits]", "[]\n[limits]", "bad-value", None, "lets nothing pass", "at least one"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nciphers = [\"aes-256-gcm\", \"aes-256-gcm\"]\n[limits]", "\"aes-256-gcm\"]", "duplicate", None, "stands here twice", "once"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nciphers = [\"aes-256-gcm\"]\nfollow = \"1s\"\n[limits]", "\"1s\"", "out-of-bounds", None, "`follow` is 1s", "\"2s\" to \"60s\""),
    case("[limits]", "[crypto]\nsuites = \"cnsa\"\n[[posture]]\nname = \"siege\"\nciphers = [\"chacha20-poly1305\"]\n[limits]", "\"chacha20-poly1305\"", "bad-value", None, "`suites` is `cnsa`, which has no chacha20-poly1305", "take it out"),
    case("[limits]", "[[posture]]\nname = \"a\"\nciphers = [\"aes-256-gcm\"]\n[[posture]]\nname = \"a\"\nciphers = [\"aes-128-gcm\"]\n[limits]", "[[posture]]\nname = \"a\"\nciphers = [\"aes-128-gcm\"]", "duplicate", None, "two postures `a`", "another name"),
    case("[limits]", "[[posture]]\nname = \"siege\"\npeople = [\"adda\"]\n[limits]", "\"adda\"", "unknown-name", Some("ada"), "`adda` is no user of the site", "did you mean `ada`?"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nhosts = [\"ws1\", \"ws9\"]\n[limits]", "\"ws9\"", "unknown-name", Some("ws1"), "`ws9` is no host of the site", "did you mean `ws1`?"),
    case("[limits]", "[[posture]]\nname = \"siege\"\npeople = [\"ada\", \"ada\"]\n[limits]", "\"ada\"]", "duplicate", None, "`ada` stands here twice", "once"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nconstant-rate = false\n[limits]", "false\n[limits]", "bad-value", None, "takes no constant rate away", "leave it out"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nkey-life = \"30s\"\n[limits]", "\"30s\"\n[limits]", "out-of-bounds", None, "`key-life` is 30s", "\"1m\" to \"1h\""),
    case("[limits]", "[crypto]\nsuites = \"cnsa\"\n[[posture]]\nname = \"siege\"\nexchanges = [\"P-384\", \"X25519\"]\n[limits]", "\"X25519\"", "bad-value", None, "`suites` is `cnsa`, which has no X25519", "take it out"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nml-kem = false\n[limits]", "false\n[limits]", "bad-value", None, "takes no ML-KEM away", "leave it out"),
    case("[limits]", "[[posture]]\nname = \"siege\"\nservices = [\"webb\"]\n[limits]", "\"webb\"", "unknown-name", Some("web"), "`webb` is no service of the site", "did you mean `web`?"),
    case("\"512M\"", "\"512MB\"", "\"512MB\"", "bad-value", None, "`512MB` is not a valid memory", "\"16M\" to \"1T\""),
    case("\"512M\"", "\"99999999999999999999T\"", "\"99999999999999999999T\"", "bad-value", None, "not a valid memory", "\"16M\" to \"1T\""),
    case("\"64M\"", "\"1K\"", "\"1K\"", "out-of-bounds", None, "`store` is 1K", "\"4M\" to \"1T\""),
    case("\"100%\"", "\"0%\"", "\"0%\"", "out-of-bounds", None, "`cpu` is 0%", "one processor"),
    case("mode = \"direct\"\nprogram", "mode = \"dirct\"\nprogram", "\"dirct\"", "unknown-name", Some("direct"), "`dirct` is no mediation mode", "did you mean `direct`?"),
    case("mode = \"direct\"\ncommand", "mode = \"direct\"\nuploads = true\ncommand", "true\ncommand", "bad-value", None, "what levee configures nginx for", "remove it"),
    case("mode = \"direct\"\ncommand", "mode = \"direct\"\nsoftware = [\"/etc/x\"]\ncommand", "\"/etc/x\"", "bad-value", None, "neither a package's name nor a path", "dovecot-imapd"),
    case("mode = \"direct\"\ncommand", "mode = \"direct\"\nsoftware = [\"/usr/../etc\"]\ncommand", "\"/usr/../etc\"", "bad-value", None, "neither a package's name nor a path", "dovecot-imapd"),
    case("mode = \"direct\"\ncommand", "mode = \"direct\"\nneeds = [\"lock\"]\ncommand", "\"lock\"", "unknown-name", Some("locks"), "`lock` is no need of a service", "did you mean `locks`?"),
    case("mode = \"direct\"\ncommand", "mode = \"direct\"\nneeds = \"locks\"\ncommand", "\"locks\"", "wrong-type", None, "`needs` is a string", "write a list"),
    case("mode = \"direct\"\ncommand", "mode = \"handof\"\ncommand", "\"handof\"", "unknown-name", Some("handoff"), "`handof` is no mediation mode", "did you mean `handoff`?"),
    case("mode = \"direct\"\ncommand", "mode = \"handoff\"\nsocket = \"stdoi\"\ncommand", "\"stdoi\"", "unknown-name", Some("stdio"), "`stdoi` is no way to pass a socket", "did you mean `stdio`?"),
    case("mode = \"direct\"\ncommand", "mode = \"relay\"\nsocket = \"stdio\"\ncommand", "\"stdio\"", "bad-value", None, "the mode is `relay`", "remove `socket`"),
    case("mode = \"direct\"\nprogram", "mode = \"handoff\"\nprogram", "\"web\"", "bad-value", None, "`web` runs nginx, which takes no connection", "write `mode = \"relay\"`"),
    case("mode = \"direct\"\nprogram", "mode = \"itself\"\nprogram", "\"web\"", "bad-value", None, "`web` runs nginx, which levee gives its sockets", "write `mode = \"direct\"`"),
    case("protocol = \"tcp\"\nrange = \"MID..HIGH//MED\"\nmode = \"direct\"", "protocol = \"udp\"\nrange = \"MID..HIGH//MED\"\nmode = \"relay\"", "\"mail\"", "bad-value", None, "none can go by `relay`", "write `mode = \"direct\"`"),
    case("protocol = \"tcp\"\nrange = \"LOW", "protocol = \"tpc\"\nrange = \"LOW", "\"tpc\"", "unknown-name", Some("tcp"), "`tpc` is no protocol", "did you mean `tcp`?"),
    case("\"nginx\"", "\"ngnix\"", "\"ngnix\"", "unknown-name", Some("nginx"), "`ngnix` is no program", "command = ["),
    case("program = \"nginx\"", "", "[[service]]", "missing-key", None, "[service] has no `program`", "command = ["),
    case("program = \"nginx\"", "program = \"nginx\"\ncommand = [\"/bin/x\"]", "[\"/bin/x\"]", "duplicate", None, "both `program` and `command`", "keep one"),
    case("[\"/usr/sbin/imapd\", \"-n\"]", "[]", "[]", "bad-value", None, "`command` is empty", "absolute path"),
    case("\"/usr/sbin/imapd\"", "\"imapd\"", "[\"imapd\"", "bad-value", None, "`imapd` is not an absolute path", "absolute path"),
    case("LOW = \"green\"", "LOW = \"gren\"", "\"gren\"", "unknown-name", Some("green"), "`gren` is no colour", "did you mean `green`?"),
    case("LOW = \"green\"", "LOWW = \"green\"", "LOWW", "unknown-key", Some("LOW"), "unknown key `LOWW` in `colours`", "did you mean `LOW`?"),
    // Labels and ranges.
    case("\"MED\"]", "\"NATO\"]", "\"NATO\"]", "duplicate", None, "`NATO` is declared twice", "remove or rename"),
    case("\"HIGH\"]", "\"low\"]", "\"low\"", "bad-value", None, "`low` differs from an earlier name only in case", "tell apart"),
    case("\"MED\"]", "\"M.D\"]", "\"M.D\"", "bad-value", None, "`M.D` cannot be a name", "use 1 to 32"),
    case("[\"LOW\", \"MID\", \"HIGH\"]", "[]", "[]", "out-of-bounds", None, "no level is declared", "at least one level"),
    case("categories = [", "integrity-categories = [\"X\"]\ncategories = [", "[\"X\"]", "out-of-bounds", None, "without an integrity level", "declare integrity-levels"),
    case("\"LOW..HIGH//NATO,MED\"\n[[user]]", "\"LOW..HIHG//NATO,MED\"\n[[user]]", "HIHG//", "unknown-name", Some("HIGH"), "`HIHG` is not a level", "did you mean `HIGH`?"),
    case("\"LOW..HIGH//NATO,MED\"\n[[user]]", "\"LOW .. HIGH\"\n[[user]]", "LOW ..", "bad-value", None, "`LOW .. HIGH` has spaces beside its names", "without them: `LOW..HIGH`"),
    case("\"LOW..HIGH//NATO,MED\"\n[[user]]", "\"LOW..HIGH/NATO\"\n[[user]]", "HIGH/NATO", "unknown-name", None, "`HIGH/NATO` is not a level", "two slashes stand before categories: `HIGH//NATO`"),
    case("\"LOW..HIGH//NATO,MED\"\n[[user]]", "\"LOW-HIGH\"\n[[user]]", "LOW-HIGH", "unknown-name", None, "`LOW-HIGH` is not a level", "a range has two dots: `LOW..HIGH`"),
    case("\"LOW..HIGH//NATO,MED\"\n[[user]]", "\"LOW..HIGH//NATO,MDE\"\n[[user]]", "MDE", "unknown-name", Some("MED"), "`MDE` is not a category", "did you mean `MED`?"),
    case("clearance = \"LOW\"", "clearance = \"HIGH..LOW\"", "HIGH..LOW", "empty-range", None, "the range `HIGH..LOW` is empty", "`LOW..HIGH`"),
    case("clearance = \"LOW\"", "clearance = \"LOW//NATO..HIGH//MED\"", "LOW//NATO..HIGH", "empty-range", None, "is empty", "`LOW//NATO..HIGH//NATO,MED`"),
    case("clearance = \"LOW\"", "clearance = \"LOW@GOOD\"", "@GOOD", "bad-value", None, "declares no integrity levels", "remove `@`"),
    case("label = \"HIGH//NATO\"", "label = \"HIGH//NATO..HIGH\"", "NATO..HIGH\"", "unknown-name", None, "is not a category", "`NATO`, `MED`"),
    // Things that exclude each other.
    case("\"ugo\"", "\"ada\"", "\"ada\"\nclearance = \"LOW\"\n", "duplicate", None, "a second user `ada`; the first is on line 24", "remove or rename"),
    case("\"mail\"", "\"web\"", "\"web\"\nport = 143", "duplicate", None, "a second service `web`", "remove or rename"),
    case("[[service]]\nname = \"web\"", "[[host]]\nname = \"ws1\"\naccreditation = \"LOW\"\n[[service]]\nname = \"web\"", "\"ws1\"\naccreditation = \"LOW\"\n", "duplicate", None, "a second host `ws1`", "remove or rename"),
    case("[[service]]\nname = \"web\"", "ppk = { id = \"k\" }\n[[host]]\nname = \"ws2\"\naccreditation = \"LOW\"\nppk = { id = \"k\" }\n[[service]]\nname = \"web\"", "\"k\" }\n[[service]]", "duplicate", None, "a second PPK `k`", "remove or rename"),
    case("[[service]]\nname = \"web\"", "ppk = { id = \"the key\" }\n[[service]]\nname = \"web\"", "\"the key\"", "bad-value", None, "`the key` is not a valid PPK_ID", "a letter or digit"),
    case("[[service]]\nname = \"web\"", "ppk = { mandatory = true }\n[[service]]\nname = \"web\"", "{ mandatory", "missing-key", None, "`ppk` has no `id`", "add, for instance, `id ="),
    case("[[service]]\nname = \"web\"", "ppk = { id = \"k\", mandatory = \"no\" }\n[[service]]\nname = \"web\"", "\"no\"", "wrong-type", None, "`mandatory` is a string", "write true or false"),
    case("[[service]]\nname = \"web\"", "ppk = { id = \"k\", mandatry = true }\n[[service]]\nname = \"web\"", "mandatry", "unknown-key", Some("mandatory"), "unknown key `mandatry` in `ppk`", "did you mean `mandatory`?"),
    case("[[service]]\nname = \"web\"", "ppk = \"k\"\n[[service]]\nname = \"web\"", "\"k\"", "wrong-type", None, "`ppk` is a string", "write a table"),
    case("[[network]]", "[[network]]\ninterface = \"ship0\"\nlabel = \"LOW\"\naddress = \"192.168.8.1/24\"\n[[network]]", "\"ship0\"\nlabel = \"HIGH", "duplicate", None, "a second interface `ship0`", "remove or rename"),
    case("port = 143", "port = 80", "80\nprotocol = \"tcp\"\nrange = \"MID", "duplicate", None, "and `mail` both take tcp port 80 at MID..HIGH", "another port"),
    case("tunnel-port = 4500", "tunnel-port = 500", "500\ninner", "duplicate", None, "`ike-port` and `tunnel-port` are both 500", "different ports"),
    case("[\"www.example\"]", "[\"server.example\"]", "\"server.example\"]", "duplicate", None, "a second name of the server or another", "remove or rename"),
    case("\"10.80.0.1\"", "\"192.0.2.1\"", "\"192.0.2.1\"\ninner-pool", "duplicate", None, "a second address `192.0.2.1`", "remove or rename"),
    case("\"10.80.0.1\"", "[\"10.80.0.1\", \"10.80.0.2\"]", "\"10.80.0.2\"", "duplicate", None, "a second inner IPv4 address", "one of each family"),
    case("\"10.80.0.1\"", "\"fd00::1\"", "\"fd00::1\"", "missing-key", None, "no inner pool is IPv6", "add an IPv6 network"),
    case("\"10.80.1.0/24\"", "[\"10.80.1.0/24\", \"fd00::/64\"]", "\"fd00::/64\"", "missing-key", None, "no inner address is IPv6", "add an IPv6 address"),
    case("\"192.0.2.1\"", "\"0.0.0.0\"", "\"0.0.0.0\"", "bad-value", None, "0.0.0.0 is not the address of a host", "the server is to have"),
    case("[\"192.0.2.1\"]", "[]", "[server]", "too-small", None, "no outer address", "`addresses`"),
    case("\"10.80.1.0/24\"", "\"10.80.1.7/24\"", "\"10.80.1.7/24\"", "bad-value", None, "bits behind its prefix", "write 10.80.1.0/24"),
    case("\"10.80.1.0/24\"", "\"10.80.1.0/30\"", "\"10.80.1.0/30\"", "too-small", None, "has 2 addresses for 1 hosts", "a shorter prefix"),
    case("\"10.80.1.0/24\"", "\"10.80.0.0/16\"", "\"10.80.0.0/16\"", "overlap", None, "overlaps the inner address 10.80.0.1/32 of line 13", "share no address"),
    case("\"192.168.7.1/24\"", "\"10.80.0.7/8\"", "\"10.80.0.7/8\"", "overlap", None, "overlaps the inner pool 10.80.1.0/24 of line 14", "share no address"),
    case("[[network]]", "[[network]]\ninterface = \"ship1\"\nlabel = \"LOW\"\naddress = \"192.168.0.1/16\"\n[[network]]", "\"192.168.7.1/24\"", "overlap", None, "overlaps the network at `ship1` 192.168.0.0/16", "share no address"),
    // What nobody could use.
    case("clearance = \"LOW..HIGH//NATO,MED\"", "clearance = \"LOW\"", "\"MID..HIGH//MED\"", "unreachable", None, "the service `mail` at MID..HIGH//MED is outside every clearance", "widen its range"),
    case("accreditation = \"LOW..HIGH//NATO,MED\"", "accreditation = \"MID..HIGH//NATO,MED\"", "\"LOW\"\n[[host]]", "unreachable", None, "no host is accredited for any label in the clearance LOW of `ugo`", "widen the clearance"),
    case("services = [\"web\"]", "services = [\"wbe\"]", "\"wbe\"", "unknown-name", Some("web"), "the site has no service `wbe`", "did you mean `web`?"),
    case("services = [\"web\"]", "services = [\"mail\"]", "\"mail\"]", "unreachable", None, "`mail` does not run at HIGH//NATO", "widen the service's range"),
    case("services = [\"web\"]", "services = [\"web\", \"web\"]", "\"web\"]", "duplicate", None, "a second service of this network `web`", "remove"),
    case("\"192.168.7.9\"", "\"192.168.8.9\"", "\"192.168.8.9\"", "bad-value", None, "192.168.8.9 is not on this network", "192.168.7.0/24"),
    case("\"192.168.7.9\"", "\"192.168.7.1\"", "\"192.168.7.1\",", "duplicate", None, "the interface's own address", "the other host's"),
    case("\"ship0\"", "\"a-name-that-is-too-long\"", "\"a-name-that-is-too-long\"", "bad-value", None, "not a valid interface name", "1 to 15"),
];

fn problems(text: &str) -> Vec<Problem> {
    Site::parse(text).err().unwrap_or_default()
}

/// Line and column, from 1, of the first place where the text is.
fn place(text: &str, wanted: &str) -> (usize, usize) {
    let at = text.find(wanted).unwrap_or_else(|| panic!("{wanted:?} is not in the file"));
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').map_or(0, |newline| newline + 1) + 1;
    (line, column)
}

#[test]
fn a_sound_site_has_no_problem_and_says_what_its_file_says() {
    let site = Site::parse(SOUND).unwrap();
    assert_eq!(site.name().as_str(), "harbour");
    let server = site.server();
    assert_eq!((server.trusted_path_port(), server.ike_port(), server.tunnel_port()), (7443, 500, 4500));
    assert_eq!(server.inner_pools()[0].to_string(), "10.80.1.0/24");
    assert_eq!((server.slots(), server.grace().as_secs()), (64, 30));
    assert_eq!(server.all_names().map(|n| n.as_str()).collect::<Vec<_>>(), ["server.example", "www.example"]);
    let limits = site.limits();
    assert_eq!((limits.memory, limits.processes), (512 << 20, 256));
    assert_eq!((limits.cpu_percent, limits.store, limits.stores), (100, 64 << 20, 64 << 30));
    let high = site.vocabulary().parse("HIGH//NATO").unwrap();
    assert_eq!(site.colour(&high), Some(Colour::Red));
    assert_eq!(site.colour(&site.vocabulary().parse("MID").unwrap()), None);
    let itself = SOUND.replace("mode = \"direct\"\ncommand", "mode = \"itself\"\ncommand");
    let itself = Site::parse(&itself).unwrap();
    assert_eq!(itself.service(&"mail".parse().unwrap()).unwrap().mode(), Mode::Itself);
    assert!(!itself.mediates(&itself.vocabulary().parse("MID//MED").unwrap()));
    let mail = site.service(&"mail".parse().unwrap()).unwrap();
    assert_eq!((mail.port(), mail.protocol(), mail.mode()), (143, Protocol::Tcp, Mode::Direct));
    for (mode, is) in [
        ("\"handoff\"", Mode::Handoff(Passed::Stdio)),
        ("\"handoff\"\nsocket = \"stdio\"", Mode::Handoff(Passed::Stdio)),
        ("\"handoff\"\nsocket = \"listen-fds\"", Mode::Handoff(Passed::ListenFds)),
        ("\"relay\"", Mode::Relay),
    ] {
        let text = SOUND.replace("mode = \"direct\"\ncommand", &format!("mode = {mode}\ncommand"));
        let site = Site::parse(&text).unwrap();
        assert_eq!(site.service(&"mail".parse().unwrap()).unwrap().mode(), is, "{mode}");
        let at = |name: &str| site.mediates(&site.vocabulary().parse(name).unwrap());
        assert!(at("MID//MED") && !at("LOW"), "{mode}");
    }
    assert_eq!(mail.program(), &Program::Command(vec!["/usr/sbin/imapd".to_owned(), "-n".to_owned()]));
    let network = &site.networks()[0];
    assert_eq!((network.interface().as_str(), network.labels()), ("ship0", &Range::single(high.clone())));
    assert_eq!(network.domain(), None);
    assert_eq!(network.hosts()[0].address.to_string(), "192.168.7.9");
    assert_eq!(network.services()[0].as_str(), "web");
}

#[test]
fn a_hosts_ppk_is_mandatory_unless_the_site_says_otherwise() {
    let ppk = |text: &str| {
        let text = SOUND.replacen("[[service]]", &format!("{text}\n[[service]]"), 1);
        let site = Site::parse(&text).unwrap();
        let host = site.host(&"ws1".parse().unwrap()).unwrap();
        host.ppk().map(|ppk| (ppk.id().to_string(), ppk.is_mandatory()))
    };
    assert_eq!(ppk(""), None);
    assert_eq!(ppk("ppk = { id = \"ws1-2026\" }"), Some(("ws1-2026".into(), true)));
    assert_eq!(ppk("ppk = { id = \"k\", mandatory = false }"), Some(("k".into(), false)));
    assert_eq!(ppk("ppk = { id = \"k\", mandatory = true }"), Some(("k".into(), true)));
}

#[test]
fn each_fault_is_told_at_its_line_and_column_with_its_remedy() {
    let mut wrong = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        assert!(SOUND.contains(case.from), "case {number}: {:?} is not in the sound site", case.from);
        let text = SOUND.replacen(case.from, case.to, 1);
        let found = problems(&text);
        let place = place(&text, case.at);
        let told = found.iter().any(|problem| {
            let kind = serde_json::to_value(problem.kind).unwrap();
            (problem.line, problem.column) == place
                && kind == case.kind
                && problem.nearest.as_deref() == case.nearest
                && problem.what.contains(case.what)
                && problem.remedy.contains(case.remedy)
        });
        if !told {
            wrong.push(format!(
                "case {number}, {:?}: wanted {} at {place:?} near {:?}, found {found:#?}",
                case.to, case.kind, case.nearest
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

#[test]
fn every_problem_is_told_at_once_in_the_order_of_the_file() {
    // Faults that do not hide one another, all in one file.
    let changes = [
        ("\"harbour\"", "\"Harbour\""),
        ("\"192.0.2.1\"", "\"nowhere\""),
        ("slots = 64", "slots = 0"),
        ("\"512M\"", "\"lots\""),
        ("\"LOW..HIGH//NATO,MED\"\n[[user]]", "\"LOW..HIHG\"\n[[user]]"),
        ("port = 143", "prot = 143"),
        ("label = \"HIGH//NATO\"", "label = \"TOP\""),
    ];
    let text = changes.iter().fold(SOUND.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
    let found = problems(&text);
    let lines: Vec<usize> = found.iter().map(|problem| problem.line).collect();
    assert!(lines.is_sorted(), "{lines:?}");
    for (_, to) in changes {
        let line = place(&text, to).0;
        assert!(lines.contains(&line), "nothing is told of line {line}, {to:?}: {found:#?}");
    }
}

#[test]
fn an_empty_list_means_none() {
    let text = SOUND.replacen("services = [\"web\"]", "services = []", 1).replacen(
        "hosts = [{ address = \"192.168.7.9\", port = 80, protocol = \"tcp\" }]",
        "hosts = []",
        1,
    );
    let site = Site::parse(&text).unwrap();
    assert!(site.networks()[0].services().is_empty());
    let label = site.networks()[0].labels().low();
    assert!(site.reachable(label).iter().all(|reach| reach.address.to_string() == "10.80.0.1"));
}

#[test]
fn a_label_that_somebody_could_have_must_have_a_name_that_fits() {
    let long: Vec<String> = (0..10).map(|n| format!("\"CATEGORY-WITH-A-VERY-LONG-NAME{n}\"")).collect();
    let names = long.join(", ").replace('"', "");
    let text = SOUND.replacen("\"MED\"]", &format!("\"MED\", {}]", long.join(", ")), 1).replacen(
        "clearance = \"LOW\"",
        &format!("clearance = \"LOW..LOW//{}\"", names.replace(", ", ",")),
        1,
    );
    let found = problems(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].what.contains("where 255 can be"), "{found:#?}");
}

const FEDERATION: &str = r#"
[federation]
etcd = ["192.0.2.9:2379"]
etcd-name = "etcd.example"
lease = "5s"
[[federation.peer]]
name = "two.example"
address = "192.0.2.2"
inner-address = "10.80.0.2"
inner-pool = "10.80.2.0/24"
"#;

#[test]
fn a_site_may_have_several_servers() {
    let site = Site::parse(&format!("{SOUND}{FEDERATION}")).unwrap();
    let federation = site.federation().unwrap();
    assert_eq!(federation.lease(), Duration::from_secs(5));
    assert_eq!(federation.etcd()[0].to_string(), "192.0.2.9:2379");
    let [peer] = federation.peers() else { panic!("{federation:?}") };
    assert_eq!(peer.tunnel().to_string(), "192.0.2.2:4500");
    let pools: Vec<String> = site.session_pools().iter().map(ToString::to_string).collect();
    assert_eq!(pools, ["10.80.1.0/24", "10.80.2.0/24"]);
    assert!(Site::parse(SOUND).unwrap().federation().is_none());
}

#[test]
fn what_is_wrong_with_several_servers_is_told() {
    for (from, to, what) in [
        ("\"192.0.2.9:2379\"", "\"192.0.2.9\"", "`192.0.2.9` is not a valid etcd"),
        ("[\"192.0.2.9:2379\"]", "[]", "`etcd` has 0 members"),
        ("lease = \"5s\"", "lease = \"2s\"", "`lease` is 2s"),
        ("lease = \"5s\"", "lease = \"5500ms\"", "`5500ms` is not a valid lease"),
        ("etcd-name = \"etcd.example\"\n", "", "[federation] has no `etcd-name`"),
        ("\"two.example\"", "\"server.example\"", "a second name of the server or another `server.example`"),
        ("\"192.0.2.2\"", "\"10.80.1.9\"", "another server's address 10.80.1.9/32 overlaps the inner pool"),
        ("10.80.2.0/24", "10.80.1.0/25", "another server's inner pool 10.80.1.0/25 overlaps the inner pool"),
        (
            "\"10.80.0.2\"",
            "\"10.80.2.2\"",
            "another server's inner pool 10.80.2.0/24 overlaps another server's inner",
        ),
        ("[[federation.peer]]", "[[federation.pear]]", "unknown key `pear`"),
        ("\n[federation]", "\n[vault]\nagree = [\"LOW\"]\n[federation]", "has redundant stacks"),
        ("\n[f", "\n[[posture]]\nname='a'\nagree=true\n[f", "redundant stacks, which keep no lease"),
        ("\n[f", "\n[[posture]]\nname='a'\nconstant-rate=true\nfollow='9s'\n[f", "from one of them"),
        ("\n[f", "\n[[posture]]\nname='a'\nconstant-rate=true\n[vault]\naggfrag=['LOW']\n[f", "or a posture"),
        (
            "\n[f",
            "\n[[posture]]\nname='a'\nconstant-rate=true\n[[posture]]\nname='b'\naggfrag=true\n[f",
            "or a posture",
        ),
    ] {
        let text = format!("{SOUND}{FEDERATION}");
        assert!(text.contains(from), "{from}");
        let found = problems(&text.replacen(from, to, 1));
        assert!(found.iter().any(|problem| problem.what.contains(what)), "{from} -> {to}: {found:#?}");
    }
}

#[test]
fn postures_have_one_digest_where_they_say_the_same_and_another_where_a_word_differs() {
    let posture = "\n[[posture]]\nname = \"siege\"\nciphers = [\"aes-256-gcm\"]\n";
    let digest = |more: &str| Site::parse(&format!("{SOUND}{more}{FEDERATION}")).unwrap().postures_digest();
    // What else the file says is nothing to them, nor how it is written.
    let same = Site::parse(&format!("# a comment\n{SOUND}{}", posture.replace(" = ", "="))).unwrap();
    assert_eq!(same.postures_digest(), digest(posture));
    let others =
        ["", "key-life = \"5m\"\n", "follow = \"4s\"\n", "people = []\n", "hosts = []\n", "services = []\n"];
    let mut all: Vec<_> = others.iter().map(|more| digest(&format!("{posture}{more}"))).collect();
    all.extend([
        digest(""),
        digest(&posture.replace("siege", "alert")),
        digest(&posture.replace("256", "128")),
    ]);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), others.len() + 3);
}

#[test]
fn problems_pass_through_json() {
    let found = problems("levls = 1\n");
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Problem>>(&text).unwrap(), found);
    assert!(text.contains("\"kind\":\"unknown-key\",\"what\":\"unknown key `levls`"), "{text}");
}

#[test]
fn no_cut_of_a_site_file_makes_the_reader_panic_or_passes_for_sound_where_it_lacks_something() {
    let needed = SOUND.find("[[user]]").unwrap();
    for at in 0..SOUND.len() {
        if Site::parse(&SOUND[..at]).is_ok() {
            assert!(
                at > SOUND.find("inner-pool").unwrap(),
                "sound after {at} bytes of which {needed} are needed"
            );
        }
    }
}

mod garbage {
    use super::SOUND;
    use levee_policy::Site;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,300}") {
            let _ = Site::parse(&text);
        }

        #[test]
        fn no_change_of_a_site_file_makes_the_reader_panic(at in 0..SOUND.len(), with in ".{0,6}", gone in 0usize..12) {
            let end = (at + gone).min(SOUND.len());
            if SOUND.is_char_boundary(at) && SOUND.is_char_boundary(end) {
                let text = format!("{}{with}{}", &SOUND[..at], &SOUND[end..]);
                if let Err(problems) = Site::parse(&text) {
                    let lines = text.lines().count().max(1) + 1;
                    prop_assert!(problems.iter().all(|p| p.line >= 1 && p.line <= lines && p.column >= 1 && p.length >= 1));
                    prop_assert!(problems.iter().all(|p| !p.what.is_empty() && !p.remedy.is_empty()));
                }
            }
        }
    }
}

#[test]
fn a_label_has_one_worker_unless_the_site_says_more_and_no_more_than_there_are_slots() {
    let workers = |text: &str, label: &str| {
        let site = Site::parse(text).unwrap();
        let label = site.label(&label.parse().unwrap()).unwrap();
        site.slots_at(&label)
    };
    assert_eq!(workers(SOUND, "HIGH"), 1);
    let text = SOUND.replace("[limits]", "[vault]\nworkers = 4\n[limits]");
    assert_eq!(workers(&text, "HIGH"), 4);
    // Where two stacks must agree there is one gate.
    let agreeing = text.replace("workers = 4", "workers = 4\nagree = [\"HIGH\"]");
    assert_eq!((workers(&agreeing, "HIGH"), workers(&agreeing, "MID")), (1, 4));
    let problems = Site::parse(&text.replace("slots = 64", "slots = 3")).unwrap_err();
    assert!(problems.iter().any(|problem| problem.to_string().contains("`workers` is 4")), "{problems:?}");
}

#[test]
fn a_vaults_library_and_poll_become_its_arguments_and_by_default_there_are_none() {
    let kind = |site: &Site| site.vault_under(&site.vocabulary().parse("HIGH").unwrap(), None);
    assert!(kind(&Site::parse(SOUND).unwrap()).arguments().is_empty());
    let text = SOUND.replace("[limits]", "[vault]\naead = \"aws-lc\"\npoll = \"20us\"\n[limits]");
    let site = Site::parse(&text).unwrap();
    let vault = site.vault();
    assert_eq!(vault.aead(), AeadLibrary::AwsLc);
    assert_eq!(kind(&site).arguments(), ["--aead", "aws-lc", "--poll", "20"]);
}

#[test]
fn a_mediated_services_records_are_on_the_disk_before_its_connections_unless_the_site_says_written() {
    use levee_policy::site::Recorded;
    let with = |mode: &str, more: &str| {
        let service = format!(
            "[[service]]\nname = \"audited\"\nport = 99\nprotocol = \"tcp\"\nrange = \"HIGH\"\nmode = \"{mode}\"\n{more}\n\
             command = [\"/bin/true\"]\n"
        );
        Site::parse(&format!("{SOUND}\n{service}"))
    };
    let recorded = |mode: &str, more: &str| {
        let site = with(mode, more).unwrap();
        site.service(&"audited".parse().unwrap()).unwrap().recorded()
    };
    assert_eq!(recorded("relay", ""), Recorded::Synced);
    assert_eq!(recorded("handoff", "audit = \"synced\""), Recorded::Synced);
    assert_eq!(recorded("relay", "audit = \"written\""), Recorded::Written);
    for (mode, more, expected) in [
        ("relay", "audit = \"later\"", "later"),
        ("direct", "audit = \"written\"", "by `direct` none is"),
        ("itself", "audit = \"synced\"", "by `itself` none is"),
    ] {
        let problems = with(mode, more).unwrap_err();
        assert!(problems.iter().any(|problem| problem.to_string().contains(expected)), "{problems:?}");
    }
}

#[test]
fn the_curve_of_keys_is_p256_unless_the_site_says_p384() {
    let curve = |text: &str| Site::parse(text).unwrap().crypto().keys();
    assert_eq!(curve(SOUND), Curve::P256);
    for (name, expected) in [("P-256", Curve::P256), ("P-384", Curve::P384)] {
        let text = SOUND.replace("[limits]", &format!("[crypto]\nkeys = \"{name}\"\n[limits]"));
        assert_eq!((curve(&text), expected.as_str()), (expected, name));
    }
}

#[test]
fn suites_are_the_default_ones_unless_the_site_says_otherwise_and_those_of_cnsa_need_keys_on_p384() {
    let crypto = |lines: &str| {
        let text = SOUND.replace("[limits]", &format!("[crypto]\n{lines}\n[limits]"));
        let site = Site::parse(&text).unwrap();
        (site.crypto().suites(), site.crypto().keys())
    };
    assert_eq!(crypto(""), (Suites::Default, Curve::P256));
    for suites in [Suites::Default, Suites::Cnsa, Suites::CnsaMlKem] {
        let keys = if suites == Suites::Default { Curve::P256 } else { Curve::P384 };
        assert_eq!(crypto(&format!("suites = \"{suites}\"")), (suites, keys));
        assert_eq!(crypto(&format!("suites = \"{suites}\"\nkeys = \"P-384\"")), (suites, Curve::P384));
        // As its programs are told.
        assert_eq!(suites.as_str().parse(), Ok(suites));
        assert_eq!(suites.arguments().last().map_or(Ok(Suites::Default), |word| word.parse()), Ok(suites));
    }
    assert!("CNSA".parse::<Suites>().is_err());
}

#[test]
fn labels_with_a_kernel_of_their_own_are_named_by_ranges_and_have_no_mediator_and_no_network() {
    let with = |lines: &str| SOUND.replace("[limits]", &format!("[isolation]\n{lines}\n[limits]"));
    let site = Site::parse(&with("own-kernel = [\"MID..MID//NATO\"]")).unwrap();
    let label = |text: &str| site.vocabulary().parse(text).unwrap();
    let has = |text: &str| site.isolation().has_own_kernel(&label(text));
    assert!(has("MID") && has("MID//NATO") && !has("LOW") && !has("MID//MED"));
    assert_eq!(site.isolation().kernel_root(), std::path::Path::new("/"));
    // The network ship0 is at HIGH//NATO; the service mail is at MID//MED.
    let problems = Site::parse(&with("own-kernel = [\"HIGH//NATO\"]")).unwrap_err();
    assert!(problems[0].what.contains("ship0"), "{problems:?}");
    let mediated = with("own-kernel = [\"MID//MED\"]")
        .replace("mode = \"direct\"\ncommand", "mode = \"relay\"\ncommand");
    let problems = Site::parse(&mediated).unwrap_err();
    assert!(problems[0].what.contains("`mail` is mediated"), "{problems:?}");
    for (bad, kind) in [
        ("own-kernel = [\"MDI\"]", ProblemKind::UnknownName),
        ("assurance = \"hihg\"", ProblemKind::UnknownName),
        ("processor = \"amd\"", ProblemKind::UnknownName),
        ("kernel-root = \"boot\"", ProblemKind::BadValue),
        ("kernel = \"own\"", ProblemKind::UnknownKey),
    ] {
        assert_eq!(Site::parse(&with(bad)).unwrap_err()[0].kind, kind, "{bad}");
    }
}

#[test]
fn a_label_has_the_selinux_level_of_its_place_or_of_the_domain_that_the_site_names() {
    let with = |lines: &str| SOUND.replace("[limits]", &format!("[isolation]\n{lines}\n[limits]"));
    let level = |site: &Site, text: &str| site.selinux_level(&site.vocabulary().parse(text).unwrap());
    let site = Site::parse(&with("selinux = \"required\"")).unwrap();
    assert_eq!(site.isolation().selinux(), Selinux::Required);
    assert_eq!(Site::parse(SOUND).unwrap().isolation().selinux(), Selinux::Auto);
    assert_eq!(level(&site, "LOW").unwrap(), "s0");
    assert_eq!(level(&site, "MID//NATO").unwrap(), "s1:c0");

    let domain = "\n[[domain]]\ndoi = 16\nlevels = { LOW = 3, MID = 7 }\ncategories = { NATO = 12 }\n";
    let named = format!("{}{domain}", with("selinux-domain = 16"));
    let site = Site::parse(&named).unwrap();
    assert_eq!(level(&site, "MID//NATO").unwrap(), "s7:c12");
    let why = level(&site, "HIGH").unwrap_err();
    assert!(why.contains("would be lost"), "{why}");

    for (bad, kind) in [
        ("selinux = \"on\"", ProblemKind::UnknownName),
        ("selinux-domain = 0", ProblemKind::OutOfBounds),
        ("selinux-domain = 17", ProblemKind::UnknownName),
    ] {
        let problems = Site::parse(&format!("{}{domain}", with(bad))).unwrap_err();
        assert_eq!(problems[0].kind, kind, "{bad}: {problems:?}");
    }
}

#[test]
fn a_site_that_wants_high_assurance_is_told_the_widest_labels_that_share_a_kernel() {
    let widest = |lines: &str| {
        let site =
            Site::parse(&SOUND.replace("[limits]", &format!("[isolation]\n{lines}\n[limits]"))).unwrap();
        let name = |label: &_| site.label_name(label).unwrap().to_string();
        site.widest_with_one_kernel().map(|(low, high)| (name(&low), name(&high)))
    };
    assert_eq!(widest("assurance = \"normal\""), None);
    let (low, high) = widest("assurance = \"high\"").unwrap();
    assert_eq!(low, "LOW");
    assert!(high.starts_with("HIGH"), "{high}");
    // Of labels none of which dominates another none tells another anything, and a label itself nothing.
    for (web, mail) in [("HIGH", "HIGH"), ("MID//NATO", "MID//MED"), ("HIGH//NATO", "MID//MED")] {
        let text = SOUND
            .replace("[limits]", "[isolation]\nassurance = \"high\"\n[limits]")
            .replace("LOW..HIGH//NATO\"\nmode", &format!("{web}\"\nmode"))
            .replace("MID..HIGH//MED\"\nmode", &format!("{mail}\"\nmode"))
            .replace("services = [\"web\"]", "services = []");
        assert_eq!(Site::parse(&text).unwrap().widest_with_one_kernel(), None, "{web} {mail}");
    }
}

#[test]
fn labels_whose_stacks_must_agree_are_named_by_ranges_and_by_default_there_are_none() {
    let agree = |text: &str| SOUND.replace("[limits]", &format!("[vault]\nagree = {text}\n[limits]"));
    let site = Site::parse(&agree("[\"HIGH..HIGH//NATO\"]")).unwrap();
    let label = |text: &str| site.vocabulary().parse(text).unwrap();
    assert!(site.vault().agrees(&label("HIGH")) && site.vault().agrees(&label("HIGH//NATO")));
    assert!(!site.vault().agrees(&label("MID")) && !site.vault().agrees(&label("HIGH//MED")));
    assert!(!Site::parse(SOUND).unwrap().vault().agrees(&label("HIGH")));
    let problems = Site::parse(&agree("[\"HIHG\"]")).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].kind, ProblemKind::UnknownName, "{problems:?}");
    assert_eq!(Site::parse(&agree("true")).unwrap_err()[0].kind, ProblemKind::WrongType);
}

#[test]
fn labels_whose_packets_go_in_aggfrag_payloads_have_a_larger_inner_mtu_and_stacks_that_need_not_agree() {
    let with = |lines: &str| SOUND.replace("[limits]", &format!("[vault]\n{lines}\n[limits]"));
    let mtu = |lines: &str, label: &str| {
        let site = Site::parse(&with(lines)).unwrap();
        let label = site.vocabulary().parse(label).unwrap();
        (site.vault().aggregates(&label), site.vault().inner_mtu(&label))
    };
    assert_eq!(mtu("", "HIGH"), (false, 1_400));
    assert_eq!(mtu("aggfrag = [\"HIGH\"]", "HIGH"), (true, 9_000));
    assert_eq!(mtu("aggfrag = [\"HIGH\"]\naggfrag-mtu = 32000", "HIGH"), (true, 32_000));
    assert_eq!(mtu("aggfrag = [\"HIGH\"]\naggfrag-mtu = 32000", "MID"), (false, 1_400));
    assert_eq!(Site::parse(&with("aggfrag-mtu = 1399")).unwrap_err()[0].kind, ProblemKind::OutOfBounds);
    let both = Site::parse(&with("aggfrag = [\"LOW..HIGH\"]\nagree = [\"HIGH\"]")).unwrap_err();
    assert_eq!((both.len(), both[0].kind), (1, ProblemKind::Overlap), "{both:?}");
}

#[test]
fn a_constant_rate_is_named_by_ranges_goes_in_aggfrag_payloads_and_has_one_worker() {
    let with = |lines: &str| SOUND.replace("[limits]", &format!("[vault]\n{lines}\n[limits]"));
    let at = |lines: &str, label: &str| {
        let site = Site::parse(&with(lines)).unwrap();
        let label = site.vocabulary().parse(label).unwrap();
        let vault = site.vault();
        (vault.constant_interval(&label), vault.aggregates(&label), site.slots_at(&label))
    };
    let rate = "workers = 3\nconstant-rate = [\"HIGH\"]";
    assert_eq!(at("workers = 3", "HIGH"), (None, false, 3));
    assert_eq!(at(rate, "MID"), (None, false, 3));
    assert_eq!(at(rate, "HIGH"), (Some(Duration::from_millis(4)), true, 1));
    let faster = format!("{rate}\nconstant-rate-packets = 1000");
    assert_eq!(at(&faster, "HIGH"), (Some(Duration::from_millis(1)), true, 1));
    for out in ["0", "20001", "-1"] {
        let problems = Site::parse(&with(&format!("constant-rate-packets = {out}"))).unwrap_err();
        assert_eq!(problems[0].kind, ProblemKind::OutOfBounds, "{out}");
    }
    let both = Site::parse(&with("constant-rate = [\"LOW..HIGH\"]\nagree = [\"HIGH\"]")).unwrap_err();
    assert_eq!((both.len(), both[0].kind), (1, ProblemKind::Overlap), "{both:?}");
}

#[test]
fn a_network_whose_packets_carry_labels_has_a_domain_that_says_them_all() {
    let domain = "[[domain]]\ndoi = 16\nlevels = { LOW = 1, MID = 2, HIGH = 5 }\ncategories = { NATO = 3 }\n";
    let with = |labels: &str| format!("{}{domain}", SOUND.replacen("label = \"HIGH//NATO\"", labels, 1));
    let site = Site::parse(&with("labels = \"LOW..HIGH//NATO\"\ndomain = 16")).unwrap();
    let network = &site.networks()[0];
    assert_eq!(network.domain(), Some(16));
    for label in network.labels().labels(64).unwrap() {
        assert_eq!(site.networks_at(&label).count(), 1);
    }
    for (labels, told) in [
        ("labels = \"LOW..HIGH//NATO\"", "domain"),
        ("label = \"HIGH\"\ndomain = 16", "has no domain"),
        ("label = \"HIGH\"\nlabels = \"LOW..HIGH\"\ndomain = 16", "both `label` and `labels`"),
        ("labels = \"LOW..HIGH\"\ndomain = 17", "no domain 17"),
        ("labels = \"LOW..HIGH//MED\"\ndomain = 16", "has no option in domain 16"),
        ("labels = \"LOW..HIGH\"\ndomain = 0", "domain"),
        ("label = \"HIGH\"\nneighbours = 0", "neighbours"),
        ("label = \"HIGH\"\nneighbours = 65536", "neighbours"),
    ] {
        let found = problems(&with(labels));
        assert!(found.iter().any(|problem| problem.what.contains(told)), "{labels}: {found:#?}");
    }
    let bounded = Site::parse(&with("label = \"HIGH\"\nneighbours = 65535")).unwrap();
    assert_eq!((bounded.networks()[0].neighbours(), network.neighbours()), (Some(65_535), None));
    assert_eq!((bounded.neighbours(&bounded.networks()[0]), site.neighbours(network)), (65_535, 256));
    // Of its labels each has a part, and one host at least.
    let count = u16::try_from(network.labels().labels(64).unwrap().count()).unwrap();
    assert!(count > 2);
    assert_eq!(site.neighbours_of_each(network), 256 / count);
    let few = Site::parse(&with("labels = \"LOW..HIGH//NATO\"\ndomain = 16\nneighbours = 2")).unwrap();
    assert_eq!(few.neighbours_of_each(&few.networks()[0]), 1);
    assert_eq!(bounded.neighbours_of_each(&bounded.networks()[0]), 65_535);
    let beside = with("label = \"HIGH\"")
        + "[[network]]\ninterface = \"two0\"\nlabel = \"LOW\"\naddress = \"192.168.8.1/24\"\n";
    let parts = Site::parse(&beside).unwrap();
    assert_eq!(parts.networks().iter().map(|one| parts.neighbours(one)).collect::<Vec<_>>(), [128; 2]);
    let labelled = with("labels = \"LOW..HIGH//NATO\"\ndomain = 16");
    let beside = |unlabelled: &str| {
        labelled.replacen("domain = 16\n", &format!("domain = 16\nunlabelled = [{unlabelled}]\n"), 1)
    };
    let nested = beside(
        "{ address = \"192.168.7.64/26\", label = \"LOW\" }, { address = \"192.168.7.65/32\", label = \"HIGH//NATO\" }",
    );
    let site = Site::parse(&nested).unwrap();
    let low = site.networks()[0].labels().low().clone();
    let prefix = "192.168.7.64/26".parse().unwrap();
    assert_eq!(
        (site.networks()[0].unlabelled().len(), &site.networks()[0].unlabelled()[0]),
        (2, &(prefix, low))
    );
    for (unlabelled, told) in [
        ("{ address = \"192.168.7.64/26\", label = \"HIGH//NATO,MED\" }", "not among the labels"),
        ("{ address = \"192.168.7.65/26\", label = \"LOW\" }", "bits behind its length"),
        ("{ address = \"192.168.8.64/26\", label = \"LOW\" }", "not on this network"),
        ("{ address = \"192.168.0.0/16\", label = \"LOW\" }", "not on this network"),
        ("{ address = \"fd07::/120\", label = \"LOW\" }", "not on this network"),
        (
            "{ address = \"192.168.7.64/26\", label = \"LOW\" }, { address = \"192.168.7.64/26\", label = \"MID\" }",
            "stands twice",
        ),
        ("{ address = \"192.168.7.64/26\" }", "label"),
        ("{ address = \"192.168.7.64\", label = \"LOW\" }", "not a valid address"),
    ] {
        let found = problems(&beside(unlabelled));
        assert!(found.iter().any(|problem| problem.what.contains(told)), "{unlabelled}: {found:#?}");
    }
    let single = with("label = \"HIGH\"\nunlabelled = [{ address = \"192.168.7.64/26\", label = \"LOW\" }]");
    assert!(problems(&single)[0].what.contains("no packet carries one"), "{:#?}", problems(&single));
    let six = labelled.replacen(
        "address = \"192.168.7.1/24\"",
        "address = [\"192.168.7.1/24\", \"fd07::1/64\"]",
        1,
    );
    assert!(problems(&six).iter().all(|problem| !problem.what.contains("IPv")), "{:#?}", problems(&six));
}
