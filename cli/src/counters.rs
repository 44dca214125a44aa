//! The counters of `levee status`, and what each means.

use levee_esp::DropReason;
use levee_ipc::operator::ServerStatus;
use levee_ipc::vault::Report;

/// Every counter that has counted something: one that stands at zero has nothing to say. Whose, its name, the count, what it means.
pub fn rows(status: &ServerStatus) -> Vec<Vec<String>> {
    let counted =
        |of: &str, counters: &[(String, u64)], meaning: fn(&str) -> &'static str| -> Vec<Vec<String>> {
            (counters.iter())
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| {
                    vec![of.to_owned(), name.clone(), count.to_string(), meaning(name).to_owned()]
                })
                .collect()
        };
    // The names of others' say so themselves.
    let plain = |_: &str| "";
    let mut rows = counted("sessiond", &status.counters, of_a_trusted_path);
    rows.extend(counted("outside", &status.steering, plain));
    for compartment in &status.compartments {
        rows.extend(counted(&format!("compartment {}", compartment.label), &compartment.counters, plain));
    }
    for (label, report) in &status.vaults {
        rows.extend(counted(&format!("vault {label}"), &report.counters, of_a_vault));
    }
    rows
}

/// What a vault's counter means.
fn of_a_vault(name: &str) -> &'static str {
    match name {
        "packets-in" => "Inner packets that came and were passed on.",
        "bytes-in" => "Their octets.",
        "packets-out" => "Inner packets that were sent.",
        "bytes-out" => "Their octets.",
        Report::DISAGREED => "Packets that redundant stacks made of one differently: an alarm.",
        name => {
            let reason = DropReason::ALL.iter().find(|reason| reason.name() == name);
            reason.map_or("", |reason| reason.meaning())
        }
    }
}

/// How a trusted path ended, by levee-tps's word for it; what else sessiond counts says so itself.
fn of_a_trusted_path(name: &str) -> &'static str {
    match name {
        "closed" => "Trusted paths that a workstation closed.",
        "lost" => "Trusted paths that ended without being closed: a workstation that stopped or was cut off.",
        "idle" => "Trusted paths on which nothing was asked for too long.",
        "must_show_its_certificate_again" => {
            "Trusted paths that ended because keys or a revocation list are new; the workstation comes back."
        }
        "handshake" => {
            "Connections to the trusted path without TLS 1.3 and a certificate of the site's authority."
        }
        "handshake_deadline" => "Connections to the trusted path whose handshake was not done in time.",
        "no_common_algorithms" => "Connections to the trusted path with no algorithms that the site takes.",
        "device_name" => "Connections to the trusted path with a certificate that names no workstation.",
        "malformed" => "Trusted paths on which something came that is no request.",
        "slow" => "Trusted paths whose workstation did not take its answers.",
        "sessiond" => "Connections to the trusted path that sessiond could not take.",
        "signer" => "Connections to the trusted path for which the signer did not sign.",
        "crowded_out" | "too_many_waiting" => {
            "Connections to the trusted path that gave way to newer ones, of a place that has many."
        }
        "sandbox" | "child_died" | "epoll" | "fork" | "descriptors" => {
            "Trusted paths that ended by a fault of levee's."
        }
        "too_many_up" => "Connections to the trusted path beyond those that may be at once.",
        "accept" => "Connections to the trusted path that could not be taken.",
        "revocation_list" => "Times that the revocation list could not be read.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_in_which_a_trusted_path_ends_says_what_it_means() {
        let sources = [
            include_str!("../../daemons/tps/src/news.rs"),
            include_str!("../../daemons/tps/src/parent.rs").split("#[cfg(test)]").next().unwrap(),
        ];
        let mut found = 0;
        for line in sources.into_iter().flat_map(str::lines) {
            let is_reason = ["=> \"", "count(\"", "drop_client(", "Err(\"", "or(\"", "map_err(|_| \""];
            if !is_reason.iter().any(|is| line.contains(is)) {
                continue;
            }
            for word in line.split('"').skip(1).step_by(2) {
                assert!(!of_a_trusted_path(word).is_empty(), "{word}: {line}");
                found += 1;
            }
        }
        assert!(found > 20, "{found}");
    }

    #[test]
    fn what_a_vault_counts_is_not_what_a_trusted_path_is_counted_for_by_the_same_name() {
        let mut status = crate::status::tests::status();
        status.counters = vec![("malformed".to_owned(), 1)];
        status.vaults[0].1.counters = vec![("malformed".to_owned(), 2)];
        let means = |of: &str| {
            let rows = rows(&status).into_iter();
            rows.filter(|row| row[0].starts_with(of)).map(|row| row[3].clone()).collect::<Vec<_>>()
        };
        assert_eq!(means("sessiond"), [of_a_trusted_path("malformed")]);
        assert_eq!(means("vault"), [DropReason::Malformed.meaning()]);
    }
}
