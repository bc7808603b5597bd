//! The privileges that the other files of a policy give: mounts, tools, settings and IAM.

use ebs_csi_document::{Table, Value};

use super::Given;
use super::keys::{list, only, table, word};

/// Keys that explain a row and give nothing.
const WORDS: [&str; 8] =
    ["why", "about", "go_driver", "default", "example", "shown", "source", "range"];
/// Rows that refuse or look at something: fewer of them give more.
const RESTRICTIONS: [&str; 5] = ["refused", "blank", "securebits", "namespaces", "credentials"];
/// The file that says which settings are wider than the policy.
pub(super) const SETTINGS: &str = "settings.toml";
/// What a policy without that file permits.
pub(super) const UNREPORTED: &str = "no setting is reported";
/// Adds the rows of a file, each value of a tool or an option by itself.
pub(super) fn rows(file: &str, document: &Table, given: &mut Given) {
    let row = |value: &Value| match value {
        Value::Table(row) => {
            let mut row = row.clone();
            row.retain(|key, _| !WORDS.contains(&key.as_str()));
            Value::Table(row).to_string()
        }
        other => other.to_string(),
    };
    for (name, value) in document {
        match value {
            Value::List(list) if RESTRICTIONS.contains(&name.as_str()) => {
                let all = list.iter().map(|one| format!("{file}: {name} {}", row(one)));
                given.restrictions.extend(all);
            }
            Value::List(list) => {
                let all = list.iter().map(|one| (format!("{file}: {name} {}", row(one)), None));
                given.privileges.extend(all);
            }
            Value::Table(table) => {
                for (key, value) in table.iter().filter(|(key, _)| !WORDS.contains(&key.as_str())) {
                    let values = match value {
                        Value::List(list)
                            if list.iter().all(|one| matches!(one, Value::Table(_))) =>
                        {
                            list.iter().map(row).collect()
                        }
                        other => vec![other.to_string()],
                    };
                    let all = values.into_iter().map(|one| format!("{file}: {name} {key} {one}"));
                    given.privileges.extend(all.map(|one| (one, None)));
                }
            }
            other => {
                given.privileges.insert(format!("{file}: {name} {other}"), None);
            }
        }
    }
}

/// Adds the values of settings that count as no wider than the policy, and so are not reported.
pub(super) fn settings(document: &Table, given: &mut Given) -> Result<(), String> {
    if document.is_empty() {
        given.privileges.insert(format!("{SETTINGS}: {UNREPORTED}"), None);
    }
    for program in document.keys() {
        for row in list(document, program)? {
            let row = table(row)?;
            only(row, "flags narrower same wider default switch several why")?;
            for flag in list(row, "flags")? {
                if let Some(default) = row.get("default") {
                    let line = format!("{SETTINGS}: {program} {flag} is {default} if not given");
                    given.privileges.insert(line, None);
                }
                for value in list(row, "narrower")?.iter().chain(list(row, "same")?) {
                    let line = format!("{SETTINGS}: {program} {flag} {value} is not reported");
                    given.privileges.insert(line, None);
                }
            }
        }
    }
    Ok(())
}

/// Adds the statements of an IAM policy, each action on each resource by itself.
pub(super) fn iam(file: &str, policy: &Value, given: &mut Given) -> Result<(), String> {
    let all = |statement: &Table, key: &str| match statement.get(key) {
        Some(Value::List(list)) => list.clone(),
        Some(one) => vec![one.clone()],
        None => Vec::new(),
    };
    for statement in list(table(policy)?, "Statement")? {
        let statement = table(statement)?;
        only(statement, "Sid Effect Principal Action Resource NotResource Condition")?;
        let condition = statement.get("Condition");
        let condition = condition.map_or_else(String::new, |all| format!(" where {all}"));
        let on = all(statement, "Resource").into_iter().map(|one| format!("on {one}"));
        let others = statement.get("NotResource").map(|others| format!("on all but {others}"));
        // A trust policy says who may assume the role.
        let by = all(statement, "Principal").into_iter().map(|one| format!("by {one}"));
        let whom: Vec<String> = on.chain(others).chain(by).collect();
        for action in all(statement, "Action") {
            for whom in &whom {
                let line = format!("iam/{file}: {action} {whom}{condition}");
                match word(statement, "Effect")? {
                    "Allow" => drop(given.privileges.insert(line, None)),
                    _ => drop(given.restrictions.insert(line)),
                }
            }
        }
    }
    Ok(())
}
