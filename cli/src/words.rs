//! The names that shells complete: of a site file, and of the server that runs here.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use levee_policy::{Range, Site, Vocabulary};

use crate::operator::Which;
use crate::running::Running;
use crate::{output, site};

/// The most that are offered; a lattice can have any number of labels.
const MOST: usize = 512;

/// Print names of one kind, one a line, for a shell's completion. What cannot be found out has none
#[derive(Debug, clap::Args)]
pub struct Words {
    /// Which names
    kind: Kind,
    /// The site file [default: that of the server that runs here, or else /etc/levee/site.toml]
    #[arg(long, env = "LEVEE_SITE", value_name = "FILE")]
    site: Option<PathBuf>,
    /// What stands there already: what begins so, in any case; of labels that are too many to list, those with one category more
    #[arg(long, value_name = "WORD", default_value = "", allow_hyphen_values = true)]
    start: String,
}

/// Kinds of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// At which something can be reached
    Labels,
    /// People
    Users,
    /// Workstations
    Hosts,
    /// Services
    Services,
    /// Partitions
    Partitions,
    /// Postures
    Postures,
    /// Labels, and behind two dots the upper ends of a range
    Ranges,
    /// Sessions that are open
    Sessions,
}

impl Words {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let mut words = match self.kind {
            Kind::Sessions => sessions(),
            kind => of_site(kind, &self.site.unwrap_or_else(usual), &self.start),
        };
        words.retain(|word| begins(word, &self.start));
        words.truncate(MOST);
        let text: String = words.iter().map(|word| format!("{word}\n")).collect();
        output::exit(output::raw(&text).map(|()| ExitCode::SUCCESS))
    }
}

/// Whether a name begins so, in any case: whoever types a label types it in any.
fn begins(word: &str, start: &str) -> bool {
    word.to_lowercase().starts_with(&start.to_lowercase())
}

fn sessions() -> Vec<String> {
    let status = Which { run: None }.status();
    status.map(|status| status.sessions.into_iter().map(|session| session.id).collect()).unwrap_or_default()
}

/// The site file that commands of a running server mean.
pub fn usual() -> PathBuf {
    let run = Which { run: None }.run();
    run.and_then(|run| Running::of(&run))
        .map_or_else(|_| "/etc/levee/site.toml".into(), |server| server.config)
}

fn of_site(kind: Kind, path: &Path, start: &str) -> Vec<String> {
    site::read(path).map(|site| names(kind, &site, start)).unwrap_or_default()
}

fn names(kind: Kind, site: &Site, start: &str) -> Vec<String> {
    let all = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
    match kind {
        Kind::Labels => labels(site, start),
        Kind::Ranges => match start.split_once("..") {
            None => labels(site, start),
            Some((low, high)) => {
                labels(site, high).into_iter().map(|high| format!("{low}..{high}")).collect()
            }
        },
        Kind::Users => all(&mut site.users().map(|user| user.name().as_str())),
        Kind::Hosts => all(&mut site.hosts().map(|host| host.name().as_str())),
        Kind::Services => all(&mut site.services().map(|service| service.name().as_str())),
        Kind::Partitions => all(&mut site.partitions().iter().map(|partition| partition.name().as_str())),
        Kind::Postures => {
            let named = site.postures().iter().map(|posture| posture.name().as_str());
            all(&mut named.chain([levee_policy::site::Posture::DEFAULT]))
        }
        Kind::Sessions => Vec::new(),
    }
}

/// Labels at which something can be reached; where those of a service are too many to list, what they begin with.
fn labels(site: &Site, start: &str) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for service in site.services() {
        let range = service.range();
        let names = match range.labels(MOST as u64) {
            Some(all) => all.filter_map(|label| Some(site.label_name(&label)?.to_string())).collect(),
            None => begun(site.vocabulary(), range, start),
        };
        for name in names {
            if labels.len() < MOST && !labels.contains(&name) {
                labels.push(name);
            }
        }
    }
    labels
}

/// The levels of a range, each alone and with one category; or what is begun, with one category more.
fn begun(vocabulary: &Vocabulary, range: &Range, start: &str) -> Vec<String> {
    let behind = start.rfind(',').map(|at| at + 1).or(start.find("//").map(|at| at + 2));
    let head = behind.and_then(|at| start.get(..at));
    let bare = vocabulary.levels().map(str::to_owned).filter(|_| head.is_none());
    let heads = match head {
        Some(head) => vec![head.to_owned()],
        None => vocabulary.levels().map(|level| format!("{level}//")).collect(),
    };
    let longer = heads.iter().flat_map(|head| {
        // Those that it has already would be in it twice, which no label is.
        vocabulary.categories().map(move |category| format!("{head}{category}"))
    });
    let fits = |name: &String| vocabulary.parse_typed(name).is_ok_and(|label| range.contains(&label));
    bare.chain(longer).filter(fits).collect()
}

/// What bash does before it asks what the command's own definition says: which names stand where.
pub const BASH: &str = r#"
_levee-names() {
    local current=${COMP_WORDS[COMP_CWORD]} kind= site=() word before=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word == -- ]] && before=() && break
        # A file that `why` goes by is none of its names.
        [[ ${site[*]} == --site ]] && site+=("$word") && continue
        [[ $word == --site && ${before[0]-} == why ]] && site=(--site) && continue
        [[ $word == -* ]] || before+=("$word")
    done
    [[ ${site[*]} == --site ]] && before=()
    case "${before[0]-} ${#before[@]}" in
        "plan 2") kind=labels site=(--site "${before[1]}") ;;
        "why 1") kind=users ;;
        "why 2") kind=hosts ;;
        "why 3") kind=labels ;;
    esac
    case "${before[0]-} ${before[1]-} ${COMP_WORDS[COMP_CWORD-1]}" in
        "audit show --user") kind=users ;;
        "audit show --host") kind=hosts ;;
        "audit show --label") kind=labels ;;
        "posture "*" --labels") kind=ranges ;;
        "matrix "*" --user") kind=users site=(--site "${before[1]}") ;;
        "matrix "*" --host") kind=hosts site=(--site "${before[1]}") ;;
    esac
    case "${before[0]-} ${before[1]-}" in
        "log " | "exec " | "put ") kind=labels ;;
        "session end") [[ ${#before[@]} == 2 ]] && kind=sessions ;;
        "partition replace" | "partition start" | "partition stop") [[ ${#before[@]} == 2 ]] && kind=partitions ;;
        "posture set" | "posture plan") [[ -z $kind && ${#before[@]} == 2 ]] && kind=postures ;;
        "access show") [[ ${#before[@]} == 2 ]] && kind=labels ;;
        "access allow" | "access deny") case ${#before[@]} in 2) kind=users ;; 3) kind=services ;; 4) kind=labels ;; esac ;;
        "service test") case ${#before[@]} in 2) kind=services ;; 3) kind=labels ;; esac ;;
        "user disable" | "user enable") [[ ${#before[@]} == 2 ]] && kind=users ;;
        "user add" | "user passwd" | "user totp") [[ ${#before[@]} == 3 ]] && kind=users site=(--site "${before[2]}") ;;
        "enrol host" | "enrol ppk" | "enrol revoke") [[ ${#before[@]} == 3 ]] && kind=hosts site=(--site "${before[2]}") ;;
        "enrol rotate") [[ ${#before[@]} == 4 ]] && kind=hosts site=(--site "${before[2]}") ;;
    esac
    if [[ -n $kind && $current != -* ]]; then
        # What it prints begins so, if in another case, which the shell then puts right.
        mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" words "$kind" "${site[@]}" --start "$current" 2>/dev/null)
        return
    fi
    _levee "$@"
}
complete -F _levee-names -o bashdefault -o default levee
"#;

/// The same for fish, where a name stands behind its command.
pub const FISH: &str = r#"
function __levee_names
    complete -c levee -n "$argv[1]" -f -a "(levee words $argv[2] --start=(commandline -ct) 2>/dev/null)"
end
for option in user host label
    complete -c levee -n "__fish_seen_subcommand_from audit; and __fish_seen_subcommand_from show" -l $option -x \
        -a "(levee words "$option"s --start=(commandline -ct) 2>/dev/null)"
end
complete -c levee -n "__fish_seen_subcommand_from posture; and __fish_seen_subcommand_from set plan" -l labels -x \
    -a "(levee words ranges --start=(commandline -ct) 2>/dev/null)"
for option in user host
    complete -c levee -n "__fish_seen_subcommand_from matrix" -l $option -x -a "(levee words "$option"s --site (commandline -opc)[3] 2>/dev/null)"
end
__levee_names "__fish_seen_subcommand_from log exec put" labels
__levee_names "__fish_seen_subcommand_from why; and test (count (commandline -opc)) -eq 2" users
__levee_names "__fish_seen_subcommand_from why; and test (count (commandline -opc)) -eq 3" hosts
__levee_names "__fish_seen_subcommand_from why; and test (count (commandline -opc)) -eq 4" labels
__levee_names "__fish_seen_subcommand_from plan; and not __fish_seen_subcommand_from posture; and test (count (commandline -opc)) -eq 3" \
    "labels --site (commandline -opc)[3]"
__levee_names "__fish_seen_subcommand_from session; and __fish_seen_subcommand_from end" sessions
__levee_names "__fish_seen_subcommand_from partition; and __fish_seen_subcommand_from start stop" partitions
__levee_names "__fish_seen_subcommand_from posture; and __fish_seen_subcommand_from set plan" postures
__levee_names "__fish_seen_subcommand_from user; and __fish_seen_subcommand_from disable enable" users
__levee_names "__fish_seen_subcommand_from user; and __fish_seen_subcommand_from add passwd totp; and test (count (commandline -opc)) -eq 4" \
    "users --site (commandline -opc)[4]"
__levee_names "__fish_seen_subcommand_from enrol; and __fish_seen_subcommand_from host ppk revoke; and test (count (commandline -opc)) -eq 4" \
    "hosts --site (commandline -opc)[4]"
__levee_names "__fish_seen_subcommand_from access; and __fish_seen_subcommand_from show" labels
__levee_names "__fish_seen_subcommand_from access; and __fish_seen_subcommand_from allow deny; and test (count (commandline -opc)) -eq 3" users
__levee_names "__fish_seen_subcommand_from access; and __fish_seen_subcommand_from allow deny; and test (count (commandline -opc)) -eq 4" services
__levee_names "__fish_seen_subcommand_from access; and __fish_seen_subcommand_from allow deny; and test (count (commandline -opc)) -eq 5" labels
__levee_names "__fish_seen_subcommand_from service; and test (count (commandline -opc)) -eq 3" services
__levee_names "__fish_seen_subcommand_from service; and test (count (commandline -opc)) -eq 4" labels
"#;

/// What zsh asks for an argument or an option that is described so, where it would offer files.
pub const ZSH: [(&str, &str); 11] = [
    ("--user=", "users"),
    ("--host=", "hosts"),
    ("--label=", "labels"),
    ("*--labels=", "ranges"),
    ("label -- ", "labels"),
    ("user -- ", "users"),
    ("posture -- ", "postures"),
    ("host -- ", "hosts"),
    ("session -- ", "sessions"),
    ("partition -- ", "partitions"),
    ("service -- ", "services"),
];
