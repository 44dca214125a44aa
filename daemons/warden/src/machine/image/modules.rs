//! The distribution's kernel and those of its modules that a machine of virtio devices needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What a machine needs, as modules or built in: its devices, file systems, and what lists and destroys sockets.
const WANTED: [&str; 10] = [
    "virtio_mmio",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio_rng",
    "ext4",
    "erofs",
    "overlay",
    "tcp_diag",
    "udp_diag",
];

/// Bytes before what a module says of the modules that it needs (`modinfo`).
const DEPENDS: &[u8] = b"\0depends=";

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Its image.
    pub image: PathBuf,
    /// Its modules, each after those that it needs.
    pub modules: Vec<PathBuf>,
}

impl Kernel {
    /// The newest kernel beneath `root` that has what a machine needs.
    ///
    /// # Errors
    /// What is missing, and where to get it.
    pub fn find(root: &Path) -> Result<Self, String> {
        let boot = root.join("boot");
        let remedy = "install linux-image-cloud-amd64, or unpack it (dpkg-deb -x) and name the place as \
                      `kernel-root` in [isolation]";
        let entries = fs::read_dir(&boot)
            .map_err(|e| format!("look for a kernel in {}: {e}; {remedy}", boot.display()))?;
        let mut kernels: Vec<(Vec<u64>, PathBuf, String)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let version = name.strip_prefix("vmlinuz-")?.to_owned();
                Some((numbers(&version), entry.path(), version))
            })
            .collect();
        kernels.sort();
        let mut why = format!("there is no kernel in {}; {remedy}", boot.display());
        for (_, image, version) in kernels.into_iter().rev() {
            match modules(root, &version) {
                Ok(modules) => return Ok(Self { image, modules }),
                Err(e) => why = format!("{e}; {remedy}"),
            }
        }
        Err(why)
    }
}

/// The numbers in a version, by which a later one is greater.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn modules(root: &Path, version: &str) -> Result<Vec<PathBuf>, String> {
    let place = ["lib/modules", "usr/lib/modules"].map(|place| root.join(place).join(version));
    let place = place.into_iter().find(|place| place.is_dir());
    let place =
        place.ok_or_else(|| format!("the kernel {version} has no modules beneath {}", root.display()))?;
    let mut all = BTreeMap::new();
    collect(&place.join("kernel"), &mut all)?;
    let built_in = fs::read_to_string(place.join("modules.builtin")).unwrap_or_default();
    let built_in: Vec<String> = built_in.lines().filter_map(|line| name(Path::new(line))).collect();
    let mut order = Vec::new();
    for wanted in WANTED {
        add(wanted, &all, &built_in, &mut order).map_err(|e| format!("the kernel {version} {e}"))?;
    }
    Ok(order)
}

/// Adds a module behind those that it needs.
fn add(
    wanted: &str,
    all: &BTreeMap<String, PathBuf>,
    built_in: &[String],
    order: &mut Vec<PathBuf>,
) -> Result<(), String> {
    let Some(path) = all.get(wanted) else {
        let known = built_in.iter().any(|name| name == wanted);
        return if known { Ok(()) } else { Err(format!("has no module {wanted} that is not compressed")) };
    };
    if order.contains(path) {
        return Ok(());
    }
    let module = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for needed in depends(&module) {
        add(&needed, all, built_in, order)?;
    }
    order.push(path.clone());
    Ok(())
}

/// What a module says that it needs.
fn depends(module: &[u8]) -> Vec<String> {
    let place = module.windows(DEPENDS.len()).position(|window| window == DEPENDS);
    let text = place.and_then(|place| module.get(place + DEPENDS.len()..)).unwrap_or_default();
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(text);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// The module's name, as modules name each other.
fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.strip_suffix(".ko")?.replace('-', "_"))
}

fn collect(directory: &Path, all: &mut BTreeMap<String, PathBuf>) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            collect(&entry.path(), all)?;
        } else if let Some(name) = name(&entry.path()) {
            all.insert(name, entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_behind_those_that_it_needs_and_the_newest_kernel_that_is_whole_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        assert!(Kernel::find(root.path()).unwrap_err().contains("linux-image-cloud-amd64"));
        write("boot/vmlinuz-6.9.0-1", b"");
        write("boot/vmlinuz-6.10.0-1", b"");
        write("boot/vmlinuz-6.11.0-1", b"");
        let builtin = WANTED.iter().skip(1).filter(|name| **name != "virtio_rng");
        let builtin: String = builtin.map(|name| format!("kernel/drivers/{name}.ko\n")).collect();
        for version in ["6.9.0-1", "6.10.0-1"] {
            write(&format!("lib/modules/{version}/modules.builtin"), builtin.as_bytes());
            write(&format!("lib/modules/{version}/kernel/a/virtio-rng.ko"), b"x\0depends=virtio\0y");
            write(
                &format!("lib/modules/{version}/kernel/a/virtio_mmio.ko"),
                b"x\0depends=virtio,virtio_ring\0y",
            );
            write(&format!("lib/modules/{version}/kernel/b/virtio.ko"), b"x\0depends=virtio_ring\0y");
            write(&format!("lib/modules/{version}/kernel/b/virtio_ring.ko"), b"x\0depends=\0y");
        }
        let kernel = Kernel::find(root.path()).unwrap();
        assert!(kernel.image.ends_with("vmlinuz-6.10.0-1"));
        let names: Vec<_> = kernel.modules.iter().filter_map(|path| name(path)).collect();
        assert_eq!(names, ["virtio_ring", "virtio", "virtio_mmio", "virtio_rng"]);
    }
}
