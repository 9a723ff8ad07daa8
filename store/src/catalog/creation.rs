//! Creates records for API calls, each at most once per idempotency key.

use nightshift_engine::store::{Creation, Once};

use super::idempotency::Key;
use super::team::{remark, share, view};
use super::{token, webhook, worker};
use crate::failure::Failure;
use crate::transaction::Transaction;

/// Creates the record, or returns the answer to the first request with the same key and digest.
pub(crate) async fn create(
    transaction: &mut Transaction<'_>,
    creation: &Creation,
    once: Option<&Once>,
) -> Result<Option<String>, Failure> {
    if let Some(once) = once {
        let key = Key::new(creation.noun(), &once.key, &once.digest);
        let connection = &mut *transaction.connection;
        if let Some(answer) = key.find(connection).await? {
            return Ok(Some(answer));
        }
        if !key.insert(connection, &once.answer, once.at).await? {
            let answer = key.find(connection).await?.ok_or_else(|| Failure::unreadable("a key", &"it is gone"))?;
            return Ok(Some(answer));
        }
    }
    match creation {
        Creation::Token(record) => token::create(transaction, record).await?,
        Creation::Share(record) => share::create(transaction, record).await?,
        Creation::Note(remark) => remark::add(transaction, remark).await?,
        Creation::View { view, limit } => view::add(transaction, view, *limit).await?,
        Creation::Webhook { webhook, limit } => webhook::create(transaction, webhook, *limit).await?,
        Creation::Worker(record) => worker::register(transaction, record).await?,
    }
    Ok(None)
}
