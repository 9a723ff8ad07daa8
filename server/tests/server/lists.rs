//! Tests of the pages of lists.

use nightshift_protocol::api::Page;
use reqwest::Method;
use serde_json::{Value, json};

use crate::attempts;
use crate::setup::{OPERATOR, WORKER, ok, refusal, refused};
use crate::toy::offers;

/// Lists that are read as a whole. Without a query they answer all rows.
const LISTS: [&str; 9] = [
    "/tokens",
    "/webhooks",
    "/workers",
    "/servers",
    "/sessions",
    "/tags/names",
    "/devices/quarantined",
    "/tasks",
    "/models",
];

/// Lists whose rows change their places. Their pages come in the order of the cursors.
const MOVING: [&str; 3] = ["/workers", "/tags/names", "/models"];

#[tokio::test]
async fn the_pages_of_every_list_are_the_whole_list() {
    let (server, _store, _folder) = attempts::start().await;
    let (created, run) = server.campaign().await;
    for number in 0..3 {
        let token = json!({"name": format!("token {number}"), "role": "viewer"});
        let webhook = json!({"url": format!("https://example.com/{number}"), "events": ["run_finished"]});
        let worker = json!({"name": format!("box {number}"), "embedded": false, "offers": offers(), "version": "0"});
        let tags = json!({"target": created.campaign, "add": [format!("tag {number}")], "remove": []});
        let calls = [("/tokens", token), ("/webhooks", webhook), ("/workers", worker), ("/tags", tags)];
        for (path, body) in calls {
            let role = if path == "/workers" { WORKER } else { OPERATOR };
            ok::<Value>(server.call(Method::POST, path, role).json(&body).send().await.unwrap()).await;
        }
    }
    let mut with_several_pages = 0;
    for list in LISTS.map(str::to_owned).into_iter().chain([format!("/runs/{run}/steps")]) {
        // The order of workers and the state of steps may change between two calls; their identity does not.
        let ids = |page: &Page<Value>| -> Vec<String> { page.items.iter().map(identity).collect() };
        let all: Page<Value> = server.read(&list).await;
        assert_eq!(all.next, None, "{list}: the whole list, as earlier releases expect");
        let (mut paged, mut pages, mut before) = (Vec::new(), 0, String::new());
        loop {
            let page: Page<Value> = server.read(&format!("{list}?limit=1{before}")).await;
            assert!(page.items.len() <= 1, "{list}");
            paged.extend(ids(&page));
            pages += 1;
            let Some(next) = page.next else { break };
            before = format!("&before={next}");
        }
        let mut whole = ids(&all);
        let moving = MOVING.contains(&list.as_str());
        if moving {
            paged.sort();
            whole.sort();
        }
        assert_eq!(paged, whole, "{list}");
        with_several_pages += usize::from(pages > 1);
        let queries = ["limit=0", "limit=501", "limit=x", "before=", "before=no-row"];
        for query in queries.into_iter().filter(|query| !moving || *query != "before=no-row") {
            let answer = server.get(&format!("{list}?{query}")).send().await.unwrap();
            assert_eq!(refused(answer).await, refusal(400, "request.invalid_query"), "{list}?{query}");
        }
    }
    assert!(with_several_pages >= 4, "{with_several_pages}");
    server.stop().await;
}

/// Returns what identifies a row.
fn identity(row: &Value) -> String {
    let named = ["id", "tag", "device"].into_iter().find(|name| row.get(name).is_some());
    named.map_or_else(|| row.to_string(), |name| row[name].to_string())
}
