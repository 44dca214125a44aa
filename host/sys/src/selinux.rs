//! SELinux, as far as levee uses it: whether it decides, which contexts its policy knows, and which context the calling thread or
//! what it makes is to have. All of it by files: selinuxfs(5), and `attr` in proc(5).

use std::fs::{self, File};
use std::io::{self, Write};

use crate::error::Step;
use crate::{Error, Result};

/// Whether the host's SELinux decides anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The host has none.
    Off,
    /// It says what it would refuse, and lets it pass.
    Permissive,
    /// It refuses.
    Enforcing,
}

/// How the host's SELinux stands. What cannot be read is not there.
pub fn state() -> State {
    match fs::read_to_string("/sys/fs/selinux/enforce").as_deref().map(str::trim) {
        Ok("1") => State::Enforcing,
        Ok(_) => State::Permissive,
        Err(_) => State::Off,
    }
}

/// The context of the calling thread. Only where [`state`] says that there is SELinux: the file may be another module's.
pub fn own() -> Result<String> {
    let text = fs::read_to_string("/proc/thread-self/attr/current").step(|| "read its own context".into())?;
    Ok(text.trim_end_matches(['\0', '\n']).to_owned())
}

/// Whether the policy that is loaded has this context: type, level and categories, and that its user and role may have them.
///
/// # Errors
/// The kernel could not be asked.
pub fn knows(context: &str) -> Result<bool> {
    let asked = File::options().write(true).open("/sys/fs/selinux/context");
    match asked.and_then(|mut file| whole(&mut file, context)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(false),
        Err(e) => Err(Error::new(format!("ask the kernel whether it knows the context {context}"), e)),
    }
}

/// The calling thread's own context, to be changed later: when `/proc` is out of sight.
#[derive(Debug)]
pub struct Own(File);

impl Own {
    /// That of the calling thread.
    pub fn open() -> Result<Self> {
        let file = File::options().write(true).open("/proc/thread-self/attr/current");
        Ok(Self(file.step(|| "open its own context".into())?))
    }

    /// Changes it, for good where the policy does not let this context change it back. The process must have one thread.
    pub fn become_context(mut self, context: &str) -> Result<()> {
        whole(&mut self.0, context).step(|| format!("take on the context {context}"))
    }
}

/// Has the sockets that the calling thread makes from now on carry this context.
pub fn make_sockets_in(context: &str) -> Result<()> {
    let file = File::options().write(true).open("/proc/thread-self/attr/sockcreate");
    file.and_then(|mut file| whole(&mut file, context))
        .step(|| format!("have sockets made in the context {context}"))
}

/// The kernel takes a context in one write.
fn whole(file: &mut File, context: &str) -> io::Result<()> {
    match file.write(context.as_bytes())? {
        written if written == context.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
