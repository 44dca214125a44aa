//! The site file, and a workstation's: what is not understood to the last key is refused, with a place in the text.
//!
//! Input: a byte (1: a workstation's file; else the site's), then text.

use levee_policy::site::Site;
use levee_warden::Bundle;

fn site(text: &str) {
    match Site::parse(text) {
        Ok(site) => {
            let again = Site::parse(&format!("{text}\n# the end\n")).expect("a comment changes nothing");
            // What is not compared here is a table of names, whose order is drawn by chance.
            let said = |site: &Site| {
                let (users, hosts): (Vec<_>, Vec<_>) = (site.users().collect(), site.hosts().collect());
                format!("{users:?} {hosts:?} {:?} {:?}", site.server(), site.limits())
            };
            assert_eq!(said(&site), said(&again));
            assert!(Site::parse(&format!("{text}\n[no-such-table]\n")).is_err(), "an unknown table");
            for user in site.users() {
                for host in site.hosts() {
                    // The ends of both ranges, and what is between where that is little.
                    let labels = [user.clearance(), host.accreditation()].map(|range| range.labels(8));
                    for label in labels.into_iter().flatten().flatten() {
                        let both = user.clearance().contains(&label) && host.accreditation().contains(&label);
                        let name = site.label_name(&label).expect("the site's own label has a name");
                        assert_eq!(site.label(&name).as_ref(), Some(&label), "a name is one label's");
                        let decided = site.decide_session(user.name(), host.name(), &name);
                        assert!(both || decided.is_err(), "a session beyond clearance and accreditation");
                    }
                }
            }
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "it is refused, and nobody learns why");
            let lines = text.split('\n').count();
            for problem in &problems {
                assert!((1..=lines).contains(&problem.line), "line {} of {lines}", problem.line);
                assert!(problem.column >= 1 && problem.length >= 1 && !problem.what.is_empty());
            }
        }
    }
}

fn workstation(text: &str) {
    if Bundle::parse(text).is_ok() {
        assert!(Bundle::parse(&format!("{text}\n# the end\n")).is_ok());
        assert!(Bundle::parse(&format!("{text}\n[no-such-table]\n")).is_err(), "an unknown table");
    }
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&which, text)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    if which == 1 { workstation(text) } else { site(text) }
}
