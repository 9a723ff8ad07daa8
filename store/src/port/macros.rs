//! The two macros through which a method of a port uses the database.

/// Reads over a connection of the pool, and over another one if that broke.
macro_rules! read {
    ($store:ident, |$connection:ident| $read:expr) => {{
        let mut broken = 0;
        loop {
            let mut reader = $store.reader().await?;
            let $connection = &mut reader;
            match $read.await {
                Err(failure) if failure.is_of_the_connection() && broken < $store.spare_connections() => {
                    reader.discard().await;
                    broken += 1;
                }
                done => break done.map_err(|failure| $store.store_error(failure)),
            }
        }
    }};
}

/// Runs a rare operation in a transaction. It clones its arguments, because it may run more than once and continues
/// when the caller is dropped.
macro_rules! transaction {
    ($store:ident, |$transaction:ident $(, $argument:ident)*| $operation:expr) => {{
        let arguments = std::sync::Arc::new(($($argument,)*));
        let work: $crate::writer::Work<_> = Box::new(move |$transaction| {
            let arguments = std::sync::Arc::clone(&arguments);
            Box::pin(async move {
                let ($($argument,)*) = &*arguments;
                $operation.await
            })
        });
        $store.write(work).await
    }};
}
