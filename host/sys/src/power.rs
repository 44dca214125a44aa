//! Whether this host lives on a battery.

use std::path::Path;

/// Whether a battery that is the host's own (and not, say, a mouse's) gives what the host takes. Where the kernel knows of none, none does.
/// (`Documentation/ABI/testing/sysfs-class-power` of the kernel.)
pub fn on_battery() -> bool {
    discharges(Path::new("/sys/class/power_supply"))
}

fn discharges(supplies: &Path) -> bool {
    let supplies = std::fs::read_dir(supplies).into_iter().flatten().flatten();
    supplies.map(|supply| supply.path()).any(|supply| {
        let says = |file: &str, word: &str| {
            std::fs::read_to_string(supply.join(file)).is_ok_and(|text| text.trim_end() == word)
        };
        says("type", "Battery") && says("status", "Discharging") && !says("scope", "Device")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_battery_of_the_hosts_own_that_discharges_counts() {
        let supplies = tempfile::tempdir().unwrap();
        assert!(!discharges(&supplies.path().join("none")));
        let says = |name: &str, files: &[(&str, &str)]| {
            std::fs::create_dir_all(supplies.path().join(name)).unwrap();
            for (file, word) in files {
                std::fs::write(supplies.path().join(name).join(file), format!("{word}\n")).unwrap();
            }
            discharges(supplies.path())
        };
        assert!(!says("AC", &[("type", "Mains"), ("online", "0")]));
        assert!(!says("mouse", &[("type", "Battery"), ("status", "Discharging"), ("scope", "Device")]));
        assert!(!says("BAT0", &[("type", "Battery"), ("status", "Charging")]));
        assert!(says("BAT0", &[("status", "Discharging"), ("scope", "System")]));
        assert!(!says("BAT0", &[("status", "Full")]));
    }
}
