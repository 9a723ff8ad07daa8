//! Tests of annotations, sessions, and reads for observers.

use nightshift_engine::store::{
    Among, Creation, CreationStore, PageRequest, RetentionStore, RunControlStore, SessionHolder, SessionLimits,
    SessionRecord, SessionStore, ShareRecord, StoreError, TeamStore, WatchStore,
};
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::api::{Pin, Remark, SavedView, Share, Tag, Target};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RemarkId, RunId, SavedViewId, ShareId, TokenId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::time::TimestampMs;

use crate::bench::Bench;

crate::bench::on_both!(
    annotations_are_deleted_with_their_run_or_campaign,
    a_note_holds_what_was_written_but_for_nul_characters,
    a_session_is_found_until_it_ends,
    a_link_with_many_sessions_locks_no_administrator_out,
    a_link_is_found_by_the_hash_of_its_secret_and_ends_once,
    an_owner_has_so_many_views_and_no_more,
    those_who_watch_see_what_changed_without_what_is_large,
);

fn all() -> PageRequest {
    PageRequest { limit: 100, before: None }
}

fn about(target: Target, within: bool) -> Among {
    Among { target: Some(target), within, tag: None }
}

impl Bench {
    async fn sign_in(&self, session: &SessionRecord) -> Result<(), StoreError> {
        self.store.create_session(session.clone(), SessionLimits { per_holder: 2, in_total: 3 }).await
    }

    fn remark(&self, target: &Target, text: &str) -> Remark {
        Remark {
            id: RemarkId::from_uuid(self.uuid()),
            target: target.clone(),
            text: text.to_owned(),
            author: "ada".to_owned(),
            created_at: self.now(),
            edited_at: None,
        }
    }

    fn share(&self, target: &Target, secret_hash: &str) -> ShareRecord {
        let view = Share {
            id: ShareId::from_uuid(self.uuid()),
            target: target.clone(),
            label: "review".to_owned(),
            author: "ada".to_owned(),
            created_at: self.now(),
            expires_at: self.now().plus_ms(60_000),
            revoked_at: None,
        };
        ShareRecord { view, secret_hash: secret_hash.to_owned() }
    }

    async fn leave_something(&self, target: &Target, campaign: &CampaignId) {
        self.store.create(Creation::Note(self.remark(target, "x")), None).await.unwrap();
        let tag = Tag { target: target.clone(), tag: "keep".to_owned(), author: "ada".to_owned(), at: self.now() };
        self.store.change_tags(vec![tag], Vec::new(), 50).await.unwrap();
        let pin = Pin {
            target: target.clone(),
            campaign: campaign.clone(),
            label: String::new(),
            author: "ada".to_owned(),
            at: self.now(),
        };
        self.store.set_pin(pin).await.unwrap();
        self.store.create(Creation::Share(self.share(target, &format!("hash of {target}"))), None).await.unwrap();
    }

    async fn left(&self) -> [usize; 4] {
        [
            self.store.list_remarks(&Among::default(), &all()).await.unwrap().len(),
            self.store.list_tags(&Among::default(), &all()).await.unwrap().len(),
            self.store.list_pins(&Among::default(), &all()).await.unwrap().len(),
            self.store.list_shares(&all()).await.unwrap().len(),
        ]
    }
}

async fn annotations_are_deleted_with_their_run_or_campaign(bench: Bench) {
    let (gone, stays) = (bench.create(bench.new_campaign(1)).await, bench.create(bench.new_campaign(1)).await);
    let run: &RunId = &gone.runs[0];
    for target in [Target::Campaign(gone.id.clone()), Target::Run(run.clone())] {
        bench.leave_something(&target, &gone.id).await;
    }
    bench.leave_something(&Target::Run(stays.runs[0].clone()), &stays.id).await;
    let remark = bench.remark(&Target::Attempt(run.clone(), 3), "of an attempt");
    bench.store.create(Creation::Note(remark), None).await.unwrap();
    assert_eq!(bench.left().await, [4, 3, 3, 3]);
    let within = about(Target::Run(run.clone()), true);
    assert_eq!(bench.store.list_remarks(&within, &all()).await.unwrap().len(), 2, "with that of its attempt");
    bench.schedule(run, &["a"]).await;
    bench.complete_run(run).await;
    assert_eq!(bench.store.prune_campaign(&gone.id, 1_000).await.unwrap().campaigns, 1);
    assert_eq!(bench.left().await, [1, 1, 1, 1]);
    let error = bench.store.list_remarks(&within, &all()).await.unwrap_err();
    assert_eq!(error.code(), "run.not_found");
    bench.assert_sound().await;
}

async fn a_note_holds_what_was_written_but_for_nul_characters(bench: Bench) {
    let run = Target::Run(bench.run().await);
    let text = "# a\0b\n<b>\u{202e}𝒙</b> '; DROP TABLE remark; --";
    let remark = bench.remark(&run, text);
    bench.store.create(Creation::Note(remark.clone()), None).await.unwrap();
    // Creating the same note again changes nothing.
    bench.store.create(Creation::Note(remark.clone()), None).await.unwrap();
    let stored = bench.store.load_remark(&remark.id).await.unwrap();
    assert_eq!(stored.text, text.replace('\0', "\u{fffd}"));
    bench.store.edit_remark(&remark.id, "shorter", TimestampMs(7)).await.unwrap();
    let stored = bench.store.load_remark(&remark.id).await.unwrap();
    assert_eq!((stored.text.as_str(), stored.edited_at), ("shorter", Some(TimestampMs(7))));
    bench.store.delete_remark(&remark.id).await.unwrap();
    bench.store.delete_remark(&remark.id).await.unwrap();
    assert_eq!(bench.store.load_remark(&remark.id).await.unwrap_err().code(), "note.not_found");
    let error = bench.store.edit_remark(&remark.id, "x", bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "note.not_found");
}

async fn a_session_is_found_until_it_ends(bench: Bench) {
    let session = |hash: &str, holder: SessionHolder| SessionRecord {
        secret_hash: hash.to_owned(),
        holder,
        created_at: bench.now(),
        expires_at: bench.now().plus_ms(1_000),
    };
    let token = TokenView {
        id: TokenId::from_uuid(bench.uuid()),
        name: "ada".to_owned(),
        role: Role::Viewer,
        created_at: bench.now(),
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    };
    let record = nightshift_engine::store::TokenRecord { view: token.clone(), secret_hash: "t".to_owned() };
    bench.store.create(Creation::Token(record), None).await.unwrap();
    let by_token = session("a", SessionHolder::Token(token.id.clone()));
    let by_proof = session("b", SessionHolder::Configured { proof: "p".to_owned() });
    for session in [&by_token, &by_proof] {
        bench.sign_in(session).await.unwrap();
        assert_eq!(bench.store.find_session(&session.secret_hash).await.unwrap().as_ref(), Some(session));
    }
    assert_eq!(bench.store.token_of_id(&token.id).await.unwrap(), Some(token));
    assert_eq!(bench.store.token_of_id(&TokenId::from_uuid(bench.uuid())).await.unwrap(), None);
    assert!(bench.store.end_session("b").await.unwrap());
    assert!(!bench.store.end_session("b").await.unwrap());
    assert_eq!(bench.store.find_session("b").await.unwrap(), None);
    bench.clock.forward(2_000);
    let late = SessionRecord { created_at: bench.now(), expires_at: bench.now().plus_ms(1), ..by_proof };
    bench.sign_in(&late).await.unwrap();
    assert_eq!(bench.store.find_session("a").await.unwrap(), None, "expired");
}

async fn a_link_with_many_sessions_locks_no_administrator_out(bench: Bench) {
    let run = Target::Run(bench.run().await);
    let shares = ["x", "y"].map(|secret| bench.share(&run, secret));
    for share in &shares {
        bench.store.create(Creation::Share(share.clone()), None).await.unwrap();
    }
    let sign_in = async |hash: &str, holder: SessionHolder| {
        bench.clock.forward(1);
        let (secret_hash, created_at) = (hash.to_owned(), bench.now());
        let expires_at = created_at.plus_ms(50_000);
        bench.sign_in(&SessionRecord { secret_hash, holder, created_at, expires_at }).await
    };
    let [first, second] = shares.map(|share| share.view.id);
    for hash in ["1", "2", "3"] {
        sign_in(hash, SessionHolder::Share(first.clone())).await.unwrap();
    }
    sign_in("4", SessionHolder::Share(second.clone())).await.unwrap();
    let open = async || {
        let listed = bench.store.list_sessions(bench.now(), 100).await.unwrap();
        listed.into_iter().map(|session| session.secret_hash).collect::<Vec<_>>()
    };
    assert_eq!(open().await, ["4", "3", "2"], "the oldest one of the link made room");
    let refused = sign_in("5", SessionHolder::Share(second.clone())).await.unwrap_err();
    assert_eq!(refused.code(), "auth.too_many_sessions");
    let admin = SessionHolder::Configured { proof: "p".to_owned() };
    sign_in("6", admin.clone()).await.unwrap();
    bench.store.revoke_share(&first, bench.now()).await.unwrap();
    sign_in("7", SessionHolder::Share(second)).await.unwrap();
    assert_eq!(open().await, ["7", "6", "4"], "the sessions of a revoked link are deleted");
    bench.clock.forward(60_000);
    sign_in("8", admin).await.unwrap();
    assert_eq!(open().await, ["8"]);
}

async fn a_link_is_found_by_the_hash_of_its_secret_and_ends_once(bench: Bench) {
    let created = bench.create(bench.new_campaign(2)).await;
    let run = &created.runs[0];
    let share = bench.share(&Target::Run(run.clone()), "secret");
    bench.store.create(Creation::Share(share.clone()), None).await.unwrap();
    assert_eq!(bench.store.find_share("secret").await.unwrap(), Some(share.view.clone()));
    assert_eq!(bench.store.find_share("another").await.unwrap(), None);
    bench.store.revoke_share(&share.view.id, TimestampMs(5)).await.unwrap();
    bench.store.revoke_share(&share.view.id, TimestampMs(9)).await.unwrap();
    assert_eq!(bench.store.load_share(&share.view.id).await.unwrap().revoked_at, Some(TimestampMs(5)));
    let unknown = ShareId::from_uuid(bench.uuid());
    assert_eq!(bench.store.revoke_share(&unknown, bench.now()).await.unwrap_err().code(), "share.not_found");
    let hash = ArtifactHash::of(b"unreferenced");
    for target in [Target::Run(run.clone()), Target::Campaign(created.id.clone())] {
        assert!(!bench.store.names_artifact(&target, &hash).await.unwrap());
        assert_eq!(bench.store.campaign_of(&target).await.unwrap(), created.id);
    }
}

async fn an_owner_has_so_many_views_and_no_more(bench: Bench) {
    let view = |name: &str, owner: &str, shared: bool| SavedView {
        id: SavedViewId::from_uuid(bench.uuid()),
        name: name.to_owned(),
        page: "attempts".to_owned(),
        query: "sort=speedup".to_owned(),
        owner: owner.to_owned(),
        shared,
        created_at: bench.now(),
        edited_at: None,
    };
    bench.store.create(Creation::View { view: view("1", "ada", false), limit: 2 }, None).await.unwrap();
    bench.store.create(Creation::View { view: view("2", "ada", true), limit: 2 }, None).await.unwrap();
    let refused =
        bench.store.create(Creation::View { view: view("3", "ada", false), limit: 2 }, None).await.unwrap_err();
    assert_eq!(refused.code(), "view.too_many");
    bench.store.create(Creation::View { view: view("4", "ben", false), limit: 2 }, None).await.unwrap();
    let names = async |owner: &str, of_page: Option<&str>| {
        let views = bench.store.list_views(owner, of_page, &all()).await.unwrap();
        views.into_iter().map(|view| view.item.name).collect::<Vec<_>>()
    };
    assert_eq!(names("ada", None).await, ["2", "1"]);
    assert_eq!(names("ben", Some("attempts")).await, ["4", "2"]);
    assert!(names("ben", Some("tasks")).await.is_empty());
    assert_eq!(names("", None).await, ["2"]);
    assert!(names("ada\0", Some("attempts\0")).await.is_empty());
}

async fn those_who_watch_see_what_changed_without_what_is_large(bench: Bench) {
    let created = bench.create(bench.new_campaign(3)).await;
    let run = &created.runs[1];
    let before = bench.store.run_marks(std::slice::from_ref(run)).await.unwrap().remove(0);
    assert_eq!((&before.campaign, before.status), (&created.id, RunStatus::Running));
    let stamped = async || {
        let stamps = bench.store.run_stamps(10).await.unwrap();
        stamps.into_iter().find(|stamp| stamp.run == *run).unwrap()
    };
    assert_eq!((stamped().await.revision, stamped().await.last_seq), (before.revision, before.last_seq));
    bench.store.control_run(run, RunTransition::Pause, None, bench.now()).await.unwrap();
    let after = bench.store.run_marks(std::slice::from_ref(run)).await.unwrap().remove(0);
    assert_eq!(after.status, RunStatus::Paused);
    assert!(after.last_seq > before.last_seq && after.revision > before.revision);
    assert_eq!((stamped().await.revision, stamped().await.last_seq), (after.revision, after.last_seq));
    let unknown = RunId::from_uuid(bench.uuid());
    let marks = bench.store.run_marks(&[unknown, run.clone()]).await.unwrap();
    assert_eq!(marks, [after]);
    assert!(bench.store.run_marks(&[]).await.unwrap().is_empty());
}
