//! Bounds of the site file: what is at either end is taken, and what is beyond it is refused.

use levee_policy::Site;
use levee_policy::site::{
    AeadLibrary, CheckpointPlace, Cipher, Exchange, Hours, Need, Needs, Placed, Protected, Protocol, Refusal,
    SecondFactor, VaultKind,
};
use std::time::Duration;

const SMALL: &str = include_str!("../../../conf/small/site.toml");
const PARTS: &str = "[[partition]]\nname = \"high\"\nlabel = \"SECRET\"\ncommand = [\"/x\"]\n\
                     [[partition]]\nname = \"filter\"\nlabel = \"SECRET\"\ncommand = [\"/x\"]\n\
                     [[partition]]\nname = \"low\"\nlabel = \"UNCLASSIFIED\"\ncommand = [\"/x\"]\n";
const PARTITION: &str = "[[partition]]\nname = \"p\"\nlabel = \"SECRET\"\ncommand = [\"/x\"]\n";
const UP: &str = "[[channel]]\nname = \"up\"\nkind = \"oneway\"\nfrom = \"low\"\nto = \"high\"\n";
const DOWN: &str =
    "[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"high\"\nto = \"low\"\nfilter = \"filter\"\n";
const WIRE: &str = "[[channel]]\nname = \"in\"\nkind = \"oneway\"\nto = \"high\"\nwire = { interface = \"eth7\", \
                    address = \"10.77.1.1/30\", peer = \"10.77.1.2\", label = \"SECRET\", ";
const POSTURE: &str = "[[posture]]\nname = \"siege\"\n";
const DOMAIN: &str = "[[domain]]\n";

fn read(text: &str) -> Result<Site, String> {
    Site::parse(text)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn site(more: &str) -> Result<Site, String> {
    read(&format!("{SMALL}\n{more}"))
}

/// What is before the value, what is behind it, one below the least, the least, the most, and one above that; `-` where there is none.
const BOUNDS: &[(&[&str], &str, [&str; 4])] = &[
    (&[PARTITION, "memory = "], "", ["\"15M\"", "\"16M\"", "\"1T\"", "\"1025G\""]),
    (&[PARTITION, "memory = \"1T\"\nreserved = "], "", ["\"1023K\"", "\"1M\"", "\"1T\"", "\"1025G\""]),
    (&[PARTITION, "disk = "], "", ["\"3M\"", "\"4M\"", "\"1T\"", "\"1025G\""]),
    (&[PARTITION, "processes = "], "", ["7", "8", "32768", "32769"]),
    (&[PARTITION, "cpu = "], "", ["\"0%\"", "\"1%\"", "\"102400%\"", "\"102401%\""]),
    (&[PARTITION, "weight = "], "", ["0", "1", "10000", "10001"]),
    (&[PARTS, UP, "size = "], "", ["\"0K\"", "\"1K\"", "\"64K\"", "\"65K\""]),
    (&[PARTS, UP, "rate = "], "", ["\"0K\"", "\"1K\"", "\"1G\"", "\"1025M\""]),
    (&[PARTS, DOWN, "messages = \"10 in 60s\"\nsize = "], "", ["\"0K\"", "\"1K\"", "\"32K\"", "\"33K\""]),
    (
        &[PARTS, DOWN, "messages = \"10 in 60s\"\nanswer = "],
        "",
        ["\"99ms\"", "\"100ms\"", "\"10m\"", "\"601s\""],
    ),
    (
        &[PARTS, DOWN, "messages = "],
        "",
        ["\"0 in 60s\"", "\"1 in 1s\"", "\"100000 in 24h\"", "\"100001 in 24h\""],
    ),
    (
        &[PARTS, DOWN, "messages = "],
        "",
        ["\"1 in 999ms\"", "\"1 in 1000ms\"", "\"1 in 1440m\"", "\"1 in 86401s\""],
    ),
    (
        &[PARTS, DOWN, "messages = \"1 in 1s\"\nsize = \"32K\"\noctets = "],
        "",
        ["\"31K in 1s\"", "\"32K in 1s\"", "\"9T in 24h\"", "\"9T in 25h\""],
    ),
    (&[PARTS, WIRE, "port = "], " }", ["0", "1", "65535", "65536"]),
    (&[PARTS, WIRE, "port = 1, mtu = "], " }", ["1279", "1280", "9000", "9001"]),
    (&[PARTS, WIRE, "port = 1, repair = "], " }", ["-", "\"0%\"", "\"100%\"", "\"101%\""]),
    (&["[frames]\n[[frames.slot]]\ntime = "], "", ["\"999us\"", "\"1ms\"", "\"50ms\"", "\"51ms\""]),
    (
        &["[frames]\nstop = \"1ms\"\nmargin = "],
        "\n[[frames.slot]]\ntime = \"1ms\"\n",
        ["-", "\"0us\"", "\"10ms\"", "\"10001us\""],
    ),
    (
        &["[frames]\nmargin = \"0us\"\nstop = "],
        "\n[[frames.slot]]\ntime = \"2ms\"\n",
        ["\"999us\"", "\"1ms\"", "\"249ms\"", "\"250ms\""],
    ),
    (&[POSTURE, "key-life = "], "", ["\"59s\"", "\"1m\"", "\"1h\"", "\"3601s\""]),
    (&[POSTURE, "people = []\nfollow = "], "", ["\"1999ms\"", "\"2s\"", "\"60s\"", "\"61s\""]),
    (&["[[protection]]\nname = \"strong\"\nkey-life = "], "", ["\"59s\"", "\"1m\"", "\"1h\"", "\"3601s\""]),
    (&[DOMAIN, "levels = { SECRET = 1 }\ndoi = "], "", ["0", "1", "4294967295", "4294967296"]),
    (&[DOMAIN, "doi = 1\nlevels = { SECRET = "], " }", ["-1", "0", "255", "256"]),
    (&[DOMAIN, "doi = 1\nlevels = { SECRET = 0 }\ncategories = { MED = "], " }", ["-1", "0", "1023", "1024"]),
];

#[test]
fn the_ends_of_each_bound_are_taken_and_what_is_beyond_them_is_not() {
    for (before, behind, [below, least, most, above]) in BOUNDS {
        let with = |value: &str| site(&format!("{}{value}{behind}\n", before.concat()));
        let what = before.concat();
        for taken in [least, most] {
            with(taken).unwrap_or_else(|why| panic!("{what}{taken}: {why}"));
        }
        for refused in [below, above].into_iter().filter(|end| **end != "-") {
            assert!(with(refused).is_err(), "{what}{refused} is taken");
        }
    }
}

/// So many of something are taken, and one more or fewer is not: what is told of it, the least, the most.
#[test]
fn the_ends_of_how_many_there_may_be_are_taken_and_one_more_is_not() {
    let list = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(", ");
    let federation = |members: usize, peers: usize| {
        let members = list(members, &|n| format!("\"192.0.2.{n}:2379\""));
        let peer = |n: usize| {
            format!(
                "[[federation.peer]]\nname = \"s{n}.example\"\naddress = \"192.0.3.{n}\"\ninner-address = \"10.81.0.{n}\"\n\
                 inner-pool = \"10.82.{n}.0/24\"\n"
            )
        };
        let peers: String = (0..peers).map(peer).collect();
        format!("[federation]\netcd = [{members}]\netcd-name = \"etcd.example\"\n{peers}")
    };
    let postures = |count: usize| {
        (0..count).map(|n| format!("[[posture]]\nname = \"p{n}\"\npeople = []\n")).collect::<String>()
    };
    let protections = |count: usize| {
        (0..count)
            .map(|n| format!("[[protection]]\nname = \"p{n}\"\nkey-life = \"5m\"\n"))
            .collect::<String>()
    };
    let people = |count: usize| {
        let users: String = (0..count)
            .map(|n| format!("[[user]]\nname = \"u{n}\"\nclearance = \"UNCLASSIFIED..SECRET\"\n"))
            .collect();
        let host = "[[host]]\nname = \"ws9\"\naccreditation = \"SECRET\"\n";
        let names = list(count, &|n| format!("\"u{n}\""));
        format!("{users}{host}{PARTS}{DOWN}messages = \"10 in 60s\"\nrelease = [{names}]\n")
    };
    let schema =
        |octets: usize| format!("{PARTS}{DOWN}messages = \"10 in 60s\"\nschema = '{}'\n", " ".repeat(octets));
    for (what, least, most, of) in [
        ("`etcd` has", 1, 9, &(|count| federation(count, 1)) as &dyn Fn(usize) -> String),
        ("other servers", 1, 64, &|count| federation(1, count)),
        ("there are more than 16 postures", 0, 16, &postures),
        ("there are more than 16 protections", 0, 16, &protections),
        ("of the site's people release", 2, 64, &people),
        ("the schema has", 0, 16 << 10, &schema),
    ] {
        for count in [least, most] {
            site(&of(count)).unwrap_or_else(|why| panic!("{count}: {what}: {why}"));
        }
        for count in [least.checked_sub(1), Some(most + 1)].into_iter().flatten() {
            let why = site(&of(count)).err().unwrap_or_else(|| panic!("{count} is taken: {what}"));
            assert!(why.contains(what) && why.lines().count() == 1, "{count}: {what}: {why}");
        }
    }
}

#[test]
fn a_file_of_4_mib_is_read_and_a_larger_one_is_told_of_as_that() {
    let filled = |octets: usize| format!("{SMALL}#{}\n", "x".repeat(octets - SMALL.len() - 2));
    read(&filled(4 << 20)).unwrap();
    let why = read(&filled((4 << 20) + 1)).unwrap_err();
    assert!(why.contains("the file has 4194305 bytes") && why.lines().count() == 1, "{why}");
}

#[test]
fn checkpoints_go_to_the_syslog_and_to_absolute_paths_of_files() {
    let with = |places: &[&str]| {
        let list: Vec<_> = places.iter().map(|place| format!("\"{place}\"")).collect();
        read(&SMALL.replace("checkpoints = []", &format!("checkpoints = [{}]", list.join(", "))))
    };
    let long = format!("/{}", "p".repeat(1_023));
    let four = ["syslog", "/mnt/a", "/mnt/b", &long];
    let site = with(&four).unwrap();
    assert_eq!(site.audit().checkpoints()[0], CheckpointPlace::Syslog);
    let files: Vec<_> = four[1..].iter().map(|path| CheckpointPlace::File(path.into())).collect();
    assert_eq!(&site.audit().checkpoints()[1..], files);
    let why = with(&["/a", "/b", "/c", "/d", "/e"]).unwrap_err();
    assert!(why.contains("`checkpoints` has 5 places"), "{why}");
    for wrong in ["a", "", "./a", "/a/", "/", "/a\\u0007", &format!("{long}p")] {
        let why = with(&[wrong]).expect_err(wrong);
        assert!(why.contains("is no place for checkpoints"), "{wrong}: {why}");
    }
}

#[test]
fn software_is_a_packages_name_or_a_path_beneath_usr() {
    let with = |word: &str| site(&format!("{PARTITION}software = [\"{word}\"]\n"));
    for sound in ["g++", "0ad", "ab", "libc6.1-x", "/usr/share/x", "/usr/a..b/x"] {
        assert_eq!(with(sound).unwrap().partitions()[0].software(), [sound]);
    }
    for wrong in [
        "a",
        "",
        "+a",
        "-ab",
        "Ab",
        "a_b",
        "ab/c",
        "/usr",
        "/etc/x",
        "/usr/../etc",
        "/usr/x/..",
        "/usr/x\\u0000y",
    ] {
        let why = with(wrong).expect_err(wrong);
        assert!(why.contains("neither a package's name nor a path"), "{wrong}: {why}");
    }
}

#[test]
fn processors_have_numbers_to_8191() {
    let with =
        |numbers: &str| site(&format!("[[processors]]\nnumbers = \"{numbers}\"\nlabels = [\"SECRET\"]\n"));
    let numbers: Vec<u16> = with("0,8190-8191").unwrap().processors()[0].numbers().iter().copied().collect();
    assert_eq!(numbers, [0, 8_190, 8_191]);
    for wrong in ["8192", "8190-8192", "-1", "1-", "1,,2"] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_time_of_day_is_of_24_hours_and_60_minutes() {
    let hours = |text: &str| {
        let site = site(&format!("{PARTS}{DOWN}messages = \"10 in 60s\"\nhours = \"{text}\"\n"))?;
        let hours = site.channels()[0].guard().and_then(|guard| guard.hours()).unwrap();
        Ok::<_, String>((hours.from, hours.until))
    };
    assert_eq!(hours("00:00-23:59"), Ok((0, 1_439)));
    assert_eq!(hours("23:59-00:00"), Ok((1_439, 0)));
    for wrong in [
        "00:00-24:00",
        "00:60-01:00",
        "00:00-00:60",
        "00:00-00:00",
        "0:00-01:00",
        "00:00-01:000",
        "-1:00-01:00",
    ] {
        assert!(hours(wrong).unwrap_err().contains("is no time of day"), "{wrong}");
    }
    // It begins with its first minute and ends before its last, over midnight or not. A day that ends where it begins, as no file says, has none.
    for (from, until, within) in
        [(60, 120, [false, true, true, false]), (120, 60, [true, false, false, true]), (60, 60, [false; 4])]
    {
        let hours = Hours { from, until };
        assert_eq!([59, 60, 119, 120].map(|minute| hours.contains(minute)), within, "{hours}");
    }
}

#[test]
fn a_site_says_what_its_file_says() {
    let more = "[[user]]\nname = \"eve\"\nclearance = \"SECRET\"\nsecond-factor = \"totp\"\n\
                [[posture]]\nname = \"calm\"\nservices = [\"web\"]\naead = \"ring\"\npoll = \"2ms\"\nkey-life = \"7m\"\nconstant-rate = true\nfollow = \"4s\"\n\
                [[posture]]\nname = \"late\"\nkey-life = \"1h\"\nagree = true\n\
                [[network]]\ninterface = \"eth5\"\nlabel = \"SECRET\"\naddress = [\"192.168.5.1/24\", \"fd05::1/64\"]\n\
                [[domain]]\ndoi = 7\nlevels = { SECRET = 1 }\n\
                [[service]]\nname = \"base\"\nport = 99\nprotocol = \"udp\"\nrange = \"SECRET\"\nmode = \"direct\"\ncommand = [\"/x\"]\n\
                needs = [\"locks\"]\nsoftware = [\"socat\"]\n\
                [[service]]\nname = \"more\"\nport = 98\nprotocol = \"tcp\"\nrange = \"CONFIDENTIAL..SECRET\"\nmode = \"direct\"\n\
                command = [\"/x\"]\nneeds = [\"proc\"]\n";
    let text = SMALL
        .replace("addresses = [\"10.77.0.1\"]", "addresses = [\"10.77.0.1\", \"10.78.0.1\"]\nlayer-port = 4444\nlongest-session = \"9h\"\nidle-lock = \"5m\"")
        .replace("processor = \"emulated\"", "processor = \"kvm\"");
    let site = read(&format!("{text}\n{more}")).unwrap();
    let server = site.server();
    assert_eq!(
        server.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.77.0.1", "10.78.0.1"]
    );
    assert_eq!(server.inner_addresses().iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.80.0.1"]);
    assert_eq!((server.layer_port(), server.idle_lock()), (4_444, Some(Duration::from_secs(300))));
    assert_eq!(server.longest_session(), Some(Duration::from_secs(9 * 3_600)));
    assert_eq!(site.isolation().processor(), levee_policy::site::Processor::Kvm);
    let words = |all: &[ipnet::IpNet]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(words(site.networks()[0].addresses()), ["192.168.5.1/24", "fd05::1/64"]);
    assert_eq!(site.domains().iter().map(|domain| domain.doi()).collect::<Vec<_>>(), [7]);
    // A code is asked for where somebody has one.
    let factor = |name: &str| site.user(&name.parse().unwrap()).unwrap().second_factor();
    assert_eq!((factor("eve"), factor("ada")), (Some(SecondFactor::Totp), None));
    let small = read(SMALL).unwrap();
    assert!(site.asks_codes() && !small.asks_codes());
    assert!(
        read(&format!("{text}\n{}", more.replace("totp", "hotp")))
            .unwrap_err()
            .contains("did you mean `totp`")
    );
    // What a posture says, and what counts where it does.
    let [calm, late] = site.postures() else { panic!("two postures") };
    let low = site.vocabulary().parse("UNCLASSIFIED").unwrap();
    assert!(
        !late.is_constant()
            && site.protected_under(&low, &Protected::default(), Some(late)).interval.is_none()
    );
    let (web, base) = ("web".parse().unwrap(), "base".parse().unwrap());
    assert!(calm.offers(&web) && !calm.offers(&base) && calm.is_constant());
    assert_eq!((calm.key_life(), calm.follow()), (Some(Duration::from_secs(420)), Duration::from_secs(4)));
    let asked = site.protected_under(&low, &Protected::default(), Some(calm));
    assert_eq!((asked.interval, asked.key_life), (Some(Duration::from_millis(4)), None));
    assert_eq!(
        site.protected_under(&low, &asked, None).interval,
        Some(Duration::from_millis(4)),
        "what was asked for stays"
    );
    let secret = site.vocabulary().parse("SECRET").unwrap();
    let kind = |posture| site.vault_under(&secret, posture);
    let (aead, poll) = (AeadLibrary::Ring, Duration::from_millis(2));
    assert_eq!(
        (kind(Some(late)), kind(Some(calm))),
        (VaultKind::Agreeing, VaultKind::One { aead, poll, workers: 1 })
    );
    // As long as nobody has said what is in force, stacks that may have to agree do.
    let said = |in_force: Option<&[Placed]>| site.vault_in_force(&secret, in_force);
    assert_eq!((said(None), said(Some(&[]))), (VaultKind::Agreeing, kind(None)));
    let late_then_calm = ["late", "calm"].map(|name| Placed::everywhere(name.parse().unwrap()));
    assert_eq!(said(Some(&late_then_calm)), kind(Some(calm)));
    let VaultKind::One { aead, poll, workers } = kind(None) else { panic!("one") };
    assert_eq!((aead, poll, workers), (site.vault().aead(), Duration::ZERO, 1));
    assert_eq!(site.ciphers_under(site.posture_at(&secret, [].iter())), Cipher::all());
    assert_eq!(Cipher::all().len(), 3);
    // A label's services ask for what each does.
    let needs = site.needs_at(&secret);
    assert_eq!(needs.iter().collect::<Vec<_>>(), [Need::Locks, Need::Proc]);
    assert!(needs.has(Need::Proc) && !needs.has(Need::Netlink));
    assert!(Need::ALL.into_iter().all(|need| Needs::all().has(need)));
    let service = |name: &str| site.service(&name.parse().unwrap()).unwrap();
    assert!(service("web").uploads() && !service("base").uploads());
    assert_eq!(service("base").software(), ["socat"]);
    assert_eq!((Protocol::Tcp.number(), Protocol::Udp.number()), (6, 17), "IANA's numbers of protocols");
    // Of a host that it does not know a site says that nothing passes but within a second tunnel.
    assert!(site.is_layered(&"nobody".parse().unwrap()) && !site.is_layered(&"ws1".parse().unwrap()));
}

#[test]
fn each_refusal_of_a_guard_has_words_of_its_own() {
    use Refusal::{Audit, Filter, Full, Hours, People, Quota, Schema, Silent, Size};
    let all = [Size, Filter, Silent, Schema, Quota, Hours, Audit, Full, People].map(Refusal::as_str);
    let words: std::collections::BTreeSet<_> = all.iter().filter(|words| words.len() > 5).collect();
    assert_eq!(words.len(), all.len(), "{all:?}");
}

#[test]
fn keys_are_agreed_by_what_the_suites_have_and_what_a_posture_says_beside_it() {
    let all = [Exchange::X25519, Exchange::P256, Exchange::P384];
    let posture = |keys: &str| format!("{POSTURE}{keys}\n");
    let key_life = posture("key-life = \"5m\"");
    for (suites, more, curves, ml_kem) in [
        ("default", key_life.clone(), &all[..], false),
        (
            "default",
            posture("exchanges = [\"P-384\", \"X25519\"]"),
            &[Exchange::P384, Exchange::X25519],
            false,
        ),
        ("default", posture("ml-kem = true"), &all, true),
        ("default", posture("exchanges = [\"X25519\"]\nml-kem = true"), &all[..1], true),
        ("cnsa", key_life.clone(), &all[2..], false),
        ("cnsa-ml-kem", key_life, &all[2..], true),
    ] {
        let keys = if suites == "default" { "P-256" } else { "P-384" };
        let small = SMALL
            .replace("keys = \"P-256\"", &format!("keys = \"{keys}\""))
            .replace("suites = \"default\"", &format!("suites = \"{suites}\""));
        let site = read(&format!("{small}\n{more}")).unwrap_or_else(|why| panic!("{suites}, {more}: {why}"));
        let had = site.keying_under(None).exchanges;
        let now = site.keying_under(site.postures().first()).exchanges;
        assert_eq!((&now.curves[..], now.ml_kem), (curves, ml_kem), "{suites}, {more}");
        let without = if suites == "default" { &all } else { &all[2..] };
        assert_eq!((&had.curves[..], had.ml_kem), (without, suites == "cnsa-ml-kem"), "{suites}");
    }
}
