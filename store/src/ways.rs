//! The two ways in which a method of the port gets to the database.

/// Reads over a connection of the pool; over another one when that one broke.
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
                done => break done.map_err(|failure| $store.tell(failure)),
            }
        }
    }};
}

/// Does a rare operation in a transaction. Its arguments are taken along: it may be done more than once, and goes on
/// when the caller went away.
macro_rules! write {
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
