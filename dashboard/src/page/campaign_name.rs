//! The name of a campaign on the pages below it.

use nightshift_client::Client;
use nightshift_protocol::api::CampaignQuery;
use nightshift_protocol::id::CampaignId;

/// Returns the name of the campaign, or `Campaign` if the visitor may not read it.
pub(crate) async fn campaign_name(client: &Client, id: &CampaignId) -> String {
    let query = CampaignQuery { text: Some(id.to_string()), limit: Some(1), ..CampaignQuery::default() };
    let found = client.campaign_page(&query).await.ok();
    let found = found.and_then(|page| page.items.into_iter().find(|campaign| campaign.id == *id));
    found.map_or_else(|| "Campaign".to_owned(), |campaign| campaign.name)
}
