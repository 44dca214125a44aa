//! What a maker gives up, on its own side.

use levee_sys::sandbox::{self, Access};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// What programs that makers run are and use.
const PROGRAMS: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// What a maker does first: from here on it opens nothing but the host's programs, `read`, and what it is to write.
///
/// # Errors
/// The step that failed, in words.
pub fn confine(read: &[PathBuf], write: &[BorrowedFd<'_>]) -> Result<(), String> {
    let open = |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).filter(|path| path.is_absolute()).collect();
    let programs = PROGRAMS.iter().map(Path::new);
    let programs = programs.chain(path.iter().chain(read).map(PathBuf::as_path));
    let all = programs.map(|path| (path, Access::ReadExecute)).chain([
        (Path::new("/etc/ld.so.cache"), Access::Read),
        (Path::new("/etc/mke2fs.conf"), Access::Read),
        (Path::new("/dev/null"), Access::ReadWrite),
    ]);
    // What is not there is not read.
    let files: Vec<_> = all.filter_map(|(path, access)| Some((open(path)?, access))).collect();
    let written = write.iter().map(|fd| (*fd, Access::ReadWrite));
    let files: Vec<_> = files.iter().map(|(fd, access)| (fd.as_fd(), *access)).chain(written).collect();
    sandbox::forbid_dumps().and_then(|()| sandbox::restrict(&files, false)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::ErrorKind;

    #[test]
    fn a_maker_opens_nothing_but_programs_what_it_reads_and_what_it_writes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["read", "written", "other"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "tide").unwrap();
        }
        let written = File::open(at("written")).unwrap();
        // For this thread alone.
        let confined = std::thread::scope(|scope| {
            let confined = || {
                confine(&[at("read")], &[written.as_fd()]).unwrap();
                let opened = |path: &Path| File::open(path).map_err(|e| e.kind()).err();
                let denied = Some(ErrorKind::PermissionDenied);
                assert_eq!(opened(&at("read").join("file")), None);
                assert_eq!(opened(Path::new("/usr/bin/env")), None);
                for other in
                    [&at("other").join("file"), Path::new("/etc/passwd"), Path::new("/proc/self/maps")]
                {
                    assert_eq!(opened(other), denied, "{}", other.display());
                }
                fs::write(at("written").join("file"), "ebb").unwrap();
                for wrong in ["read", "other"] {
                    let error = fs::write(at(wrong).join("file"), "ebb").unwrap_err();
                    assert_eq!(Some(error.kind()), denied, "{wrong}");
                }
            };
            scope.spawn(confined).join()
        });
        confined.unwrap();
        assert_eq!(fs::read_to_string(at("other").join("file")).unwrap(), "tide");
    }
}
