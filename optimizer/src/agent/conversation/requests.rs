//! Turns that an agent outside of Nightshift answers.

use std::sync::Arc;

use nightshift_protocol::model_call::{FellBack, ModelCallSummary};
use nightshift_protocol::step::StepFailure;

use super::{Asked, Conversation, NoReply, request_hash};
use crate::agent::AgentStep;
use crate::agent::chain::Link;
use crate::agent::outside::{self, OutsideCall, OutsideRequest, OutsideWait};
use crate::model::{Model, ModelRequest};

impl Conversation<'_> {
    /// Where a model is asked after those before it failed in an earlier try: at the outside agent whose request is open
    /// or answered. They are not asked again.
    pub(super) async fn request_in_order(
        &self,
        chain: &[Link],
        first: usize,
        request: &ModelRequest,
        turn: u32,
    ) -> Result<(usize, Vec<FellBack>), StepFailure> {
        let AgentStep { run, step_key, .. } = self.step;
        for (place, link) in chain.iter().enumerate().skip(first + 1).filter(|(_, link)| link.is_external()) {
            let hash = request_hash(&link.label, request, turn);
            let found = self.ports.find_request(run, step_key, turn, &hash).await?;
            if let Some(found) = found.filter(OutsideRequest::is_alive) {
                return Ok((place, found.fell_back));
            }
        }
        Ok((first, Vec::new()))
    }

    /// Stores the call as a request, or commits the answer that an outside agent gave to it.
    pub(super) async fn ask_outside(
        &self,
        model: &Arc<dyn Model>,
        asked: Asked<'_>,
    ) -> Result<(ModelCallSummary, Option<String>), NoReply> {
        let AgentStep { run, step_key, .. } = self.step;
        let Asked { request, turn, request_hash, fell_back, .. } = asked;
        let role = self.role.ok_or_else(|| StepFailure::fatal("agent.wrong_step", "the step belongs to no role"))?;
        let label = model.label();
        let question = outside::question(request, self.prompt);
        let call = OutsideCall { run, step_key, turn, request_hash, role, model: &label, question, fell_back };
        let reply = self.ports.open_request(call).await?.into_reply(&label).map_err(|wait| match wait {
            OutsideWait::Open(failure) => NoReply::Step(failure),
            OutsideWait::Expired(error) => NoReply::Model(error),
        })?;
        let summary = self.commit(model, asked, &[], &reply).await?;
        Ok((summary, Some(reply.text)))
    }
}
