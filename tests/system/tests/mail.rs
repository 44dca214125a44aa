//! Mail at several levels: Debian's Dovecot and aiosmtpd, as they are, an instance a level, with the example site; and calls by SIP.
//!
//! Needs root, dovecot-imapd, python3-aiosmtpd, sip-tester, curl, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{Done, World};

const SITE: &str = include_str!("../../../conf/mail/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//MED";

/// curl with the inbox of `name`, by IMAP.
fn inbox(world: &World, name: &str, rest: &str) -> Done {
    let url = format!("imap://mail.harbour.example/INBOX{rest}");
    world.run("ws1", &["curl", "-sS", "--max-time", "10", "--user", &format!("{name}:sesame"), &url])
}

fn post(world: &World, text: &str) -> Done {
    let command = format!(
        "printf 'From: ada\\r\\nSubject: tide\\r\\n\\r\\n{text}\\r\\n' >mail && \
         curl -sS --max-time 10 --user ada:sesame -T mail imap://mail.harbour.example/INBOX"
    );
    world.run("ws1", &["sh", "-c", &command])
}

/// Has curl hand a letter in by SMTP, which says that it is mia's.
fn send(world: &World, from: &str, to: &str, text: &str) -> Done {
    let command = format!(
        "printf 'From: mia\\r\\nSubject: tide\\r\\nFROM:\\r\\n mia\\r\\nSender: mia\\r\\n\\r\\n{text}\\r\\n' >letter && \
         curl -sS --max-time 10 smtp://mail.harbour.example --mail-from {from} --mail-rcpt {to} -T letter"
    );
    world.run("ws1", &["sh", "-c", &command])
}

/// The example site, with a password for ada.
fn site() -> String {
    let sealed = "ada:{SHA512-CRYPT}*";
    assert!(SITE.contains(sealed), "as it is, the example lets nobody in");
    SITE.replace(sealed, "ada:{PLAIN}sesame")
}

/// What the web server answers to a request of curl's.
fn web(world: &World, path: &str, more: &[&str]) -> String {
    let url = format!("http://www.harbour.example{path}");
    let mut words =
        vec!["curl", "-sS", "--path-as-is", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}"];
    words.extend(more);
    words.push(&url);
    world.run("ws1", &words).ok()
}

#[test]
fn mail_is_kept_and_read_by_imap_at_its_level_and_is_not_in_another_levels_mailbox() {
    let world = World::up("mail", &site(), &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    post(&world, "high water at nine").ok();
    assert!(inbox(&world, "ada", ";MAILINDEX=1").ok().contains("high water at nine"));

    world.level("ws1", HIGH).ok();
    // Another instance, with other mailboxes.
    inbox(&world, "ada", "?ALL").ok();
    assert!(!inbox(&world, "ada", ";MAILINDEX=1").out.contains("high water"));
    post(&world, "low water at three").ok();
    assert!(inbox(&world, "ada", ";MAILINDEX=1").ok().contains("low water at three"));

    world.level("ws1", LOW).ok();
    assert!(inbox(&world, "ada", ";MAILINDEX=1").ok().contains("high water at nine"));
    assert!(!inbox(&world, "ada", ";MAILINDEX=2").out.contains("low water"));
}

#[test]
fn whoever_has_a_session_beside_the_mail_neither_reads_nor_writes_it_by_the_web() {
    let world = World::up("web", &site(), &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    post(&world, "high water at nine").ok();
    assert_eq!(web(&world, "/own/", &[]), "200", "documents are read");
    let mailbox = "/own/.mail/ada/";
    for path in
        [mailbox, "/own/%2email/ada/", "/own//.mail/ada/", "/own/./.mail/ada/", "/own/x/../.mail/ada/"]
    {
        assert_eq!(web(&world, path, &[]), "404", "GET {path}");
    }
    assert_eq!(web(&world, "/own/mail/users", &[]), "404", "where the passwords once were");
    for method in ["PUT", "DELETE", "MKCOL", "COPY", "MOVE"] {
        for path in ["/own/new", "/own/.mail/ada/cur/new", "/own/mail/users"] {
            let more = ["-X", method, "-H", "Destination: /own/.mail/ada/cur/x", "--data-binary", "x"];
            let answer = web(&world, path, &more);
            assert!(["403", "404", "405"].contains(&answer.as_str()), "{method} {path}: {answer}");
        }
    }
    let kept = inbox(&world, "ada", ";MAILINDEX=1").ok();
    assert!(kept.contains("high water at nine"));
}

#[test]
fn a_letter_is_handed_in_by_smtp_in_ones_own_name_and_read_by_imap_at_its_level_alone() {
    const ADA: &str = "ada@mail.harbour.example";
    let world = World::up("smtp", &site(), &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    send(&world, ADA, ADA, "high water at nine").ok();
    let letter = inbox(&world, "ada", ";MAILINDEX=1").ok();
    assert!(letter.contains("high water at nine") && letter.contains("Subject: tide"), "{letter}");
    // A reader is shown the letter's own header.
    assert!(letter.contains(&format!("From: <{ADA}>")) && !letter.contains("mia"), "{letter}");
    assert!(send(&world, "mia@mail.harbour.example", ADA, "forged").refused().contains("553"));
    for to in ["ugo@mail.harbour.example", "ada@elsewhere.example", "../ada@mail.harbour.example"] {
        assert!(send(&world, ADA, to, "lost").refused().contains("550"), "{to}");
    }
    assert!(!inbox(&world, "ada", ";MAILINDEX=2").out.contains("forged"));

    world.level("ws1", HIGH).ok();
    inbox(&world, "ada", "?ALL").ok();
    send(&world, ADA, ADA, "low water at three").ok();
    let one = inbox(&world, "ada", ";MAILINDEX=1").ok();
    assert!(one.contains("low water at three") && !one.contains("high water"), "{one}");
    // Each connection to it is in the audit log, with its person.
    let state = world.path("state");
    let log = world.levee(&["audit", "show", "--state", &levee_system::text(&state)]).ok();
    let ours = log.lines().filter(|line| line.contains("smtp") && line.contains("ada")).count();
    assert!(ours >= 6, "{log}");
}

/// SIPp answers calls (RFC 3261).
const CALLS: &str = r#"
[[service]]
name = "sip"
port = 5060
protocol = "udp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "itself"
command = ["/usr/bin/sipp", "-sn", "uas", "-i", "10.80.0.1", "-p", "5060", "-nostdin"]
"#;

#[test]
fn calls_by_sip_are_taken_at_the_level_of_the_session() {
    let world = World::up("calls", &format!("{}{CALLS}", site()), &["ws1"]);
    world.login("ws1", "ada").ok();
    for label in [LOW, HIGH] {
        world.level("ws1", label).ok();
        let call =
            ["sipp", "-sn", "uac", "-m", "5", "-timeout", "20", "-nostdin", "www.harbour.example:5060"];
        levee_system::eventually(std::time::Duration::from_secs(20), "calls are answered", || {
            let calls = world.run("ws1", &call);
            calls.status == 0 && calls.out.contains("Successful call")
        });
    }
}
