//! Routes. There are few of them and they never change, so their keys are cached after the commit.

use std::collections::BTreeSet;

use nightshift_engine::store::{Advance, ClaimRequest};

use super::working_set::WorkingSet;
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::transaction::Transaction;
use crate::value::values;

const FIND: Sql = Sql {
    sqlite: "SELECT id, needs FROM route WHERE needs IN (SELECT value FROM json_each($1))",
    postgres: "SELECT id, needs FROM route WHERE needs = ANY ($1::text[])",
};

const MAKE: Sql = Sql {
    sqlite: "INSERT INTO route (needs) SELECT value FROM json_each($1) WHERE true ON CONFLICT (needs) DO NOTHING",
    postgres: "INSERT INTO route (needs) SELECT unnest($1::text[]) ON CONFLICT (needs) DO NOTHING",
};

/// Creates the routes that decisions need, and finds the routes that claims name. An unknown route of a claim has no
/// steps.
pub(crate) async fn resolve(
    transaction: &mut Transaction<'_>,
    set: &mut WorkingSet,
    advances: impl Iterator<Item = &Advance>,
    claims: impl Iterator<Item = &ClaimRequest>,
) -> Result<(), Failure> {
    // Sorted, so that servers that create the same routes wait for each other in one order.
    let orders = advances.flat_map(|advance| &advance.schedule);
    let needed: BTreeSet<String> = orders.map(|(_, order)| order.needs.route()).collect();
    let mut named: BTreeSet<&str> = needed.iter().map(String::as_str).collect();
    for claim in claims {
        let lanes = claim.devices.iter().flat_map(|lane| lane.exclusive.iter().chain(&lane.shared));
        named.extend(claim.routes.iter().chain(lanes).map(String::as_str));
    }
    let mut unknown = Vec::new();
    for route in named {
        match transaction.memory.route(route) {
            Some(id) => add(set, id, route.to_owned()),
            None => unknown.push(route.to_owned()),
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    find(transaction.connection, set, unknown.clone()).await?;
    let missing: Vec<String> = needed.into_iter().filter(|route| !set.route_ids.contains_key(route)).collect();
    if !missing.is_empty() {
        transaction.connection.execute(MAKE, values![missing.clone()]).await?;
        find(transaction.connection, set, missing).await?;
    }
    let found = unknown.into_iter().filter_map(|route| set.route_ids.get(&route).map(|id| (route.clone(), *id)));
    transaction.routes.extend(found);
    Ok(())
}

async fn find(connection: &mut Connection, set: &mut WorkingSet, routes: Vec<String>) -> Result<(), Failure> {
    for row in connection.fetch_all(FIND, values![routes]).await? {
        add(set, row.i64(0)?, row.text(1)?);
    }
    Ok(())
}

fn add(set: &mut WorkingSet, id: i64, route: String) {
    set.routes.insert(id, route.clone());
    set.route_ids.insert(route, id);
}
