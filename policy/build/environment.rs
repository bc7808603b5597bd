//! `environment.toml`.

use serde::Deserialize;

use crate::literal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Environment {
    kept: Vec<Kept>,
    given: Vec<Given>,
    credentials: Vec<Credentials>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    profiles: Vec<String>,
    begins: Vec<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    variable: String,
    #[serde(default)]
    tools: Vec<String>,
    value: String,
    why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    begins: String,
    words: Vec<String>,
    profiles: Vec<String>,
    why: String,
}

pub(crate) fn compile(text: &str, profiles: &[&str], tools: &[&str]) -> Result<String, String> {
    let file: Environment = toml::from_str(text).map_err(|e| e.to_string())?;
    let kept = literal::rows(&file.kept, |row| {
        literal::known(&row.profiles, profiles)?;
        if row.begins.is_empty() || row.begins.iter().any(String::is_empty) {
            return Err("a row keeps every variable".to_owned());
        }
        let (of, begins) = (literal::texts(&row.profiles), literal::texts(&row.begins));
        let why = literal::reason(&row.why, "a kept variable")?;
        Ok(format!("KeptVariables {{ profiles: {of}, begins: {begins}, why: {why} }}"))
    })?;
    let given = literal::rows(&file.given, |row| {
        literal::known(&row.tools, tools)?;
        let Given { variable, value, .. } = row;
        let (of, why) = (literal::texts(&row.tools), literal::reason(&row.why, variable)?);
        Ok(format!(
            "GivenVariable {{ name: {variable:?}, tools: {of}, value: {value:?}, why: {why} }}"
        ))
    })?;
    let credentials = literal::rows(&file.credentials, |row| {
        literal::known(&row.profiles, profiles)?;
        Ok(format!(
            "Credentials {{ begins: {:?}, words: {}, profiles: {}, why: {} }}",
            row.begins,
            literal::texts(&row.words),
            literal::texts(&row.profiles),
            literal::reason(&row.why, "the credentials")?
        ))
    })?;
    Ok(format!(
        "pub(crate) const KEPT: &[KeptVariables] = {kept};\n\
         pub(crate) const GIVEN: &[GivenVariable] = {given};\n\
         pub(crate) const CREDENTIALS: &[Credentials] = {credentials};\n"
    ))
}
