//! Libreswan's pluto at a workstation: another IPsec client in place of levee's own, told no more than it must be.

use crate::{Done, World, programs, sh, text};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running pluto, ended when dropped.
#[derive(Debug)]
pub struct Pluto {
    directory: PathBuf,
    child: Child,
}

/// What `scripts/libreswan` has unpacked.
fn unpacked(path: &str) -> PathBuf {
    let path = programs().ancestors().nth(1).expect("the target directory").join("libreswan").join(path);
    assert!(path.exists(), "{} is not there: run scripts/libreswan", path.display());
    path
}

/// A program of it, with its own libraries.
fn program(name: &str) -> Command {
    let mut command = Command::new(unpacked(name));
    // What its libraries load themselves is beside them.
    let libraries = unpacked("usr/lib/x86_64-linux-gnu");
    let own = format!("{0}:{0}/nss", text(&libraries));
    command.env("LD_LIBRARY_PATH", own).stdin(Stdio::null());
    command
}

fn run(mut command: Command) -> Done {
    command.output().expect("run a program of libreswan's").into()
}

impl Pluto {
    /// Starts it in a workstation's namespace with the IKE key and certificate of its bundle. Of algorithms its configuration says
    /// nothing but that both ends sign with ECDSA.
    #[track_caller]
    pub fn start(world: &World, workstation: &str) -> Self {
        let directory = world.path(&format!("{workstation}-pluto"));
        let bundle = world.path("state").join("hosts").join(workstation);
        let at = |name: &str| directory.join(name);
        for name in ["nss", "run"] {
            fs::create_dir_all(at(name)).expect("a directory");
        }
        let nss = format!("sql:{}", text(&at("nss")));
        let (key, chain) = (text(&bundle.join("ike.key")), text(&bundle.join("ike-chain.pem")));
        let bag = text(&at("host.p12"));
        let export =
            ["pkcs12", "-export", "-inkey", &key, "-in", &chain, "-name", workstation, "-passout", "pass:x"];
        sh("openssl", &[&export[..], &["-out", &bag]].concat()).ok();
        let authority = text(&bundle.join("authority.pem"));
        let certutil = |arguments: &[&str]| {
            let mut command = program("usr/bin/certutil");
            command.args(["-d", &nss]).args(arguments);
            run(command).ok()
        };
        certutil(&["-N", "--empty-password"]);
        certutil(&["-A", "-n", "site", "-t", "CT,,", "-i", &authority]);
        let mut import = program("usr/bin/pk12util");
        import.args(["-d", &nss, "-i", &bag, "-W", "x", "-K", ""]);
        run(import).ok();
        let configuration = format!(
            "conn levee\n left=10.77.0.11\n leftcert={workstation}\n leftid=@{workstation}\n leftmodecfgclient=yes\n \
             right=10.77.0.1\n rightid=@server.harbour.example\n rightsubnet=10.80.0.0/24\n narrowing=yes\n \
             authby=ecdsa\n auto=add\n"
        );
        fs::write(at("ipsec.conf"), configuration).expect("a file");
        fs::write(at("ipsec.secrets"), "").expect("a file");
        let log = fs::File::create(at("log")).expect("a file");
        let pluto = program("usr/libexec/ipsec/pluto");
        let child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", world.namespace(workstation)))
            // It looks for its helpers at one place, whatever it is told.
            .args(["unshare", "--mount", "sh", "-c", "mount --bind \"$0\" /usr/libexec && exec \"$@\""])
            .arg(unpacked("usr/libexec"))
            .arg(pluto.get_program())
            .args(["--nofork", "--stderrlog", "--no-dnssec", "--use-xfrm", "--nssdir", &nss])
            .args([
                "--rundir".as_ref(),
                at("run").as_os_str(),
                "--secretsfile".as_ref(),
                at("ipsec.secrets").as_os_str(),
            ])
            .envs(pluto.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("run nsenter");
        let this = Self { directory, child };
        let until = Instant::now() + Duration::from_secs(60);
        while !this.at("run/pluto.ctl").exists() {
            assert!(Instant::now() < until, "pluto does not start:\n{}", this.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        this.whack(&["--listen"]).ok();
        let mut add = program("usr/libexec/ipsec/addconn");
        add.args(["--config".as_ref(), this.at("ipsec.conf").as_os_str()]);
        add.args(["--ctlsocket".as_ref(), this.at("run/pluto.ctl").as_os_str(), "levee".as_ref()]);
        run(add).ok();
        this
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs its control program to its end.
    #[track_caller]
    pub fn whack(&self, arguments: &[&str]) -> Done {
        let mut whack = program("usr/libexec/ipsec/whack");
        whack.args(["--ctlsocket".as_ref(), self.at("run/pluto.ctl").as_os_str()]).args(arguments);
        run(whack)
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap_or_default()
    }
}

impl Drop for Pluto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
