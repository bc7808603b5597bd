//! Parses tokens into a syntax tree.

use super::TemplateError;
use super::lex::{Piece, Token};

/// How deep blocks and parentheses may nest.
const DEPTH_LIMIT: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Literal text.
    Text(String),
    /// A pipeline whose value is printed.
    Print(Pipeline),
    /// `if`.
    If(Pipeline, Vec<Node>, Vec<Node>),
    /// `with`: like `if`, and inside, the dot is the value.
    With(Pipeline, Vec<Node>, Vec<Node>),
}

/// Commands, each with the value of the previous one as its last argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pipeline(pub(super) Vec<Command>);

/// A value or a function with arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A single operand.
    Value(Operand),
    /// A function's name and its arguments.
    Call(String, Vec<Operand>),
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// `.`
    Dot,
    /// `.Name`
    Field(String),
    /// `$`
    Root,
    /// `$.Name`
    RootField(String),
    /// A literal.
    Text(String),
    /// A literal.
    Int(i64),
    /// A literal.
    Bool(bool),
    /// `( … )`
    Nested(Box<Pipeline>),
    /// A function without arguments, used as an argument.
    Call(String),
}

pub(super) fn parse(pieces: Vec<Piece>) -> Result<Vec<Node>, TemplateError> {
    let mut pieces = pieces.into_iter();
    match block(&mut pieces, 0)? {
        (nodes, Closed::Template) => Ok(nodes),
        (_, Closed::End) => Err(TemplateError::new("{{ end }} without an if or with before it")),
        (_, Closed::Else(_)) => {
            Err(TemplateError::new("{{ else }} without an if or with before it"))
        }
    }
}

/// The end of a block.
enum Closed {
    Template,
    End,
    /// The tokens after `else`.
    Else(Vec<Token>),
}

type Pieces = std::vec::IntoIter<Piece>;

fn block(pieces: &mut Pieces, depth: usize) -> Result<(Vec<Node>, Closed), TemplateError> {
    check_depth(depth)?;
    let mut nodes = Vec::new();
    while let Some(piece) = pieces.next() {
        let mut tokens = match piece {
            Piece::Text(text) => {
                nodes.push(Node::Text(text));
                continue;
            }
            Piece::Action(tokens) => tokens,
        };
        let keyword = match tokens.first() {
            None => return Err(TemplateError::new("an action is empty: {{ }}")),
            Some(Token::Word(word)) => word.clone(),
            Some(_) => String::new(),
        };
        match keyword.as_str() {
            "end" if tokens.len() == 1 => return Ok((nodes, Closed::End)),
            "else" => {
                tokens.remove(0);
                return Ok((nodes, Closed::Else(tokens)));
            }
            "if" | "with" => nodes.push(branch(tokens, pieces, depth)?),
            "range" | "template" | "block" | "define" | "break" | "continue" | "end" => {
                return Err(TemplateError::new(format!(
                    "{keyword} is not supported here in a tag template"
                )));
            }
            _ => nodes.push(Node::Print(pipeline_of(tokens)?)),
        }
    }
    Ok((nodes, Closed::Template))
}

/// Parses `if` or `with`, from its first token to its `end`.
fn branch(
    mut tokens: Vec<Token>,
    pieces: &mut Pieces,
    depth: usize,
) -> Result<Node, TemplateError> {
    let is_if = tokens.remove(0) == Token::Word("if".to_owned());
    let condition = pipeline_of(tokens)?;
    let (then, end) = block(pieces, depth + 1)?;
    let otherwise = match end {
        Closed::End => Vec::new(),
        Closed::Template => return Err(TemplateError::new("an if or with has no {{ end }}")),
        Closed::Else(rest) if rest.is_empty() => match block(pieces, depth + 1)? {
            (nodes, Closed::End) => nodes,
            _ => return Err(TemplateError::new("an else has no {{ end }}")),
        },
        Closed::Else(rest) => match rest.first() {
            Some(Token::Word(word)) if word == "if" || word == "with" => {
                check_depth(depth)?;
                vec![branch(rest, pieces, depth + 1)?]
            }
            _ => return Err(TemplateError::new("after else stands nothing, if or with")),
        },
    };
    Ok(if is_if {
        Node::If(condition, then, otherwise)
    } else {
        Node::With(condition, then, otherwise)
    })
}

fn check_depth(depth: usize) -> Result<(), TemplateError> {
    if depth > DEPTH_LIMIT {
        return Err(TemplateError::new(format!("more than {DEPTH_LIMIT} levels deep")));
    }
    Ok(())
}

fn pipeline_of(tokens: Vec<Token>) -> Result<Pipeline, TemplateError> {
    let mut tokens = tokens.into_iter().peekable();
    let pipeline = pipeline(&mut tokens, 0)?;
    match tokens.next() {
        None => Ok(pipeline),
        Some(_) => Err(TemplateError::new("a ) has no ( before it")),
    }
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<Token>>;

fn pipeline(tokens: &mut Tokens, depth: usize) -> Result<Pipeline, TemplateError> {
    check_depth(depth)?;
    let mut commands = vec![command(tokens, depth)?];
    while tokens.next_if_eq(&Token::Pipe).is_some() {
        let next = command(tokens, depth)?;
        if !matches!(next, Command::Call(..)) {
            return Err(TemplateError::new("what stands after | must be a function"));
        }
        commands.push(next);
    }
    Ok(Pipeline(commands))
}

fn command(tokens: &mut Tokens, depth: usize) -> Result<Command, TemplateError> {
    let mut operands = Vec::new();
    loop {
        match tokens.peek() {
            None | Some(Token::Pipe | Token::Close) => break,
            Some(_) => operands.push(operand(tokens, depth)?),
        }
    }
    let mut operands = operands.into_iter();
    match operands.next() {
        None => Err(TemplateError::new("nothing stands before or after a |, or inside ( )")),
        Some(Operand::Call(name)) => Ok(Command::Call(name, operands.collect())),
        Some(value) if operands.len() == 0 => Ok(Command::Value(value)),
        Some(_) => {
            Err(TemplateError::new("a value is given arguments, but only a function takes them"))
        }
    }
}

fn operand(tokens: &mut Tokens, depth: usize) -> Result<Operand, TemplateError> {
    let operand = match tokens.next() {
        Some(Token::Dot) => Operand::Dot,
        Some(Token::Root) => match tokens.peek() {
            Some(Token::Field { is_adjacent: true, .. }) => match tokens.next() {
                Some(Token::Field { name, .. }) => Operand::RootField(name),
                _ => Operand::Root,
            },
            _ => Operand::Root,
        },
        Some(Token::Field { name, .. }) => Operand::Field(name),
        Some(Token::Text(text)) => Operand::Text(text),
        Some(Token::Int(value)) => Operand::Int(value),
        Some(Token::Word(word)) => match word.as_str() {
            "true" => Operand::Bool(true),
            "false" => Operand::Bool(false),
            "if" | "else" | "end" | "with" | "range" | "define" | "template" | "block" | "nil" => {
                return Err(TemplateError::new(format!("{word} is not a value")));
            }
            _ => Operand::Call(word),
        },
        Some(Token::Open) => {
            let nested = pipeline(tokens, depth + 1)?;
            if tokens.next_if_eq(&Token::Close).is_none() {
                return Err(TemplateError::new("a ( has no ) after it"));
            }
            Operand::Nested(Box::new(nested))
        }
        Some(Token::Pipe | Token::Close) | None => {
            return Err(TemplateError::new("a value is missing"));
        }
    };
    if let Some(Token::Field { name, is_adjacent: true }) = tokens.peek() {
        return Err(TemplateError::new(format!(
            ".{name} asks for a field of a text, which has none"
        )));
    }
    Ok(operand)
}
