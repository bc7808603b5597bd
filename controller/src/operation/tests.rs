use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

type Table = Operations<String, u8, usize>;

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(1));

fn running(table: &Table) -> usize {
    lock(&table.table).running.len()
}

fn key() -> String {
    "vol-1".to_owned()
}

/// Calls the table in another task.
fn spawn<W, F>(
    table: &Table,
    intent: u8,
    work: W,
) -> tokio::task::JoinHandle<Result<usize, Failure>>
where
    W: FnOnce(Cancellation) -> F + Send + 'static,
    F: Future<Output = Result<usize, Failure>> + Send + 'static,
{
    let table = table.clone();
    tokio::spawn(async move { table.run(key(), intent, None, work).await })
}

async fn value_after(seconds: u64, value: usize) -> Result<usize, Failure> {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    Ok(value)
}

#[tokio::test(start_paused = true)]
async fn calls_with_same_intent_share_one_operation() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let started = Arc::new(AtomicUsize::new(0));
    let work = |started: Arc<AtomicUsize>| {
        move |_| async move {
            started.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(7)
        }
    };
    let (a, b) = tokio::join!(
        table.run(key(), 1, TIMEOUT, work(started.clone())),
        table.run(key(), 1, TIMEOUT, work(started.clone()))
    );
    assert_eq!((a, b), (Ok(7), Ok(7)));
    assert_eq!(started.load(Ordering::SeqCst), 1);
    assert_eq!(running(&table), 0);
}

#[tokio::test(start_paused = true)]
async fn operation_continues_after_caller_gives_up() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let early = table.run(key(), 1, TIMEOUT, |_| value_after(5, 7)).await.unwrap_err();
    assert_eq!(early.condition(), Condition::DeadlinePassed);
    // The operation also continues when the caller is dropped.
    drop(spawn(&table, 1, |_| value_after(5, 7)));
    let joined = table
        .run(key(), 1, None, |_| async { Err(Failure::new(Condition::Bug, "not joined")) })
        .await;
    assert_eq!(joined, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn conflict_refuse_rejects_other_intent_during_operation() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let first = spawn(&table, 1, |_| value_after(1, 1));
    tokio::task::yield_now().await;
    let other = table.run(key(), 2, None, |_| async { Ok(2) }).await.unwrap_err();
    assert_eq!(other.condition(), Condition::OperationPending);
    assert_eq!(first.await.unwrap(), Ok(1));
    assert_eq!(table.run(key(), 2, None, |_| async { Ok(2) }).await, Ok(2));
}

/// Superseded calls fail with `OperationPending`, and two operations never run at once.
#[tokio::test(start_paused = true)]
async fn conflict_supersede_runs_latest_intent_after_previous_ends() {
    let table = Table::new(Conflict::Supersede, OperationCount::default());
    let alone = Arc::new(AtomicUsize::new(0));
    let work = |alone: Arc<AtomicUsize>, value| {
        move |cancellation: Cancellation| async move {
            assert_eq!(alone.fetch_add(1, Ordering::SeqCst), 0, "two run at once");
            for _ in 0..10 {
                if cancellation.is_superseded() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            alone.fetch_sub(1, Ordering::SeqCst);
            cancellation.check_not_superseded().map(|()| value)
        }
    };
    let first = spawn(&table, 1, work(alone.clone(), 1));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let second = spawn(&table, 2, work(alone.clone(), 2));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let third = spawn(&table, 1, work(alone, 3));
    for loser in [first, second] {
        let failure = loser.await.unwrap().unwrap_err();
        assert_eq!(failure.condition(), Condition::OperationPending);
    }
    assert_eq!(third.await.unwrap(), Ok(3));
    assert_eq!(running(&table), 0);
}

#[tokio::test(start_paused = true)]
async fn panicked_operation_fails_as_pending_and_frees_key() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let failure = table.run(key(), 1, None, |_| async { panic!("test") }).await.unwrap_err();
    std::panic::set_hook(hook);
    // The operation may have had an effect, so a sidecar must not read "certainly not done".
    assert_eq!(failure.condition(), Condition::OperationPending);
    assert!(failure.text().contains("fault of the driver"), "{failure}");
    assert_eq!(table.run(key(), 1, None, |_| async { Ok(1) }).await, Ok(1));
    assert_eq!(running(&table), 0);
}

#[tokio::test(start_paused = true)]
async fn operations_with_different_keys_run_in_parallel() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let waiting = spawn(&table, 1, |_| async move {
        opened.notified().await;
        Ok(1)
    });
    assert_eq!(table.run("vol-2".to_owned(), 1, None, |_| async { Ok(2) }).await, Ok(2));
    tokio::task::yield_now().await;
    assert_eq!(running(&table), 1);
    gate.notify_one();
    assert_eq!(waiting.await.unwrap(), Ok(1));
}

/// The first operation ignores its cancellation and succeeds, but its caller gets
/// `OperationPending`.
#[tokio::test(start_paused = true)]
async fn superseded_operation_result_is_not_returned() {
    let table = Table::new(Conflict::Supersede, OperationCount::default());
    let ignoring = spawn(&table, 1, |_| value_after(1, 1));
    tokio::task::yield_now().await;
    assert_eq!(table.run(key(), 2, None, |_| async { Ok(2) }).await, Ok(2));
    let failure = ignoring.await.unwrap().unwrap_err();
    assert_eq!(failure.condition(), Condition::OperationPending);
}

#[tokio::test(start_paused = true)]
async fn operation_is_unwanted_while_no_caller_waits() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let work = |cancellation: Cancellation| async move {
        assert!(cancellation.check_wanted().is_ok());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(cancellation.check_wanted().is_err());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(cancellation.check_wanted().is_ok());
        let _ = sender.send(());
        Ok(1)
    };
    assert!(table.run(key(), 1, TIMEOUT, work).await.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let joined = table.run(key(), 1, None, |_| async { Ok(2) }).await;
    assert_eq!(joined, Ok(1));
    receiver.await.unwrap();
}

#[test]
fn callers_count_from_join_until_drop() {
    let callers = Callers::default();
    assert!(callers.check_any_waits().is_err());
    let (first, second) = (callers.join(), callers.clone().join());
    drop(first);
    assert!(callers.check_any_waits().is_ok());
    drop(second);
    assert!(callers.check_any_waits().is_err());
}
