//! Needs root, e2fsprogs and nginx: the host before and after a compartment.

mod common;

use std::sync::Mutex;

use common::{Host, Lab, fetch};
use levee_warden::compartment::{Files, Inside, Plan};

/// The descriptors and children of this process are compared, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn nothing_is_left_on_the_host() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let lab = Lab::new("nothing");
    let before = Host::look(&lab);
    let running = lab.start_serving();
    fetch(&lab, "GET", "/", b"");
    running.stop().unwrap();
    before.unchanged(&lab);
    // Nor when it is dropped, or killed from outside first.
    let running = lab.start();
    running.kill().unwrap();
    drop(running);
    before.unchanged(&lab);
}

#[test]
fn a_step_that_cannot_be_done_is_named_and_leaves_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let lab = Lab::new("missing");
    let before = Host::look(&lab);
    let mut plan = Plan::new(&lab.spec);
    let devices = plan.inside.iter().position(|step| matches!(step, Inside::Device { .. })).unwrap();
    plan.inside.insert(devices, Inside::File { path: "/dev/null".into(), content: String::new() });
    let error = lab.try_start(&plan).unwrap_err();
    assert_eq!(error.step(), "make device /dev/null (character 1:3)", "{error}");
    before.unchanged(&lab);

    let mut spec = lab.spec.clone();
    spec.limits.memory = 1;
    let error = lab.try_start(&Plan::new(&spec)).unwrap_err();
    before.unchanged(&lab);
    assert!(!error.step().is_empty(), "{error}");

    // A limit that the kernel does not take.
    let mut spec = lab.spec.clone();
    spec.limits.cpu_percent = 0;
    let error = lab.try_start(&Plan::new(&spec)).unwrap_err();
    before.unchanged(&lab);
    assert!(error.step().starts_with("make control group") && error.to_string().contains("cpu."), "{error}");

    let mut plan = Plan::new(&lab.spec);
    if let Files::Store { own, .. } = &lab.spec.files {
        std::fs::rename(own, own.with_extension("away")).unwrap();
        let error = lab.try_start(&plan).unwrap_err();
        assert!(
            error.step().starts_with("mount image") && error.to_string().contains("No such file"),
            "{error}"
        );
        std::fs::rename(own.with_extension("away"), own).unwrap();
    }
    before.unchanged(&lab);
    plan.inside.insert(1, Inside::Image { number: 7, path: "/x".into() });
    assert_eq!(lab.try_start(&plan).unwrap_err().step(), "attach image 8 at /x");
    before.unchanged(&lab);
}
