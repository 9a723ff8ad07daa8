//! The workload as a Restate service.

use peer_workload::STEPS_PER_WORKFLOW;
use restate_sdk::prelude::*;

pub(crate) struct Bench;

#[restate_sdk::service]
impl Bench {
    #[handler]
    async fn add_ten(&self, context: Context<'_>, mut n: u64) -> Result<u64, HandlerError> {
        for _ in 0..STEPS_PER_WORKFLOW {
            n = context.run(|| async move { Ok(n + 1) }).name("add-one").await?;
        }
        Ok(n)
    }
}
