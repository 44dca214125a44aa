//! levee-programs: makes the image of the programs that a site's services need, or of a partition's root, so that the warden need not wait. It starts it,
//! as nobody in particular; nobody else has a use for it.
//!
//! `levee-programs NAME`, with the site file as standard input, of which it finds out what the image needs, or `levee-programs --root PATH` or `--look PATH`;
//! with the directory in memory as descriptor 3. Status 0 once the image is there.
#![forbid(unsafe_code)]

use levee_sys::fork::inherited;
use levee_warden::maker;
use levee_warden::programs::{self, Wanted};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let made = Wanted::told(std::env::args().skip(1), std::io::stdin()).and_then(|wanted| {
        let memory = inherited(3).map_err(|e| format!("no directory to put the image in: {e}"))?;
        let cache = std::fs::File::open(programs::CACHE).map_err(|e| format!("{}: {e}", programs::CACHE))?;
        let reads: Vec<_> =
            programs::READS.map(PathBuf::from).into_iter().chain(wanted.root.clone()).collect();
        maker::confine(&reads, &[memory.as_fd(), cache.as_fd()])?;
        programs::make(&wanted, memory)
    });
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
