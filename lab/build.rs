//! Names the commit and the compiler, for the environment of a run; builds the programs that the laboratory carries in itself.

use std::path::{Path, PathBuf};
use std::process::Command;

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let out = Command::new(program).args(arguments).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.trim().to_owned())
}

/// A program of its own, in C and without libraries, so that it runs in any compartment: `NAME/*.c`.
fn program(name: &str, files: &[&str]) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names it")).join(name);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let files = files.iter().map(|f| format!("{name}/{f}.c"));
    let status = Command::new(&compiler)
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o"])
        .arg(out)
        .args(files)
        .arg("-lm")
        .status();
    assert!(status.is_ok_and(|s| s.success()), "{compiler}: building {name}/*.c failed");
}

fn main() {
    program(
        "attacker",
        &["main", "kernel", "hardware", "resources", "sockets", "pools", "crossing", "record", "drive"],
    );
    program(
        "operations",
        &[
            "main",
            "arithmetic",
            "system",
            "switches",
            "files",
            "memory",
            "calculate",
            "storage",
            "commands",
            "periodic",
        ],
    );
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let compiler = said(&rustc, &["--version"]).unwrap_or_else(|| "not known".into());
    let commit =
        said("git", &["rev-parse", "HEAD"]).map_or("not known: built outside of git".into(), |commit| {
            match said("git", &["status", "--porcelain", "--untracked-files=no"]) {
                Some(changed) if changed.is_empty() => commit,
                _ => format!("{commit} and changes"),
            }
        });
    println!("cargo::rustc-env=LAB_RUSTC={compiler}");
    println!("cargo::rustc-env=LAB_COMMIT={commit}");
    // Every commit and checkout adds a line to the first.
    let log = said("git", &["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists());
    for path in log.as_deref().into_iter().chain([
        "src",
        "experiments",
        "papers",
        "attacker",
        "operations",
        "studies",
    ]) {
        println!("cargo::rerun-if-changed={path}");
    }
}
