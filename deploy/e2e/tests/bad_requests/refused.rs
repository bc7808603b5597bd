//! Sends requests that must be refused, and compares the answers with the expected refusals.

use std::fmt::Debug;

use ebs_csi_e2e::Fixture;
use tonic::{Code, Response, Status};

/// What is wrong with a request, the expected code, the words that the message must contain in any
/// case, and the request.
pub(crate) type Row<'a, R> = (&'a str, Code, &'a [&'a str], R);

/// The differences between the answers and the expected refusals.
pub(crate) struct Differences<'a> {
    fixture: &'a Fixture,
    mark: u64,
    pub(crate) found: Vec<String>,
}

impl<'a> Differences<'a> {
    /// Begins to compare: requests to EC2 count from now on.
    pub(crate) async fn new(fixture: &'a Fixture) -> Self {
        Self { fixture, mark: fixture.requests().mark().await, found: Vec::new() }
    }

    /// Sends the request of each row. Checks the answers, and that EC2 was not changed.
    pub(crate) async fn send<'r, R, T: Debug>(
        &mut self,
        rpc: &str,
        rows: impl IntoIterator<Item = Row<'r, R>>,
        send: impl AsyncFn(R) -> Result<Response<T>, Status>,
    ) {
        for (what, code, words, request) in rows {
            let what = format!("{rpc} {what}");
            self.judge(send(request).await, &what, code, words);
            let effective = self.fixture.requests().effective(self.mark).await;
            if !effective.is_empty() {
                self.found.push(format!("{what}: EC2 was changed: {effective:?}"));
            }
        }
    }

    fn judge<T: Debug>(
        &mut self,
        answer: Result<Response<T>, Status>,
        what: &str,
        code: Code,
        words: &[&str],
    ) {
        let status = match answer {
            Err(status) => status,
            Ok(reply) => {
                return self.found.push(format!("{what}: was not refused: {:?}", reply.get_ref()));
            }
        };
        let (got, message) = (status.code(), status.message());
        println!("{what}: {got:?}: {message}");
        if got != code {
            self.found.push(format!("{what}: {got:?}, not {code:?}: {message}"));
        }
        for word in words {
            if !message.to_lowercase().contains(&word.to_lowercase()) {
                self.found.push(format!("{what}: the message does not say {word:?}: {message}"));
            }
        }
    }
}
