//! Which processes the warden gives a channel to each other when both run. Every other channel is made by who starts one of its two ends
//! (`stacks.rs`, `mediation.rs`, the trusted path's server). The whole relation, with the interfaces, is the table of this file's tests,
//! which ARCHITECTURE shows: a process has no channel but those that it was given.

use levee_ipc::warden::Role::{self, Fsd, Guard, Keyer, Mediator, Sessiond, Signer, Tpe, Tps, Vault};

/// On a workstation the tpe stands in sessiond's place; a gate stands in a vault's.
const WIRED: [(Role, Role); 14] = [
    (Tps, Sessiond),
    (Sessiond, Keyer),
    (Tpe, Keyer),
    (Sessiond, Vault),
    (Tpe, Vault),
    (Keyer, Vault),
    (Sessiond, Mediator),
    (Guard, Sessiond),
    (Tps, Signer),
    (Keyer, Signer),
    (Sessiond, Signer),
    (Fsd, Signer),
    (Tpe, Signer),
    (Sessiond, Fsd),
];

/// Whether the warden gives two processes of these roles a channel when both run.
pub fn wired(a: Role, b: Role) -> bool {
    WIRED.contains(&(a, b)) || WIRED.contains(&(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::warden::{
        Part, Peer, channel, frames, fsd, guard, keyer, layer, mediator, sessiond, signer, stack, tpe, tps,
        upflow, vault,
    };
    use std::fmt;

    /// One who speaks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum End {
        /// A process of this role.
        A(Role),
        /// A child of the trusted path's server, which has one client.
        Child,
        /// Process 1 of a label's compartment.
        Init,
        /// The operator's command.
        Operator,
        /// The person's command on a workstation.
        Person,
    }

    /// How the channel comes to be.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Means {
        /// The warden gives it to both when both run ([`wired`]).
        Wired,
        /// The warden gives it to a gate and its stacks as it starts them ([`crate::stacks`]).
        Stacks,
        /// The warden gives it to the mediator and process 1 as it starts the former ([`crate::mediation`]).
        Starter,
        /// The trusted path's server makes one for each client, and hands the other end on.
        Client,
        /// A socket in the run directory, which root alone may connect to.
        Socket,
    }

    /// A channel that may be.
    #[derive(Clone, Copy, Debug)]
    struct Row {
        /// Who asks or tells.
        from: End,
        /// Who is asked or told.
        to: End,
        /// How it comes to be.
        means: Means,
        /// The file that is the whole interface, in `host/ipc/src`.
        file: &'static str,
        /// The messages of the first, in that file.
        says: &'static str,
        /// And those of the other; `None` if it says nothing.
        answers: Option<&'static str>,
    }

    const fn row(
        from: End,
        to: End,
        means: Means,
        file: &'static str,
        says: &'static str,
        answers: Option<&'static str>,
    ) -> Row {
        Row { from, to, means, file, says, answers }
    }

    use End::{A, Child, Init, Operator, Person};
    use Means::{Client, Socket, Stacks, Starter, Wired};
    use Role::{Stack, Witness};

    /// Every channel but the warden's own.
    const TABLE: [Row; 21] = [
        row(A(Tps), A(Sessiond), Wired, "client.rs", "TpsToSessiond", None),
        row(Child, A(Sessiond), Client, "client.rs", "ChildToSessiond", Some("Reply")),
        row(A(Sessiond), A(Keyer), Wired, "keyer.rs", "ToKeyer", Some("FromKeyer")),
        row(A(Tpe), A(Keyer), Wired, "keyer.rs", "ToKeyer", Some("FromKeyer")),
        row(A(Sessiond), A(Vault), Wired, "vault.rs", "SessiondToVault", Some("VaultToSessiond")),
        row(A(Tpe), A(Vault), Wired, "vault.rs", "SessiondToVault", Some("VaultToSessiond")),
        row(A(Keyer), A(Vault), Wired, "vault.rs", "KeyerToVault", Some("VaultToKeyer")),
        row(A(Vault), A(Stack), Stacks, "agree.rs", "ToStack", Some("FromStack")),
        row(A(Vault), A(Witness), Stacks, "agree.rs", "ToStack", Some("FromStack")),
        row(A(Sessiond), A(Mediator), Wired, "mediator.rs", "SessiondToMediator", Some("MediatorToSessiond")),
        row(A(Guard), A(Sessiond), Wired, "guard.rs", "GuardToSessiond", Some("SessiondToGuard")),
        row(A(Mediator), Init, Starter, "mediator.rs", "ToStarter", Some("FromStarter")),
        row(A(Tps), A(Signer), Wired, "signer.rs", "ToSigner", None),
        row(Child, A(Signer), Client, "signer.rs", "ToSigner", Some("FromSigner")),
        row(A(Keyer), A(Signer), Wired, "signer.rs", "ToSigner", Some("FromSigner")),
        row(A(Sessiond), A(Signer), Wired, "signer.rs", "ToSigner", Some("FromSigner")),
        row(A(Fsd), A(Signer), Wired, "signer.rs", "ToSigner", Some("FromSigner")),
        row(A(Tpe), A(Signer), Wired, "signer.rs", "ToSigner", Some("FromSigner")),
        row(A(Sessiond), A(Fsd), Wired, "federation.rs", "Ask", Some("Heard")),
        row(Operator, A(Sessiond), Socket, "operator.rs", "Command", Some("Answer")),
        row(Person, A(Tpe), Socket, "tpe.rs", "Command", Some("Answer")),
    ];

    impl fmt::Display for End {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                A(Vault) => "vault or gate",
                A(Stack) => "first stack",
                A(Witness) => "second stack",
                A(Tpe) => "tpe's agent",
                A(role) => role.program().trim_start_matches("levee-"),
                Child => "tps child",
                Init => "process 1 of its compartment",
                Operator => "`levee`",
                Person => "`levee-tpe`",
            })
        }
    }

    impl fmt::Display for Means {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                Wired => "the warden, when both run",
                Stacks => "the warden, with the stacks",
                Starter => "the warden, with the mediator",
                Client => "tps, for each client",
                Socket => "a socket of root's",
            })
        }
    }

    impl fmt::Display for Row {
        /// As ARCHITECTURE has it.
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Self { from, to, means, file, says, answers } = self;
            let answers = answers.map_or(String::new(), |answers| format!(", `{answers}`"));
            let arrow = if answers.is_empty() { "→" } else { "↔" };
            write!(f, "| {from} {arrow} {to} | `host/ipc/src/{file}` | `{says}`{answers} | {means} |")
        }
    }

    const ROLES: [Role; 16] = [
        Role::Channel,
        Role::Frames,
        Guard,
        Role::Layer,
        Sessiond,
        Signer,
        Tps,
        Keyer,
        Vault,
        Stack,
        Witness,
        Mediator,
        Role::Snapshot,
        Role::Copy,
        Fsd,
        Tpe,
    ];

    fn read(path: &str) -> String {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    #[test]
    fn the_warden_gives_the_channels_of_the_table_that_it_is_to_give_and_no_others() {
        let rows = TABLE.into_iter().filter(|row| row.means == Wired).map(|row| (row.from, row.to));
        assert_eq!(rows.collect::<Vec<_>>(), WIRED.map(|(from, to)| (A(from), A(to))));
    }

    #[test]
    fn a_process_can_be_given_the_channels_that_are_rows_and_no_others() {
        for role in ROLES {
            for other in ROLES {
                let to = Peer { role: other, label: Some("LOW".parse().unwrap()), slot: Some(1) };
                fn takes<P: Part>(to: &Peer) -> bool {
                    P::channel(to).is_some()
                }
                let takes = match role {
                    Sessiond => takes::<sessiond::SessiondPart>(&to),
                    Signer => takes::<signer::SignerPart>(&to),
                    Tps => takes::<tps::TpsPart>(&to),
                    Keyer => takes::<keyer::KeyerPart>(&to),
                    Vault => takes::<vault::VaultPart>(&to) || takes::<vault::GatePart>(&to),
                    Stack | Witness => takes::<stack::StackPart>(&to),
                    Mediator => takes::<mediator::MediatorPart>(&to),
                    Role::Snapshot => takes::<upflow::SnapshotPart>(&to),
                    Role::Copy => takes::<upflow::CopyPart>(&to),
                    Role::Channel => takes::<channel::ChannelPart>(&to),
                    Role::Frames => takes::<frames::FramesPart>(&to),
                    Guard => takes::<guard::GuardPart>(&to),
                    Fsd => takes::<fsd::FsdPart>(&to),
                    Tpe => takes::<tpe::TpePart>(&to),
                    Role::Layer => takes::<layer::LayerPart>(&to),
                };
                let is_row = TABLE.iter().any(|row| {
                    [(A(role), A(other)), (A(other), A(role))].contains(&(row.from, row.to))
                        && [Wired, Stacks].contains(&row.means)
                });
                assert_eq!(takes, is_row, "{role:?} and {other:?}");
            }
        }
    }

    #[test]
    fn each_row_names_messages_that_are_in_its_file_and_is_shown_where_the_whole_is_explained() {
        let shown = read("docs/ARCHITECTURE.md");
        for row in TABLE {
            let file = read(&format!("host/ipc/src/{}", row.file));
            for message in [Some(row.says), row.answers].into_iter().flatten() {
                let is = |line: &str| {
                    line.starts_with(&format!("pub enum {message} "))
                        || line.starts_with("pub use ") && line.contains(message)
                };
                assert!(file.lines().any(is), "{message} is not in {}", row.file);
            }
            assert!(shown.contains(&row.to_string()), "docs/ARCHITECTURE.md lacks\n{row}");
        }
        let rows = shown.lines().filter(|line| line.contains("| `host/ipc/src/")).count();
        assert_eq!(rows, TABLE.len(), "docs/ARCHITECTURE.md shows what is not so");
    }

    #[test]
    fn what_reads_bytes_from_outside_reaches_no_vault_but_through_sessiond_and_keyer() {
        for (a, b) in [(Tps, Vault), (Tps, Keyer), (Fsd, Vault), (Fsd, Keyer), (Fsd, Tps), (Vault, Signer)] {
            assert!(!wired(a, b) && !wired(b, a), "{a:?} and {b:?}");
        }
        for role in ROLES {
            assert!(!wired(role, role), "{role:?}");
            assert_eq!(wired(Mediator, role), role == Sessiond);
            assert_eq!(wired(Guard, role), role == Sessiond);
            // They know their gate, and nobody else; and nobody speaks with upflow, nor with the second tunnel or a channel between
            // partitions.
            for lonely in
                [Role::Channel, Role::Frames, Role::Layer, Stack, Witness, Role::Snapshot, Role::Copy]
            {
                assert!(!wired(lonely, role), "{lonely:?} and {role:?}");
            }
        }
    }
}
