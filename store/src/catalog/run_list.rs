//! The filtered list of runs, built with sea-query, so that one query serves both databases.

use nightshift_protocol::run::RunStatus;
use sea_query::{Asterisk, Expr, ExprTrait, Order, Query, SelectStatement};

/// Filter of the list, with internal keys.
pub(crate) struct ListFilter {
    /// Only runs of this campaign, in the order of its tasks. None lists all runs, newest first.
    pub(crate) campaign_id: Option<i64>,
    /// Only runs of this status.
    pub(crate) status: Option<RunStatus>,
    /// Only rows that follow this one in the list's order.
    pub(crate) after_id: Option<i64>,
    /// Maximum number of rows.
    pub(crate) limit: u64,
}

/// Selects every column of the runs, in the list's order.
pub(crate) fn statement(filter: &ListFilter) -> SelectStatement {
    let order = if filter.campaign_id.is_some() { Order::Asc } else { Order::Desc };
    let mut statement = Query::select();
    statement
        .column(("run", Asterisk))
        .expr_as(Expr::col(("campaign", "public_id")), "campaign")
        .expr_as(Expr::col(("server", "public_id")), "owner")
        .expr_as(Expr::cust("NULL"), "state")
        .from("run")
        .inner_join("campaign", Expr::col(("campaign", "id")).equals(("run", "campaign_id")))
        .left_join("server", Expr::col(("server", "id")).equals(("run", "owner_id")))
        .order_by(("run", "id"), order.clone())
        .limit(filter.limit);
    if let Some(campaign_id) = filter.campaign_id {
        statement.and_where(Expr::col(("run", "campaign_id")).eq(campaign_id));
    }
    if let Some(status) = filter.status {
        statement.and_where(Expr::col(("run", "status")).eq(status.as_str()));
    }
    if let Some(after_id) = filter.after_id {
        let id = Expr::col(("run", "id"));
        statement.and_where(if matches!(order, Order::Asc) { id.gt(after_id) } else { id.lt(after_id) });
    }
    statement
}
