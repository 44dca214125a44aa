//! What the commands print with `--json` is what docs/schemas says: looked at wherever a test has them print it.

use std::fs;
use std::path::Path;

/// The schema of what `program` prints with these arguments; `None` where it prints no JSON.
fn name(program: &str, arguments: &[&str]) -> Option<String> {
    if !arguments.contains(&"--json") {
        return None;
    }
    let words = arguments.iter().filter(|word| !word.starts_with('-'));
    match program {
        "levee-tpe" if arguments.contains(&"doctor") => Some("levee-doctor".into()),
        "levee-tpe" => Some("levee-tpe".into()),
        _ => {
            let (first, second) = {
                let mut words = words;
                (words.next()?, words.next().copied().unwrap_or_default())
            };
            if *first == "status" && arguments.contains(&"--cost") {
                return Some("levee-status-cost".into());
            }
            if *first == "check" && arguments.contains(&"--explain") {
                return Some("levee-check-explain".into());
            }
            // Records of the log.
            if (*first, second) == ("posture", "history") {
                return Some("levee-audit-show".into());
            }
            let grouped = ["access", "audit", "lab", "label", "partition", "posture", "session", "state"]
                .contains(first);
            Some(if grouped { format!("levee-{first}-{second}") } else { format!("levee-{first}") })
        }
    }
}

/// The schema of this name, if it is there.
fn schema(name: &str) -> Option<jsonschema::Validator> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/schemas/{name}.json"));
    let schema = serde_json::from_str(&fs::read_to_string(&path).ok()?).expect("a schema is JSON");
    Some(jsonschema::draft202012::new(&schema).expect("a schema of JSON Schema 2020-12"))
}

/// Fails the test where what was printed is not what the schema of this command says.
///
/// # Panics
/// Where it is not, and where it is no JSON. Without a schema of its own, a command prints what levee-said.json says.
#[track_caller]
pub fn hold(program: &str, arguments: &[&str], printed: &str) {
    let Some(name) = name(program, arguments).filter(|_| !printed.trim().is_empty()) else { return };
    let (schema, said) = (schema(&name).or_else(|| schema("levee-said")), schema("levee-said"));
    let (schema, said) = (schema.expect("the schema"), said.expect("the schema"));
    for value in serde_json::Deserializer::from_str(printed).into_iter::<serde_json::Value>() {
        let value =
            value.unwrap_or_else(|e| panic!("{program} {arguments:?} prints no JSON: {e}: {printed}"));
        // A failure has the same form everywhere.
        let schema = if program == "levee" && value.get("error").is_some() { &said } else { &schema };
        let faults: Vec<String> =
            schema.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(faults.is_empty(), "{program} {arguments:?} prints what {name} does not allow: {faults:#?}");
    }
}
