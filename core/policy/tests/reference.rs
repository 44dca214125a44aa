//! The reference of the site file says what is so.

use levee_policy::Site;
use levee_policy::site::Need;
use levee_policy::site::reference::{Key, SECTIONS, Section};

/// One level, so that a site is shown in one way. A sound site with something in every table that a default can stand in; `[[service]]` last.
const SITE: &str = r#"
site = { name = "harbour" }
labels = { levels = ["LOW"] }
[server]
name = "server.harbour.example"
addresses = ["192.0.2.1"]
inner-address = "10.80.0.1"
inner-pool = "10.80.1.0/24"
[limits]
[crypto]
[audit]
[vault]
[[user]]
name = "ada"
clearance = "LOW"
[[host]]
name = "ws1"
accreditation = "LOW"
[[network]]
interface = "eth7"
label = "LOW"
address = "192.168.7.1/24"
[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "LOW"
mode = "handoff"
command = ["/bin/cat"]
"#;

/// The site with one line more in a table.
fn with(section: &Section, line: &str) -> String {
    match section.head {
        "[labels]" => SITE.replace("levels = [\"LOW\"]", &format!("levels = [\"LOW\"], {line}")),
        head => SITE.replace(&format!("{head}\n"), &format!("{head}\n{line}\n")),
    }
}

/// Keys whose default can be written down, with it.
fn defaults() -> Vec<(&'static Section, &'static Key, &'static str)> {
    let literal = |text: &&str| {
        text.starts_with(['"', '[']) || text.parse::<u64>().is_ok() || ["true", "false"].contains(text)
    };
    SECTIONS
        .iter()
        .filter(|section| SITE.contains(section.head) || section.head == "[labels]")
        .flat_map(|section| section.keys.iter().map(move |key| (*section, key)))
        .filter_map(|(section, key)| Some((section, key, key.default.filter(literal)?)))
        // Of nginx alone.
        .filter(|(_, key, _)| !["program", "uploads"].contains(&key.name))
        .collect()
}

#[test]
fn to_write_a_default_changes_nothing() {
    let plain = format!("{:?}", Site::parse(SITE).unwrap());
    let defaults = defaults();
    assert!(defaults.len() >= 25, "{}", defaults.len());
    for (section, key, default) in defaults {
        let text = with(section, &format!("{} = {default}", key.name));
        let site = Site::parse(&text)
            .unwrap_or_else(|problems| panic!("{} {}: {problems:?}", section.head, key.name));
        assert_eq!(format!("{site:?}"), plain, "{} {}: the default is not {default}", section.head, key.name);
    }
}

/// The two ends of `"16M" to "1T"`, and of `8 to 32768`, as TOML has them.
fn bounds(form: &str) -> Option<(&str, &str)> {
    let (before, after) = form.split_once(" to ")?;
    let low = before.rsplit(' ').next()?;
    let high = after.split([' ', ',']).next()?;
    Some((low, high))
}

#[test]
fn the_ends_of_what_a_value_may_be_are_taken_and_what_is_beyond_is_not() {
    let mut tried = 0;
    for (section, key, _) in defaults() {
        // How many there may be is another form; ports are told of in pairs.
        let Some((low, high)) = bounds(key.form).filter(|_| !key.form.starts_with("a list")) else {
            continue;
        };
        for end in [low, high] {
            let text = with(section, &format!("{} = {end}", key.name));
            let beyond_others = |problems: Vec<_>| panic!("{} = {end}: {problems:?}", key.name);
            Site::parse(&text).unwrap_or_else(beyond_others);
        }
        let digits = |end: &str| end.chars().filter(char::is_ascii_digit).collect::<String>();
        let beyond =
            |end: &str| end.replace(&digits(end), &(digits(end).parse::<u64>().unwrap() + 1).to_string());
        let above = beyond(high);
        let below =
            low.replace(&digits(low), &digits(low).parse::<u64>().unwrap().saturating_sub(1).to_string());
        for out in [above, below].iter().filter(|out| *out != low) {
            let text = with(section, &format!("{} = {out}", key.name));
            assert!(Site::parse(&text).is_err(), "{} = {out} is taken", key.name);
        }
        tried += 1;
    }
    assert!(tried >= 12, "{tried}");
}

/// Every word that `needs` takes is among those that it is said to take, and no other.
#[test]
fn what_a_service_may_need_is_listed_whole() {
    let service = SECTIONS.iter().find(|section| section.head == "[[service]]").unwrap();
    let form = service.keys.iter().find(|key| key.name == "needs").unwrap().form;
    let listed: Vec<&str> = form.split('"').skip(1).step_by(2).collect();
    assert_eq!(listed, Need::ALL.map(Need::as_str));
}
