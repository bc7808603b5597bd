//! The exact numbers of tokens and times, without EC2's bucket.

use super::*;

#[tokio::test(start_paused = true)]
async fn token_is_due_at_next_whole_millisecond() {
    let now = Instant::now();
    for (level, refill, millis) in
        [(0.0, 5.0, 200), (0.5, 5.0, 100), (0.0, 3.0, 334), (0.9999, 5.0, 1), (1.0, 5.0, 1)]
    {
        let tokens = Tokens { level, ..Tokens::full(10.0, now) };
        let at = tokens.next_token_at(refill, now);
        assert_eq!(at - now, Duration::from_millis(millis), "{level} {refill}");
    }
}

#[tokio::test(start_paused = true)]
async fn reserve_is_at_most_quarter_of_capacity() {
    let now = Instant::now();
    let mut bucket = Bucket::new(rate(8.0, 5.0), Ceiling::Start, now);
    assert_eq!(drain(&mut bucket, now), 6);
}

#[tokio::test(start_paused = true)]
async fn ceiling_limits_tokens_of_both_kinds() {
    let now = Instant::now();
    for (ceiling, first, next) in
        [(rate(10.0, 1.0), 10, 1000), (rate(100.0, 1.0), 50, 1000), (rate(45.0, 10.0), 41, 200)]
    {
        let mut bucket = Bucket::new(ATTACH, Ceiling::Rate(ceiling), now);
        assert_eq!(drain(&mut bucket, now), first, "{ceiling:?}");
        let at = bucket.take(now).unwrap_err();
        assert_eq!(at - now, Duration::from_millis(next), "{ceiling:?}");
    }
    // What was not sent is given back to both.
    let mut bucket = Bucket::new(ATTACH, Ceiling::Rate(rate(10.0, 1.0)), now);
    assert_eq!(drain(&mut bucket, now), 10);
    for token in [Token::Estimated, Token::Probe] {
        bucket.note_end(now, now, token, CallOutcome::NotSent);
        assert_eq!(bucket.take(now), Ok(token));
        assert!(bucket.take(now).is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn half_full_bucket_forgets_calls_beyond_estimate() {
    let start = Instant::now();
    for (seconds, granted) in [(4.8, 24 + 2), (5.0, 25 + 1), (6.0, 30 + 1)] {
        let mut bucket = Bucket::new(ATTACH, Ceiling::Open, start);
        for _ in 0..2 {
            drain(&mut bucket, start);
            bucket.note_end(start, start, Token::Probe, CallOutcome::Accepted);
        }
        drain(&mut bucket, start);
        for _ in 0..2 {
            bucket.note_end(start, start, Token::Probe, CallOutcome::Unknown);
        }
        let later = start + Duration::from_secs_f64(seconds);
        assert_eq!(drain(&mut bucket, later), granted, "after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_estimate_grow_slowly_after_eight() {
    let now = Instant::now();
    let mut bucket = Bucket::new(ATTACH, Ceiling::Open, now);
    assert_eq!(drain(&mut bucket, now), 46);
    for _ in 0..100 {
        bucket.note_end(now, now, Token::Probe, CallOutcome::Accepted);
        assert_eq!(bucket.take(now), Ok(Token::Probe));
    }
    // 8 and one for the hundred accepted; one is under way.
    assert_eq!(drain(&mut bucket, now), 8);
}

#[tokio::test(start_paused = true)]
async fn wait_for_many_tokens_follows_refill() {
    let now = Instant::now();
    for (ceiling, tokens, millis) in [
        (Ceiling::Start, 45, 0),
        (Ceiling::Start, 46, 200),
        (Ceiling::Start, 50, 1000),
        // 8 may soon go beyond the estimate.
        (Ceiling::Open, 53, 0),
        (Ceiling::Open, 54, 1800),
    ] {
        let mut bucket = Bucket::new(ATTACH, ceiling, now);
        let wait = bucket.wait_for(tokens, now);
        assert_eq!(wait, Duration::from_millis(millis), "{ceiling:?} {tokens}");
    }
}

/// 120 calls in 2 s, where EC2's documented bucket would have given 60.
#[tokio::test(start_paused = true)]
async fn throttle_after_calls_beyond_estimate_raises_rate() {
    let start = Instant::now();
    let later = start + Duration::from_secs(2);
    for (beyond, refill) in [(true, 10.0), (false, 5.0)] {
        let mut bucket = Bucket::new(ATTACH, Ceiling::Open, start);
        assert_eq!(drain(&mut bucket, start), 46);
        let end = if beyond { CallOutcome::Accepted } else { CallOutcome::Unknown };
        bucket.note_end(start, start, Token::Probe, end);
        for _ in 0..119 {
            bucket.note_end(start, start, Token::Estimated, CallOutcome::Accepted);
        }
        bucket.note_end(later, later, Token::Estimated, CallOutcome::Throttled);
        assert_eq!(bucket.refill(), refill);
    }
    // A bucket that was full in between begins to count anew.
    let mut bucket = Bucket::new(ATTACH, Ceiling::Open, start);
    for _ in 0..500 {
        bucket.note_end(start, start, Token::Estimated, CallOutcome::Accepted);
    }
    let full = start + Duration::from_secs(60);
    assert_eq!(drain(&mut bucket, full), 46);
    bucket.note_end(full, full, Token::Probe, CallOutcome::Accepted);
    for _ in 0..119 {
        bucket.note_end(full, full, Token::Estimated, CallOutcome::Accepted);
    }
    let later = full + Duration::from_secs(2);
    bucket.note_end(later, later, Token::Estimated, CallOutcome::Throttled);
    assert_eq!(bucket.refill(), 10.0);
}
