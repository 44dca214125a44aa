//! sessiond ↔ levee-fsd, the client of the table that the site's servers share.
//!
//! What passes is the interface of [`levee_session::federation`], as it is: sessiond asks with an `Ask`, fsd answers with a `Heard`.

pub use levee_session::federation::{Ask, Entry, Heard, Shared, TableChange};
