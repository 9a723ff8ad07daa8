//! Runs a rare operation in a short transaction of its own, and repeats it when it lost against a concurrent one.

use std::time::Duration;

use nightshift_engine::store::StoreError;
use sqlx::postgres::PgPool;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::surroundings::Surroundings;
use crate::transaction::Transaction;
use crate::writer::{Work, closed};

/// Maximum number of executions.
const MAX_TRIES: u32 = 12;
/// Maximum delay before the first repetition, in milliseconds. It doubles up to [`MAX_DELAY_MS`].
const FIRST_DELAY_MS: u64 = 4;
/// Maximum delay, in milliseconds.
const MAX_DELAY_MS: u64 = 250;

/// Runs the operation in a task of its own, so that a dropped caller leaves no open transaction behind.
pub(crate) async fn write<T: Send + 'static>(
    pool: &PgPool,
    around: &Surroundings,
    work: Work<T>,
) -> Result<T, StoreError> {
    let (pool, around) = (pool.clone(), around.clone());
    let task = tokio::spawn(async move { try_again_and_again(&pool, &around, work).await });
    task.await.map_err(|_| closed())?
}

async fn try_again_and_again<T>(pool: &PgPool, around: &Surroundings, work: Work<T>) -> Result<T, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match once(pool, around, &work).await {
            Ok(done) => return Ok(done),
            Err(failure) if failure.asks_for_redo() && tries < MAX_TRIES => {
                tokio::time::sleep(Duration::from_millis(delay_ms(tries, around.memory.number()))).await;
            }
            Err(failure) => return Err(failure.into_store_error(&around.place)),
        }
    }
}

async fn once<T>(pool: &PgPool, around: &Surroundings, work: &Work<T>) -> Result<T, Failure> {
    let mut connection = begun(pool).await?;
    let done = within(&mut connection, around, work).await;
    if done.is_err() && connection.rollback().await.is_err() {
        connection.discard().await;
    }
    done
}

/// Returns a connection with an open transaction. Connections that broke while idle are replaced.
async fn begun(pool: &PgPool) -> Result<Connection, Failure> {
    let mut broken = 0;
    loop {
        let mut connection = Connection::Postgres(pool.acquire().await?);
        match connection.begin().await {
            Ok(()) => return Ok(connection),
            Err(failure) if failure.is_of_the_connection() && broken < pool.options().get_max_connections() => {
                connection.discard().await;
                broken += 1;
            }
            Err(failure) => {
                connection.discard().await;
                return Err(failure);
            }
        }
    }
}

async fn within<T>(connection: &mut Connection, around: &Surroundings, work: &Work<T>) -> Result<T, Failure> {
    let mut transaction = Transaction::new(connection, &around.memory);
    let done = work(&mut transaction).await?;
    transaction.connection.commit().await?;
    transaction.publish(around);
    Ok(done)
}

/// Returns a delay that depends on a number that differs between calls, so that conflicting operations do not meet
/// again.
fn delay_ms(tries: u32, number: u64) -> u64 {
    let longest = FIRST_DELAY_MS.saturating_mul(1 << tries.min(16)).min(MAX_DELAY_MS);
    let mixed = number.wrapping_add(u64::from(std::process::id())).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    longest / 2 + mixed % (longest / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_stay_bounded() {
        for number in 0..100 {
            for tries in 1..=MAX_TRIES {
                assert!((FIRST_DELAY_MS..=MAX_DELAY_MS).contains(&delay_ms(tries, number)));
            }
        }
    }
}
