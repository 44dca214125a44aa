//! `levee-lab`: measure what each protection costs on this host.

use clap::{ArgGroup, Parser, Subcommand};
use levee_lab::analysis::Work;
use levee_lab::badlink::Asked;
use levee_lab::client::{self, Target};
use levee_lab::design::Layout;
use levee_lab::experiment::Experiment;
use levee_lab::leak;
use levee_lab::mediate::{self, Scheme};
use levee_lab::role::Role;
use levee_lab::run::{self, End};
use levee_lab::said::{self, Manner};
use levee_lab::sample::Common;
use levee_lab::serve::{Source, WORKERS, serve};
use levee_lab::station::{self, Station};
use levee_lab::study::{self, Study};
use levee_lab::workload::{Closer, Task};
use rand::{Rng, SeedableRng};
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

const EXIT: &str = "Exit status 0: done. 1: `leak` found a channel beyond its bound. 2: there is no answer: the command line was not understood, a file could not \
     be read or written, something could not be done. 130: `run` was interrupted; --resume goes on with it.";

/// What does each protection cost on this host, per connection, per request, per byte?
#[derive(Parser)]
#[command(name = "levee-lab", version, after_help = EXIT)]
struct Cli {
    #[command(flatten)]
    manner: Manner,
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// List the experiments
    List,
    /// Run an experiment, and write its report
    #[command(group(ArgGroup::new("form").args(["quick", "full", "paper"])))]
    Run(Run),
    /// Write the report of a run's directory again
    Report {
        /// The run's directory
        dir: PathBuf,
    },
    /// Set two runs of one experiment side by side
    Compare {
        /// The earlier run
        before: PathBuf,
        /// The later run
        after: PathBuf,
    },
    /// What work would cost in each arm of a run, from its prices of a connection, a request, a byte and a packet
    Cost(Cost),
    /// Write the prices of a run of `protections`, which a server of this host then tells whoever asks for a protection
    Prices {
        /// The run's directory
        dir: PathBuf,
        /// For the server that has this state directory, at once; without it, to standard output
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
    },
    /// What two programs that were taken over, one above and one below, can still tell each other
    Leak(leak::Ask),
    /// What changes below when a program above does everything that it may
    Record(leak::Recording),
    /// Serve the workloads
    Serve(Serve),
    /// Stand between the connections of a listener that was passed and the workloads' server
    Mediate(Mediate),
    /// Take a role, then become another program
    #[command(hide = true)]
    Become(Become),
    /// Make one trial against a server, and print what it measured as JSON
    Client(Client),
    /// In a partition: serve the workloads, and do the jobs that the laboratory gives
    #[command(hide = true)]
    Station(Station),
}

#[derive(clap::Args)]
struct Run {
    /// The experiment (see `levee-lab list`), or a file that describes one
    name: String,
    /// At least 12 blocks, a few arms: a first look (the default)
    #[arg(long)]
    quick: bool,
    /// At least 30 blocks, every arm
    #[arg(long)]
    full: bool,
    /// 100 blocks, as long as the paper's trials
    #[arg(long)]
    paper: bool,
    /// Go on with the newest unfinished run, or with the one in --out
    #[arg(long)]
    resume: bool,
    /// Where to keep the run; the directory above it is there already
    #[arg(long)]
    out: Option<PathBuf>,
    /// Of an experiment: measure levee's arms also by the earlier programs in this directory, which know the same site file
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    before: Option<PathBuf>,
    /// Seed of the order of trials; random when absent, kept in the manifest
    #[arg(long)]
    seed: Option<u64>,
    /// Only this layout, instead of those of the form
    #[arg(long, value_enum)]
    layout: Option<Layout>,
    /// As in the MYSEA study: the client closes first, and two minutes pass before each TCP_CC, TCP_CRR and TCP_RR trial
    #[arg(long)]
    two_minutes: bool,
    /// The same with another wait
    #[arg(long, value_name = "SECONDS", conflicts_with = "two_minutes")]
    wait: Option<f64>,
    /// Of a study: every row over a link that takes so long, one way
    #[arg(long, value_name = "MS")]
    delay: Option<f64>,
    /// That is so uneven: each packet takes up to so much more or less
    #[arg(long, value_name = "MS", requires = "delay")]
    jitter: Option<f64>,
    /// That loses so many packets of a hundred
    #[arg(long, value_name = "PERCENT")]
    loss: Option<f64>,
}

impl Run {
    /// The link that is asked for.
    fn link(&self) -> Option<Asked> {
        let Run { delay, jitter, loss, .. } = self;
        let of = |value: &Option<f64>| value.unwrap_or_default();
        (delay.is_some() || loss.is_some()).then(|| Asked {
            name: "asked".into(),
            delay: of(delay),
            jitter: of(jitter),
            loss: of(loss),
        })
    }
}

#[derive(clap::Args)]
struct Cost {
    /// The run's directory
    dir: PathBuf,
    /// Connections opened and closed
    #[arg(long, default_value_t = 0.0)]
    connections: f64,
    /// Requests with their answers
    #[arg(long, default_value_t = 0.0)]
    requests: f64,
    /// Bytes of payload
    #[arg(long, default_value_t = 0.0)]
    bytes: f64,
    /// Datagrams
    #[arg(long, default_value_t = 0.0)]
    packets: f64,
}

#[derive(clap::Args)]
#[command(group(ArgGroup::new("how").required(true).args(["listen", "passed", "inetd", "idle", "borrow"])))]
struct Serve {
    /// Listen here, TCP and UDP
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Close at once what connects here (TCP_CC); with --inetd or --passed: all that comes
    #[arg(long, num_args = 0..=1, default_missing_value = "0.0.0.0:0")]
    close: Option<SocketAddr>,
    /// Take the sockets that LISTEN_FDS passes
    #[arg(long)]
    passed: bool,
    /// Serve the one connection on descriptor 0
    #[arg(long)]
    inetd: bool,
    /// Hold the sockets that LISTEN_FDS passes, for another to borrow; the word only names them
    #[arg(long, value_name = "WORD")]
    idle: Option<String>,
    /// Borrow the sockets passed to three others: everything, TCP_CC, datagrams
    #[arg(long, value_name = "PID", num_args = 3)]
    borrow: Option<Vec<i32>>,
    /// TCP congestion control; that of the route or the system when absent
    #[arg(long)]
    congestion: Option<String>,
    #[command(flatten)]
    role: Role,
}

#[derive(clap::Args)]
#[command(group(ArgGroup::new("what").required(true).args(["scheme", "one"])))]
struct Mediate {
    /// What stands between
    #[arg(long)]
    scheme: Option<Scheme>,
    /// Mediate the one connection on descriptor 0 (spawn-copy)
    #[arg(long)]
    one: bool,
    /// The server closes at once what connects (TCP_CC)
    #[arg(long)]
    close: bool,
}

#[derive(clap::Args)]
struct Become {
    #[command(flatten)]
    role: Role,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct Client {
    /// What to do, as JSON
    #[arg(long)]
    task: String,
    /// The server
    #[arg(long)]
    target: SocketAddr,
    /// Its port for TCP_CC
    #[arg(long)]
    close: SocketAddr,
    #[command(flatten)]
    role: Role,
}

/// A form of an experiment as `list` shows it.
#[derive(serde::Serialize)]
struct Listed {
    form: &'static str,
    blocks: usize,
    arms: usize,
    arms_here: usize,
    trials: usize,
    takes_ms: u64,
}

fn list() -> io::Result<()> {
    let mut all = Vec::new();
    for e in Experiment::all().map_err(io::Error::other)? {
        let mut forms = Vec::new();
        for form in ["quick", "full", "paper"] {
            let Some(f) = e.forms.get(form) else { continue };
            let arms = e.arms_of(f);
            let absent: Vec<_> = arms
                .iter()
                .filter(|a| a.tool.is_some_and(|t| t.absent().is_some()))
                .map(|a| a.name.clone())
                .collect();
            let trials = run::trials(&e, f, &absent).map_err(io::Error::other)?;
            let takes_ms = (trials as f64 * (f.seconds + f.warmup + run::BETWEEN) * 1e3) as u64;
            let arms_here = arms.len() - absent.len();
            forms.push(Listed { form, blocks: f.blocks, arms: arms.len(), arms_here, trials, takes_ms });
        }
        all.push((e.name, e.question, forms));
    }
    for s in Study::all().map_err(io::Error::other)? {
        let mut forms = Vec::new();
        for (form, f) in ["quick", "full", "paper"].into_iter().filter_map(|n| Some((n, s.forms.get(n)?))) {
            let (arms, trials) = (s.arms_of(f).count(), s.trials(f));
            let takes_ms = (trials as f64 * (f.seconds + run::BETWEEN) * 1e3) as u64;
            forms.push(Listed { form, blocks: f.blocks, arms, arms_here: arms, trials, takes_ms });
        }
        all.push((s.study, s.question, forms));
    }
    if said::is_json() {
        let value: Vec<_> = all
            .iter()
            .map(|(name, question, forms)| serde_json::json!({"name": name, "question": question, "forms": forms}))
            .collect();
        return said::value(&value);
    }
    let mut text = String::new();
    for (name, question, forms) in all {
        text += &format!("{name:<9} {question}\n");
        for f in forms {
            text += &format!(
                "{:>10}: {} blocks, {} of {} arms, {} trials, about {:.0} min\n",
                f.form,
                f.blocks,
                f.arms_here,
                f.arms,
                f.trials,
                f.takes_ms as f64 / 6e4
            );
        }
    }
    said::raw(&text)
}

/// The study that is asked for, if it is one: by name, or a file with a key `study`.
fn study_of(name: &str) -> io::Result<Option<Study>> {
    let parsed = if name.ends_with(".toml") {
        said::reads(std::path::Path::new(name));
        let text =
            std::fs::read_to_string(name).map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
        let is_study = text.lines().any(|l| l.starts_with("study = "));
        is_study.then(|| Study::parse(&text).map_err(|e| format!("{name}: {e}")))
    } else {
        Study::named(name)
    };
    parsed.transpose().map_err(io::Error::other)
}

fn run_study(r: &Run, study: &Study, form: &str) -> io::Result<ExitCode> {
    if r.layout.is_some() || r.two_minutes || r.wait.is_some() || r.before.is_some() {
        return Err(io::Error::other("a study has no layouts, no waits and no earlier programs"));
    }
    let stamp: String = levee_lab::host::now().chars().filter(char::is_ascii_alphanumeric).collect();
    let dir = match (&r.out, r.resume) {
        (Some(out), _) => out.clone(),
        (None, true) => return Err(io::Error::other("--resume of a study needs --out")),
        (None, false) => PathBuf::from("lab-results").join(format!("{}-{form}-{stamp}", study.study)),
    };
    if r.resume != study::run::is_study(&dir) {
        let why = if r.resume {
            "holds no run to go on with"
        } else {
            "holds a run; use --resume to go on with it"
        };
        return Err(io::Error::other(format!("{} {why}", dir.display())));
    }
    let seed = r.seed.unwrap_or_else(|| rand::rngs::StdRng::from_os_rng().random());
    said::progress(&format!("{}: {form} form into {}", study.title, dir.display()));
    if study::run::go(&dir, study, form, seed)? == End::Stopped {
        said::progress(&format!(
            "stopped; what was measured is kept. Go on with: levee lab run {} --{form} --resume --out {}",
            r.name,
            dir.display()
        ));
        return Ok(ExitCode::from(130));
    }
    said::line(&study::run::report(&dir)?.display())?;
    Ok(ExitCode::SUCCESS)
}

/// That nothing is called so, and what there is: all that `list` shows.
fn unknown(name: &str) -> String {
    let experiments = Experiment::all().into_iter().flatten().map(|one| one.name);
    let all: Vec<String> =
        experiments.chain(Study::all().into_iter().flatten().map(|one| one.study)).collect();
    format!("no experiment or study {name:?}; there are: {}", all.join(", "))
}

fn run(r: &Run) -> io::Result<ExitCode> {
    let form = if r.paper {
        "paper"
    } else if r.full {
        "full"
    } else {
        "quick"
    };
    run::has_place(r.out.as_deref())?;
    match (study_of(&r.name)?, r.link()) {
        (Some(study), None) => return run_study(r, &study, form),
        (Some(study), Some(link)) => {
            return run_study(r, &study.over(link).map_err(io::Error::other)?, form);
        }
        (None, Some(_)) => return Err(io::Error::other("an experiment's link cannot be a bad one")),
        (None, None) => {}
    }
    let mut e = if r.name.ends_with(".toml") {
        let text = std::fs::read_to_string(&r.name)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", r.name)))?;
        Experiment::parse(&text).map_err(|e| format!("{}: {e}", r.name))
    } else {
        Experiment::named(&r.name).ok_or_else(|| unknown(&r.name))
    }
    .map_err(io::Error::other)?;
    let root = PathBuf::from("lab-results");
    let (dir, mut manifest) = if r.resume {
        let dir = r.out.clone().map_or_else(|| run::unfinished(&root, &e.name, form), Ok)?;
        let m = run::manifest(&dir)?;
        (dir, m)
    } else {
        let stamp: String = levee_lab::host::now().chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let dir = r.out.clone().unwrap_or_else(|| root.join(format!("{}-{form}-{stamp}", e.name)));
        let mut common = Common::default();
        common.write_size = e.write_size.unwrap_or(common.write_size);
        if let Some(wait) = r.wait.or(r.two_minutes.then_some(120.0)) {
            if !(wait.is_finite() && (0.0..=3600.0).contains(&wait)) {
                return Err(io::Error::other("--wait: between 0 and 3600 seconds"));
            }
            (common.closer, common.wait) = (Closer::Client, wait);
        }
        let seed = r.seed.unwrap_or_else(|| rand::rngs::StdRng::from_os_rng().random());
        if r.before.is_some() {
            e.beside_before(form);
        }
        let mut m = run::create(&dir, &e, form, seed, common)?;
        m.before.clone_from(&r.before);
        if let Some(layout) = r.layout {
            m.form.layouts = vec![layout];
        }
        (dir, m)
    };
    said::progress(&format!("{}: {} form into {}", e.title, manifest.form_name, dir.display()));
    if run::go(&dir, &mut manifest)? == End::Stopped {
        said::progress(&format!(
            "\nstopped; what was measured is kept. Go on with: levee lab run {} --{} --resume --out {}",
            e.name,
            manifest.form_name,
            dir.display()
        ));
        return Ok(ExitCode::from(130));
    }
    let page = levee_lab::report::write(&dir)?;
    said::line(&page.display())?;
    Ok(ExitCode::SUCCESS)
}

fn do_it(cli: Cli) -> io::Result<ExitCode> {
    match cli.command {
        Cmd::List => list()?,
        Cmd::Run(r) => return run(&r),
        Cmd::Record(ask) => leak::differ(&ask)?,
        Cmd::Leak(ask) => {
            return Ok(if leak::run(&ask)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Cmd::Report { dir } if study::run::is_study(&dir) => {
            said::line(&study::run::report(&dir)?.display())?;
        }
        Cmd::Report { dir } => said::line(&levee_lab::report::write(&dir)?.display())?,
        Cmd::Compare { before, after } => {
            said::raw(&levee_lab::report::compare(&before, &after, said::is_json())?)?;
        }
        Cmd::Cost(c) => {
            let Cost { dir, connections, requests, bytes, packets } = c;
            let work = Work { connections, requests, bytes, packets };
            if [connections, requests, bytes, packets].iter().any(|n| !(n.is_finite() && *n >= 0.0)) {
                return Err(io::Error::other("a count is zero or more"));
            }
            said::raw(&levee_lab::report::cost(&dir, work)?)?;
        }
        Cmd::Prices { dir, state } => {
            let text = study::prices::of(&dir)?;
            match state {
                None => said::raw(&text)?,
                Some(state) => said::line(&study::prices::put(&state, &text)?.display())?,
            }
        }
        Cmd::Serve(s) => {
            s.role.take()?;
            let source = match (s.listen, s.borrow.as_deref(), s.idle) {
                (Some(all), _, _) => Source::Listen { all, close: s.close, workers: WORKERS },
                (None, Some(&[a, b, c]), _) => Source::Borrowed { from: [a, b, c] },
                (None, _, Some(_)) => Source::Idle,
                _ if s.passed => Source::Passed { close: s.close.is_some() },
                _ => Source::Inetd { close: s.close.is_some() },
            };
            serve(&source, s.congestion.as_deref())?;
        }
        Cmd::Mediate(m) => match m.scheme {
            Some(scheme) => mediate::mediate(scheme, m.close)?,
            None => {
                Role { with_parent: true, ..Role::default() }.take()?;
                mediate::one(io::stdin().as_fd().try_clone_to_owned()?, m.close)?;
            }
        },
        Cmd::Become(b) => {
            b.role.take()?;
            if let Some((program, args)) = b.command.split_first() {
                let e = std::process::Command::new(program).args(args).exec();
                return Err(io::Error::new(e.kind(), format!("{}: {e}", program.display())));
            }
        }
        Cmd::Client(c) => {
            c.role.take()?;
            let task: Task = serde_json::from_str(&c.task)?;
            let o = client::run(&task, Target { all: c.target, close: c.close })?;
            serde_json::to_writer(io::stdout().lock(), &o)?;
        }
        Cmd::Station(s) => station::serve(&s)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(fault) => return said::misunderstood(&fault),
    };
    cli.manner.set();
    do_it(cli).unwrap_or_else(|e| said::fault(&e))
}
