//! `/held?volume=ID&attached=TIME&question=NUMBER`: what on this node holds a volume, for
//! node-lifecycle.
//!
//! The page is read-only and tells nothing else. Each line is a word and its value:
//!
//! ```text
//! question 17
//! pod 0b6e8a3c-…
//! instance i-0123456789abcdef0
//! boot 5f1c…
//! state held
//! by mount
//! promised no
//! ```

use ebs_csi_proto::http_endpoint::StatusCode;
use ebs_csi_wire::{AttachedAt, Held, Holder, Holding, Refusal, VolumeId};

use super::PageSources;
use crate::deadline::Deadline;
use crate::helper::HelperError;

/// The path of the page.
pub(super) const PATH: &str = "/held";
/// How long the helper may take. A look at a claimed disk takes half a second.
const TIMEOUT: std::time::Duration = std::time::Duration::from_millis(1500);

impl PageSources {
    pub(super) async fn held(&self, query: &str) -> (StatusCode, String) {
        let Some(request) = parse(query) else {
            let usage = format!("{PATH}?volume=ID&attached=TIME&question=NUMBER\n");
            return (StatusCode::BAD_REQUEST, usage);
        };
        let Self { pod, boot, .. } = self;
        let Some(instance) = self.facts.instance() else {
            return (StatusCode::SERVICE_UNAVAILABLE, "the instance is not known yet\n".to_owned());
        };
        let question = request.question;
        match state(self.helper.send(request, Deadline::after(TIMEOUT)).await, question) {
            Ok((state, by, promised)) => {
                let promised = if promised { "yes" } else { "no" };
                let page = format!(
                    "question {question}\npod {pod}\ninstance {instance}\nboot {boot}\n\
                     state {state}\nby {by}\npromised {promised}\n"
                );
                (StatusCode::OK, page)
            }
            Err(error) => {
                tracing::debug!(%error, "the mount-helper did not say who holds a volume");
                (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
            }
        }
    }
}

/// Returns the state, what holds the volume, and whether the promise stands.
fn state(
    answer: Result<Holding, HelperError>,
    question: u64,
) -> Result<(&'static str, &'static str, bool), HelperError> {
    match answer {
        Ok(holding) if holding.question != question => {
            Err(HelperError::Foreign("an answer to another question".into()))
        }
        Ok(Holding { holder, promised, .. }) => Ok(match holder {
            Holder::Nothing => ("free", "nothing", promised),
            Holder::NoDisk => ("no-disk", "nothing", promised),
            held => ("held", held.as_str(), promised),
        }),
        // Another operation on the volume runs.
        Err(HelperError::Pending) => Ok(("busy", "operation", false)),
        Err(HelperError::Refused(refused)) if refused.reason == Refusal::Busy => {
            Ok(("busy", "operation", false))
        }
        Err(error) => Err(error),
    }
}

/// Parses the query: each key once, and no other key.
fn parse(query: &str) -> Option<Held> {
    let (mut volume, mut attached, mut question) = (None, None, None);
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=')?;
        let field = match key {
            "volume" => &mut volume,
            "attached" => &mut attached,
            "question" => &mut question,
            _ => return None,
        };
        if field.replace(value).is_some() {
            return None;
        }
    }
    let attached_at = match attached? {
        "" => None,
        time => Some(AttachedAt::parse(time).ok()?),
    };
    let digits = question?.bytes().all(|digit| digit.is_ascii_digit());
    Some(Held {
        volume: VolumeId::parse(volume?).ok()?,
        attached_at,
        question: question?.parse().ok().filter(|_| digits)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "volume=vol-0123456789abcdef0&attached=2026-01-01T00:00:00Z&question=7";

    #[test]
    fn query_is_taken_whole_or_refused() {
        let request = parse(GOOD).expect("a question");
        assert_eq!((request.volume.as_str(), request.question), ("vol-0123456789abcdef0", 7));
        assert_eq!(request.attached_at.expect("a time").as_str(), "2026-01-01T00:00:00Z");
        let untold = parse("question=0&attached=&volume=vol-1a2b3c4d").expect("a question");
        assert_eq!(untold.attached_at, None);
        for bad in [
            "",
            "volume=vol-0123456789abcdef0",
            "volume=vol-0123456789abcdef0&attached=&question=",
            "volume=vol-0123456789abcdef0&attached=&question=-1",
            "volume=vol-0123456789abcdef0&attached=&question=+1",
            "volume=vol-0123456789abcdef0&attached=&question=18446744073709551616",
            "volume=../etc/passwd&attached=&question=1",
            "volume=vol-0123456789abcdef0&attached=yesterday&question=1",
            "volume=vol-0123456789abcdef0&attached=%32026-01-01T00:00:00Z&question=1",
            "volume=vol-0123456789abcdef0&volume=vol-1a2b3c4d&attached=&question=1",
            "volume=vol-0123456789abcdef0&attached=&question=1&more=1",
            "volume=vol-0123456789abcdef0&attached=&question=1&",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn running_operation_is_busy_and_wrong_number_fails() {
        let holding = |holder, question| Ok(Holding { holder, question, promised: true });
        assert_eq!(state(holding(Holder::Nothing, 7), 7).unwrap(), ("free", "nothing", true));
        assert_eq!(state(holding(Holder::NoDisk, 7), 7).unwrap(), ("no-disk", "nothing", true));
        assert_eq!(state(holding(Holder::Claim, 7), 7).unwrap(), ("held", "claim", true));
        assert!(state(holding(Holder::Nothing, 8), 7).is_err());
        let busy = ("busy", "operation", false);
        assert_eq!(state(Err(HelperError::Pending), 7).unwrap(), busy);
        let refused = HelperError::Refused(Refusal::Busy.into());
        assert_eq!(state(Err(refused), 7).unwrap(), busy);
        assert!(state(Err(HelperError::Refused(Refusal::Version.into())), 7).is_err());
    }
}
