//! Splits the text of a template into tokens.

use super::TemplateError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text outside of actions.
    Text(String),
    /// The tokens between `{{` and `}}`.
    Action(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// `.Name`; `is_adjacent` when no space separates it from the token before.
    Field { name: String, is_adjacent: bool },
    /// `.` alone.
    Dot,
    /// `$`.
    Root,
    /// A word: keyword, function, `true`, `false`.
    Word(String),
    /// A string literal's value.
    Text(String),
    /// An integer.
    Int(i64),
    /// `|`.
    Pipe,
    /// `(`.
    Open,
    /// `)`.
    Close,
}

pub(super) fn lex(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    let mut trim_next = false;
    loop {
        let (before, inside) = match rest.split_once("{{") {
            Some((before, inside)) => (before, Some(inside)),
            None => (rest, None),
        };
        let mut visible = if trim_next { trim_start(before) } else { before };
        let Some(inside) = inside else {
            push_text(&mut pieces, visible);
            return Ok(pieces);
        };
        let trimmed = inside.strip_prefix('-').filter(|after| after.starts_with(is_space));
        if trimmed.is_some() {
            visible = visible.trim_end_matches(is_space);
        }
        push_text(&mut pieces, visible);
        let body = trimmed.unwrap_or(inside);
        let (tokens, after, trims) = lex_action(body)?;
        if let Some(tokens) = tokens {
            pieces.push(Piece::Action(tokens));
        }
        trim_next = trims;
        rest = after;
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

/// Reads one action. Returns its tokens (`None` for a comment), the text after it, and whether that
/// text is trimmed.
fn lex_action(body: &str) -> Result<(Option<Vec<Token>>, &str, bool), TemplateError> {
    if let Some(comment) = trim_start(body).strip_prefix("/*") {
        let (_, after) = comment
            .split_once("*/")
            .ok_or_else(|| TemplateError::new("a comment is not closed with */"))?;
        return match end_of_action(after) {
            Some((after, trims)) => Ok((None, after, trims)),
            None => Err(TemplateError::new("a comment stands alone in its action: {{/* … */}}")),
        };
    }
    let mut tokens = Vec::new();
    let mut rest = body;
    loop {
        if let Some((after, trims)) = end_of_action(rest) {
            return Ok((Some(tokens), after, trims));
        }
        let is_adjacent = !rest.starts_with(is_space) && !tokens.is_empty();
        rest = trim_start(rest);
        if rest.is_empty() {
            return Err(TemplateError::new("an action is not closed with }}"));
        }
        let (token, after) = lex_token(rest, is_adjacent)?;
        tokens.push(token);
        rest = after;
    }
}

/// Returns the text after `}}` (or ` -}}`) when the action ends here, and whether that text is
/// trimmed.
fn end_of_action(rest: &str) -> Option<(&str, bool)> {
    let has_space = rest.starts_with(is_space);
    let rest = trim_start(rest);
    if let Some(after) = rest.strip_prefix("}}") {
        return Some((after, false));
    }
    rest.strip_prefix("-}}").filter(|_| has_space).map(|after| (after, true))
}

fn lex_token(rest: &str, is_adjacent: bool) -> Result<(Token, &str), TemplateError> {
    let refuse = |what: &str| Err(TemplateError::new(what));
    let Some(first) = rest.chars().next() else {
        return refuse("an action is not closed with }}");
    };
    let tail = &rest[first.len_utf8()..];
    match first {
        '|' => Ok((Token::Pipe, tail)),
        '(' => Ok((Token::Open, tail)),
        ')' => Ok((Token::Close, tail)),
        '"' => quoted(tail),
        '`' => match tail.split_once('`') {
            Some((raw, after)) => Ok((Token::Text(raw.to_owned()), after)),
            None => refuse("a raw quote ` is not closed"),
        },
        '.' => {
            let (name, after) = word(tail);
            if name.is_empty() {
                return Ok((Token::Dot, tail));
            }
            let name = name.to_owned();
            Ok((Token::Field { name, is_adjacent }, after))
        }
        '$' => {
            let (name, after) = word(tail);
            if name.is_empty() && !trim_start(after).starts_with([':', '=']) {
                Ok((Token::Root, tail))
            } else {
                refuse("variables are not supported in tag templates")
            }
        }
        '0'..='9' | '+' | '-' => number(rest),
        c if c.is_alphabetic() || c == '_' => {
            let (name, after) = word(rest);
            Ok((Token::Word(name.to_owned()), after))
        }
        c => Err(TemplateError::new(format!("{c:?} has no meaning in a tag template's action"))),
    }
}

fn word(rest: &str) -> (&str, &str) {
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    rest.split_at(end)
}

fn number(rest: &str) -> Result<(Token, &str), TemplateError> {
    let end = rest
        .char_indices()
        .skip(1)
        .find(|(_, c)| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')))
        .map_or(rest.len(), |(at, _)| at);
    let (text, after) = rest.split_at(end);
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let parsed = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        // Go reads 017 as octal, which a user hardly intends: refused.
        None if digits.len() > 1 && digits.starts_with('0') => None,
        None => digits.parse().ok(),
    };
    match parsed {
        Some(value) if !digits.starts_with(['+', '-']) => {
            Ok((Token::Int(if negative { -value } else { value }), after))
        }
        _ => Err(TemplateError::new(format!(
            "{text:?} is not a number that tag templates support; use a whole number"
        ))),
    }
}

/// Reads a `"…"` literal with Go's escapes, after the opening quote.
fn quoted(rest: &str) -> Result<(Token, &str), TemplateError> {
    let mut value = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Token::Text(value), &rest[at + 1..])),
            '\n' => break,
            '\\' => {
                let escape = chars.next().map(|(_, c)| c);
                let mut code = |digits: usize| {
                    let hex: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                    u32::from_str_radix(&hex, 16)
                        .ok()
                        .filter(|_| hex.len() == digits)
                        .and_then(char::from_u32)
                };
                let decoded = match escape {
                    Some('n') => Some('\n'),
                    Some('t') => Some('\t'),
                    Some('r') => Some('\r'),
                    Some('a') => Some('\x07'),
                    Some('b') => Some('\x08'),
                    Some('f') => Some('\x0c'),
                    Some('v') => Some('\x0b'),
                    Some(c @ ('"' | '\\')) => Some(c),
                    // A byte above 0x7f would not be valid UTF-8.
                    Some('x') => code(2).filter(char::is_ascii),
                    Some('u') => code(4),
                    Some('U') => code(8),
                    _ => None,
                };
                match decoded {
                    Some(c) => value.push(c),
                    None => {
                        return Err(TemplateError::new(
                            "an escape in a quoted text is not one of \\n \\t \\r \\a \\b \\f \\v \\\" \\\\ \\xHH \\uHHHH \\UHHHHHHHH",
                        ));
                    }
                }
            }
            c => value.push(c),
        }
    }
    Err(TemplateError::new("a quote \" is not closed"))
}
