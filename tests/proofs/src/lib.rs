//! What must never fail, as models that a solver proves properties of for every value at full width, and that are held to the code.
//!
//! A model (`models/*.smt2`, SMT-LIB 2) says what the code does, not what it should do: a definition for each of its functions.
//! Behind the definitions stand properties, each the denial of a sentence: that no value satisfies it is the proof. A model is not the
//! code, so two things are asked of it beside. It answers as the code does, on the edges and on numbers drawn by chance
//! ([`Model::compare`]). And each way to break it that stands beside a property is found twice ([`Model::judge`], [`Model::compare`]):
//! the solver finds a value that breaks the property, and the same mistake in the code would be found by the numbers.
//!
//! Begin reading with `models/sequence.smt2`, the shortest, then `tests/proved.rs` and `tests/replay.rs`.
#![forbid(unsafe_code)]

mod draw;
mod solver;

pub use draw::{Draw, around};

use std::path::Path;

/// A property, as it stands in a model.
#[derive(Clone, Debug)]
struct Property {
    words: String,
    changes: Vec<Change>,
    /// Declarations and the denial.
    denial: String,
}

/// A change of the definitions that breaks a property.
#[derive(Clone, Debug)]
struct Change {
    /// What stands there.
    from: String,
    /// What stands there instead.
    to: String,
    /// Whether it is of what the code does. If not, it has the property ask too much.
    is_of_code: bool,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{BY}{}", self.from, self.to)
    }
}

/// A model.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    definitions: String,
    properties: Vec<Property>,
}

/// Something the code answered, and the term that is the model's answer to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    term: String,
    code: String,
}

impl Case {
    /// The code answered yes or no.
    pub fn truth(term: String, code: bool) -> Self {
        Self { term, code: code.to_string() }
    }

    /// The code answered a number, which the model has in so many bits, a multiple of four.
    pub fn bits(term: String, width: usize, code: impl Into<u128>) -> Self {
        Self { term, code: bits(width, code) }
    }

    /// The code answered what is written so.
    pub fn written(term: String, code: String) -> Self {
        Self { term, code }
    }
}

/// A number as a literal of so many bits, a multiple of four.
pub fn bits(width: usize, number: impl Into<u128>) -> String {
    assert!(width.is_multiple_of(4), "{width} bits");
    format!("#x{:0digits$x}", number.into(), digits = width / 4)
}

/// What begins a property in a model.
const PROPERTY: &str = ";; property: ";
/// What begins a way to break it by what the code does, and by what is asked.
const BROKEN: [&str; 2] = [";; broken by: ", ";; too much with: "];
/// In how many parts cases are looked at for one that finds a change.
const PARTS: usize = 16;
/// What stands between the two halves of it.
const BY: &str = " ~> ";

impl Model {
    /// The model of this name.
    pub fn read(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("models/{name}.smt2"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self::parse(name, &text)
    }

    /// Every model there is, by name.
    pub fn names() -> Vec<String> {
        let files =
            std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).expect("the models");
        let paths = files.map(|file| file.expect("a file").path());
        let name = |path: std::path::PathBuf| path.file_stem()?.to_str().map(str::to_owned);
        let mut names: Vec<String> = paths.filter_map(name).collect();
        names.sort();
        names
    }

    /// A model of this text.
    pub fn parse(name: &str, text: &str) -> Self {
        let mut parts = text.split(PROPERTY);
        let definitions = parts.next().unwrap_or_default().to_owned();
        let properties = parts.map(property).collect();
        Self { name: name.to_owned(), definitions, properties }
    }

    /// How many properties it has, and how many ways to break them.
    pub fn size(&self) -> (usize, usize) {
        (self.properties.len(), self.properties.iter().map(|property| property.changes.len()).sum())
    }

    /// The definitions with one change; they must have its place once, or it would change nothing or too much.
    fn changed(&self, change: &Change) -> String {
        let times = self.definitions.matches(change.from.as_str()).count();
        assert_eq!(times, 1, "{}: {}", self.name, change.from);
        self.definitions.replace(&change.from, &change.to)
    }

    /// What is wrong with the model: properties that do not hold or have no way to break them, and changes that break nothing.
    pub fn judge(&self) -> Vec<String> {
        let (mut script, mut expected) = (String::new(), Vec::new());
        let mut ask = |definitions: &str, property: &Property, answer, what: String| {
            script += &format!("(reset)\n{definitions}\n{}\n(check-sat)\n", property.denial);
            expected.push((answer, what));
        };
        let mut problems = Vec::new();
        for property in &self.properties {
            ask(&self.definitions, property, "unsat", format!("does not hold: {}", property.words));
            for change in &property.changes {
                let what = format!("{}: still holds with {change}", property.words);
                ask(&self.changed(change), property, "sat", what);
            }
            if property.changes.is_empty() {
                problems.push(format!("{}: no way to break it: {}", self.name, property.words));
            }
        }
        if self.properties.is_empty() {
            problems.push(format!("{}: no property", self.name));
        }
        let answers = solver::answers(&script, expected.len());
        let wrong = answers.into_iter().zip(expected).filter(|(answer, (expected, _))| answer != expected);
        problems.extend(wrong.map(|(answer, (_, what))| format!("{}: {what} ({answer})", self.name)));
        problems
    }

    /// Where model and code do not say the same, and which changes of the model no case tells from it: the same mistake in the code
    /// would be found by none.
    pub fn compare(&self, cases: &[Case]) -> Vec<String> {
        let apart = |definitions: &str, cases: &[&Case]| {
            let terms: String = cases.iter().map(|case| format!("(simplify {})\n", case.term)).collect();
            let answers = solver::answers(&format!("{definitions}\n{terms}"), cases.len());
            let pairs = cases.iter().zip(answers);
            let pairs = pairs.filter(|(case, answer)| case.code != *answer);
            pairs.map(|(case, answer)| ((*case).clone(), answer)).collect::<Vec<_>>()
        };
        let told = |(case, answer): &(Case, String)| {
            format!("{}: {} is {answer}, and the code says {}", self.name, case.term, case.code)
        };
        let all: Vec<&Case> = cases.iter().collect();
        let mut problems: Vec<String> = apart(&self.definitions, &all).iter().take(20).map(told).collect();
        // Most changes are found by the first cases of any part: a part has some of each kind.
        let part = |first: usize| cases.iter().skip(first).step_by(PARTS).collect::<Vec<_>>();
        let parts: Vec<Vec<&Case>> = (0..PARTS).map(part).collect();
        for change in self.properties.iter().flat_map(|property| &property.changes) {
            let changed = self.changed(change);
            let is_found = || parts.iter().any(|part| !apart(&changed, part).is_empty());
            if change.is_of_code && !is_found() {
                problems.push(format!("{}: no case finds {change}", self.name));
            }
        }
        problems
    }
}

/// A property from what stands behind its first words' beginning.
fn property(text: &str) -> Property {
    let (words, rest) = text.split_once('\n').unwrap_or((text, ""));
    let change = |line: &str| {
        let [by_code, by_question] = BROKEN.map(|begin| line.strip_prefix(begin));
        let change = by_code.or(by_question)?;
        let (from, to) = change.split_once(BY).unwrap_or_else(|| panic!("no{BY}in {line}"));
        Some(Change { from: from.to_owned(), to: to.to_owned(), is_of_code: by_code.is_some() })
    };
    let changes = rest.lines().filter_map(change).collect();
    Property { words: words.to_owned(), changes, denial: rest.to_owned() }
}

/// Fails with all of `problems`, one a line.
#[track_caller]
pub fn none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "(set-logic QF_BV)\n(define-fun next ((n (_ BitVec 8))) (_ BitVec 8) (bvadd n #x01))\n(declare-const n (_ BitVec 8))\n";

    fn model(rest: &str) -> Model {
        Model::parse("a model", &format!("{TEXT}{rest}"))
    }

    #[test]
    fn a_property_that_does_not_hold_is_told_and_so_is_one_that_nothing_breaks() {
        let right = ";; property: it is another\n;; broken by: #x01 ~> #x00\n(assert (= n (next n)))\n";
        assert_eq!(model(right).judge(), Vec::<String>::new());
        assert_eq!(model(right).size(), (1, 1));
        let wrong =
            ";; property: it is above\n;; broken by: #x01 ~> #x00\n(assert (not (bvugt (next n) n)))\n";
        assert_eq!(model(wrong).judge(), ["a model: does not hold: it is above (sat)"]);
        let idle = ";; property: it is another\n;; broken by: #x01 ~> #x02\n(assert (= n (next n)))\n";
        let problems = model(idle).judge();
        assert!(problems.len() == 1 && problems[0].ends_with("#x01 ~> #x02 (unsat)"), "{problems:?}");
        let much = ";; property: it is another\n;; too much with: #x01 ~> #x00\n(assert (= n (next n)))\n";
        assert_eq!(model(much).judge(), Vec::<String>::new());
        let bare = ";; property: it is another\n(assert (= n (next n)))\n";
        assert_eq!(model(bare).judge(), ["a model: no way to break it: it is another"]);
        assert_eq!(model("").judge(), ["a model: no property"]);
    }

    #[test]
    fn code_that_says_another_thing_is_told_and_so_is_a_change_that_no_case_finds() {
        let right = ";; property: it is another\n;; broken by: #x01 ~> #x00\n(assert (= n (next n)))\n";
        let said = |of: u8, code: u8| Case::bits(format!("(next {})", bits(8, of)), 8, code);
        assert_eq!(model(right).compare(&[said(7, 8), said(255, 0)]), Vec::<String>::new());
        let problems = model(right).compare(&[said(7, 8), said(255, 1)]);
        assert_eq!(problems, ["a model: (next #xff) is #x00, and the code says #x01"]);
        let truth = Case::truth("(= (next #x07) #x07)".into(), false);
        assert_eq!(model(right).compare(&[truth]), Vec::<String>::new());
        let problems = model(right).compare(&[Case::truth("(bvuge (next #x07) #x07)".into(), true)]);
        assert_eq!(problems, ["a model: no case finds #x01 ~> #x00"]);
    }

    #[test]
    fn a_change_of_what_is_asked_is_none_of_the_code_and_no_case_need_find_it() {
        let much = ";; property: it is another\n;; too much with: #x01 ~> #x00\n(assert (= n (next n)))\n";
        let idle = Case::truth("(bvuge (next #x07) #x07)".into(), true);
        assert_eq!(model(much).compare(&[idle]), Vec::<String>::new());
    }

    #[test]
    #[should_panic(expected = "error")]
    fn what_the_solver_does_not_understand_is_no_answer() {
        let _ = model("").compare(&[Case::truth("(nothing)".into(), true)]);
    }
}
