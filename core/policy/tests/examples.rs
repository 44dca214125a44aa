//! The example sites in `conf/`.

use levee_policy::{DenialKind, HostName, LabelName, Site, UserName};

fn site(text: &str) -> Site {
    Site::parse(text).unwrap_or_else(|problems| {
        panic!("{}", problems.iter().map(|problem| format!("{problem}\n")).collect::<String>())
    })
}

fn small() -> Site {
    site(include_str!("../../../conf/small/site.toml"))
}

#[test]
fn the_small_site_has_no_problem_and_clears_its_people_as_it_says() {
    let small = small();
    assert_eq!(small.vocabulary().levels().len(), 3);
    assert_eq!(small.vocabulary().categories().len(), 2);
    let try_session = |user: &str, host: &str, label: &str| {
        small
            .decide_session(
                &UserName::new(user).unwrap(),
                &HostName::new(host).unwrap(),
                &LabelName::new(label).unwrap(),
            )
            .map(|grant| grant.action().reach().len())
            .map_err(|denial| denial.kind())
    };
    assert_eq!(try_session("ada", "ws1", "SECRET//NATO,MED"), Ok(1));
    assert_eq!(try_session("ada", "ws2", "SECRET//NATO,MED"), Err(DenialKind::NotAccredited));
    assert_eq!(try_session("mia", "ws1", "CONFIDENTIAL//MED"), Ok(1));
    assert_eq!(try_session("mia", "ws1", "CONFIDENTIAL//NATO"), Err(DenialKind::NotCleared));
    assert_eq!(try_session("ugo", "ws1", "UNCLASSIFIED"), Ok(1));
    assert_eq!(try_session("ugo", "ws1", "CONFIDENTIAL"), Err(DenialKind::NotCleared));
}

#[test]
fn the_site_with_mail_has_no_problem() {
    let mail = site(include_str!("../../../conf/mail/site.toml"));
    assert_eq!(mail.services().len(), 3);
}

#[test]
fn the_site_with_file_shares_has_no_problem() {
    let files = site(include_str!("../../../conf/files/site.toml"));
    assert_eq!(files.services().len(), 2);
}

#[test]
fn the_large_site_has_no_problem() {
    let large = site(include_str!("../../../conf/large/site.toml"));
    assert_eq!(large.vocabulary().levels().len(), 100);
    assert_eq!((large.users().len(), large.hosts().len()), (100, 100));
    assert_eq!(large.networks().len(), 4);
    let most =
        large.session_range(&UserName::new("user00").unwrap(), &HostName::new("ws00").unwrap()).unwrap();
    assert_eq!(most.count(), Some(100 * (1 << 24) * 2));
}
