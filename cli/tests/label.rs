//! `levee label translate` and `levee label check`.

use std::process::Command;

const SITE: &str = r#"
site = { name = "harbour" }
labels = { levels = ["LOW", "MIDDLE", "HIGH"], categories = ["A", "B", "C"] }
[server]
name = "server.harbour.example"
addresses = ["192.0.2.1"]
inner-address = "10.80.0.1"
inner-pool = "10.80.1.0/24"
[[user]]
name = "ada"
clearance = "LOW"
[[host]]
name = "ws1"
accreditation = "LOW"
[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "LOW"
mode = "handoff"
command = ["/bin/cat"]
[[domain]]
doi = 16
levels = { LOW = 0, HIGH = 5 }
categories = { A = 7, B = 0, C = 240 }
"#;

/// Exit code, and what was printed on either output.
fn translate(arguments: &[&str]) -> (Option<i32>, String) {
    let site = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(site.path(), SITE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_levee"));
    command.args(["label", "translate"]).arg(site.path()).args(arguments);
    let output = command.output().unwrap();
    let said: Vec<&str> = [&["label", "translate"], arguments].concat();
    levee_system::schema::hold("levee", &said, &String::from_utf8_lossy(&output.stdout));
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn every_form_of_a_label_leads_to_the_same_and_what_would_be_lost_is_refused() {
    let (code, text) = translate(&["16", "high//a,b"]);
    assert_eq!(code, Some(0), "{text}");
    let said = |form: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{form} "))).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!((said("label"), said("selinux")), ("HIGH//A,B".to_owned(), "s5:c0,c7".to_owned()));
    assert_eq!(said("cipso"), "860b000000100105000581");
    assert_eq!(said("ts-seclabel"), "484947482f2f412c42");
    for form in ["selinux", "cipso", "calipso", "ts-seclabel"] {
        assert_eq!(translate(&["16", &said(form), "--from", form]), (Some(0), text.clone()));
    }
    // Tag 1 has no bit for category 240; the others say it.
    let (code, text) = translate(&["16", "LOW//C"]);
    assert_eq!(code, Some(1));
    let (_, json) = translate(&["16", "LOW//C", "--json"]);
    assert!(json.contains("\"cipso\": null"), "{json}");
    assert!(text.contains("s0:c240") && text.contains("LOW//C would be lost in CIPSO"), "{text}");
    let (code, text) = translate(&["16", "MIDDLE"]);
    assert_eq!((code, text.matches("MIDDLE would be lost").count()), (Some(1), 3), "{text}");
    for (arguments, why) in [
        (&["17", "LOW"][..], "it has 16"),
        (&["16", "s1", "--from", "selinux"], "level 1 means nothing"),
        (&["16", "860b00000011010500058", "--from", "cipso"], "not octets"),
        (&["16", "860b000000110105000581", "--from", "cipso"], "domain 17"),
        (&["16", "68696768", "--from", "ts-seclabel"], "as the site spells it"),
        (&["16", "s5-s0", "--from", "selinux"], "does not dominate"),
        (&["16", "s0-s1", "--from", "selinux"], "level 1 means nothing"),
        (&["16", "HIGH..LOW"], "HIGH"),
    ] {
        let (code, text) = translate(arguments);
        assert!(code == Some(2) && text.contains(why), "{arguments:?}: {text}");
    }
}

#[test]
fn a_range_is_said_in_selinux_whole_or_refused() {
    let (code, text) = translate(&["16", "HIGH..HIGH//A,B"]);
    assert_eq!((code, text.as_str()), (Some(0), "label       HIGH..HIGH//A,B\nselinux     s5-s5:c0,c7\n"));
    assert_eq!(translate(&["16", "s5-s5:c0,c7", "--from", "selinux"]), (Some(0), text));
    // MIDDLE lies between the two and has no number: SELinux's range would be without it.
    let (code, text) = translate(&["16", "LOW..HIGH"]);
    assert!(code == Some(1) && text.contains("labels of LOW..HIGH would be lost in SELinux"), "{text}");
    let (code, json) = translate(&["16", "LOW..HIGH", "--json"]);
    assert!(code == Some(1) && json.contains("\"selinux\": null"), "{json}");
}

#[test]
fn a_translation_file_of_selinuxs_is_written_and_names_of_one_are_read() {
    let (code, text) = translate(&["16", "LOW..HIGH//A,B", "--to-setrans"]);
    // MIDDLE has no number in the domain: a file without it would be no whole one.
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(text.matches("MIDDLE").count(), text.lines().count(), "{text}");
    let (code, file) = translate(&["16", "HIGH..HIGH//A,B", "--to-setrans"]);
    let lines: Vec<&str> = file.lines().skip(1).collect();
    assert_eq!(code, Some(0), "{file}");
    assert_eq!(lines.len(), 4, "{file}");
    assert!(
        file.starts_with("# ") && lines.contains(&"s5=HIGH") && lines.contains(&"s5:c0,c7=HIGH//A,B"),
        "{file}"
    );

    let place = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(place.path(), format!("{file}s0:c7=Eyes Only\ns1=Middling\n")).unwrap();
    let path = place.path().to_str().unwrap();
    for (name, label) in [("HIGH//A,B", "HIGH//A,B"), ("Eyes Only", "LOW//A")] {
        let (code, text) = translate(&["16", name, "--setrans", path]);
        assert_eq!((code, text), translate(&["16", label]), "{name}");
    }
    for (name, why) in [("Middling", "level 1 means nothing"), ("LOW", "no such name")] {
        let (code, text) = translate(&["16", name, "--setrans", path]);
        assert!(code == Some(2) && text.contains(why), "{text}");
    }
    std::fs::write(place.path(), "s0=LOW\nBase=Levels\n").unwrap();
    let (code, text) = translate(&["16", "LOW", "--setrans", path]);
    assert!(code == Some(2) && text.contains("line 2: names that are composed"), "{text}");
}

#[test]
fn a_list_of_labels_is_checked_line_by_line_against_every_domain() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let site = file("site.toml", SITE);
    let check = |list: &std::path::Path, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levee"));
        command.args(["label", "check"]).arg(&site).arg(list).args(arguments);
        let output = command.output().unwrap();
        let said: Vec<&str> = [&["label", "check"], arguments].concat();
        levee_system::schema::hold("levee", &said, &String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text)
    };
    let sound = file("sound", "# of the ship\n\nlow\n  HIGH//a,B \n");
    assert_eq!(check(&sound, &[]), (Some(0), "2 labels in 1 domain: 0 refused\n".to_owned()));
    let lossy = file("lossy", "LOW\nMIDDLE\nLOW//C\nHIHG\n\x1b[2J\n");
    let (code, text) = check(&lossy, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.ends_with("5 labels in 1 domain: 4 refused\n") && !text.contains('\x1b'), "{text}");
    assert_eq!(text.matches("line 2: MIDDLE would be lost in ").count(), 3, "{text}");
    assert!(text.contains("line 3: LOW//C would be lost in CIPSO of domain 16\n"), "{text}");
    assert!(text.contains("line 4: ") && text.contains("HIGH"), "{text}");
    let (code, json) = check(&lossy, &["--json", "--doi", "16"]);
    let lines: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!((code, lines.len()), (Some(1), 5), "{json}");
    assert_eq!((&lines[0]["label"], &lines[4]["label"]), (&"LOW".into(), &serde_json::Value::Null));
    let latin = directory.path().join("latin");
    std::fs::write(&latin, [0xff]).unwrap();
    for (list, arguments, why) in [
        (&sound, &["--doi", "17"][..], "it has 16"),
        (&directory.path().join("none"), &[][..], "No such file"),
        (&latin, &[][..], "not UTF-8"),
        (&file("long", &"#\n".repeat(600_000)), &[][..], "more than 1048576 octets"),
    ] {
        let (code, text) = check(list, arguments);
        assert!(code == Some(2) && text.contains(why), "{text}");
    }
}
