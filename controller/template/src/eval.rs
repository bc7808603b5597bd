//! Renders the syntax tree. Positions count bytes, as in Go.
//!
//! Functions: `toUpper`, `toLower`, `contains`, `field`, `substring`, `index`, `lastIndex`; `eq ne
//! lt le gt ge and or not len slice print printf println`.

use std::cmp::Ordering;

use super::parse::{Command, Node, Operand, Pipeline};
use super::{Fields, TemplateError};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Int(i64),
    Bool(bool),
}

impl Value {
    fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Int(value) => *value != 0,
            Self::Bool(value) => *value,
        }
    }

    fn print(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Int(value) => value.to_string(),
            Self::Bool(value) => value.to_string(),
        }
    }
}

/// The names that a template can use.
pub(super) struct Scope<'a> {
    fields: &'a dyn Fields,
    /// The value of the innermost `with`.
    dot: Option<Value>,
}

impl<'a> Scope<'a> {
    /// Returns the scope outside of any block.
    pub(super) fn root(fields: &'a dyn Fields) -> Self {
        Self { fields, dot: None }
    }

    fn field(&self, name: &str) -> Result<Value, TemplateError> {
        match self.fields.field(name) {
            Some(text) => Ok(Value::Text(text.to_owned())),
            None => Err(TemplateError::new(format!(
                "there is no field .{name}; there are {}",
                self.fields.names()
            ))),
        }
    }
}

/// Renders nodes and appends the result to `out`.
pub(super) fn render(
    nodes: &[Node],
    scope: &Scope<'_>,
    out: &mut String,
) -> Result<(), TemplateError> {
    for node in nodes {
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Print(pipeline) => out.push_str(&value_of(pipeline, scope)?.print()),
            Node::If(condition, then, otherwise) => {
                let chosen = if value_of(condition, scope)?.is_true() { then } else { otherwise };
                render(chosen, scope, out)?;
            }
            Node::With(condition, then, otherwise) => {
                let value = value_of(condition, scope)?;
                if value.is_true() {
                    let inner = Scope { fields: scope.fields, dot: Some(value) };
                    render(then, &inner, out)?;
                } else {
                    render(otherwise, scope, out)?;
                }
            }
        }
    }
    Ok(())
}

fn value_of(pipeline: &Pipeline, scope: &Scope<'_>) -> Result<Value, TemplateError> {
    let mut last: Option<Value> = None;
    for command in &pipeline.0 {
        let value = match command {
            Command::Value(operand) => operand_value(operand, scope)?,
            Command::Call(name, arguments) => call_with(name, arguments, last.take(), scope)?,
        };
        last = Some(value);
    }
    last.ok_or_else(|| TemplateError::new("an action is empty"))
}

fn operand_value(operand: &Operand, scope: &Scope<'_>) -> Result<Value, TemplateError> {
    let whole_fields_error =
        || TemplateError::new("the whole of the fields cannot be printed; name one field");
    match operand {
        Operand::Text(text) => Ok(Value::Text(text.clone())),
        Operand::Int(value) => Ok(Value::Int(*value)),
        Operand::Bool(value) => Ok(Value::Bool(*value)),
        Operand::Dot => scope.dot.clone().ok_or_else(whole_fields_error),
        Operand::Root => Err(whole_fields_error()),
        Operand::RootField(name) => scope.field(name),
        Operand::Field(name) if scope.dot.is_some() => Err(TemplateError::new(format!(
            ".{name} inside of with asks for a field of a text; write $.{name}"
        ))),
        Operand::Field(name) => scope.field(name),
        Operand::Nested(pipeline) => value_of(pipeline, scope),
        Operand::Call(name) => call(name, &[]),
    }
}

fn call_with(
    name: &str,
    arguments: &[Operand],
    piped: Option<Value>,
    scope: &Scope<'_>,
) -> Result<Value, TemplateError> {
    let mut values = Vec::new();
    for argument in arguments {
        let value = operand_value(argument, scope)?;
        // `and` and `or` stop at the deciding value; the arguments after it may be invalid.
        let decided = match name {
            "and" => !value.is_true(),
            "or" => value.is_true(),
            _ => false,
        };
        if decided {
            return Ok(value);
        }
        values.push(value);
    }
    values.extend(piped);
    call(name, &values)
}

fn call(name: &str, arguments: &[Value]) -> Result<Value, TemplateError> {
    use Value::{Bool, Int, Text};
    match (name, arguments) {
        ("toUpper", [Text(s)]) => Ok(Text(s.to_uppercase())),
        ("toLower", [Text(s)]) => Ok(Text(s.to_lowercase())),
        ("contains", [Text(sub), Text(s)]) => Ok(Bool(s.contains(sub.as_str()))),
        ("field", [Text(delimiter), Int(at), Text(s)]) => field(delimiter, *at, s).map(Text),
        ("substring", [Int(start), Int(end), Text(s)]) => substring(*start, *end, s).map(Text),
        ("index", [Text(sub), Text(s)]) => Ok(Int(position(s.find(sub.as_str())))),
        ("lastIndex", [Text(sub), Text(s)]) => Ok(Int(position(s.rfind(sub.as_str())))),
        ("and" | "or", [.., last]) => Ok(last.clone()),
        ("not", [value]) => Ok(Bool(!value.is_true())),
        ("len", [Text(s)]) => Ok(Int(position(Some(s.len())))),
        ("slice", [Text(s)]) => Ok(Text(s.clone())),
        ("slice", [Text(s), Int(start)]) => byte_range(s, *start, s.len() as i64).map(Text),
        ("slice", [Text(s), Int(start), Int(end)]) => byte_range(s, *start, *end).map(Text),
        ("eq", [first, others @ ..]) if !others.is_empty() => {
            for other in others {
                if compare(first, other)? == Ordering::Equal {
                    return Ok(Bool(true));
                }
            }
            Ok(Bool(false))
        }
        ("ne", [a, b]) => Ok(Bool(compare(a, b)? != Ordering::Equal)),
        ("lt" | "le" | "gt" | "ge", [Bool(_), _]) => {
            Err(TemplateError::new(format!("{name} cannot compare true and false")))
        }
        ("lt", [a, b]) => Ok(Bool(compare(a, b)?.is_lt())),
        ("le", [a, b]) => Ok(Bool(compare(a, b)?.is_le())),
        ("gt", [a, b]) => Ok(Bool(compare(a, b)?.is_gt())),
        ("ge", [a, b]) => Ok(Bool(compare(a, b)?.is_ge())),
        ("print", values) => Ok(Text(print(values))),
        ("println", values) => {
            let words: Vec<_> = values.iter().map(Value::print).collect();
            Ok(Text(words.join(" ") + "\n"))
        }
        ("printf", [Text(format), values @ ..]) => printf(format, values).map(Text),
        ("html" | "js" | "urlquery" | "call", _) => Err(TemplateError::new(format!(
            "the function {name} is not available in tag templates"
        ))),
        (
            "toUpper" | "toLower" | "contains" | "field" | "substring" | "index" | "lastIndex"
            | "and" | "or" | "not" | "len" | "slice" | "eq" | "ne" | "lt" | "le" | "gt" | "ge"
            | "printf",
            _,
        ) => Err(TemplateError::new(format!(
            "{name} is given {} that it does not take",
            describe_kinds(arguments)
        ))),
        _ => Err(TemplateError::new(format!("there is no function {name} in tag templates"))),
    }
}

fn describe_kinds(arguments: &[Value]) -> String {
    let kinds: Vec<_> = arguments
        .iter()
        .map(|value| match value {
            Value::Text(_) => "text",
            Value::Int(_) => "number",
            Value::Bool(_) => "boolean",
        })
        .collect();
    format!("({})", kinds.join(", "))
}

fn position(at: Option<usize>) -> i64 {
    at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1)
}

fn field(delimiter: &str, at: i64, s: &str) -> Result<String, TemplateError> {
    let fields: Vec<String> = if delimiter.is_empty() {
        s.chars().map(String::from).collect()
    } else {
        s.split(delimiter).map(str::to_owned).collect()
    };
    usize::try_from(at).ok().and_then(|at| fields.get(at).cloned()).ok_or_else(|| {
        TemplateError::new(format!("field {at} is asked for, there are {} from 0", fields.len()))
    })
}

fn substring(start: i64, end: i64, s: &str) -> Result<String, TemplateError> {
    let length = position(Some(s.len()));
    if start < 0 {
        byte_range(s, 0, end)
    } else if end < 0 || end > length {
        byte_range(s, start, length)
    } else {
        byte_range(s, start, end)
    }
}

fn byte_range(s: &str, start: i64, end: i64) -> Result<String, TemplateError> {
    let range = match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end && end <= s.len() => start..end,
        _ => {
            return Err(TemplateError::new(format!(
                "the range {start} to {end} does not lie in a text of {} bytes",
                s.len()
            )));
        }
    };
    match s.get(range) {
        Some(part) => Ok(part.to_owned()),
        None => {
            Err(TemplateError::new(format!("the range {start} to {end} cuts a character in two")))
        }
    }
}

fn compare(a: &Value, b: &Value) -> Result<Ordering, TemplateError> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Ok(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Ok(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        _ => {
            Err(TemplateError::new("cannot compare a text, a number and a boolean with each other"))
        }
    }
}

/// Prints the values. Two neighbouring operands are separated by a space when neither is text, as
/// in Go's `Sprint`.
fn print(values: &[Value]) -> String {
    let mut out = String::new();
    for (at, value) in values.iter().enumerate() {
        let is_text = |value: &Value| matches!(value, Value::Text(_));
        if at > 0 && !is_text(value) && !is_text(&values[at - 1]) {
            out.push(' ');
        }
        out.push_str(&value.print());
    }
    out
}

fn printf(format: &str, values: &[Value]) -> Result<String, TemplateError> {
    let mut values = values.iter();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let verb = chars.next();
        if verb == Some('%') {
            out.push('%');
            continue;
        }
        let value = values
            .next()
            .ok_or_else(|| TemplateError::new("printf has more verbs than arguments"))?;
        match (verb, value) {
            (Some('v'), value) | (Some('s'), value @ Value::Text(_)) => {
                out.push_str(&value.print())
            }
            (Some('d'), Value::Int(value)) => out.push_str(&value.to_string()),
            (Some('t'), Value::Bool(value)) => out.push_str(&value.to_string()),
            (Some('q'), Value::Text(text)) => {
                out.push('"');
                for c in text.chars() {
                    if matches!(c, '"' | '\\') {
                        out.push('\\');
                    }
                    out.push(c);
                }
                out.push('"');
            }
            (verb, _) => {
                return Err(TemplateError::new(format!(
                    "printf: %{} does not take this argument; use %s for text, %d for numbers, %t for booleans, %v for any",
                    verb.map_or(String::new(), String::from)
                )));
            }
        }
    }
    match values.next() {
        None => Ok(out),
        Some(_) => Err(TemplateError::new("printf has an argument without a verb")),
    }
}
