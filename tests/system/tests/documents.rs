//! Documents flow upward, as copies: written low, read high within a second, never changed from there.

use levee_system::{World, eventually, sh, text};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

fn put(world: &World, path: &str, content: &str) -> levee_system::Done {
    put_at(world, "ws1", path, content)
}

fn put_at(world: &World, workstation: &str, path: &str, content: &str) -> levee_system::Done {
    let url = format!("http://www.harbour.example{path}");
    world.run(
        workstation,
        &["curl", "-sS", "--fail", "--max-time", "10", "-X", "PUT", "--data-binary", content, &url],
    )
}

fn get(world: &World, path: &str) -> levee_system::Done {
    world.fetch("ws1", &format!("http://www.harbour.example{path}"))
}

#[test]
fn a_document_written_low_is_read_high_and_cannot_be_changed_there() {
    let world = World::up("docs", SITE, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    put(&world, "/own/tide", "high water at nine").ok();
    world.level("ws1", HIGH).ok();
    let path = format!("/below/{LOW}/tide");
    eventually(Duration::from_secs(1), "the document is with the high label", || {
        get(&world, &path).out == "high water at nine"
    });
    let page = get(&world, "/").ok();
    assert!(page.contains("tide"), "the page lists it");
    // Of the ten other labels below nobody has written anything.
    let nothing = "(read-only)</h2>\n<p>no documents yet</p>";
    assert_eq!((page.matches(nothing).count(), page.contains("404")), (10, false), "{page}");
    put(&world, &path, "never").refused();
    put(&world, "/own/secret", "stays here").ok();
    world.level("ws1", LOW).ok();
    assert_eq!(get(&world, "/own/tide").ok(), "high water at nine");
    // What begins with a dot is the services' own.
    put(&world, "/own/.hidden", "x").refused();
    for (destination, kept) in [("/own/.hidden", true), ("/own/%2ehidden", true), ("/own/moved", false)] {
        let header = format!("Destination: {destination}");
        let url = "http://www.harbour.example/own/tide";
        let moved = world.run("ws1", &["curl", "-sS", "--fail", "-X", "MOVE", "-H", &header, url]);
        assert_eq!(moved.status != 0, kept, "to {destination}: {}", moved.err);
    }
    // What a move replaces is removed with all in it: neither that nor a removal is of everything.
    let everything = "http://www.harbour.example/own/";
    world.run("ws1", &["curl", "-sS", "--fail", "-X", "DELETE", everything]).refused();
    world.run("ws1", &["curl", "-sS", "--fail", "-X", "MKCOL", "http://www.harbour.example/own/new/"]).ok();
    for destination in
        [everything, "/own/", "/own//", "/own/%2f", "//own/", "/own", "/", "/run/x", "nonsense"]
    {
        let header = format!("Destination: {destination}");
        let url = "http://www.harbour.example/own/new/";
        world.run("ws1", &["curl", "-sS", "--fail", "-X", "MOVE", "-H", &header, url]).refused();
    }
    // Into itself it would go on for ever; to another name it goes.
    put(&world, "/own/new/a/b", "deep").ok();
    let ways = ["new/", "new/x/", "new/a/x/", "new//x/", "n%65w/x/", "new/a%2fb/x/", "new/a b/"];
    let forbidden = |method: &str, source: &str, destination: &str| {
        let header = format!("Destination: http://www.harbour.example/own/{destination}");
        let url = format!("http://www.harbour.example/own/{source}");
        let words =
            ["curl", "-sS", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}", "-X", method];
        world.run("ws1", &[&words[..], &["-H", &header, &url]].concat()).ok() == "403"
    };
    for destination in ways {
        for (method, source) in [("COPY", "new/"), ("MOVE", "new/"), ("MOVE", "new"), ("COPY", "n%65w/")] {
            assert!(forbidden(method, source, destination), "{method} {source} to {destination}");
        }
    }
    assert!(!forbidden("COPY", "new/", "newer/") && !forbidden("MOVE", "newer/", "an%20older/"));
    assert_eq!(get(&world, "/own/an%20older/a/b").ok(), "deep");
    assert_eq!(get(&world, "/own/moved").ok(), "high water at nine");
    get(&world, &format!("/below/{}/secret", HIGH.replace('/', "+"))).refused();
    assert!(!get(&world, "/").ok().contains("secret"), "nothing of the high label shows");
    world.tpe("ws1", &["logout"]).ok();
}

#[test]
fn with_more_labels_below_than_can_be_named_each_is_read_above_once_it_has_run() {
    // 3 levels and 8 categories: 768 labels.
    let site = SITE.replace("\"MED\"]", "\"MED\", \"A\", \"B\", \"C\", \"D\", \"E\", \"F\"]");
    let site = site.replace("..SECRET//NATO,MED", "..SECRET//NATO,MED,A,B,C,D,E,F");
    let high = format!("{HIGH},A,B,C,D,E,F");
    let world = World::up("docs2", &site, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    // One below has run before, the other runs for the first time while it is read.
    world.level("ws1", "CONFIDENTIAL//A").ok();
    put(&world, "/own/before", "written before").ok();
    world.level("ws1", &high).ok();
    eventually(Duration::from_secs(10), "what was written before is there", || {
        get(&world, "/below/CONFIDENTIAL++A/before").out == "written before"
    });
    get(&world, &format!("/below/{LOW}/new")).refused();
    world.login("ws2", "ugo").ok();
    world.level("ws2", LOW).ok();
    put_at(&world, "ws2", "/own/new", "written now").ok();
    eventually(Duration::from_secs(10), "what is written below is there", || {
        get(&world, &format!("/below/{LOW}/new")).out == "written now"
    });
    let page = get(&world, "/").ok();
    assert!(page.contains("before") && page.contains(LOW), "{page}");
    assert_eq!(get(&world, "/below/CONFIDENTIAL++A/before").ok(), "written before");
}

#[test]
fn a_program_below_cannot_make_its_snapshot_larger_than_its_store() {
    let world = World::up("docs3", SITE, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    let below = || used(&world.path("state"));
    let before = below();
    // As a service of the label that was taken over: its uid, its store, and one file of 4 GiB without a block.
    let compartments = world.status();
    let compartments = compartments["compartments"].as_array().unwrap();
    let init = compartments.iter().find(|row| row["label"] == LOW).unwrap()["init"].to_string();
    let inside = ["--target", &init, "--user", "--mount", "--pid", "--setuid", "1000", "--setgid", "1000"];
    let truncate = ["truncate", "-s", "4G", "/srv/own/hollow"];
    levee_system::sh("nsenter", &[&inside[..], &truncate[..]].concat()).ok();
    put(&world, "/own/after", "written after").ok();
    world.level("ws1", HIGH).ok();
    eventually(Duration::from_secs(20), "documents go up all the same", || {
        get(&world, &format!("/below/{LOW}/after")).out == "written after"
    });
    // The high label's images are made meanwhile; they have their size from the beginning.
    let images = |of: &str| -> u64 {
        let file = of.replace('/', "+");
        let stores = std::fs::read_dir(world.path("state").join("stores")).unwrap().map(Result::unwrap);
        let own = stores.filter(|image| image.file_name().to_str().unwrap().starts_with(&format!("{file}.")));
        own.map(|image| image.metadata().unwrap().len()).sum()
    };
    let grown = below().saturating_sub(before);
    assert!(grown <= images(HIGH) + (16 << 20), "the host's disk has {grown} bytes less");
}

/// Bytes that a directory and all in it take on the disk.
fn used(directory: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir(directory).into_iter().flatten().flatten().fold(0, |sum, entry| {
        let Ok(meta) = entry.path().symlink_metadata() else { return sum };
        sum + if meta.is_dir() { used(&entry.path()) } else { meta.blocks() * 512 }
    })
}

/// Begins seventy uploads and ends none; says how many are not taken.
const UPLOADS: &str = r#"
import socket, time
there = [socket.create_connection(("www.harbour.example", 80), 3) for _ in range(70)]
for n, one in enumerate(there):
    one.sendall(b"PUT /own/%d HTTP/1.1\r\nHost: www\r\nContent-Length: 100000\r\n\r\n" % n + bytes(20000))
time.sleep(1)
refused = 0
for one in there:
    one.setblocking(False)
    try: refused += b" 429 " in one.recv(100)
    except BlockingIOError: pass
print(refused, flush=True)
time.sleep(20)
"#;

#[test]
fn who_begins_seventy_uploads_and_ends_none_has_sixty_four_and_others_have_theirs() {
    let world = World::up("uploads", &SITE.replace("\"harbour\"", "\"port-upload\""), &["ws1", "ws2"]);
    for (workstation, user) in [("ws1", "ada"), ("ws2", "ugo")] {
        world.login(workstation, user).ok();
        world.level(workstation, LOW).ok();
    }
    let mut begins = world.inside("ws1", &["python3", "-c", UPLOADS]);
    let mut begins = begins.stdout(Stdio::piped()).spawn().expect("a program that begins uploads");
    let mut said = String::new();
    let told = begins.stdout.take().expect("what it says");
    BufReader::new(told).read_line(&mut said).expect("how many are refused");
    assert_eq!(said, "6\n");
    put_at(&world, "ws2", "/own/tide", "high water at nine").ok();
    assert!(begins.try_wait().expect("whether it goes on").is_none(), "they are there still");
    begins.kill().expect("end it");
    begins.wait().expect("its end");
}

#[test]
fn what_is_left_of_an_upload_whose_label_broke_off_is_gone_with_the_services_next_start() {
    let world = World::up("broke-off", &SITE.replace("\"harbour\"", "\"port-broke\""), &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    put(&world, "/own/tide", "high water at nine").ok();
    let (run, state) = (text(&world.path("run")), text(&world.path("state")));
    let incoming = || {
        let look = ["exec", LOW, "--run", &run, "--state", &state, "--", "/bin/ls", "/srv/own/.incoming/web"];
        world.levee(&look).ok().trim().to_owned()
    };
    let slow =
        "head -c 9000000 /dev/zero | curl -sS --limit-rate 200k -T - http://www.harbour.example/own/much";
    let mut upload = world.inside("ws1", &["sh", "-c", slow]);
    let mut upload = upload.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start curl");
    eventually(Duration::from_secs(20), "the upload is under way", || !incoming().is_empty());
    let init = world.status()["compartments"][0]["init"].as_u64().expect("process 1").to_string();
    sh("kill", &["-9", &init]).ok();
    eventually(Duration::from_secs(60), "the page is there again", || {
        get(&world, "/own/tide").out == "high water at nine"
    });
    assert_eq!(incoming(), "");
    upload.wait().expect("its end");
    get(&world, "/own/much").refused();
}
