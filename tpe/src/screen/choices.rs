//! The trusted menu, the choice of a level by its parts, and the search: what keys do there.

use super::labels::{Offer, Picked, Picker};
use levee_policy::LabelName;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Characters of a search: no label is longer.
const MAX_TYPED: usize = LabelName::MAX;

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// To the program that runs.
    Return,
    /// Start a shell.
    Shell,
    /// A session at this level.
    Level(LabelName),
    /// Put a level together.
    Pick,
    /// Type a level, or a part of one.
    Search,
    /// End the one program that this screen is for.
    End,
    /// Lock the session.
    Lock,
    /// End the session.
    SignOff,
    /// Leave the screen; the session stays.
    Leave,
}

/// What came of a key.
pub enum Chosen {
    /// Nothing but what is to be seen.
    Nothing,
    /// This.
    This(Choice),
    /// Back to where the person came from.
    Back,
    /// To be said.
    Say(&'static str),
}

/// The trusted menu.
pub struct Menu {
    /// What each says.
    pub items: Vec<String>,
    choices: Vec<Choice>,
    /// The one that is chosen.
    pub chosen: usize,
    /// So many at the end are always in sight.
    pub pinned: usize,
}

/// A label that is being typed.
pub struct Search {
    offer: Offer,
    /// What was typed.
    pub typed: String,
    /// The row that is chosen.
    pub chosen: usize,
}

/// Whether the key was pressed with Ctrl.
pub fn is_control(key: &KeyEvent, letter: char) -> bool {
    key.code == KeyCode::Char(letter) && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// A letter as somebody types it.
fn letter(key: &KeyEvent) -> Option<char> {
    match key.code {
        KeyCode::Char(letter)
            if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
                && !letter.is_control() =>
        {
            Some(letter)
        }
        _ => None,
    }
}

/// Moves in a list by the keys that move; whether this was one.
fn moved(key: &KeyEvent, chosen: &mut usize, names: &[String]) -> bool {
    let last = names.len().saturating_sub(1);
    *chosen = match key.code {
        KeyCode::Up => chosen.saturating_sub(1),
        KeyCode::Down => (*chosen + 1).min(last),
        KeyCode::PageUp => chosen.saturating_sub(10),
        KeyCode::PageDown => (*chosen + 10).min(last),
        KeyCode::Home => 0,
        KeyCode::End => last,
        _ => return false,
    };
    true
}

/// The next entry that begins with this letter, behind the chosen one and then from the top.
fn jumped(letter: char, chosen: usize, names: &[String]) -> Option<usize> {
    let begins = |name: &String| name.chars().next().is_some_and(|first| first.eq_ignore_ascii_case(&letter));
    let mut order = (chosen + 1..names.len()).chain(0..=chosen);
    order.find(|&at| names.get(at).is_some_and(begins))
}

impl Menu {
    /// A menu of these.
    pub fn new(choices: Vec<Choice>, offer: &Offer) -> Self {
        let said = |choice: &Choice| match choice {
            Choice::Return => "Return to the program".to_owned(),
            Choice::Shell => "Start a shell".to_owned(),
            Choice::Level(label) => format!("Session at {label}"),
            Choice::Pick => format!("Choose a level ({} of them)", offer.count()),
            Choice::Search => "Type a level, or search".to_owned(),
            Choice::End => "End the program".to_owned(),
            Choice::Lock => "Lock".to_owned(),
            Choice::SignOff => "Sign off".to_owned(),
            Choice::Leave => "Leave: you stay signed on".to_owned(),
        };
        let pinned = choices
            .iter()
            .rev()
            .take_while(|choice| matches!(choice, Choice::Lock | Choice::SignOff | Choice::Leave));
        let pinned = pinned.count();
        Self { items: choices.iter().map(said).collect(), choices, chosen: 0, pinned }
    }

    /// What a key does.
    pub fn key(&mut self, key: &KeyEvent) -> Chosen {
        // A level is found by its own first letter.
        let names: Vec<String> = self
            .items
            .iter()
            .zip(&self.choices)
            .map(|(item, choice)| match choice {
                Choice::Level(label) => label.to_string(),
                _ => item.clone(),
            })
            .collect();
        if moved(key, &mut self.chosen, &names) {
            return Chosen::Nothing;
        }
        match (key.code, letter(key)) {
            (KeyCode::Enter, _) => {
                self.choices.get(self.chosen).cloned().map_or(Chosen::Nothing, Chosen::This)
            }
            (KeyCode::Esc, _) => Chosen::Back,
            (_, Some('/')) => Chosen::This(Choice::Search),
            (_, Some(letter)) => {
                self.chosen = jumped(letter, self.chosen, &names).unwrap_or(self.chosen);
                Chosen::Nothing
            }
            _ => Chosen::Nothing,
        }
    }
}

impl Picker {
    /// What a key does.
    pub fn key(&mut self, key: &KeyEvent) -> Chosen {
        // Behind the mark.
        let lines = self.lines();
        let marks = ["( ) ", "(*) ", "[ ] ", "[x] ", "[=] "];
        let names: Vec<String> = lines
            .iter()
            .map(|line| marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).to_owned())
            .collect();
        if moved(key, &mut self.chosen, &names) {
            return Chosen::Nothing;
        }
        match (key.code, letter(key)) {
            (KeyCode::Enter, _) | (_, Some(' ')) => match self.take() {
                Picked::Nothing => Chosen::Nothing,
                Picked::Label(label) => Chosen::This(Choice::Level(label)),
                Picked::None => {
                    Chosen::Say("These make no level that you may choose here: tick less, or more.")
                }
            },
            (KeyCode::Esc, _) => Chosen::Back,
            (_, Some('/')) => Chosen::This(Choice::Search),
            (_, Some(letter)) => {
                self.chosen = jumped(letter, self.chosen, &names).unwrap_or(self.chosen);
                Chosen::Nothing
            }
            _ => Chosen::Nothing,
        }
    }
}

impl Search {
    /// Nothing typed yet.
    pub fn new(offer: Offer) -> Self {
        Self { offer, typed: String::new(), chosen: 0 }
    }

    /// What can be taken: what was typed itself first where the list is not all.
    fn rows(&self) -> Vec<(String, Option<LabelName>)> {
        let found = self.offer.matching(&self.typed);
        let exact = self.offer.typed(&self.typed);
        let listed = found.iter().any(|label| exact.as_ref() == Some(label));
        let own = exact.filter(|_| !listed).map(|label| (format!("As typed: {label}"), Some(label)));
        let mut rows: Vec<(String, Option<LabelName>)> =
            found.into_iter().map(|label| (label.to_string(), Some(label))).collect();
        match self.offer.lattice {
            Some(_) => rows.splice(0..0, own).for_each(drop),
            None => rows.extend(own),
        }
        if rows.is_empty() {
            rows.push(("Nothing like that".to_owned(), None));
        }
        rows
    }

    /// The rows in words.
    pub fn lines(&self) -> Vec<String> {
        self.rows().into_iter().map(|(line, _)| line).collect()
    }

    /// What a key does.
    pub fn key(&mut self, key: &KeyEvent) -> Chosen {
        let lines = self.lines();
        if moved(key, &mut self.chosen, &lines) {
            return Chosen::Nothing;
        }
        match (key.code, letter(key)) {
            (KeyCode::Enter, _) => match self.rows().into_iter().nth(self.chosen) {
                Some((_, Some(label))) => Chosen::This(Choice::Level(label)),
                _ => Chosen::Nothing,
            },
            (KeyCode::Esc, _) => Chosen::Back,
            (KeyCode::Backspace, _) => {
                self.typed.pop();
                self.chosen = 0;
                Chosen::Nothing
            }
            (_, Some(letter)) if self.typed.len() + letter.len_utf8() <= MAX_TYPED => {
                self.typed.push(letter);
                self.chosen = 0;
                Chosen::Nothing
            }
            _ => Chosen::Nothing,
        }
    }
}
