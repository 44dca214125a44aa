//! A copy of the tree with all changes in it, and its build: what does not compile is taken out, until the rest does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::changes::{Change, File, SWITCH};

/// What one crate's code and the tree around it become.
pub struct Tree {
    root: PathBuf,
    own: PathBuf,
    package: String,
    files: Vec<(PathBuf, File)>,
    next: u32,
    /// What does not compile.
    out: BTreeSet<u32>,
}

/// A program of tests.
#[derive(Debug)]
pub struct Program {
    /// Where it lies.
    pub path: PathBuf,
    /// Where it is to run.
    pub directory: PathBuf,
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let parent = path.parent().ok_or("a file without a directory")?;
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// The name of the package in this directory.
fn package(directory: &Path) -> Result<String, String> {
    let manifest = text(&directory.join("Cargo.toml"))?;
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.map(str::to_owned).ok_or_else(|| format!("{} names no package", directory.display()))
}

/// The files that are there for tests alone: `#[cfg(test)] mod NAME;`.
fn for_tests(text: &str) -> impl Iterator<Item = &str> {
    let mut lines = text.lines().peekable();
    std::iter::from_fn(move || {
        while let Some(line) = lines.next() {
            if line.trim().starts_with("#[cfg(test)]")
                && let Some(name) =
                    lines.peek().and_then(|next| next.trim().strip_prefix("mod ")?.strip_suffix(';'))
            {
                return Some(name);
            }
        }
        None
    })
}

impl Tree {
    /// Copies the tree, and finds every change of a crate's files whose paths have one of these texts in them, or of all.
    pub fn copy(own: &Path, only: &[String]) -> Result<Self, String> {
        let root = PathBuf::from("out/mutants/tree");
        let listed =
            Command::new("git").args(["ls-files", "-z"]).output().map_err(|e| format!("git: {e}"))?;
        let listed = String::from_utf8(listed.stdout).map_err(|e| e.to_string())?;
        let paths: Vec<&Path> = listed.split_terminator('\0').map(Path::new).collect();
        let source = own.join("src");
        let mut tests = BTreeSet::new();
        for path in paths
            .iter()
            .filter(|path| path.starts_with(&source) && path.extension().is_some_and(|e| e == "rs"))
        {
            let directory = path.parent().unwrap_or(path);
            let stem = path.file_stem().unwrap_or_default();
            let within = if ["lib", "mod", "main"].iter().any(|name| stem == *name) {
                directory.into()
            } else {
                directory.join(stem)
            };
            for name in for_tests(&text(path)?) {
                tests.insert(within.join(format!("{name}.rs")));
                tests.insert(within.join(name));
            }
        }
        let mut tree = Self {
            root,
            own: own.into(),
            package: package(own)?,
            files: Vec::new(),
            next: 1,
            out: BTreeSet::new(),
        };
        for path in paths {
            let is_own = path.starts_with(&source)
                && path.extension().is_some_and(|e| e == "rs")
                && (only.is_empty() || only.iter().any(|one| path.to_string_lossy().contains(one.as_str())))
                && !tests.iter().any(|one| path.starts_with(one));
            if is_own {
                let file =
                    File::read(text(path)?, tree.next).map_err(|e| format!("{}: {e}", path.display()))?;
                tree.next += file.changes.len() as u32;
                tree.files.push((path.to_path_buf(), file));
            }
            let to = tree.root.join(path);
            match std::fs::read_to_string(path) {
                Ok(text) if path.is_symlink() || text.is_empty() => {
                    drop((text, copy(path, &to)?));
                }
                Ok(text) => write(&to, &text)?,
                Err(_) if path.exists() => copy(path, &to)?,
                Err(_) => {}
            }
        }
        Ok(tree)
    }

    /// Leaves out what does not stand in such a line of a file. Whether something is left.
    pub fn leave_only(&mut self, is_wanted: impl Fn(&Path, usize) -> bool) -> bool {
        let mut is_some_left = false;
        for (path, file) in &self.files {
            for change in &file.changes {
                if is_wanted(path, change.line) {
                    is_some_left = true;
                } else {
                    self.out.insert(change.id);
                }
            }
        }
        is_some_left
    }

    fn put(&self) -> Result<(), String> {
        for (path, file) in &self.files {
            write(&self.root.join(path), &file.switched(&self.out))?;
        }
        // A program's own root, where the crate is no library.
        let library = self.own.join("src/lib.rs");
        let root = if library.exists() { library } else { self.own.join("src/main.rs") };
        let changed = self.files.iter().find(|(path, _)| *path == root);
        let base = changed.map_or_else(|| text(&root), |(_, file)| Ok(file.switched(&self.out)))?;
        let size = self.next;
        let switch = format!(
            "\n#[doc(hidden)]\n#[allow(missing_docs)]\npub fn {SWITCH}(id: u32) -> bool {{\n\
             extern crate std;\n\
             use std::sync::atomic::{{AtomicBool, Ordering}};\n\
             static ON: std::sync::OnceLock<(u32, Option<std::ffi::OsString>)> = std::sync::OnceLock::new();\n\
             static SEEN: [AtomicBool; {size}] = [const {{ AtomicBool::new(false) }}; {size}];\n\
             let (on, seen) = ON.get_or_init(|| {{\n\
             let on = std::env::var(\"LEVEE_MUTANT\").ok().and_then(|id| id.parse().ok());\n\
             (on.unwrap_or(0), std::env::var_os(\"LEVEE_MUTANTS_SEEN\"))\n}});\n\
             if let Some(path) = seen && !SEEN[id as usize].swap(true, Ordering::Relaxed) {{\n\
             use std::io::Write as _;\n\
             let file = std::fs::OpenOptions::new().create(true).append(true).open(path);\n\
             let _ = file.map(|mut file| file.write_all(std::format!(\"{{id}}\\n\").as_bytes()));\n}}\n\
             *on == id\n}}\n"
        );
        write(&self.root.join(&root), &(base + &switch))
    }

    /// Builds the tests of the crate, and of these others, without the changes that do not compile.
    pub fn build(&mut self, with: &[PathBuf]) -> Result<Vec<Program>, String> {
        let packages: Vec<String> = with.iter().map(|one| package(one)).collect::<Result<_, _>>()?;
        for turn in 1..=40 {
            self.put()?;
            let target = std::path::absolute("out/mutants/target").map_err(|e| e.to_string())?;
            let mut cargo = Command::new("cargo");
            cargo.args(["test", "--no-run", "--message-format=json", "--package", &self.package]);
            cargo.args(packages.iter().flat_map(|name| ["--package", name.as_str()]));
            cargo
                .current_dir(&self.root)
                .env("CARGO_TARGET_DIR", target)
                .env("RUSTFLAGS", "--cap-lints=warn -Adead_code");
            cargo
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .env_remove("RUSTC_WORKSPACE_WRAPPER")
                .stderr(Stdio::null());
            let output = cargo.output().map_err(|e| format!("cargo: {e}"))?;
            let printed = String::from_utf8_lossy(&output.stdout);
            let messages: Vec<Value> =
                printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            if output.status.success() {
                return Ok(messages.iter().filter_map(|one| self.program(one)).collect());
            }
            let before = self.out.len();
            let mut others = String::new();
            for message in &messages {
                self.take_out(&message["message"], &mut others);
            }
            eprintln!("build {turn}: {} changes do not compile", self.out.len());
            if self.out.len() == before {
                return Err(format!("it does not compile, and no change is the reason\n{others}"));
            }
        }
        Err("it does not come to compile".to_owned())
    }

    fn program(&self, message: &Value) -> Option<Program> {
        let path = PathBuf::from(message["executable"].as_str()?);
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        message["profile"]["test"].as_bool().filter(|test| *test)?;
        Some(Program { path, directory: manifest.parent()?.into() })
    }

    /// Takes out the changes in the lines that an error is about.
    fn take_out(&mut self, message: &Value, others: &mut String) {
        if message["level"] != "error" {
            return;
        }
        others.push_str(message["rendered"].as_str().unwrap_or_default());
        let spans = message["spans"].as_array().into_iter().flatten();
        for span in spans.filter(|span| span["is_primary"] == true) {
            let file = self.root.join(span["file_name"].as_str().unwrap_or_default());
            let text = text(&file).unwrap_or_default();
            let (Some(from), Some(to)) = (span["line_start"].as_u64(), span["line_end"].as_u64()) else {
                continue;
            };
            let lines = text.lines().skip(from as usize - 1).take((to - from + 1) as usize);
            let switch = format!("{SWITCH}(");
            for line in lines {
                let ids = line
                    .split(&switch)
                    .skip(1)
                    .filter_map(|rest| rest.split_once(')')?.0.parse::<u32>().ok());
                self.out.extend(ids);
            }
        }
    }

    /// Every change that compiles, in the order of the files.
    pub fn changes(&self) -> Vec<(PathBuf, Change)> {
        let of = |(path, file): &(PathBuf, File)| {
            let kept = file.changes.iter().filter(|change| !self.out.contains(&change.id));
            kept.map(|change| (path.clone(), change.clone())).collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of).collect()
    }

    /// How many there were, by file.
    pub fn table(&self, lived: usize) -> String {
        let mut counts: BTreeMap<&Path, (usize, usize)> = BTreeMap::new();
        for (path, file) in &self.files {
            let out = file.changes.iter().filter(|change| self.out.contains(&change.id)).count();
            counts.insert(path, (file.changes.len(), out));
        }
        let rows = counts.iter().filter(|(_, (made, _))| *made > 0);
        let rows: Vec<String> =
            rows.map(|(path, (made, out))| format!("| `{}` | {made} | {out} |", path.display())).collect();
        let made: usize = counts.values().map(|(made, _)| made).sum();
        format!(
            "\n| file | made | not compiled |\n|---|---|---|\n{}\n\n{made} made, {} not compiled, {lived} lived",
            rows.join("\n"),
            self.out.len()
        )
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let parent = to.parent().ok_or("a file without a directory")?;
    let copied = std::fs::create_dir_all(parent).and_then(|()| std::fs::copy(from, to));
    copied.map(drop).map_err(|e| format!("{}: {e}", from.display()))
}
