//! Man pages and completions, from the definitions of the commands themselves.

use clap::Command;
use clap_complete::Shell;
use std::fmt::Write as _;
use std::path::Path;

/// What every command's exit status says.
pub const EXIT: &str = "Exit status 0: done. 1: refused, and the reason is on standard error (with --json on standard output). \
2: there is no answer: the command line was not understood, no agent runs, a file cannot be read. `run` ends with the program's own status, or 255 where it could not be run.";

/// Sections of levee-tpe(1) that the definitions do not give: a heading, and its entries.
const SECTIONS: [(&str, &[(&str, &str)]); 4] = [
    (
        "EXIT STATUS",
        &[
            ("0", "Done."),
            ("1", "Refused. The reason is on standard error; with --json it is on standard output."),
            (
                "2",
                "There is no answer: the command line was not understood, no agent runs, a file cannot be read, `doctor` found no bundle.",
            ),
            (
                "255",
                "`run` could not run the program. Otherwise its status is the program's, or 128 and a signal's number.",
            ),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("LEVEE_TPE_SOCKET", "The agent's socket, as --socket."),
            (
                "NO_COLOR",
                "If it is set and not empty, the full screen shows levels by their name and pattern, without colours.",
            ),
            ("SHELL", "What the full screen starts in a session."),
        ],
    ),
    (
        "FILES",
        &[
            (
                "/run/levee/SITE-ws/tpe.sock",
                "The agent's socket. It is root's, or of the group that `people` in workstation.toml names; with `seat` whoever sits there alone is \
                 heard. Whoever is signed on is heard from the login of this host in which they did it, and is signed off when that is over.",
            ),
            (
                "/etc/levee/workstation/workstation.toml",
                "Where the server is, as `levee enrol` wrote it; who may use levee-tpe (`people`, `seat`); and a machine behind this workstation ([behind]: interface, address, \
                 machine, labels).",
            ),
            (
                "/etc/levee/workstation/",
                "The bundle: this host's keys and certificates, its authority, and ca.crl if anything was revoked.",
            ),
        ],
    ),
    (
        "EXAMPLES",
        &[
            (
                "levee-tpe",
                "Take the whole terminal: sign on, choose a level, work in a shell under its banner.",
            ),
            ("levee-tpe login ada", "Sign on; asks for the password."),
            ("levee-tpe level SECRET//NATO", "Open a session. What was open at another level is purged."),
            ("levee-tpe services", "Say which services are there, at which ports."),
            ("levee-tpe run -- curl http://www.harbour.example/", "Use a service of that level."),
            (
                "levee-tpe run --export -- cat plan.txt >plan.txt",
                "Carry a file out, if the site lets you; it is recorded first.",
            ),
            ("levee-tpe release", "List messages of guards that wait for you and another person."),
            (
                "levee-tpe release 7; levee-tpe release 7 --pass SHA256",
                "See one, and release it by the digest that was shown.",
            ),
            ("levee-tpe access", "Say who reaches services of this level that are for some people alone."),
            ("levee-tpe access plans --allow mia", "Let somebody reach one that you own."),
            (
                "levee-tpe lock",
                "Go away for a while: nothing of the session passes until `levee-tpe unlock`.",
            ),
            ("levee-tpe logout", "End the session and sign off."),
            ("levee-tpe doctor", "Say why the server is not reached."),
        ],
    ),
];

/// What the shells ask for the labels of whoever is signed on.
const BASH: &str = r#"
_levee-tpe-labels() {
    local current=${COMP_WORDS[COMP_CWORD]} word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in
            run) break ;;
            level)
                [[ $current == -* ]] && break
                # In any case, which the shell then puts right.
                COMPREPLY=()
                while read -r word; do
                    [[ $word != '#'* && ${word,,} == "${current,,}"* ]] && COMPREPLY+=("$word")
                done < <("${COMP_WORDS[0]}" labels 2>/dev/null)
                return
                ;;
        esac
    done
    _levee__tpe "$@"
}
complete -F _levee-tpe-labels -o bashdefault -o default levee-tpe
"#;
const FISH: &str = r#"
complete -c levee-tpe -n "__fish_seen_subcommand_from level" -f -a "(levee-tpe labels 2>/dev/null | string match -v '#*')"
"#;
const ZSH: &str =
    "{compadd -M \"m\\:{a-zA-Z}={A-Za-z}\" -- ${(f)\"$(levee-tpe labels 2>/dev/null | grep -v ^#)\"}}";

/// Completions for a shell.
pub fn completions(shell: Shell, command: &mut Command) -> String {
    let mut octets = Vec::new();
    clap_complete::generate(shell, command, "levee-tpe", &mut octets);
    let text = String::from_utf8_lossy(&octets).into_owned();
    match shell {
        Shell::Bash => text + BASH,
        Shell::Fish => text + FISH,
        Shell::Zsh => {
            let asks = |line: &str| match line.trim_start().starts_with("':label -- ") {
                true => line.replace(":_default'", &format!(":{ZSH}'")),
                false => line.to_owned(),
            };
            text.lines().map(|line| asks(line) + "\n").collect()
        }
        _ => text,
    }
}

/// Writes man pages of every command into a directory.
///
/// # Errors
/// A file could not be written.
pub fn man(command: Command, directory: &Path) -> std::io::Result<()> {
    // It has its own section on them.
    let command = command.after_help(clap::builder::Resettable::Reset);
    clap_mangen::generate_to(command, directory)?;
    let path = directory.join("levee-tpe.1");
    let mut page = std::fs::read_to_string(&path)?;
    for (heading, entries) in SECTIONS {
        // Writing to a string does not fail.
        let _ = writeln!(page, ".SH \"{heading}\"");
        for (term, said) in entries {
            let _ = writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(term), roff(said));
        }
    }
    page.push_str(".SH \"SEE ALSO\"\nlevee(1), site.toml(5)\n");
    std::fs::write(path, page)
}

/// Text as roff has it: no line of it is a request, no sign an escape.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// levee(1) promises an order of arguments. Here each command has one at most, called as there, so that there is none to learn.
    #[test]
    fn no_command_has_two_arguments_whose_order_could_be_mistaken() {
        let mut command = crate::Arguments::command();
        command.build();
        let mut known = 0;
        for command in command.get_subcommands() {
            let words: Vec<String> = command
                .get_positionals()
                .map(|argument| argument.get_value_names().map_or(String::new(), |names| names.join(" ")))
                .collect();
            assert!(words.len() <= 1, "{}: {words:?}", command.get_name());
            if let [word] = words.as_slice() {
                let all = ["USER", "LABEL", "SERVICE", "NUMBER", "SHELL", "DIRECTORY", "COMMAND"];
                assert!(all.contains(&word.as_str()), "{}: {word}", command.get_name());
                known += 1;
            }
        }
        assert!(known >= 5);
    }
}
