//! Needs root. What a site that requires SELinux has on this host, which has none or none that knows levee.

use std::process::{Command, Output};

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// levee-warden, or levee-plan for a label, with a site that says so of SELinux.
fn started(choice: &str, program: &str, label: Option<&str>) -> Output {
    let place = tempfile::tempdir().unwrap();
    let site = place.path().join("site.toml");
    std::fs::write(&site, SITE.replace("selinux = \"auto\"", &format!("selinux = \"{choice}\""))).unwrap();
    let mut warden = Command::new(program);
    warden.args(label).arg("--server").arg(&site).arg("--state").arg(place.path().join("state"));
    warden.arg("--run").arg(place.path().join("run"));
    warden.arg("--programs").arg(std::path::Path::new(env!("CARGO_BIN_EXE_levee-warden")).parent().unwrap());
    let output = warden.output().unwrap();
    assert!(!place.path().join("state/uids").exists() && !place.path().join("run/control").exists());
    output
}

#[test]
fn a_server_whose_site_requires_selinux_does_not_start_where_it_enforces_nothing() {
    let output = started("required", env!("CARGO_BIN_EXE_levee-warden"), None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot have SELinux enforce labels, as the site requires"), "{said}");
    if !std::path::Path::new("/sys/fs/selinux/enforce").exists() {
        assert!(said.contains("the host has no SELinux: boot with"), "{said}");
    }
    assert!(said.contains("or write `selinux = \"auto\"`"), "{said}");
}

#[test]
fn the_plan_shows_the_contexts_of_each_label_where_the_site_requires_them_and_none_where_it_does_not() {
    let plan = |choice: &str, label: &str| {
        let output = started(choice, env!("CARGO_BIN_EXE_levee-plan"), Some(label));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (low, high) = (plan("required", "UNCLASSIFIED"), plan("required", "SECRET//NATO"));
    for (text, level) in [(&low, "s0\n"), (&high, "s2:c0\n")] {
        let context = format!("take on the SELinux context system_u:system_r:levee_compartment_t:{level}");
        assert!(text.contains(&context), "{text}");
        assert!(text.contains("files system_u:object_r:levee_compartment_file_t:"), "{text}");
    }
    assert!(!plan("off", "SECRET").contains("SELinux"));
}
