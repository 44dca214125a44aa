//! Mail at several levels: Debian's Dovecot, as it is, an instance a level, with the example site.

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

/// Gives ada a mailbox at the level there is.
fn mailbox(world: &World) {
    let users = "http://www.harbour.example/own/mail/users";
    let curl = ["curl", "-sS", "--fail", "-X", "PUT", "--data-binary", "ada:{PLAIN}sesame", users];
    world.run("ws1", &curl).ok();
}

#[test]
fn mail_is_kept_and_read_by_imap_at_its_level_and_is_not_in_another_levels_mailbox() {
    let world = World::up("mail", SITE, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    mailbox(&world);
    post(&world, "high water at nine").ok();
    assert!(inbox(&world, "ada", ";MAILINDEX=1").ok().contains("high water at nine"));

    world.level("ws1", HIGH).ok();
    // Another instance, with other mailboxes.
    mailbox(&world);
    inbox(&world, "ada", "?ALL").ok();
    assert!(!inbox(&world, "ada", ";MAILINDEX=1").out.contains("high water"));
    post(&world, "low water at three").ok();
    assert!(inbox(&world, "ada", ";MAILINDEX=1").ok().contains("low water at three"));

    world.level("ws1", LOW).ok();
    assert!(inbox(&world, "ada", ";MAILINDEX=1").ok().contains("high water at nine"));
    assert!(!inbox(&world, "ada", ";MAILINDEX=2").out.contains("low water"));
}
