use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

type Table = Operations<String, u8, usize>;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(1));

fn running(table: &Table) -> usize {
    lock(&table.table).running.len()
}

fn key() -> String {
    "vol-1".to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_call_with_the_same_intent_joins_and_both_get_the_result() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let begun = Arc::new(AtomicUsize::new(0));
    let work = |begun: Arc<AtomicUsize>| {
        move |_| async move {
            begun.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(7)
        }
    };
    let (a, b) = tokio::join!(
        table.run(key(), 1, PATIENCE, work(begun.clone())),
        table.run(key(), 1, PATIENCE, work(begun.clone()))
    );
    assert_eq!((a, b), (Ok(7), Ok(7)));
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    assert_eq!(running(&table), 0);
}

#[tokio::test(start_paused = true)]
async fn the_work_goes_on_when_its_caller_gives_up() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let work = |_| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(7)
    };
    let early = table.run(key(), 1, PATIENCE, work).await.unwrap_err();
    assert_eq!(early.condition(), Condition::DeadlinePassed);
    // Nor does it matter when the caller is dropped.
    drop(tokio::spawn({
        let table = table.clone();
        async move { table.run(key(), 1, None, work).await }
    }));
    let joined = table
        .run(key(), 1, None, |_| async {
            Err(Failure::new(Condition::Bug, "not joined"))
        })
        .await;
    assert_eq!(joined, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn another_intent_is_refused_where_the_table_says_so() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let first = tokio::spawn({
        let table = table.clone();
        async move {
            table
                .run(key(), 1, None, |_| async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(1)
                })
                .await
        }
    });
    tokio::task::yield_now().await;
    let other = table
        .run(key(), 2, None, |_| async { Ok(2) })
        .await
        .unwrap_err();
    assert_eq!(other.condition(), Condition::OperationPending);
    assert_eq!(first.await.unwrap(), Ok(1));
    assert_eq!(table.run(key(), 2, None, |_| async { Ok(2) }).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn the_latest_intent_wins_and_begins_when_the_one_before_has_ended() {
    let table = Table::new(Conflict::Supersede, OperationCount::default());
    let alone = Arc::new(AtomicUsize::new(0));
    let work = |alone: Arc<AtomicUsize>, value| {
        move |mandate: Mandate| async move {
            assert_eq!(alone.fetch_add(1, Ordering::SeqCst), 0, "two run at once");
            for _ in 0..10 {
                if mandate.is_superseded() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            alone.fetch_sub(1, Ordering::SeqCst);
            if mandate.is_superseded() {
                Err(Mandate::superseded_failure())
            } else {
                Ok(value)
            }
        }
    };
    let spawn = |intent, value| {
        let (table, alone) = (table.clone(), alone.clone());
        tokio::spawn(async move { table.run(key(), intent, None, work(alone, value)).await })
    };
    let first = spawn(1, 1);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let second = spawn(2, 2);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let third = spawn(1, 3);
    for loser in [first, second] {
        let failure = loser.await.unwrap().unwrap_err();
        assert_eq!(failure.condition(), Condition::OperationPending);
    }
    assert_eq!(third.await.unwrap(), Ok(3));
    assert_eq!(running(&table), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_nobody_elses_work_and_says_nothing_of_what_was_done() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let failure = table
        .run(key(), 1, None, |_| async { panic!("test") })
        .await
        .unwrap_err();
    std::panic::set_hook(hook);
    // The effect of what had begun may exist, so a sidecar must not read "certainly not done".
    assert_eq!(failure.condition(), Condition::OperationPending);
    assert!(failure.text().contains("fault of the driver"), "{failure}");
    assert_eq!(table.run(key(), 1, None, |_| async { Ok(1) }).await, Ok(1));
    assert_eq!(running(&table), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_hinder_each_other() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let gate = Arc::new(Notify::new());
    let waiting = tokio::spawn({
        let (table, gate) = (table.clone(), gate.clone());
        async move {
            table
                .run(key(), 1, None, |_| async move {
                    gate.notified().await;
                    Ok(1)
                })
                .await
        }
    });
    assert_eq!(
        table
            .run("vol-2".to_owned(), 1, None, |_| async { Ok(2) })
            .await,
        Ok(2)
    );
    tokio::task::yield_now().await;
    assert_eq!(running(&table), 1);
    gate.notify_one();
    assert_eq!(waiting.await.unwrap(), Ok(1));
}

#[tokio::test(start_paused = true)]
async fn what_a_superseded_operation_achieved_is_not_handed_out() {
    let table = Table::new(Conflict::Supersede, OperationCount::default());
    let deaf = tokio::spawn({
        let table = table.clone();
        async move {
            let work = |_| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(1)
            };
            table.run(key(), 1, None, work).await
        }
    });
    tokio::task::yield_now().await;
    assert_eq!(table.run(key(), 2, None, |_| async { Ok(2) }).await, Ok(2));
    let failure = deaf.await.unwrap().unwrap_err();
    assert_eq!(failure.condition(), Condition::OperationPending);
}

#[tokio::test(start_paused = true)]
async fn an_operation_knows_whether_somebody_waits_for_it() {
    let table = Table::new(Conflict::Refuse, OperationCount::default());
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = |mandate: Mandate| async move {
        assert!(mandate.check_wanted().is_ok());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(mandate.check_wanted().is_err());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(mandate.check_wanted().is_ok());
        let _ = tell.send(());
        Ok(1)
    };
    assert!(table.run(key(), 1, PATIENCE, work).await.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let joined = table.run(key(), 1, None, |_| async { Ok(2) }).await;
    assert_eq!(joined, Ok(1));
    told.await.unwrap();
}
