//! The expected refusal of a request, and its comparison with the answer.

use std::fmt::Debug;

use ebs_csi_e2e::Setting;
use tonic::{Code, Response, Status};

/// The expected refusal of a request.
pub(crate) struct Refused<'a> {
    pub(crate) what: &'a str,
    pub(crate) code: Code,
    /// The words that the message must contain, in any case.
    pub(crate) words: &'a [&'a str],
}

pub(crate) fn refused<'a>(what: &'a str, code: Code, words: &'a [&'a str]) -> Refused<'a> {
    Refused { what, code, words }
}

/// Returns how an answer differs from the expected refusal.
pub(crate) fn judge<T: Debug>(
    answer: Result<Response<T>, Status>,
    expected: &Refused<'_>,
) -> Vec<String> {
    let what = expected.what;
    let status = match answer {
        Ok(reply) => return vec![format!("{what}: was not refused: {:?}", reply.into_inner())],
        Err(status) => status,
    };
    let mut wrong = Vec::new();
    if status.code() != expected.code {
        wrong.push(format!(
            "{what}: {:?}, not {:?}: {}",
            status.code(),
            expected.code,
            status.message()
        ));
    }
    let text = status.message().to_lowercase();
    for word in expected.words {
        if !text.contains(&word.to_lowercase()) {
            wrong.push(format!("{what}: the message does not say {word:?}: {}", status.message()));
        }
    }
    println!("{what}: {:?}: {}", status.code(), status.message());
    wrong
}

/// Checks that EC2 was not changed since `mark`.
pub(crate) async fn unchanged(setting: &Setting, mark: u64, what: &str, wrong: &mut Vec<String>) {
    let effective = setting.requests().effective(mark).await;
    if !effective.is_empty() {
        wrong.push(format!("{what}: EC2 was changed: {effective:?}"));
    }
}
