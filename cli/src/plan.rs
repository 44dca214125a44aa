//! What levee-plan prints, read for programs: the start of a label's compartment, step by step.

use serde::Serialize;

/// How the compartment of a label would be started.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    label: String,
    form: &'static str,
    steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Step {
    number: usize,
    /// Who does it.
    who: &'static str,
    step: String,
}

/// Who does something, as levee-plan names them.
const WHO: [&str; 4] = ["warden", "process 1", "machine", "in it"];

impl Planned {
    /// From the text.
    ///
    /// # Errors
    /// It is none: the two programs are of different versions.
    pub fn read(text: &str) -> Result<Self, String> {
        let other = || "levee-plan printed something else than a plan: is it of another version?".to_owned();
        let (head, lines) = text.split_once('\n').ok_or_else(other)?;
        let (form, label) = match (head.strip_prefix("compartment "), head.strip_prefix("machine ")) {
            (Some(label), _) => ("compartment", label),
            (_, Some(rest)) => ("machine", rest.split_once(": ").ok_or_else(other)?.0),
            _ => return Err(other()),
        };
        let mut steps: Vec<Step> = Vec::new();
        for line in lines.lines() {
            match step(line) {
                Some(step) if step.number == steps.len() + 1 => steps.push(step),
                // A step may have lines of its own.
                _ => {
                    let last = steps.last_mut().ok_or_else(other)?;
                    last.step.push('\n');
                    last.step.push_str(line);
                }
            }
        }
        Ok(Self { label: label.to_owned(), form, steps })
    }
}

/// A numbered line.
fn step(line: &str) -> Option<Step> {
    let (number, rest) = line.trim_start().split_once("  ")?;
    let number = number.parse().ok()?;
    let who = WHO.into_iter().find(|who| rest.starts_with(&format!("{who:9}  ")))?;
    // Each is of nine characters, with spaces behind it.
    Some(Step { number, who, step: rest.get(9..)?.trim_start().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_step_by_step_and_what_is_none_is_refused() {
        let text = "compartment SECRET//NATO\n  1  warden     make a user namespace\n  2  process 1  write rules:\n   a\n  9  b\n  3  in it      end\n";
        let planned = Planned::read(text).unwrap();
        let steps: Vec<_> =
            planned.steps.iter().map(|one| (one.number, one.who, one.step.as_str())).collect();
        assert_eq!((planned.label.as_str(), planned.form), ("SECRET//NATO", "compartment"));
        let second = "write rules:\n   a\n  9  b";
        assert_eq!(
            steps,
            [(1, "warden", "make a user namespace"), (2, "process 1", second), (3, "in it", "end")]
        );
        let machine = Planned::read("machine LOW: a kernel of its own\n").unwrap();
        assert_eq!((machine.label.as_str(), machine.form, machine.steps.len()), ("LOW", "machine", 0));
        for wrong in ["", "compartment LOW", "plan LOW\n", "compartment LOW\nx\n"] {
            assert!(Planned::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
