//! What is typed to sign on: a name, a password, and a code where the site asks for one.

use levee_ipc::Secret;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use zeroize::{Zeroize, Zeroizing};

/// The most bytes of a name.
const MAX_NAME: usize = 64;

/// Where the cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Who.
    Name,
    /// Their password.
    Password,
    /// The code of their second factor.
    Code,
}

/// What a key has done.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// Nothing that matters elsewhere.
    Nothing,
    /// All of it is there.
    Whole,
    /// The person does not want to.
    Leave,
}

/// What is typed to sign on.
pub struct Form {
    user: String,
    password: Zeroizing<String>,
    code: Zeroizing<String>,
    field: Field,
    asks_code: bool,
}

impl Form {
    /// An empty one, but for the name.
    pub fn new(user: String) -> Self {
        let field = if user.is_empty() { Field::Name } else { Field::Password };
        // Sized beforehand: a string that grows would leave unerased copies behind.
        let secret = || Zeroizing::new(String::with_capacity(Secret::MAX));
        Self { user, password: secret(), code: secret(), field, asks_code: false }
    }

    /// What stands in each field that is shown, and which has the cursor. Of secrets, stars.
    pub fn shown(&self) -> (Vec<(&'static str, String)>, usize) {
        let stars = |secret: &str| "*".repeat(secret.chars().count());
        let mut rows = vec![("Name", self.user.clone()), ("Password", stars(&self.password))];
        if self.asks_code {
            rows.push(("Code", stars(&self.code)));
        }
        let at = match self.field {
            Field::Name => 0,
            Field::Password => 1,
            Field::Code => 2,
        };
        (rows, at)
    }

    /// All that was typed.
    pub fn whole(&self) -> (String, Option<Secret>, Option<Secret>) {
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
        let code = if self.asks_code { secret(&self.code) } else { None };
        (self.user.clone(), secret(&self.password), code)
    }

    /// The site asks for a code: the password stays for it.
    pub fn ask_code(&mut self) {
        self.asks_code = true;
        self.code.zeroize();
        self.code.reserve(Secret::MAX);
        self.field = Field::Code;
    }

    /// Password and code were of no use.
    pub fn clear(&mut self) {
        for secret in [&mut self.password, &mut self.code] {
            secret.zeroize();
            secret.reserve(Secret::MAX);
        }
        self.field = Field::Password;
    }

    /// Takes a key.
    pub fn key(&mut self, key: &KeyEvent) -> Typed {
        let (text, most) = match self.field {
            Field::Name => (&mut self.user, MAX_NAME),
            Field::Password => (&mut *self.password, Secret::MAX),
            Field::Code => (&mut *self.code, Secret::MAX),
        };
        match key.code {
            KeyCode::Char(_) if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {}
            // Within the capacity, so that a secret never moves.
            KeyCode::Char(character) if text.len() + character.len_utf8() <= most => text.push(character),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Tab | KeyCode::Down => self.field = self.next().unwrap_or(Field::Name),
            KeyCode::BackTab | KeyCode::Up => self.field = self.before(),
            KeyCode::Enter => match self.next() {
                Some(next) => self.field = next,
                None => return Typed::Whole,
            },
            KeyCode::Esc => return Typed::Leave,
            _ => {}
        }
        Typed::Nothing
    }

    /// The field behind this one.
    fn next(&self) -> Option<Field> {
        match self.field {
            Field::Name => Some(Field::Password),
            Field::Password => self.asks_code.then_some(Field::Code),
            Field::Code => None,
        }
    }

    fn before(&self) -> Field {
        match self.field {
            Field::Name if self.asks_code => Field::Code,
            Field::Name | Field::Code => Field::Password,
            Field::Password => Field::Name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(form: &mut Form, codes: impl IntoIterator<Item = KeyCode>) -> Typed {
        let mut last = Typed::Nothing;
        for code in codes {
            last = form.key(&KeyEvent::new(code, KeyModifiers::NONE));
        }
        last
    }

    fn text(words: &str) -> impl Iterator<Item = KeyCode> + '_ {
        words.chars().map(KeyCode::Char)
    }

    #[test]
    fn a_code_is_asked_for_when_the_site_wants_one_and_nothing_of_a_secret_is_shown() {
        let mut form = Form::new(String::new());
        press(&mut form, text("ada").chain([KeyCode::Enter]));
        assert_eq!(press(&mut form, text("secret").chain([KeyCode::Enter])), Typed::Whole);
        let (user, password, code) = form.whole();
        assert_eq!(
            (user.as_str(), password.unwrap().expose(), code.is_none()),
            ("ada", &b"secret"[..], true)
        );
        form.ask_code();
        assert_eq!(press(&mut form, text("123456").chain([KeyCode::Enter])), Typed::Whole);
        let (_, password, code) = form.whole();
        assert_eq!((password.unwrap().expose(), code.unwrap().expose()), (&b"secret"[..], &b"123456"[..]));
        let (rows, at) = form.shown();
        assert_eq!((rows[1].1.as_str(), rows[2].1.as_str(), at), ("******", "******", 2));
        form.clear();
        let (_, password, code) = form.whole();
        assert!(password.unwrap().expose().is_empty() && code.unwrap().expose().is_empty());
        // From then on it is asked for in the first place.
        assert_eq!(press(&mut form, text("again").chain([KeyCode::Enter])), Typed::Nothing);
        assert_eq!(form.shown().1, 2);
    }

    #[test]
    fn every_field_is_reached_in_both_directions() {
        let mut form = Form::new("ada".into());
        form.ask_code();
        let mut seen = Vec::new();
        for code in [KeyCode::Tab, KeyCode::Tab, KeyCode::Tab, KeyCode::Up, KeyCode::Up, KeyCode::Up] {
            press(&mut form, [code]);
            seen.push(form.shown().1);
        }
        assert_eq!(seen, [0, 1, 2, 1, 0, 2]);
    }
}
