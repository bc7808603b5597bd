//! The newest answer for one watch. An older answer that it replaces is out of date.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::model::DatedLook;

/// The slot from which a watch takes its newest answer.
pub(super) struct NewestAnswer<V> {
    newest: Mutex<Newest<V>>,
    arrived: Notify,
}

struct Newest<V> {
    call: u64,
    answer: Option<DatedLook<V>>,
}

impl<V> Default for NewestAnswer<V> {
    fn default() -> Self {
        Self { newest: Mutex::new(Newest { call: 0, answer: None }), arrived: Notify::new() }
    }
}

impl<V> NewestAnswer<V> {
    fn newest(&self) -> MutexGuard<'_, Newest<V>> {
        // Both fields are set in one statement, so they stay consistent when another thread panics.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the answer of call number `call`, unless a later call has answered already.
    pub(super) fn publish(&self, call: u64, answer: DatedLook<V>) {
        let mut newest = self.newest();
        if call < newest.call {
            return;
        }
        *newest = Newest { call, answer: Some(answer) };
        drop(newest);
        self.arrived.notify_one();
    }

    /// Waits for the next answer. Only one task may wait at a time.
    pub(super) async fn next(&self) -> DatedLook<V> {
        loop {
            let answer = self.newest().answer.take();
            match answer {
                Some(answer) => return answer,
                None => self.arrived.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LookResult;
    use tokio::time::Instant;

    fn answer(value: u32) -> DatedLook<u32> {
        DatedLook { began: Instant::now(), result: LookResult::Present(value) }
    }

    #[tokio::test]
    async fn newest_answer_is_taken_and_overtaken_one_dropped() {
        let newest = NewestAnswer::default();
        newest.publish(1, answer(1));
        newest.publish(3, answer(3));
        newest.publish(2, answer(2));
        assert_eq!(newest.next().await.result.present(), Some(&3));
        newest.publish(2, answer(2));
        let next = newest.next();
        tokio::pin!(next);
        tokio::select! {
            biased;
            answer = &mut next => panic!("{:?}", answer.result.present()),
            () = std::future::ready(()) => {}
        }
        newest.publish(4, answer(4));
        assert_eq!(next.await.result.present(), Some(&4));
    }
}
