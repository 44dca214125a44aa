//! How a label's services are started, and what is written for them: of what the warden has told, in process 1, when it has no power left.
//! So what is said wrong here is one label's trouble: programs of other arguments, with no more rights than services have.

use super::nginx;
use crate::compartment::service::{Launch, Served};
use levee_policy::site::{Mode, Program};

/// Writes the files of a service beneath [`PAGES`](crate::compartment::PAGES), where nobody but process 1 may write.
pub(super) fn write(service: &Served) -> Result<(), String> {
    let files = if service.program == Program::Nginx { nginx::files(service).to_vec() } else { Vec::new() };
    for (path, content) in files {
        std::fs::write(&path, content).map_err(|e| format!("write {path}: {e}"))?;
    }
    Ok(())
}

/// How it is started; where the mediator passes connections on, but for what says whose one is.
pub(super) fn start(service: &Served) -> Launch {
    let (program, argv, told) = match &service.program {
        Program::Nginx => nginx::command(service),
        Program::Command(argv) => (argv.first().cloned().unwrap_or_default(), argv.clone(), told(service)),
    };
    let label = format!("LEVEE_LABEL={}", service.label);
    let env = told.into_iter().chain(["PATH=/usr/bin:/usr/sbin".to_owned(), label]).collect();
    Launch { program, ..Launch::command(0, argv, env, &service.needs) }
}

/// What a command finds in its environment.
fn told(service: &Served) -> Vec<String> {
    let addresses = &service.addresses;
    match service.mode {
        // It binds its port itself, and is told which.
        Mode::Itself => {
            let port = addresses.first().map_or(0, std::net::SocketAddr::port);
            let hosts: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
            vec![format!("LEVEE_PORT={port}"), format!("LEVEE_ADDRESSES={}", hosts.join(" "))]
        }
        Mode::Handoff(_) => Vec::new(),
        // Its listeners are descriptors 3, 4, …, as systemd passes them (sd_listen_fds(3)).
        Mode::Direct | Mode::Relay => vec![format!("LISTEN_FDS={}", addresses.len())],
    }
}
