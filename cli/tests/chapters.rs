//! What the book shows beside the commands that a newcomer's test runs (`tests/system/tests/book.rs`): every command is one that there is, and
//! every part of a site file is sound in a site that has what it speaks of.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The chapters, but for the reference of the site file, which is made from what parses it.
const CHAPTERS: [&str; 12] = [
    "introduction",
    "first-site",
    "commands",
    "services",
    "further",
    "people",
    "keys",
    "incidents",
    "audit",
    "federation",
    "accreditors",
    "glossary",
];

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src")
}

/// The blocks of a chapter in this language; of any other for `None`.
fn blocks(chapter: &str, language: Option<&str>) -> Vec<String> {
    let text = std::fs::read_to_string(book().join(format!("{chapter}.md"))).unwrap();
    let mut pieces = text.split("```");
    let (mut found, mut outside) = (Vec::new(), pieces.next());
    while outside.is_some() {
        let Some((first, block)) = pieces.next().and_then(|block| block.split_once('\n')) else { break };
        if language.map_or(first != "toml", |language| first == language) {
            found.push(block.to_owned());
        }
        outside = pieces.next();
    }
    found
}

/// The commands of levee's in a line of a block, each in words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.trim();
    let line = line
        .split_once("# ")
        .filter(|(host, _)| ["server", "ws1"].contains(host))
        .map_or(line, |(_, rest)| rest);
    // What explains stands behind; so does what is put into a file.
    let line =
        [" #", "    (", " >"].iter().fold(line, |line, end| line.split(end).next().unwrap_or_default());
    // Words in quotation marks are one; there are no others within these.
    let pieces = line.split(['\'', '"']).enumerate();
    let mut all = vec![Vec::new()];
    for (number, piece) in pieces {
        if number % 2 == 1 {
            all.last_mut().unwrap().push(piece.to_owned());
            continue;
        }
        for word in piece.split_whitespace() {
            match word.strip_suffix(';') {
                Some(last) => {
                    all.last_mut().unwrap().push(last.to_owned());
                    all.push(Vec::new());
                }
                None if word == "&&" => all.push(Vec::new()),
                None => all.last_mut().unwrap().push(word.to_owned()),
            }
        }
    }
    all.retain(|words: &Vec<String>| {
        words.first().is_some_and(|word| word == "levee" || word == "levee-tpe")
    });
    all
}

/// Whether it is understood. With --help last, everything before it is read and nothing is done.
fn is_understood(words: &[String]) -> bool {
    let levee = Path::new(env!("CARGO_BIN_EXE_levee"));
    let ours = words.iter().skip(1).take_while(|word| *word != "--");
    let mut command = Command::new(levee.with_file_name(&words[0]));
    command.args(ours).arg("--help").output().unwrap().status.success()
}

#[test]
fn every_chapter_of_the_book_is_there_and_every_command_that_it_shows_is_understood() {
    let summary = std::fs::read_to_string(book().join("SUMMARY.md")).unwrap();
    let listed: Vec<&str> =
        summary.split('(').skip(1).filter_map(|rest| Some(rest.split_once(".md)")?.0)).collect();
    assert_eq!(listed.len(), CHAPTERS.len() + 1, "{listed:?}");
    let (mut number, mut problems) = (0, Vec::new());
    for chapter in CHAPTERS {
        assert!(listed.contains(&chapter), "{chapter} is not in SUMMARY.md");
        for block in blocks(chapter, None) {
            // What a command prints may begin with its name: `levee doctor` ends with such a line.
            for words in block.lines().filter(|line| *line != "levee can serve here").flat_map(commands) {
                number += 1;
                if !is_understood(&words) {
                    problems.push(format!("{chapter}: {}", words.join(" ")));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(number >= 70, "{number} commands are not all");
    for wrong in ["levee status --bogus", "server# levee nosuch", "levee enrol rotate site.toml nothing"] {
        assert!(commands(wrong).iter().all(|words| !is_understood(words)), "{wrong}");
    }
}

/// Blocks that go together, by chapter and number, and what the site has beside.
const TOGETHER: [(&str, &[usize], &str); 16] = [
    ("further", &[0, 1], ""),
    ("further", &[0, 2], ""),
    ("further", &[3], ""),
    ("further", &[4], "PUBLIC sensor"),
    ("further", &[5], "SECRET desk"),
    ("further", &[3, 6], "PUBLIC press"),
    ("further", &[3, 7], "PUBLIC recorder"),
    ("further", &[3, 8, 9], "PUBLIC recorder"),
    ("further", &[10], ""),
    (
        "further",
        &[11],
        "[[frames.slot]]\nlabels = [\"SECRET\"]\ntime = \"10ms\"\n[[frames.slot]]\ntime = \"10ms\"\n",
    ),
    ("further", &[12], ""),
    ("further", &[13], ""),
    ("further", &[13, 14], ""),
    ("services", &[0, 2], ""),
    ("services", &[1], "[[user]]\nname = \"mia\"\nclearance = \"SECRET\"\n"),
    ("federation", &[0], ""),
];

/// The site of the first chapter, with this behind it; whether it is sound, and what is said.
fn checked(place: &Path, more: &str) -> (bool, String) {
    let file = place.join("site.toml");
    let _ = std::fs::remove_file(&file);
    let levee = |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_levee")).args(words).output().unwrap();
    let path = file.to_str().unwrap();
    let first = ["--name", "quay", "--server", "server.quay.example", "--address", "192.0.2.1"];
    let answers = ["--levels", "PUBLIC,SECRET", "--people", "ada,ugo", "--workstations", "ws1"];
    assert!(levee(&[&["init", path], &first[..], &answers].concat()).status.success());
    let site = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{site}\n{more}")).unwrap();
    let said = levee(&["check", path, "--json", "--state", place.join("none").to_str().unwrap()]).stdout;
    let answer: serde_json::Value = serde_json::from_slice(&said).unwrap();
    (answer["sound"] == true, answer["problems"].to_string())
}

#[test]
fn every_part_of_a_site_file_that_the_book_shows_is_sound_in_a_site_that_has_what_it_speaks_of() {
    let place = tempfile::tempdir().unwrap();
    for (chapter, numbers, beside) in TOGETHER {
        let all = blocks(chapter, Some("toml"));
        let mut text: String = numbers.iter().map(|number| all[*number].clone()).collect();
        match beside.split_once(' ').filter(|(label, _)| ["PUBLIC", "SECRET"].contains(label)) {
            Some((label, name)) => {
                text += &format!(
                    "[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/bin/true\"]\n"
                );
            }
            None => text += beside,
        }
        let (sound, said) = checked(place.path(), &text);
        assert!(sound, "{chapter} {numbers:?}: {said}\n{text}");
    }
    // Each is among them. (What a workstation's bundle has is in no site file.)
    for chapter in CHAPTERS.into_iter().filter(|chapter| *chapter != "people") {
        for number in 0..blocks(chapter, Some("toml")).len() {
            let tried = TOGETHER.iter().any(|(of, numbers, _)| *of == chapter && numbers.contains(&number));
            assert!(tried, "{chapter}: block {number} is not tried");
        }
    }
    assert!(!checked(place.path(), "[[protection]]\nname = \"strong\"\ncyphers = []\n").0);
}
