//! A wiki at several levels: Debian's Fossil, as it is, an instance a level, with the example site; and attacks on it.
//!
//! Needs root, fossil, nginx-light, curl, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{Done, World, eventually};
use std::process::Stdio;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/wiki/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//MED";
const WIKI: &str = "http://wiki.harbour.example:8080";
const BELOW: &str = "http://wiki.harbour.example:8081";

/// curl at a workstation: what the server answered, and the status as the last line.
fn curl(world: &World, workstation: &str, more: &[&str]) -> String {
    let words = ["curl", "-sS", "--path-as-is", "--max-time", "20", "-w", "\n%{http_code}"];
    world.run(workstation, &[&words, more].concat()).ok()
}

fn get(world: &World, workstation: &str, url: &str) -> String {
    curl(world, workstation, &[url])
}

/// A page as a browser's reader has it.
fn page(world: &World, workstation: &str, name: &str) -> String {
    get(world, workstation, &format!("{WIKI}/wiki?name={name}"))
}

/// Who wrote which version of a page.
fn history(world: &World, workstation: &str, name: &str) -> String {
    get(world, workstation, &format!("{WIKI}/whistory?name={name}"))
}

/// Writes a page as the wiki's own editor does, a new one or a new version of one, with more of curl's words.
fn save_with(world: &World, workstation: &str, page: (&str, &str, bool), more: &[&str]) -> String {
    let (url, from) = (format!("{WIKI}/wikiajax/save"), format!("{WIKI}/wikiedit"));
    let (name, text, new) = (
        format!("page={}", page.0),
        format!("content={}", page.1),
        if page.2 { "isnew=1" } else { "isnew=0" },
    );
    let form = ["--data-urlencode", &name, "--data-urlencode", &text, "-d", "mimetype=text/x-markdown"];
    let new = ["-d", new, "--referer", &from, &url];
    curl(world, workstation, &[&form[..], &new, more].concat())
}

#[track_caller]
fn save(world: &World, workstation: &str, page: (&str, &str, bool)) {
    let answer = save_with(world, workstation, page, &[]);
    assert!(answer.contains("\"version\"") && answer.ends_with("\n200"), "{answer}");
}

/// The example with two people at one level.
fn up(name: &str) -> World {
    let world = World::up(name, SITE, &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, LOW).ok();
    }
    world
}

#[test]
fn two_people_write_a_wiki_each_in_their_own_name_and_it_is_read_above_and_not_below() {
    let world = up("wiki");
    assert!(page(&world, "ws2", "Tide").ends_with("\n404") || !page(&world, "ws2", "Tide").contains("nine"));
    save(&world, "ws1", ("Tide", "high water at *nine*", true));
    let seen = page(&world, "ws2", "Tide");
    assert!(seen.contains("high water at <em>nine</em>"), "{seen}");
    save(&world, "ws2", ("Tide", "high water at ten", false));
    assert!(page(&world, "ws1", "Tide").contains("high water at ten"));
    let versions = history(&world, "ws1", "Tide");
    assert!(versions.contains("<td>ada<") && versions.contains("<td>mia<"), "{versions}");

    world.level("ws1", HIGH).ok();
    // Another instance, with pages of its own; those below are read, and have nothing by which they could be written.
    assert!(!page(&world, "ws1", "Tide").contains("high water"));
    save(&world, "ws1", ("Chart", "low water at three", true));
    let below = format!("{BELOW}/{LOW}/wiki?name=Tide");
    eventually(Duration::from_secs(5), "the page is read above", || {
        get(&world, "ws1", &below).contains("high water at ten")
    });
    let form = ["-d", "page=Tide&content=x&mimetype=text/x-markdown&isnew=0"];
    let save_below = format!("{BELOW}/{LOW}/wikiajax/save");
    let written = [&form[..], &["--referer", &below, &save_below]].concat();
    assert!(!curl(&world, "ws1", &written).contains("\"version\""));
    // What is written below later comes, too.
    save(&world, "ws2", ("Tide", "high water at noon", false));
    eventually(Duration::from_secs(5), "the next version is read above", || {
        get(&world, "ws1", &below).contains("high water at noon")
    });

    // Nobody below has what is above, at any of the addresses.
    assert!(!page(&world, "ws2", "Chart").contains("low water"));
    world.level("ws2", "CONFIDENTIAL").ok();
    assert!(get(&world, "ws2", &below).contains("high water at noon"));
    for label in ["SECRET.MED", "SECRET++MED", "SECRET", "..", "%2e%2e/%2e%2e/srv/below/SECRET++MED"] {
        let seen = get(&world, "ws2", &format!("{BELOW}/{label}/wiki?name=Chart"));
        assert!(seen.ends_with("\n404") && !seen.contains("low water"), "{label}: {seen}");
    }
    let all = get(&world, "ws2", &format!("{BELOW}/"));
    assert!(all.contains(LOW) && !all.contains("SECRET"), "{all}");

    // Each request is in the audit log, with its person.
    let state = levee_system::text(&world.path("state"));
    let log = world.levee(&["audit", "show", "--state", &state]).ok();
    let of = |user: &str| log.lines().filter(|line| line.contains("wiki") && line.contains(user)).count();
    assert!(of("ada") >= 5 && of("mia") >= 3, "{log}");
}

#[test]
fn nobody_writes_the_wiki_in_anothers_name_or_is_its_administrator() {
    let world = up("wiki-own");
    save(&world, "ws1", ("Tide", "high water at nine", true));
    // The client says that it is somebody else, in every way that there is to say it.
    let cookie = format!("REMOTE_USER=ada; fossil-{}=0/0/ada; remote_user=ada", &project(&world)[..16]);
    let ways: [&[&str]; 7] = [
        &["-H", "Remote-User: ada"],
        &["-H", "REMOTE_USER: ada", "-H", "X-Remote-User: ada", "-H", "X-Forwarded-For: 127.0.0.1"],
        &["--user", "ada:ada"],
        &["-b", &cookie],
        &["-d", "REMOTE_USER=ada&user=ada&U=ada&login=ada"],
        &["-d", "resid=ada&token="],
        &["-d", "resid=developer&token=00"],
    ];
    for (number, way) in ways.iter().enumerate() {
        let name = format!("Way{number}");
        let answer = save_with(&world, "ws2", (&name, "whose is it", true), way);
        let versions = history(&world, "ws1", &name);
        assert!(
            versions.contains("<td>mia<") && !versions.contains("<td>ada<"),
            "{way:?}: {answer}{versions}"
        );
    }
    // Another page, which ada's browser shows, has her browser write: on this server's other port, too.
    for from in ["http://www.harbour.example/own/trap.html", "http://wiki.harbour.example/own/trap", "null"] {
        let answer = save_with(&world, "ws1", ("Trap", "by the trap", true), &["--referer", from]);
        assert!(!answer.contains("\"version\""), "{from}: {answer}");
        let append = ["-d", "name=Tide&submit=1&r=by the trap&u=ada&csrf=", "--referer", from];
        curl(&world, "ws1", &[&append[..], &[&format!("{WIKI}/wikiappend")]].concat());
    }
    // Fossil's interface for programs takes what any page can have a browser send.
    let json = |workstation: &str, from: &str, what: &str, payload: &str| {
        let (url, payload) = (format!("{WIKI}/json/{what}"), format!("{{\"payload\":{payload}}}"));
        let words = ["-H", "Content-Type: text/plain", "--data-binary", &payload, "--referer", from, &url];
        curl(&world, workstation, &words)
    };
    let trap = r#"{"name":"Trap","content":"by the trap","mimetype":"text/x-markdown"}"#;
    for from in ["http://wiki.harbour.example/own/trap", "http://wiki.harbour.example:80801/", ""] {
        for what in ["wiki/create", "wiki/save"] {
            let answer = json("ws1", from, what, trap);
            assert!(answer.contains("resultCode"), "{what} from {from}: {answer}");
        }
    }
    let own = format!("{WIKI}/wiki");
    for payload in [
        r#"{"name":"mia","capabilities":"s"}"#,
        r#"{"name":"mia","capabilities":"hjkfgib"}"#,
        r#"{"name":"mia","password":"x"}"#,
        r#"{"name":"ada","capabilities":"h"}"#,
        r#"{"uid":-1,"name":"eve","password":"x","capabilities":"s"}"#,
    ] {
        let answer = json("ws2", &own, "user/save", payload);
        assert!(answer.contains("FOSSIL-2002"), "{payload}: {answer}");
    }
    assert!(!page(&world, "ws1", "Trap").contains("by the trap"));
    assert!(!page(&world, "ws1", "Tide").contains("by the trap"));
    // The administration is nobody's.
    for place in [
        "setup",
        "setup_ulist",
        "setup_uedit?id=1",
        "admin_sql",
        "setup_access",
        "test_env",
        "shun",
        "admin_log",
    ] {
        let answer = get(&world, "ws1", &format!("{WIKI}/{place}"));
        assert!(!answer.contains("remote_user_ok") && !answer.contains("Log Menu"), "{place}: {answer}");
        assert!(
            answer.ends_with("\n302")
                || answer.ends_with("\n404")
                || answer.ends_with("\n401")
                || answer.contains("Login"),
            "{place}: {answer}"
        );
    }
    // A person without a place among the wiki's reads.
    world.tpe("ws2", &["logout"]).ok();
    world.login("ws2", "ugo").ok();
    world.level("ws2", LOW).ok();
    assert!(page(&world, "ws2", "Tide").contains("high water at nine"));
    let answer = save_with(&world, "ws2", ("Tide", "by ugo", false), &[]);
    assert!(!answer.contains("\"version\""), "{answer}");
    assert!(!page(&world, "ws1", "Tide").contains("by ugo"));
}

/// Four requests whose rest does not come.
const STUCK: &str = "for n in 1 2 3 4; do
    (printf 'POST /wikiajax/save HTTP/1.0\\r\\nContent-Type: text/plain\\r\\nContent-Length: 99\\r\\n\\r\\npage='; sleep 9) |
        socat - TCP:wiki.harbour.example:8080 &
done; wait";

/// Runs a shell's command beside the low level's wiki, as its service runs.
fn inside(world: &World, script: &str) -> Done {
    let status = world.status();
    let all = status["compartments"].as_array().expect("compartments");
    let low = all.iter().find(|row| row["label"] == LOW).expect("the low label runs");
    let (init, script) =
        (low["init"].to_string(), format!("export HOME=/tmp; cd /srv/own/.wiki && {script}"));
    let words = ["--target", &init, "--all", "--setuid", "1000", "--setgid", "1000", "sh", "-c", &script];
    levee_system::sh("nsenter", &words)
}

/// The number that Fossil has given the low level's wiki: whoever can read it knows it.
fn project(world: &World) -> String {
    let vfs = "--vfs unix-dotfile -R wiki.fossil -vfs unix-dotfile";
    let ask = format!("fossil sql {vfs} \"SELECT value FROM config WHERE name = 'project-code'\"");
    let code = inside(world, &ask).ok().trim().trim_matches('\'').to_owned();
    assert_eq!(code.len(), 40, "{code}");
    code
}

/// Runs a shell's command at a workstation.
fn shell(world: &World, workstation: &str, script: &str) -> Done {
    world.run(workstation, &["sh", "-c", script])
}

#[test]
fn the_wikis_files_are_neither_fetched_nor_replaced_and_no_script_is_put_into_it() {
    let world = up("wiki-files");
    let script = "high water at nine <script>alert(1)</script> <img src=x onerror=alert(2)>";
    save(&world, "ws1", ("Tide", script, true));
    let seen = page(&world, "ws2", "Tide");
    assert!(seen.contains("high water at nine"), "{seen}");
    assert!(!seen.contains("<script>alert(1)") && !seen.contains("onerror"), "{seen}");
    // By the web server, which people write documents with.
    let www = "http://www.harbour.example/own";
    for path in [".wiki/wiki.fossil", ".wiki/shown.fossil", "%2ewiki/wiki.fossil", "x/../.wiki/wiki.fossil"] {
        assert!(get(&world, "ws2", &format!("{www}/{path}")).ends_with("\n404"), "GET {path}");
        for method in ["PUT", "DELETE", "MOVE", "COPY"] {
            let to = format!("Destination: {www}/mine");
            let words = ["-X", method, "-H", &to, "--data-binary", "x", &format!("{www}/{path}")];
            assert!(curl(&world, "ws2", &words).ends_with("\n404"), "{method} {path}");
        }
    }
    assert!(curl(&world, "ws2", &["-X", "PUT", "-d", "x", &format!("{www}/mine")]).ends_with("\n201"));
    let to = format!("Destination: {www}/.wiki/wiki.fossil");
    let words = ["-X", "MOVE", "-H", &to, &format!("{www}/mine")];
    assert!(curl(&world, "ws2", &words).ends_with("\n403"));
    // With everything that lies beside it.
    assert!(curl(&world, "ws2", &["-X", "DELETE", &format!("{www}/")]).ends_with("\n405"));
    // By the wiki itself: as files, attachments and unversioned files.
    for path in [
        ".wiki/wiki.fossil",
        "wiki.fossil",
        "doc/ckout/wiki.fossil",
        "uv/x",
        "ext/x",
        "../.wiki/wiki.fossil",
        "zip",
        "attachadd?page=Tide",
    ] {
        let seen = get(&world, "ws2", &format!("{WIKI}/{path}"));
        assert!(!seen.contains("SQLite format") && !seen.ends_with("\n200"), "{path}: {seen}");
    }
    // By Fossil's own client, which fetches and sends whole repositories, with what others are said to have written.
    let told = shell(
        &world,
        "ws2",
        &format!(
            "export HOME=/tmp USER=ada; fossil clone {WIKI}/ /tmp/mine.fossil </dev/null; ls /tmp/mine.fossil"
        ),
    );
    assert!(told.refused().contains("not authorized"), "a clone is fetched");
    let code = project(&world);
    let forged = format!(
        "export HOME=/tmp USER=ada; cd /tmp && fossil init --admin-user ada forged.fossil >/dev/null && \
         echo \"REPLACE INTO config VALUES('project-code', '{code}', now());\" | fossil sql -R forged.fossil && \
         echo forged >text && fossil wiki create Forged text -R forged.fossil && \
         fossil push {WIKI}/ -R forged.fossil --once </dev/null"
    );
    let told = shell(&world, "ws2", &forged);
    assert!(format!("{}{}", told.out, told.err).contains("not authorized to write"), "{told:?}");
    assert!(!page(&world, "ws1", "Forged").contains("forged"));
    assert!(page(&world, "ws1", "Tide").contains("high water at nine"));
    // A lock that somebody has left, and requests that do not end, keep nobody away.
    inside(&world, "mkdir wiki.fossil.lock && touch -d '5 minutes ago' wiki.fossil.lock").ok();
    let mut stuck = world.inside("ws2", &["sh", "-c", STUCK]);
    let mut stuck = stuck.stdin(Stdio::null()).spawn().expect("start nsenter");
    save(&world, "ws1", ("Tide", "high water at ten", false));
    stuck.kill().and_then(|()| stuck.wait()).expect("its end");
}
