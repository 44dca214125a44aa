//! What man pages say that the definitions of the commands do not give.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use levee_policy::audit::Action;

type Section = (&'static str, &'static [(&'static str, &'static str)]);

/// Of levee(1).
const LEVEE: [Section; 6] = [
    (
        "ARGUMENTS",
        &[
            (
                "order",
                "The same in every command, as far as it has them: SITE, then who (USER, HOST), then what (SERVICE, PARTITION, \
                 POSTURE, SESSION, DOI), then LABEL, then files and programs. `levee enrol rotate` names the key first, \
                 then whose it is. Options stand anywhere before `--`.",
            ),
            (
                "SITE",
                "The site file. Commands that read one have it as their first argument; `levee check -` reads standard input. For `levee up --workstation` \
                 it is the bundle's directory.",
            ),
            (
                "--run, --state",
                "Commands that ask a running server, or read what it has written, need no SITE: they find the only one of this host, or \
                 the one that is said so. So does `levee why`, which goes by another file with --site.",
            ),
            ("LABEL", "In any case, with its categories in any order; in a site file as `[labels]` has it."),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "Done, or the answer is yes: sound, fit, granted, found."),
            ("1", "The answer is no, or the server refused what it was asked."),
            (
                "2",
                "There is no answer: the command line was not understood, a file could not be read or written, no server \
                 runs, something could not be done.",
            ),
            ("255", "`levee exec` could not run the program. Otherwise its status is the program's."),
        ],
    ),
    (
        "OUTPUT",
        &[
            (
                "standard output",
                "Has the answer. Standard error has warnings and failures, each of which begins with the program's name; what is \
                 wrong with a command line begins with `error:`, and how it is used stands below.",
            ),
            (
                "--json",
                "One JSON value where the command has a form of its own (share/doc/levee/schemas has its JSON Schema), else an \
                 object {\"said\": LINE} for each line. A failure is {\"error\": KIND, \"reason\": TEXT} on standard output. \
                 levee-tpe(1) and levee-lab(1) have the same.",
            ),
            ("--quiet", "Says nothing but answers that were asked for, refusals and warnings."),
            ("--verbose", "Says on standard error which files are read and which server is asked."),
            (
                "instants",
                "In text RFC 3339 in UTC with milliseconds, 24 signs: 2026-01-31T12:00:00.000Z. In JSON milliseconds since \
                 1970-01-01 UTC. Certificates end on a day: 2026-01-31.",
            ),
            (
                "units",
                "Times have their unit: s, m, h, d; in JSON they are milliseconds, with a fraction where they are finer, in fields that \
                 end with _ms. Sizes are in bytes, or with K, M, G, T for powers of 1024.",
            ),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            (
                "LEVEE_SITE",
                "The site file whose names a shell completes where the command line has none. Without it that of the server that runs, \
                 or else /etc/levee/site.toml.",
            ),
            (
                "NO_COLOR",
                "If it is set and not empty, nothing is in colour. Nothing is either where the output is no terminal.",
            ),
        ],
    ),
    (
        "FILES",
        &[
            (
                "/etc/levee/site.toml",
                "The site file: site.toml(5). `levee init` writes it there unless it is told of another place.",
            ),
            ("/etc/levee/workstation/", "A workstation's bundle, as `levee enrol` made it."),
            (
                "/var/lib/levee/SITE/",
                "What a server keeps: authority, keys, credentials, sessions, stores, logs; in hosts/ the bundles, in \
                 sessiond/ the audit log (levee-audit(5)).",
            ),
            ("/run/levee/SITE/", "The sockets and the lock of what runs."),
            (
                "/usr/share/doc/levee/book/",
                "The book, where levee is installed: begin with first-site.md. Beside it examples/ has site files.",
            ),
            (
                "/var/cache/levee/programs/",
                "Images of the programs that services need. They are made again where they are missing.",
            ),
        ],
    ),
    (
        "EXAMPLES",
        &[
            ("levee init", "Write a first site file, make its keys, and say what to do next."),
            (
                "levee check /etc/levee/site.toml",
                "Say whether a site file is sound, and if not, what to change.",
            ),
            (
                "levee enrol all /etc/levee/site.toml",
                "Make the authority, the server's keys and a bundle for each workstation; what is there stays.",
            ),
            (
                "levee enrol all /etc/levee/site.toml --token \
                 'pkcs11:token=site;object=authority?module-path=/usr/lib/softhsm/libsofthsm2.so'",
                "The same, with the authority's private key in a PKCS#11 token, whose PIN is asked for.",
            ),
            ("levee up /etc/levee/site.toml", "Start the server; `levee down` stops it."),
            ("levee status --watch", "See what runs, again each second."),
            ("levee audit show --verdict denied --since 1d", "What was refused since yesterday."),
        ],
    ),
];

/// What `levee --help` says of how the program ends.
pub const EXIT: &str = "Exit status 0: done, or the answer is yes. 1: the answer is no, or the server refused. 2: there is no answer: the command \
     line was not understood, a file could not be read, no server runs. `exec` ends with the program's own status, or 255 where it could not be run.";

/// Of levee-lab(1): the laboratory is a program of its own, which `levee lab` becomes.
const LAB: [Section; 4] = [
    (
        "COMMANDS",
        &[
            (
                "list",
                "The experiments and studies: what each asks, and how long each of its forms takes here.",
            ),
            (
                "run NAME",
                "Runs one of them, or one that a file describes, and writes its report: --quick (a first look), --full, or --paper. --out says where, --resume goes \
                 on with what was stopped.",
            ),
            ("report DIR", "Writes the report of a run's directory again."),
            ("compare DIR DIR", "Sets two runs of one experiment side by side."),
            (
                "cost DIR",
                "What work would cost in each arm of a run: --connections, --requests, --bytes, --packets.",
            ),
            (
                "prices DIR",
                "Writes the prices of a run of `protections`; with --state, for the server that has this state directory.",
            ),
            (
                "leak",
                "What two programs that were taken over, one above and one below, can still tell each other.",
            ),
            ("record", "What changes below when a program above does everything that it may."),
            (
                "serve, mediate, client",
                "What the laboratory's own experiments are made of: a server of the workloads, what stands before it, and one trial.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "Done."),
            ("1", "`leak` found a channel beyond its bound."),
            (
                "2",
                "There is no answer: the command line was not understood, a file could not be read or written, something could not be done.",
            ),
            ("130", "`run` was interrupted. What was measured is kept, and --resume goes on with it."),
        ],
    ),
    (
        "FILES",
        &[(
            "lab-results/",
            "Where runs are kept unless --out says otherwise, in the directory in which the command is given. docs/laboratory.md says what each file of a run is.",
        )],
    ),
    (
        "EXAMPLES",
        &[
            ("levee lab list", "What there is to run."),
            ("levee lab run mysea --quick", "What each form of mediation costs, a first look."),
            (
                "levee lab leak --quick",
                "Which channels remain between two labels of this host, a first look.",
            ),
        ],
    ),
];

/// Of levee-audit(5), behind its words.
const AUDIT_EXAMPLES: Section = (
    "EXAMPLES",
    &[
        ("levee audit show --follow", "See records as they are written."),
        (
            "levee audit show --action sign-on --verdict denied --since 1d",
            "Who could not sign on since yesterday.",
        ),
        ("levee audit show --action access --json", "Who changed whom services are for, as JSON."),
        (
            "levee audit verify",
            "Whether the log is the one that was written, as far as its own host can say.",
        ),
        (
            "levee audit verify --auditor auditor.key --records 120000",
            "The same with the auditor's key, which that host does not have; and not fewer records than when it was last looked at.",
        ),
    ],
);

/// Of levee-audit(5), before its words.
const AUDIT: [Section; 3] = [
    (
        "FILES",
        &[
            (
                "audit.jsonl",
                "In sessiond/ of the state directory: a JSON object a line, the newest last. Behind it the file has some KiB of space, over which the next records are written.",
            ),
            (
                "audit-NUMBER.jsonl",
                "An earlier part, by the number of its first record. Numbers, hashes and seals go on from part to part.",
            ),
            ("audit.first-key", "The key of the first record's seal, encrypted to the auditor."),
            (
                "audit.torn-NUMBER",
                "What the host's last moments had left behind so many records, in disorder: none of it was synced.",
            ),
            ("audit.state", "How many records there are, and the key of the next seal."),
        ],
    ),
    (
        "RECORDS",
        &[
            ("seq", "The record's number, from 0 on without a gap."),
            ("time", "When, in milliseconds since 1970-01-01 UTC. `levee audit show` prints it as RFC 3339."),
            ("event", "What was decided, with the fields below; or instead of it:"),
            ("checkpoint", "The signer's word for all records before it, with the last three fields below."),
            (
                "seal",
                "An HMAC over the line up to here, under a key that changes with each record. `levee audit show --json` leaves it out.",
            ),
        ],
    ),
    (
        "FIELDS",
        &[
            ("user", "Whose act it was; absent where it was nobody's."),
            ("host", "The workstation, if there is one."),
            ("label", "At which label, as the site file names it."),
            ("action", "What was wanted, or happened: one of the words below."),
            ("object", "Of what: a session, a service's address, a file."),
            ("verdict", "granted or denied; noted where nothing was to be decided."),
            ("reason", "Why, in words."),
            ("count", "Of a checkpoint: it speaks of the records numbered below this."),
            ("hash", "The running hash after them, in hexadecimal."),
            ("signature", "By the key whose public half is server/audit.pub, in hexadecimal."),
        ],
    ),
];

/// Adds to levee(1) and levee-lab(1), in this directory, what the definitions do not give.
///
/// # Errors
/// A page cannot be read or written.
pub fn complete(directory: &Path) -> io::Result<()> {
    let pages: [(&str, &[Section], &str); 2] = [
        ("levee.1", &LEVEE, "levee\\-tpe(1), levee\\-lab(1), site.toml(5), levee\\-audit(5)"),
        ("levee-lab.1", &LAB, "levee(1)"),
    ];
    for (name, sections, beside) in pages {
        let path = directory.join(name);
        let mut page = std::fs::read_to_string(&path)?;
        for (heading, entries) in sections {
            section(&mut page, heading, entries.iter().copied());
        }
        page.push_str(&format!(".SH \"SEE ALSO\"\n{beside}\n"));
        std::fs::write(&path, page)?;
    }
    Ok(())
}

/// levee-audit(5).
pub fn audit() -> String {
    let mut page = format!(
        ".TH levee\\-audit 5 \"\" \"levee {}\"\n.SH NAME\nlevee\\-audit \\- the audit log of a levee server\n.SH DESCRIPTION\n{}\n",
        env!("CARGO_PKG_VERSION"),
        roff(
            "A record is on the disk before what it permits takes effect. `levee audit show` prints records, `levee audit verify` \
             finds what was altered, moved, left out or cut off."
        )
    );
    for (heading, entries) in AUDIT {
        section(&mut page, heading, entries.iter().copied());
    }
    section(&mut page, "ACTIONS", Action::ALL.iter().map(|action| (action.as_str(), action.meaning())));
    let (heading, entries) = AUDIT_EXAMPLES;
    section(&mut page, heading, entries.iter().copied());
    page.push_str(".SH \"SEE ALSO\"\nlevee\\-audit\\-show(1), levee\\-audit\\-verify(1)\n");
    page
}

fn section<'a>(page: &mut String, heading: &str, entries: impl Iterator<Item = (&'a str, &'a str)>) {
    // Writing to a string does not fail.
    let _ = writeln!(page, ".SH \"{heading}\"");
    for (term, said) in entries {
        let _ = writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(term), roff(said));
    }
}

/// Text as roff has it: no line of it is a request, no sign an escape.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_the_manual_has_two_spaces_within_a_sentence() {
        let of_audit = AUDIT.iter().chain([&AUDIT_EXAMPLES]);
        let entries = LEVEE.iter().chain(&LAB).chain(of_audit).flat_map(|(_, entries)| entries.iter());
        let texts = entries.flat_map(|(term, said)| [*term, *said]).chain([EXIT]);
        let wrong: Vec<&str> = texts.filter(|text| text.contains("  ") || text.contains('\n')).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
