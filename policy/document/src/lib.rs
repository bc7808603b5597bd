//! The parts of TOML and JSON in which the policy and what was collected are written. Anything else
//! is an error, so that nothing is passed over.

#![forbid(unsafe_code)]

pub mod digest;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// The deepest nesting of lists and tables.
const DEEPEST: usize = 16;

/// A table, or an object of JSON.
pub type Table = BTreeMap<String, Value>;

/// A value. Neither the policy nor what is collected has numbers below 0, or fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A number.
    Number(u64),
    /// `true` or `false`.
    Switch(bool),
    /// An array.
    List(Vec<Value>),
    /// A table.
    Table(Table),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Switch(switch) => write!(f, "{switch}"),
            Self::List(list) => {
                let items: Vec<_> = list.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Table(table) => {
                let items: Vec<_> =
                    table.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                write!(f, "{{ {} }}", items.join(", "))
            }
        }
    }
}

/// Parses a file of TOML. The error says in which line what was expected.
pub fn toml(text: &str) -> Result<Table, String> {
    let mut cursor = Cursor { text, at: 0 };
    let mut document = Table::new();
    let mut here: Vec<String> = Vec::new();
    loop {
        cursor.skip_blank();
        if cursor.is_at_end() {
            return Ok(document);
        }
        if cursor.takes("[[") {
            here = cursor.path("]]")?;
            let (last, parents) = here.split_last().ok_or("a table without a name")?;
            let rows = table_at(&mut document, parents)?
                .entry(last.clone())
                .or_insert_with(|| Value::List(Vec::new()));
            let Value::List(rows) = rows else { return Err(cursor.wrong("a list")) };
            rows.push(Value::Table(Table::new()));
        } else if cursor.takes("[") {
            here = cursor.path("]")?;
            table_at(&mut document, &here)?;
        } else {
            let key = cursor.key()?;
            cursor.skip_spaces();
            cursor.expects("=")?;
            let value = cursor.value('=', 0)?;
            if table_at(&mut document, &here)?.insert(key, value).is_some() {
                return Err(cursor.wrong("a key once"));
            }
        }
        cursor.ends_line()?;
    }
}

/// Parses a file of JSON. Fails as [`toml`] does.
pub fn json(text: &str) -> Result<Value, String> {
    let mut cursor = Cursor { text, at: 0 };
    let value = cursor.value(':', 0)?;
    cursor.skip_blank();
    if cursor.is_at_end() { Ok(value) } else { Err(cursor.wrong("the end")) }
}

/// Returns a text as JSON writes it, with quotes.
#[must_use]
pub fn json_string(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            // U+2028 and U+2029 end a line in JavaScript.
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

impl Value {
    /// Returns the value as JSON, without spaces.
    #[must_use]
    pub fn to_json(&self) -> String {
        let all = |values: Vec<String>| values.join(",");
        match self {
            Self::Text(text) => json_string(text),
            Self::Number(number) => number.to_string(),
            Self::Switch(switch) => switch.to_string(),
            Self::List(list) => format!("[{}]", all(list.iter().map(Self::to_json).collect())),
            Self::Table(table) => {
                let member = |(key, value): (&String, &Self)| {
                    format!("{}:{}", json_string(key), value.to_json())
                };
                format!("{{{}}}", all(table.iter().map(member).collect()))
            }
        }
    }
}

/// Returns the table with this path, made where it is not there; of a list the last element.
fn table_at<'a>(table: &'a mut Table, path: &[String]) -> Result<&'a mut Table, String> {
    let mut table = table;
    for name in path {
        let next = table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
        table = match next {
            Value::Table(table) => table,
            Value::List(rows) => match rows.last_mut() {
                Some(Value::Table(table)) => table,
                _ => return Err(format!("{name} is not a table")),
            },
            _ => return Err(format!("{name} is not a table")),
        };
    }
    Ok(table)
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    fn wrong(&self, expected: &str) -> String {
        let line = self.text.get(..self.at).unwrap_or_default().matches('\n').count() + 1;
        format!("line {line}: expected {expected}")
    }

    fn takes(&mut self, word: &str) -> bool {
        let takes = self.rest().starts_with(word);
        if takes {
            self.at += word.len();
        }
        takes
    }

    fn expects(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) { Ok(()) } else { Err(self.wrong(&format!("{word:?}"))) }
    }

    /// Takes the characters of a kind.
    fn while_is(&mut self, is: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let length = rest.find(|character| !is(character)).unwrap_or(rest.len());
        let taken = rest.get(..length).unwrap_or_default().to_owned();
        self.at += length;
        taken
    }

    fn skip_spaces(&mut self) {
        self.while_is(|character| character == ' ' || character == '\t');
    }

    /// Skips white space, ends of lines and comments.
    fn skip_blank(&mut self) {
        loop {
            self.while_is(|character| matches!(character, ' ' | '\t' | '\r' | '\n'));
            if !self.takes("#") {
                return;
            }
            self.while_is(|character| character != '\n');
        }
    }

    fn ends_line(&mut self) -> Result<(), String> {
        self.skip_spaces();
        if self.takes("#") {
            self.while_is(|character| character != '\n');
        }
        self.takes("\r");
        if self.is_at_end() || self.takes("\n") { Ok(()) } else { Err(self.wrong("a new line")) }
    }

    fn key(&mut self) -> Result<String, String> {
        if self.rest().starts_with('"') {
            return self.string();
        }
        let key = self.while_is(|one| one.is_ascii_alphanumeric() || one == '_' || one == '-');
        if key.is_empty() { Err(self.wrong("a key")) } else { Ok(key) }
    }

    fn path(&mut self, end: &str) -> Result<Vec<String>, String> {
        let mut path = vec![self.key()?];
        while self.takes(".") {
            path.push(self.key()?);
        }
        self.expects(end)?;
        Ok(path)
    }

    fn string(&mut self) -> Result<String, String> {
        self.expects("\"")?;
        let mut found = String::new();
        loop {
            found += &self.while_is(|one| !matches!(one, '"' | '\\' | '\n'));
            if self.takes("\"") {
                return Ok(found);
            }
            self.expects("\\")?;
            let escaped = [("\"", '"'), ("\\", '\\'), ("/", '/'), ("n", '\n'), ("t", '\t')];
            if self.takes("u") {
                let number = u32::from_str_radix(self.rest().get(..4).unwrap_or_default(), 16);
                let character = number.ok().and_then(char::from_u32);
                found.push(character.ok_or_else(|| self.wrong("four hexadecimal digits"))?);
                self.at += 4;
                continue;
            }
            match escaped.into_iter().find(|(word, _)| self.takes(word)) {
                Some((_, character)) => found.push(character),
                None => return Err(self.wrong("a known escape")),
            }
        }
    }

    /// Takes a value; in tables, this character stands between key and value.
    fn value(&mut self, between: char, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err(self.wrong("fewer lists in lists"));
        }
        self.skip_blank();
        if self.rest().starts_with('"') {
            return self.string().map(Value::Text);
        }
        if self.takes("[") {
            let mut list = Vec::new();
            while !self.takes_after_blank("]") {
                list.push(self.value(between, depth + 1)?);
                if !self.takes_after_blank(",") && !self.rest().starts_with(']') {
                    return Err(self.wrong("a comma"));
                }
            }
            return Ok(Value::List(list));
        }
        if self.takes("{") {
            let mut table = Table::new();
            while !self.takes_after_blank("}") {
                let key = self.key()?;
                self.skip_blank();
                self.expects(between.encode_utf8(&mut [0; 4]))?;
                if table.insert(key, self.value(between, depth + 1)?).is_some() {
                    return Err(self.wrong("a key once"));
                }
                if !self.takes_after_blank(",") && !self.rest().starts_with('}') {
                    return Err(self.wrong("a comma"));
                }
            }
            return Ok(Value::Table(table));
        }
        let word = self.while_is(|one| one.is_ascii_alphanumeric() || one == '_');
        match word.as_str() {
            "true" => Ok(Value::Switch(true)),
            "false" => Ok(Value::Switch(false)),
            number => match number.replace('_', "").parse() {
                Ok(number) => Ok(Value::Number(number)),
                Err(_) => Err(self.wrong("a value")),
            },
        }
    }

    fn takes_after_blank(&mut self, word: &str) -> bool {
        self.skip_blank();
        self.takes(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn toml_of_policy_is_read() {
        let text = "# a\n[a]\nx = 1_000 # b\n[a.b]\ny = [\n \"p\", # c\n \"q#\\\"\",\n]\n\
                    [[a.rows]]\nk = { 0 = \"Z\", on = true }\n[[a.rows]]\n[[a.rows.more]]\nw = false\n";
        let table = toml(text).unwrap();
        let expected = "{ b = { y = [\"p\", \"q#\\\"\"] }, rows = [{ k = { 0 = \"Z\", on = true } }, \
                        { more = [{ w = false }] }], x = 1000 }";
        assert_eq!(table["a"].to_string(), expected);
    }

    #[test]
    fn other_toml_is_error_with_line() {
        for text in [
            "x = 'a'",
            "x = 1 2",
            "x = -1",
            "x",
            "[a",
            "x = \"a",
            "x = [1",
            "x = 1\nx = 2",
            "a.b = 1",
            "x = \"\"\"a\"\"\"",
            "x = 1\n[[x]]",
            "x = 1.5",
        ] {
            let error = toml(text).unwrap_err();
            assert!(error.contains("expected") || error.contains("not a table"), "{text}: {error}");
        }
        assert!(toml("\n\nx = 'a'").unwrap_err().starts_with("line 3"));
        assert!(toml(&format!("x = {}", "[".repeat(1 << 20))).is_err());
    }

    #[test]
    fn json_is_read_whole_or_not() {
        let value = json("{\"a\": [\"x\", {\"b\": true}], \"c\": 2}\n").unwrap();
        assert_eq!(value.to_string(), "{ a = [\"x\", { b = true }], c = 2 }");
        for text in ["", "{", "{} {}", "{\"a\" = 1}", "nul", "[1 2]"] {
            assert!(json(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}=:,\"\\\\#a1 \\n.\u{e4}-]{0,60}") {
            let _ = (toml(&text), json(&text));
        }
    }
}
