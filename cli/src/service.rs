//! `levee service test`: whether a service can be reached, before anybody needs it.

use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use levee_policy::site::{Mode, Protocol};
use levee_policy::{LabelName, ServiceName};

use crate::operator::{Which, try_label};
use crate::output::{self, shown};
use crate::running::Running;
use crate::site;

/// How long a service may take to start; one that ends within two seconds has not started.
const PATIENCE: Duration = Duration::from_secs(8);
const SETTLED: Duration = Duration::from_secs(3);
const TURN: Duration = Duration::from_millis(200);

/// Try services of a running server
#[derive(Debug, clap::Args)]
pub struct Service {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Test(Test),
}

/// Have a service start at a label, as its first connection would, and say whether it runs
///
/// The label is started for it where it does not run. A connection is made within the label, from nowhere else. That is so of services
/// in `direct` and `itself`; one in `relay` or `handoff`, or at a label with a kernel of its own, is tried by signing on and using it.
/// Exit status 0: it runs. 1: it does not, and why. 2: it could not be found out.
#[derive(Debug, clap::Args)]
struct Test {
    #[command(flatten)]
    which: Which,
    /// The service
    service: ServiceName,
    /// The label
    label: LabelName,
}

/// What mends it, as far as that can be told from how it ended; `hands_over` says that levee gives it its port.
fn hint(why: &str, hands_over: bool) -> &'static str {
    match () {
        () if why.contains("execute the program: No such file") => {
            "a label has what its services need, as the host had it at the start: install the program's package on the server, or name what \
             brings it in `software` of the service (site.toml(5)); then `levee down` and `levee up`\n"
        }
        () if hands_over && why.contains("ended with status") => {
            "`mode = \"direct\"` hands it its port; a program that binds it itself wants `mode = \"itself\"`\n"
        }
        () => "",
    }
}

impl Service {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let Action::Test(test) = self.action;
        output::exit(test.answer())
    }
}

impl Test {
    fn answer(mut self) -> Result<ExitCode, String> {
        let file = Running::of(&self.which.run()?)?.config;
        let site = site::read(&file)?;
        self.label = site.typed_name(self.label);
        let label = site
            .label(&self.label)
            .ok_or_else(|| format!("the site of {} has no label {}", file.display(), self.label))?;
        let service =
            site.services_at(&label).find(|service| *service.name() == self.service).ok_or_else(|| {
                let there: Vec<&str> =
                    site.services_at(&label).map(|service| service.name().as_str()).collect();
                format!(
                    "{} has no service {} at {}; there are {}",
                    file.display(),
                    self.service,
                    self.label,
                    there.join(", ")
                )
            })?;
        if site.isolation().has_own_kernel(&label) {
            return Err(
                "this label has a kernel of its own: its services cannot be tried from outside".to_owned()
            );
        }
        if !matches!(service.mode(), Mode::Direct | Mode::Itself) {
            return Err(format!(
                "{} is started for connections of a session alone: sign on and use it",
                self.service
            ));
        }
        if let Err(why) = try_label(&self.which.run()?, &self.label) {
            return self.fails(&why, "");
        }
        let at = |address: &IpAddr| SocketAddr::new(*address, service.port());
        let places: Vec<SocketAddr> = site.server().inner_addresses().iter().map(at).collect();
        self.knock(&places, service.protocol())?;
        let binds = matches!(service.mode(), Mode::Itself) && service.protocol() == Protocol::Tcp;
        let hands_over = matches!(service.mode(), Mode::Direct);
        let settled = self.settled(hands_over)?;
        if settled == ExitCode::SUCCESS && binds && self.knock(&places, Protocol::Tcp)? {
            let places: Vec<String> = places.iter().map(SocketAddr::to_string).collect();
            let why = format!(
                "it is started, and nothing listens at {}: it must bind LEVEE_PORT on all addresses, or on those in LEVEE_ADDRESSES",
                places.join(" or ")
            );
            return self.fails(&why, "");
        }
        if settled == ExitCode::SUCCESS {
            output::print(&format!("{} runs at {}\n", self.service, self.label))?;
        }
        Ok(settled)
    }

    /// Where its compartment is, and whether the service runs there: how often it was started, and what is said of it.
    fn seen(&self) -> Result<(u32, u32, Option<String>), String> {
        let status = self.which.status()?;
        let compartment = status.compartments.iter().find(|one| one.label == self.label);
        let compartment = compartment.ok_or_else(|| format!("{} does not run any more", self.label))?;
        let starts = compartment.services.iter().find(|(name, _)| *name == self.service.as_str());
        let trouble = format!("{}: service {} does not start", self.label, self.service);
        let said = status.alarms.iter().find(|alarm| alarm.starts_with(&trouble)).cloned();
        Ok((compartment.init, starts.map_or(0, |(_, starts)| *starts), said))
    }

    /// Connects within the label: to be started is all that the service is to notice. Whether it is refused everywhere.
    fn knock(&self, places: &[SocketAddr], protocol: Protocol) -> Result<bool, String> {
        let (init, ..) = self.seen()?;
        let net = File::open(format!("/proc/{init}/ns/net")).map_err(|e| format!("{}: {e}", self.label))?;
        let one = |place: &SocketAddr| match protocol {
            Protocol::Tcp => TcpStream::connect_timeout(place, PATIENCE).map(drop),
            Protocol::Udp => {
                let any: IpAddr = if place.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
                UdpSocket::bind((any, 0))?.send_to(&[], place).map(drop)
            }
        };
        let all = || places.iter().filter_map(|place| one(place).err()).collect::<Vec<_>>();
        let faults = levee_sys::ns::in_net(net.as_fd(), all).map_err(|e| e.to_string())?;
        let is_refusal = |e: &&std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
        // One that cannot start refuses: what is known of it says more.
        match faults.iter().find(|e| !is_refusal(e)) {
            Some(e) if self.seen()?.2.is_none() => Err(format!("{} at {}: {e}", self.service, self.label)),
            _ => Ok(faults.iter().filter(is_refusal).count() == places.len()),
        }
    }

    /// One that runs has no trouble for a while; one that has just been killed may be on its way again.
    fn settled(&self, hands_over: bool) -> Result<ExitCode, String> {
        let began = Instant::now();
        let mut well_since = began;
        loop {
            let (_, starts, trouble) = self.seen()?;
            let now = Instant::now();
            if starts == 0 || trouble.is_some() {
                well_since = now;
            }
            if now.saturating_duration_since(well_since) >= SETTLED {
                return Ok(ExitCode::SUCCESS);
            }
            if began.elapsed() >= PATIENCE {
                let why = trouble.as_deref().unwrap_or("nothing has started it");
                return self.fails(why, hint(why, hands_over));
            }
            std::thread::sleep(TURN);
        }
    }

    fn fails(&self, why: &str, hint: &str) -> Result<ExitCode, String> {
        output::print(&format!("{} does not run at {}: {}\n", self.service, self.label, shown(why)))?;
        let label = self.label.as_str();
        output::print(&format!("what it said: levee log '{label}'\n{hint}"))?;
        Ok(ExitCode::FAILURE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_missing_program_is_told_of_its_package_and_who_has_one_that_ended_of_the_mode() {
        let missing = "LOW: service web does not start (/usr/bin/webd: execute the program: No such file or directory (os error 2), 1 s ago)";
        let ended = "LOW: service web does not start (ended with status 1, 1 s ago)";
        for hands_over in [true, false] {
            assert!(
                hint(missing, hands_over).contains("package")
                    && hint(missing, hands_over).contains("`software`")
            );
        }
        assert!(hint(ended, true).contains("mode = \"itself\""));
        assert_eq!((hint(ended, false), hint("nothing has started it", true)), ("", ""));
    }
}
