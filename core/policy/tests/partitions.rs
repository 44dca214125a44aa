//! `[[partition]]` and `[[channel]]`: what the file says of them is what they have, and what may not be between them is refused.

use std::time::Duration;

use levee_policy::Site;
use levee_policy::site::Need;

const SMALL: &str = include_str!("../../../conf/small/site.toml");
const GUARD: &str = "[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"high\"\nto = \"low\"\nfilter = \"filter\"\nmessages = \"10 in 60s\"\n";

fn partition(name: &str, label: &str, more: &str) -> String {
    format!(
        "[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/bin/{name}\", \"-n\"]\n{more}\n"
    )
}

fn oneway(name: &str, from: &str, to: &str, more: &str) -> String {
    format!("[[channel]]\nname = \"{name}\"\nkind = \"oneway\"\nfrom = \"{from}\"\nto = \"{to}\"\n{more}\n")
}

/// High, its filter, and low, with whatever `more` says.
fn three(more: &str) -> String {
    let parts = [("high", "SECRET"), ("filter", "SECRET"), ("low", "UNCLASSIFIED")];
    parts.map(|(name, label)| partition(name, label, "")).concat() + more
}

fn read(text: &str) -> Result<Site, String> {
    Site::parse(text)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn site(more: &str) -> Result<Site, String> {
    read(&format!("{SMALL}\n{more}"))
}

#[test]
fn a_partition_has_what_its_table_says_and_else_what_the_limits_say() {
    let limits = SMALL
        .replace("memory = \"512M\"", "memory = \"256M\"")
        .replace("processes = 256", "processes = 99")
        .replace("cpu = \"100%\"", "cpu = \"70%\"")
        .replace("store = \"64M\"", "store = \"32M\"");
    let of = |more: &str| {
        let site = read(&format!("{limits}\n{}", partition("sensor", "SECRET", more))).unwrap();
        let [one] = site.partitions() else { panic!("one partition") };
        assert_eq!(
            (one.name().as_str(), one.command()),
            ("sensor", &["/bin/sensor".into(), "-n".into()][..])
        );
        assert_eq!(*one.label(), site.vocabulary().parse("SECRET").unwrap());
        one.clone()
    };
    let plain = of("");
    assert_eq!((plain.memory(), plain.reserved(), plain.disk()), (256 << 20, 0, 32 << 20));
    assert_eq!((plain.processes(), plain.cpu_percent(), plain.weight()), (99, 70, 100));
    assert_eq!((plain.restart().times, plain.restart().within), (3, Duration::from_secs(60)));
    assert!(plain.software().is_empty() && !plain.needs().has(Need::Locks));
    let own = of(
        "memory = \"2G\"\nreserved = \"1G\"\ndisk = \"1T\"\nprocesses = 8\ncpu = \"350%\"\nweight = 7\n\
                  restart = \"0 in 1h\"\nneeds = [\"locks\", \"proc\"]\nsoftware = [\"socat\", \"/usr/share/x\"]",
    );
    assert_eq!((own.memory(), own.reserved(), own.disk()), (2 << 30, 1 << 30, 1 << 40));
    assert_eq!((own.processes(), own.cpu_percent(), own.weight()), (8, 350, 7));
    assert_eq!((own.restart().times, own.restart().within), (0, Duration::from_secs(3_600)));
    assert_eq!(own.needs().iter().collect::<Vec<_>>(), [Need::Locks, Need::Proc]);
    assert_eq!(own.software(), ["socat", "/usr/share/x"]);
    // All of it may be reserved, and no more.
    assert_eq!(of("memory = \"16M\"\nreserved = \"16M\"").reserved(), 16 << 20);
    let why = site(&partition("sensor", "SECRET", "memory = \"16M\"\nreserved = \"17M\"")).unwrap_err();
    assert!(why.contains("`sensor` has more memory reserved than it may use"), "{why}");
}

#[test]
fn how_often_a_partition_is_started_again_is_bounded_in_number_and_in_time() {
    let restart = |rule: &str| {
        let site = site(&partition("sensor", "SECRET", &format!("restart = {rule}")))?;
        let restart = site.partitions()[0].restart();
        Ok::<_, String>((restart.times, restart.within.as_millis()))
    };
    assert_eq!(restart("\"100 in 1s\""), Ok((100, 1_000)));
    assert_eq!(restart("\"1 in 3600s\""), Ok((1, 3_600_000)));
    for wrong in ["101 in 1s", "1 in 999ms", "1 in 3601s", "-1 in 1s", "1 in 1", "1", "often", "1  in 1s"] {
        let why = restart(&format!("\"{wrong}\"")).expect_err(wrong);
        assert!(why.contains("is not a rule for starting again"), "{wrong}: {why}");
    }
    assert!(restart("3").is_err());
}

#[test]
fn a_channel_has_what_its_table_says_and_a_guard_smaller_messages() {
    let channel = |more: &str| site(&three(more)).unwrap().channels()[0].clone();
    let plain = channel(&oneway("up", "low", "high", ""));
    assert_eq!((plain.size(), plain.rate(), plain.is_numbered()), (64 << 10, 1 << 20, false));
    let own = channel(&oneway("up", "low", "high", "size = \"2K\"\nrate = \"3M\"\nnumbered = true"));
    assert_eq!((own.size(), own.rate(), own.is_numbered()), (2 << 10, 3 << 20, true));
    assert!(own.guard().is_none());
    let guard = channel(GUARD);
    assert_eq!((guard.size(), guard.rate()), (32 << 10, 1 << 20));
    let guard = guard.guard().unwrap();
    assert_eq!((guard.messages().most, guard.octets().most), (10, 10 * (32 << 10)));
    // A one-way channel's messages may be larger than a guard's, and say so in their own words.
    assert_eq!(channel(&oneway("up", "low", "high", "size = \"64K\"")).size(), 64 << 10);
    let why = site(&three(&oneway("up", "low", "high", "size = \"65K\""))).unwrap_err();
    assert!(why.contains("write a size from \"1K\" to \"64K\"") && !why.contains("guard"), "{why}");
    let why = site(&three(&format!("{GUARD}size = \"33K\"\n"))).unwrap_err();
    assert!(why.contains("for a guard"), "{why}");
}

#[test]
fn there_are_64_partitions_and_64_channels_and_a_program_has_16_ends() {
    let partitions = |count: usize| (0..count).map(|n| partition(&format!("p{n}"), "SECRET", "")).collect();
    let all: String = partitions(64);
    assert_eq!(site(&all).unwrap().partitions().len(), 64);
    let why = site(&partitions(65)).unwrap_err();
    assert!(why.contains("there are 65 partitions"), "{why}");
    // Each of so many channels between two partitions that have no other.
    let channels = |count: usize, from: usize, to: usize| -> String {
        let name =
            |n: usize| oneway(&format!("c{n}"), &format!("p{}", n % from), &format!("p{}", 8 + n % to), "");
        (0..count).map(name).collect()
    };
    assert_eq!(site(&(all.clone() + &channels(64, 4, 56))).unwrap().channels().len(), 64);
    let why = site(&(all.clone() + &channels(65, 8, 56))).unwrap_err();
    assert!(why.contains("there are 65 channels"), "{why}");
    // Sixteen to one partition, and one more; the others have few.
    site(&(all.clone() + &channels(16, 8, 1))).unwrap();
    let why = site(&(all + &channels(17, 8, 1))).unwrap_err();
    assert!(
        why.contains("the partition `p8` has more than 16 channels") && why.lines().count() == 1,
        "{why}"
    );
}

#[test]
fn partitions_and_labels_that_run_at_once_have_4095_places_together() {
    let with = |slots: usize| {
        let small = SMALL.replace("slots = 64", &format!("slots = {slots}"));
        read(&format!("{small}\n{}", three("")))
    };
    with(4_092).unwrap();
    let why = with(4_093).unwrap_err();
    assert!(why.contains("partitions and labels that run at once are 4096 together"), "{why}");
}

#[test]
fn a_partition_is_at_no_label_with_a_kernel_of_its_own() {
    let own = SMALL.replace("own-kernel = []", "own-kernel = [\"SECRET\"]");
    let why = read(&format!("{own}\n{}", partition("sensor", "SECRET", ""))).unwrap_err();
    assert!(why.contains("the partition `sensor` is at a label with a kernel of its own"), "{why}");
    read(&format!("{own}\n{}", partition("sensor", "SECRET//NATO", ""))).unwrap();
}

/// What is told of a flow that the lattice forbids: the way, and what to do about it.
#[test]
fn what_to_do_about_a_forbidden_way_is_told_by_what_the_way_is() {
    let told = |more: &str| site(&three(more)).unwrap_err();
    let down = told(&oneway("down", "high", "low", ""));
    assert!(down.contains("or declare the exception with `kind = \"guard\"`"), "{down}");
    // By two channels, the second of which is a guard that does not end the way.
    let two = told(
        &(partition("mid", "CONFIDENTIAL", "")
            + &partition("check", "CONFIDENTIAL", "")
            + &GUARD.replace("\"low\"", "\"mid\"")
            + &GUARD
                .replace("\"down\"", "\"on\"")
                .replace("\"high\"", "\"mid\"")
                .replace("\"filter\"", "\"check\"")),
    );
    assert!(two.contains("remove one of these channels, or declare the whole way as one guard"), "{two}");
    assert!(two.contains("high (SECRET) -[down]-> mid (CONFIDENTIAL) -[on]-> low (UNCLASSIFIED)"), "{two}");
    // To a partition on another host, and from one.
    let wire = |end: &str, label: &str, more: &str| {
        format!(
            "[[channel]]\nname = \"wired\"\nkind = \"oneway\"\n{end}\nwire = {{ interface = \"eth7\", address = \"10.77.1.1/30\", \
             peer = \"10.77.1.2\", port = 7700, label = \"{label}\"{more} }}\n"
        )
    };
    let hardware = ", hardware = \"02:00:5e:00:53:02\"";
    for wired in [wire("from = \"high\"", "UNCLASSIFIED", hardware), wire("to = \"low\"", "SECRET", "")] {
        let why = told(&wired);
        assert!(
            why.contains("a partition at the other host's label, and a guard between that and this one"),
            "{why}"
        );
    }
    site(&three(&wire("to = \"high\"", "UNCLASSIFIED", ""))).unwrap();
}

#[test]
fn a_channel_to_itself_is_told_once_and_a_link_to_itself_is_no_way() {
    let link = "[[link]]\nname = \"bus\"\nbetween = [\"high\", \"high\"]\naddresses = [\"10.9.0.1/30\", \"10.9.0.2/30\"]\n";
    let guarded = three(GUARD);
    let why = site(&(guarded + link)).unwrap_err();
    assert!(
        why.contains("leads from a partition to itself") && !why.contains("the lattice forbids"),
        "{why}"
    );
    // A link between two labels is told of as what it is.
    let across = link.replace("[\"high\", \"high\"]", "[\"high\", \"low\"]");
    let why = site(&three(&across)).unwrap_err();
    assert!(why.contains("are at two labels") && why.lines().count() == 1, "{why}");
}
