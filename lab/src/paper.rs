//! The papers' own figures, to stand beside ours. The files are under `papers/`.

use serde::Deserialize;

/// A mean the paper prints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mean {
    /// Workload.
    pub workload: String,
    /// Set-up, with `M` for the paper's mediation.
    pub arm: String,
    /// In the workload's unit.
    pub value: f64,
}

/// A row of a table: an arm against its base.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Workload.
    pub workload: String,
    /// What it is compared with.
    pub base: String,
    /// What is compared.
    pub arm: String,
    /// The change the paper prints, percent: decrease of a stream's rate, increase of a latency.
    pub printed: f64,
    /// What is wrong with that figure.
    #[serde(default)]
    pub fault: Option<String>,
}

/// A table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// As in the paper.
    pub number: String,
    /// As in the paper.
    pub title: String,
    /// Rows in its order.
    pub rows: Vec<Row>,
}

/// UDP datagrams sent and received.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// Set-up.
    pub arm: String,
    /// In words.
    pub note: String,
    /// As in the paper: table G.1 or G.2.
    pub table: String,
    /// (datagrams sent, received, 10^3 bit/s sent, received).
    pub rows: Vec<(u64, u64, f64, f64)>,
}

/// A paper's figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// As experiments name it.
    pub name: String,
    /// How to cite it.
    pub cite: String,
    /// Where it is.
    pub url: String,
    /// Every mean.
    #[serde(rename = "mean")]
    pub means: Vec<Mean>,
    /// Every table.
    #[serde(rename = "table")]
    pub tables: Vec<Table>,
    /// Raw UDP data.
    #[serde(default)]
    pub udp: Vec<Udp>,
    /// Its faults, which we must not repeat.
    #[serde(default)]
    pub faults: Vec<String>,
}

impl Paper {
    /// The paper of that name.
    ///
    /// # Errors
    /// When there is none, or its file is wrong.
    pub fn named(name: &str) -> Result<Paper, String> {
        match name {
            "mysea" => toml::from_str(include_str!("../papers/mysea.toml")).map_err(|e| e.to_string()),
            _ => Err(format!("no figures of a paper {name:?}")),
        }
    }

    /// The mean of a workload and set-up.
    pub fn mean(&self, workload: &str, arm: &str) -> Option<f64> {
        self.means.iter().find(|m| m.workload == workload && m.arm == arm).map(|m| m.value)
    }

    /// The paper's measure from the means: percent decrease of a stream's rate, else percent increase of latency.
    pub fn change(&self, workload: &str, base: &str, arm: &str) -> Option<f64> {
        let (b, a) = (self.mean(workload, base)?, self.mean(workload, arm)?);
        Some(measure(workload, b, a))
    }
}

/// Percent decrease of a stream's rate, or percent increase of the latency that a rate of transactions implies.
pub fn measure(workload: &str, base: f64, arm: f64) -> f64 {
    if workload.ends_with("STREAM") || workload.ends_with("MAERTS") {
        (1.0 - arm / base) * 100.0
    } else {
        (base / arm - 1.0) * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_changes_follow_from_the_printed_means_unless_a_fault_is_noted() {
        let p = Paper::named("mysea").expect("built in");
        for t in &p.tables {
            for r in &t.rows {
                let c = p.change(&r.workload, &r.base, &r.arm).expect("every row has its means");
                if r.fault.is_none() {
                    assert!((c - r.printed).abs() < 0.45, "table {} {r:?}: {c}", t.number);
                }
            }
        }
    }

    #[test]
    fn the_papers_datagrams_and_rates_say_the_same_share_lost_and_that_they_were_fragmented() {
        let p = Paper::named("mysea").expect("built in");
        for (sent, got, out, back) in p.udp.iter().flat_map(|u| &u.rows) {
            let by_count = *got as f64 / *sent as f64;
            assert!((back / out / by_count - 1.0).abs() < 0.01, "{sent} {got} {out} {back}");
            // ten seconds a trial (4.5): bytes of a datagram
            let bytes = out * 1e3 * 10.0 / 8.0 / *sent as f64;
            assert!((15_990.0..16_010.0).contains(&bytes), "{bytes}");
        }
    }

    #[test]
    fn federation_costs_a_quarter_not_a_half() {
        let p = Paper::named("mysea").expect("built in");
        let cc = p.change("TCP_CC", "I- M F-", "I- M F").expect("means");
        let crr = p.change("TCP_CRR", "I- M F-", "I- M F").expect("means");
        assert!((cc - 27.4).abs() < 0.1 && (crr - 23.2).abs() < 0.1, "{cc} {crr}");
    }
}
