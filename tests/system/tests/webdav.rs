//! File shares at several levels: Debian's nginx with its WebDAV modules, as they are, an instance a level, with the example site; and
//! attacks on it.
//!
//! Needs root, nginx-light, libnginx-mod-http-dav-ext, cadaver, curl, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{Done, World, eventually};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/files/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//MED";
const FILES: &str = "http://files.harbour.example:8080";
const OWN: &str = "http://files.harbour.example:8080/own";

/// The example with two people at one level.
fn up(name: &str, site: &str) -> World {
    let world = World::up(name, site, &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "mia")] {
        world.login(workstation, user).ok();
        world.level(workstation, LOW).ok();
    }
    world
}

/// curl at a workstation: what the server answered, and the status as the last line.
fn ask(world: &World, workstation: &str, method: &str, url: &str, more: &[&str]) -> String {
    let words = ["curl", "-sS", "--path-as-is", "--max-time", "20", "-w", "\n%{http_code}", "-X", method];
    world.run(workstation, &[&words[..], more, &[url]].concat()).ok()
}

/// The status alone.
fn status(world: &World, workstation: &str, method: &str, url: &str, more: &[&str]) -> String {
    let answer = ask(world, workstation, method, url, more);
    answer.lines().last().unwrap_or_default().to_owned()
}

fn put(world: &World, workstation: &str, path: &str, text: &str, more: &[&str]) -> String {
    status(
        world,
        workstation,
        "PUT",
        &format!("{OWN}/{path}"),
        &[&["--data-binary", text][..], more].concat(),
    )
}

fn list(world: &World, workstation: &str, url: &str, depth: &str) -> String {
    ask(world, workstation, "PROPFIND", url, &["-H", &format!("Depth: {depth}")])
}

/// The token that an answer to LOCK or PROPFIND shows.
fn token(answer: &str) -> String {
    let (_, behind) =
        answer.split_once("<D:locktoken><D:href>").unwrap_or_else(|| panic!("no token: {answer}"));
    behind.split_once('<').expect("the token's end").0.to_owned()
}

/// Locks a file or directory: the token.
fn lock(world: &World, workstation: &str, path: &str) -> String {
    let answer = ask(world, workstation, "LOCK", &format!("{OWN}/{path}"), &[]);
    assert!(answer.ends_with("\n200") || answer.ends_with("\n201"), "LOCK {path}: {answer}");
    token(&answer)
}

fn unlock(world: &World, workstation: &str, path: &str, token: &str) -> String {
    status(world, workstation, "UNLOCK", &format!("{OWN}/{path}"), &["-H", &format!("Lock-Token: <{token}>")])
}

/// A session of cadaver's with these commands.
fn cadaver(world: &World, workstation: &str, commands: &str) -> Done {
    let script =
        format!("export HOME=/tmp; echo 'by cadaver' >/tmp/local; printf '{commands}' | cadaver {OWN}/");
    world.run(workstation, &["sh", "-c", &script])
}

#[test]
fn files_are_listed_written_and_locked_by_ordinary_clients_at_their_level_alone() {
    let world = up("dav", SITE);
    let told = cadaver(
        &world,
        "ws1",
        "mkcol plans\\nput /tmp/local plans/tide\\nlock plans/tide\\nput /tmp/local plans/tide\\nunlock plans/tide\\n\
         copy plans/tide plans/ebb\\nmove plans/ebb plans/flood\\nls plans\\n",
    )
    .ok();
    assert!(!told.contains("failed") && told.contains("flood") && told.contains("tide"), "{told}");
    assert_eq!(told.matches("succeeded").count(), 8, "{told}");

    // RFC 4918 18.2: a server of class 2 says 1, too, and clients ask.
    let classes = ask(&world, "ws2", "OPTIONS", &format!("{OWN}/plans/"), &["-D", "-"]).to_lowercase();
    assert!(classes.contains("dav: 1") && classes.contains("dav: 2"), "{classes}");

    // Mia has them at the same level, with who has a lock on what.
    let directory = list(&world, "ws2", &format!("{OWN}/"), "0");
    assert!(directory.contains("<D:collection/>") && !directory.contains("plans"), "{directory}");
    let held = lock(&world, "ws1", "plans/tide");
    let all = list(&world, "ws2", &format!("{OWN}/plans/"), "1");
    assert!(all.ends_with("\n207") && all.contains("/own/plans/flood<") && token(&all) == held, "{all}");
    assert_eq!(put(&world, "ws2", "plans/tide", "mia", &[]), "423");
    for method in ["DELETE", "LOCK", "MOVE"] {
        let to = format!("Destination: {OWN}/plans/mine");
        assert_eq!(
            status(&world, "ws2", method, &format!("{OWN}/plans/tide"), &["-H", &to]),
            "423",
            "{method}"
        );
    }
    let told = cadaver(&world, "ws2", "put /tmp/local plans/tide\\n");
    assert!(format!("{}{}", told.out, told.err).contains("423"), "{told:?}");
    // A guess is no token, and a lock is no hindrance to read.
    assert_eq!(put(&world, "ws2", "plans/tide", "mia", &["-H", "If: (<urn:00000001>)"]), "412");
    assert!(ask(&world, "ws2", "GET", &format!("{OWN}/plans/tide"), &[]).contains("by cadaver"));
    assert_eq!(put(&world, "ws1", "plans/tide", "ada's", &["-H", &format!("If: (<{held}>)")]), "204");
    // Properties of one's own the module does not have.
    assert_eq!(status(&world, "ws1", "PROPPATCH", &format!("{OWN}/plans/flood"), &[]), "405");

    // The same names at another level are other files, without locks.
    world.level("ws1", HIGH).ok();
    assert_eq!(list(&world, "ws1", &format!("{OWN}/plans/"), "1").lines().last(), Some("404"));
    assert_eq!(status(&world, "ws1", "MKCOL", &format!("{OWN}/plans/"), &[]), "201");
    assert_eq!(put(&world, "ws1", "plans/tide", "high", &[]), "201");
    let above = lock(&world, "ws1", "plans/flood");
    // What is below is listed and read; nothing there is changed or locked.
    let below = format!("{FILES}/below/{LOW}/plans/");
    eventually(Duration::from_secs(5), "files below are listed", || {
        list(&world, "ws1", &below, "1").contains("/plans/tide<")
            && ask(&world, "ws1", "GET", &format!("{below}tide"), &[]).contains("ada's")
    });
    assert!(!list(&world, "ws1", &below, "1").contains(&held), "a lock below is not seen above");
    for method in ["PUT", "DELETE", "MKCOL", "LOCK", "UNLOCK", "PROPPATCH", "MOVE"] {
        let to = format!("Destination: {OWN}/mine");
        let answer = status(&world, "ws1", method, &format!("{below}tide"), &["-H", &to]);
        assert!(["403", "405"].contains(&answer.as_str()), "{method} below: {answer}");
    }
    // Below there is nothing of what is above: neither its files, nor its lock.
    assert_eq!(put(&world, "ws2", "plans/flood", "mia", &[]), "204");
    let all = list(&world, "ws2", &format!("{OWN}/plans/"), "1");
    assert!(token(&all) == held && !all.contains(&above), "{all}");
    assert!(!ask(&world, "ws2", "GET", &format!("{OWN}/plans/tide"), &[]).contains("high"));
    let whole = list(&world, "ws2", &format!("{FILES}/below/"), "1");
    assert!(!whole.contains("SECRET"), "{whole}");

    // The lock's end.
    world.level("ws1", LOW).ok();
    assert_eq!(unlock(&world, "ws1", "plans/tide", &held), "204");
    assert_eq!(put(&world, "ws2", "plans/tide", "mia", &[]), "204");
}

#[test]
fn one_persons_locks_keep_nobody_out_for_ever() {
    assert!(SITE.contains("timeout=5m"), "how long a lock lasts");
    let world = up("dav-locks", &SITE.replace("timeout=5m", "timeout=6s"));
    // Everything together is not locked; a directory is, with all in it, also by its name without a slash.
    assert_eq!(status(&world, "ws1", "LOCK", &format!("{OWN}/"), &[]), "405");
    assert_eq!(status(&world, "ws1", "MKCOL", &format!("{OWN}/plans"), &[]), "201");
    lock(&world, "ws1", "plans");
    assert_eq!(put(&world, "ws2", "plans/tide", "mia", &[]), "423");
    // Whoever has the level sees the lock, and takes it away.
    let seen = token(&list(&world, "ws2", &format!("{OWN}/plans/"), "0"));
    assert_eq!(unlock(&world, "ws2", "plans/", &seen), "204");
    assert_eq!(put(&world, "ws2", "plans/tide", "mia", &[]), "201");
    // Otherwise it ends by itself.
    lock(&world, "ws1", "plans/tide");
    assert_eq!(put(&world, "ws2", "plans/tide", "mia", &[]), "423");
    eventually(Duration::from_secs(15), "a lock ends", || {
        put(&world, "ws2", "plans/tide", "mia", &[]) == "204"
    });
    // One that nobody could see, on a name in a directory that there is not, is not made.
    assert_eq!(status(&world, "ws1", "LOCK", &format!("{OWN}/new/tide"), &[]), "409");
    assert_eq!(status(&world, "ws2", "MKCOL", &format!("{OWN}/new/"), &[]), "201");
    assert_eq!(put(&world, "ws2", "new/tide", "mia", &[]), "201");

    // Locks without end: one workstation has its share of them, and of the files that they make.
    let many = format!(
        "for n in $(seq 200); do echo {OWN}/new/name-$n; done >/tmp/names; \
         xargs -n 1 curl -sS -o /dev/null -w '%{{http_code}}\\n' -X LOCK </tmp/names | sort | uniq -c"
    );
    let answers = world.run("ws1", &["sh", "-c", &many]).ok();
    let made: usize = answers
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .filter(|(_, code)| code.starts_with('2'))
        .filter_map(|(count, _)| count.parse::<usize>().ok())
        .sum();
    assert!((20..=40).contains(&made) && answers.contains(" 429"), "{answers}");
    lock(&world, "ws2", "new/mine");
}

/// What a request may not do, whatever is in it.
const REFUSED: [(&str, &str, &str); 17] = [
    ("PROPFIND", "/", "404"),
    ("PROPFIND", "/own/../", "404"),
    ("PROPFIND", "/own/%2e%2e/", "404"),
    ("PROPFIND", "/own/../../etc/", "400"),
    ("PROPFIND", "/own/x/%2e%2e/%2e%2e/below/", "403"),
    ("PROPFIND", "/etc/", "404"),
    ("PROPFIND", "/own/.files/", "404"),
    ("PUT", "/own/.files/x", "404"),
    ("PUT", "/own/%2ehidden", "404"),
    ("LOCK", "/own/.files", "404"),
    ("LOCK", "/tide", "404"),
    ("LOCK", "/below/", "405"),
    ("DELETE", "/own/", "405"),
    ("DELETE", "/own//", "405"),
    ("MKCOL", "/own/", "405"),
    ("COPY", "/own/", "405"),
    ("UNLOCK", "/own/", "405"),
];

#[test]
fn nothing_outside_the_tree_is_reached_nothing_is_removed_as_a_whole_and_no_lock_is_gone_round() {
    let world = up("dav-tree", SITE);
    for directory in ["plans", "plans/deep", "other"] {
        assert_eq!(status(&world, "ws1", "MKCOL", &format!("{OWN}/{directory}/"), &[]), "201");
    }
    assert_eq!(put(&world, "ws1", "plans/tide", "ada's", &[]), "201");
    assert_eq!(put(&world, "ws2", "mine", "mia's", &[]), "201");
    for (method, path, expected) in REFUSED {
        // A Depth that is not one has 400 wherever PROPFIND is answered at all: 403 is of one without end.
        let depth = if expected == "403" { "Depth: infinity" } else { "Depth: 1" };
        let more = ["-H", depth, "-H", "Destination: /own/copy/"];
        assert_eq!(
            status(&world, "ws2", method, &format!("{FILES}{path}"), &more),
            expected,
            "{method} {path}"
        );
    }
    // To where a copy or move goes: nowhere else, to nobody's place, and not over a directory.
    let all = [
        OWN,
        "/own/",
        "/own//",
        "//own/x",
        "/own",
        "/",
        "/run/x",
        "/below/x",
        "nonsense",
        "/own/..",
        "/own/x/../y",
    ];
    let hosts =
        ["http://elsewhere.example/own/x", "https://files.harbour.example:8080/own/x", "ftp://x/own/x"];
    let names = [
        "/own/.hidden",
        "/own/%2ehidden",
        "/own/a%2fb",
        "/own/%00x",
        "/own/nosuch/x",
        "/own/plans/",
        "/own/plans",
    ];
    for destination in [&all[..], &hosts, &names].concat() {
        for method in ["COPY", "MOVE"] {
            for (source, overwrite) in [("mine", "T"), ("mine", "F"), ("other/", "T"), ("other/", "F")] {
                let (to, overwrite) =
                    (format!("Destination: {destination}"), format!("Overwrite: {overwrite}"));
                let more = ["-H", &to, "-H", &overwrite];
                let answer = status(&world, "ws2", method, &format!("{OWN}/{source}"), &more);
                assert!(
                    ["400", "403", "409", "412"].contains(&answer.as_str()),
                    "{method} {source} to {destination}, {overwrite}: {answer}"
                );
            }
        }
    }
    // Into itself, which nginx would not come to the end of.
    for destination in
        ["plans/", "plans/deep/", "plans/deep/x/", "plans/x", "plans/%78/", "plans//x/", "plans/a b/"]
    {
        for (method, source) in [("COPY", "plans/"), ("MOVE", "plans/"), ("MOVE", "plans")] {
            let to = format!("Destination: {OWN}/{destination}");
            let answer = status(&world, "ws2", method, &format!("{OWN}/{source}"), &["-H", &to]);
            assert!(
                ["403", "409"].contains(&answer.as_str()),
                "{method} {source} to {destination}: {answer}"
            );
        }
    }
    // Over a file that ada has locked, by every way to write its name; a name that is not plain only where there is nothing.
    lock(&world, "ws1", "plans/tide");
    for name in [
        "plans/tide",
        "plans/%74ide",
        "%70lans/tide",
        "plans//tide",
        "/plans/tide",
        "plans/./tide",
        "plans/tide?x",
        "plans/tide#x",
    ] {
        for overwrite in ["Overwrite: T", "Overwrite: F"] {
            for method in ["COPY", "MOVE"] {
                let to = format!("Destination: /own/{name}");
                let answer =
                    status(&world, "ws2", method, &format!("{OWN}/mine"), &["-H", &to, "-H", overwrite]);
                assert!(["403", "412", "423"].contains(&answer.as_str()), "{method} to {name}: {answer}");
            }
        }
    }
    let to = ["-H", "Destination: /own/plans/a%20name", "-H", "Overwrite: F"];
    assert_eq!(status(&world, "ws2", "COPY", &format!("{OWN}/mine"), &to), "204");
    for way in ["plans/%74ide", "plans//tide", "plans/./tide", "x/../plans/tide"] {
        assert_eq!(put(&world, "ws2", way, "mia", &[]), "423", "PUT {way}");
    }
    // All is where it was.
    assert!(ask(&world, "ws2", "GET", &format!("{OWN}/plans/tide"), &[]).starts_with("ada's"));
    assert!(ask(&world, "ws2", "GET", &format!("{OWN}/mine"), &[]).starts_with("mia's"));
    let whole = list(&world, "ws2", &format!("{OWN}/"), "1");
    assert_eq!(whole.matches("<D:response>").count(), 4, "{whole}");
}

/// Entities of entities: a billion of them, and a file of the server's.
const BOMBS: [&str; 2] = [
    "<!DOCTYPE p [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;'>\
     <!ENTITY d '&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;'><!ENTITY e '&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;'><!ENTITY f '&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;'>\
     <!ENTITY g '&f;&f;&f;&f;&f;&f;&f;&f;&f;&f;'><!ENTITY h '&g;&g;&g;&g;&g;&g;&g;&g;&g;&g;'>]>\
     <propfind xmlns='DAV:'><prop><displayname>&h;</displayname></prop></propfind>",
    "<!DOCTYPE p [<!ENTITY f SYSTEM 'file:///run/files.conf'><!ENTITY % r SYSTEM 'http://10.80.0.1:80/own/'> %r;]>\
     <propfind xmlns='DAV:'><prop><displayname>&f;</displayname></prop></propfind>",
];

/// Memory that the processes in the low level's network have, in bytes.
fn memory(world: &World) -> u64 {
    let rows = world.status();
    let rows = rows["compartments"].as_array().expect("compartments");
    let low = rows.iter().find(|row| row["label"] == LOW).expect("the low label runs");
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = network(&low["init"].to_string()).expect("the network of the low label");
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let kilobytes = pids.filter(|pid| network(pid).as_ref() == Some(&own)).filter_map(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    kilobytes.sum::<u64>() * 1024
}

#[test]
fn a_body_that_is_a_bomb_or_has_no_end_costs_nobody_anything() {
    let world = up("dav-bombs", SITE);
    assert_eq!(put(&world, "ws1", "tide", "ada's", &[]), "201");
    let before = memory(&world);
    assert!(before > 1 << 20, "{before}");
    for bomb in BOMBS {
        for (method, url) in [("PROPFIND", format!("{OWN}/")), ("LOCK", format!("{OWN}/tide"))] {
            let answer = ask(&world, "ws2", method, &url, &["-H", "Depth: 0", "--data-binary", bomb]);
            let code = answer.lines().last().unwrap_or_default();
            assert!(["200", "207", "400", "423"].contains(&code), "{method}: {answer}");
            assert!(
                answer.len() < 4096 && !answer.contains("aaaa") && !answer.contains("load_module"),
                "{answer}"
            );
        }
    }
    // Larger than anything that has to be said, and without an end that could be known.
    let large = "head -c 20000000 /dev/zero >/tmp/large";
    world.run("ws2", &["sh", "-c", large]).ok();
    for method in ["PROPFIND", "LOCK", "UNLOCK", "DELETE", "MKCOL", "OPTIONS"] {
        let url = format!("{OWN}/tide");
        let words = ["-H", "Expect:", "--data-binary", "@/tmp/large"];
        assert_eq!(status(&world, "ws2", method, &url, &words), "413", "{method}");
        let words = ["-H", "Expect:", "-H", "Transfer-Encoding: chunked", "-d", "x"];
        assert_eq!(status(&world, "ws2", method, &url, &words), "411", "{method}");
    }
    let endless = list(&world, "ws2", &format!("{OWN}/"), "infinity");
    assert!(endless.ends_with("\n403"), "{endless}");
    for header in ["If: (<urn:", "If: (<urn:12", "Lock-Token: <urn:", "If: <http://x/> (<urn:1234567g>)"] {
        assert_eq!(
            status(&world, "ws2", "UNLOCK", &format!("{OWN}/tide"), &["-H", header]),
            "400",
            "{header}"
        );
    }
    // Who does not read what they have asked for has sixteen connections, and the others go on.
    let stuck = "for n in $(seq 60); do (printf 'PROPFIND /own/ HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 9\\r\\n\\r\\n'; sleep 9) |
        socat - TCP:files.harbour.example:8080 & done; wait";
    let mut stuck = world.inside("ws2", &["sh", "-c", stuck]);
    let mut stuck = stuck
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("start nsenter");
    eventually(Duration::from_secs(10), "one workstation has no more connections", || {
        status(&world, "ws2", "GET", &format!("{OWN}/tide"), &[]) == "429"
    });
    assert!(ask(&world, "ws1", "GET", &format!("{OWN}/tide"), &[]).starts_with("ada's"));
    stuck.kill().and_then(|()| stuck.wait()).expect("its end");
    let grown = memory(&world).saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
}
