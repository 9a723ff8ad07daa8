// What people do on the pages: with their own rights, seen without a reload.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { call, facts, LIMIT_MS, start, stop, until, viewing } from "./page.mjs";

before(start);
after(stop);

const acting = facts.acting;
const { base } = acting;

/** Signs in as people do, on the page that asks for it. */
async function signIn(view, page, token) {
    await view.go("/sign-in");
    await page.getByLabel(/token/i).fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.waitForURL((url) => !url.pathname.startsWith("/sign-in"));
}

/** Opens what a word hides, for example a question. */
const unfold = (where, words) => where.locator("summary").filter({ hasText: words }).click();

/** A token of that role, made for a test. */
async function newToken(role, name) {
    const { secret } = await call(base, acting.token, "POST", "/tokens", { name, role, valid_for_ms: 3_600_000 });
    return secret;
}

test("without signing in nothing is offered that would be refused, and the page says why", async () => {
    await viewing({ base }, async (view, page) => {
        await view.go(`/runs/${acting.run}`);
        assert.equal(await page.getByRole("button", { name: "Pause" }).isDisabled(), true);
        await page.getByText("You are not signed in: this needs the role operator.").first().waitFor();
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("link", { name: "Sign in as an operator" }).first().click();
        await page.waitForURL((url) => url.pathname === "/sign-in" && url.searchParams.get("next") === `/runs/${acting.run}`);
    });
});

test("a viewer sees who they are, and what they may not do before they try", async () => {
    const viewer = await newToken("viewer", "reader");
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, viewer);
        await view.go(`/runs/${acting.run}`);
        await page.locator("header").getByText("reader · viewer").waitFor();
        assert.equal(await page.getByRole("button", { name: "Pause" }).isDisabled(), true);
        await page.getByText("You are reader · viewer: this needs the role operator.").first().waitFor();
        await view.go("/sign-in?next=/workers");
        await page.locator("main").getByText("reader · viewer").waitFor();
        await page.getByRole("link", { name: "Go on" }).click();
        await page.waitForURL((url) => url.pathname === "/workers");
    });
});

test("the bar keeps its layout in every state of the connection, also with a long name", async () => {
    const token = await newToken("operator", "a reader with quite a long name");
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, token);
        for (const path of ["/", "/attempts", "/workers"]) {
            await view.go(path);
            await page.locator(".link[data-link]").filter({ hasText: /^live$/ }).waitFor();
            await view.stoodStill();
        }
        const heights = await page.evaluate(() => {
            const mark = document.querySelector(".link[data-link]");
            const states = [["connecting", "…"], ["live", "live"], ["polling", "polls"], ["offline", "offline, as of 12:34:56 UTC"]];
            return states.map(([state, words]) => {
                mark.dataset.link = state;
                mark.querySelector(".link-words").textContent = words;
                return [document.querySelector("header.bar").getBoundingClientRect().height, mark.getBoundingClientRect().width];
            });
        });
        assert.equal(new Set(heights.map(String)).size, 1, JSON.stringify(heights));
    });
});

test("a wrong token is refused in words", async () => {
    await viewing({ base }, async (view, page) => {
        view.allow(/401/);
        await view.go("/sign-in");
        await page.getByLabel(/token/i).fill("not-a-token");
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.getByText("auth.wrong_token").waitFor();
    });
});

test("a run is paused, resumed, advised, approved and seen to its end, without a reload", async () => {
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.run}`);
        await page.evaluate(() => {
            window.neverLoadedAgain = true;
        });
        const status = page.locator("main h1 + p .tag").first();
        await page.getByRole("button", { name: "Pause" }).click();
        await status.filter({ hasText: "paused" }).waitFor();
        await page.getByRole("button", { name: "Resume" }).click();
        await status.filter({ hasText: "running" }).waitFor();

        await unfold(page, "Give a hint");
        const hint = page.locator(".asks[open]");
        await hint.getByRole("textbox").fill("Mind the <b>cache</b> lines");
        await page.keyboard.press("Escape");
        await hint.waitFor({ state: "detached" });
        await unfold(page, "Give a hint");
        assert.equal(await hint.getByRole("textbox").inputValue(), "Mind the <b>cache</b> lines", "nothing that was written is lost");
        await hint.getByRole("button", { name: "Send the hint" }).click();
        await page.getByText("The hint is given.").waitFor();

        await page.getByRole("button", { name: /Approve/ }).click();
        await status.filter({ hasText: "completed" }).waitFor({ timeout: 60_000 });
        assert.equal(await page.evaluate(() => window.neverLoadedAgain), true);
        await view.picture("run-completed-light");
    });
});

test("cancelling asks first", async () => {
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.second}`);
        await unfold(page, /^Cancel$/);
        await page.getByText("cannot be taken back").waitFor();
        await page.getByRole("button", { name: "Keep running" }).click();
        await page.locator(".asks[open]").waitFor({ state: "detached" });
        assert.match(await page.locator("main h1 + p .tag").first().innerText(), /running/);
        await unfold(page, /^Cancel$/);
        assert.deepEqual(await view.faults(), []);
        await view.picture("cancelling-light");
        await page.getByRole("button", { name: "Cancel the run" }).click();
        await page.locator("main h1 + p .tag").first().filter({ hasText: "cancelled" }).waitFor();
    });
});

test("a plan is rejected with a reason, and another one is made and waits in its place", async () => {
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.third}`);
        await unfold(page, "Reject plan");
        const send = page.locator(".asks[open]").getByRole("button", { name: "Reject plan" });
        const reason = page.locator(".asks[open]").getByRole("textbox");
        await send.click();
        assert.equal(await reason.evaluate((field) => field.matches(":invalid")), true, "a reason is wanted");
        await reason.fill("Not on this <i>machine</i>");
        await send.click();
        await page.getByRole("heading", { name: /Version 2/ }).waitFor({ timeout: 2 * LIMIT_MS });
        await page.locator("#plans").getByText("Not on this <i>machine</i>").first().waitFor();
        await page.getByRole("button", { name: "Approve plan" }).waitFor();
    });
});

test("attempts, tasks and models follow what happens, without a reload", async () => {
    await viewing({ base }, async (view, page) => {
        await view.go("/tasks");
        await page.locator(".link[data-link]").filter({ hasText: /^live$/ }).waitFor();
        await view.go("/attempts");
        await page.evaluate(() => {
            window.neverLoadedAgain = true;
        });
        const rows = page.locator("main [data-row]");
        const before = await rows.count();
        await page.locator(".link[data-link]").filter({ hasText: /^live$/ }).waitFor();
        await call(base, acting.token, "POST", `/runs/${acting.third}/signals`, { signal: "approved", gate: "plan" });
        await rows.nth(before).waitFor({ timeout: 4 * LIMIT_MS });
        assert.equal(await page.evaluate(() => window.neverLoadedAgain), true);
    });
});

test("machines say how their devices are used", async () => {
    await viewing({ base }, async (view, page) => {
        await view.go("/workers");
        await until("a reading of the devices", async () => {
            await view.go("/workers");
            return (await page.getByText(/in use over the last/).count()) > 0;
        });
        assert.deepEqual(await view.faults(), []);
        await view.picture("workers-read-light");
    });
});

test("a browser without scripts signs in and out, and is told when the token is wrong", async () => {
    const operator = await newToken("operator", "no scripts");
    await viewing({ base, javaScript: false }, async (view, page) => {
        view.allow(/401/);
        await view.go("/sign-in?next=/workers");
        await page.getByLabel(/token/i).fill("not-a-token");
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.getByRole("alert").waitFor();
        await page.getByLabel(/token/i).fill(operator);
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.waitForURL((url) => url.pathname === "/workers");
        await page.locator("header").getByText("no scripts · operator").waitFor();
        await page.getByRole("button", { name: "Sign out" }).click();
        await page.locator("header").getByRole("link", { name: "Sign in" }).waitFor();
    });
});

test("an administrator sees which browsers are signed in, and signs one out", async () => {
    const viewer = await newToken("viewer", "left open");
    await viewing({ base }, async (left, open) => {
        await signIn(left, open, viewer);
        await viewing({ base }, async (view, page) => {
            await signIn(view, page, acting.token);
            await view.go("/admin#sessions");
            const row = page.locator("tr").filter({ has: page.locator("[data-call*='/sessions/']") }).filter({ hasText: "left open" });
            await row.waitFor();
            assert.deepEqual(await view.faults(), []);
            await page.getByText("this browser").first().waitFor();
            await unfold(row, "Sign out");
            await row.getByRole("button", { name: "Yes, sign it out" }).click();
            await row.waitFor({ state: "detached" });
        });
        await left.go("/workers");
        await open.locator("header").getByRole("link", { name: "Sign in" }).waitFor();
    });
});

test("a run that failed is tried again", async () => {
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.failed}`);
        await page.locator(".notice.bad").first().waitFor();
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("button", { name: "Retry" }).click();
        await until("the run is tried again", async () => {
            const { events } = await call(base, acting.token, "GET", `/runs/${acting.failed}/events?after=0`);
            return events.some((event) => /retr/.test(event.kind));
        });
    });
});

test("a device on which nothing may run is released, and a worker is drained", async () => {
    const { offers } = (await call(base, acting.token, "GET", "/workers")).items[0];
    offers.devices = [{ index: 0, target: "cuda", name: "NVIDIA H200", uuid: "GPU-1", compute_capability: "9.0",
        memory_bytes: 150_754_820_096, shared_slots: 1 }];
    const worker = { name: "gpu-box", embedded: false, offers, version: "0" };
    const { worker: id } = await call(base, acting.workerToken, "POST", "/workers", worker);
    await call(base, acting.workerToken, "POST", `/workers/${id}/heartbeat`, {
        leases: [],
        quarantined: [{ device: 0, quarantine: { incident: 1, code: "gpu.wedged", reason: "a test process hangs" } }],
    });
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go("/workers");
        await page.locator(".notice.bad").getByText("a test process hangs").waitFor();
        await view.fits();
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("button", { name: "Test it and use it again" }).click();
        await page.getByText("Asked to be tested again by").waitFor();
        const box = page.locator("[data-row], li, tr").filter({ hasText: "gpu-box" }).filter({ has: page.locator("summary").filter({ hasText: /^Drain$/ }) });
        await unfold(box.first(), /^Drain$/);
        await page.getByText("takes nothing new").waitFor();
        await page.getByRole("button", { name: "Drain the worker" }).click();
        await page.getByRole("button", { name: "Take work again" }).first().waitFor();
    });
});

test("the theme that was chosen stays, and is there from the first paint", async () => {
    await viewing({ base, scheme: "light" }, async (view, page) => {
        await view.go("/");
        const before = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        await page.getByRole("button", { name: /dark/i }).click();
        await page.waitForFunction((was) => getComputedStyle(document.body).backgroundColor !== was, before);
        const response = await view.go("/");
        assert.match(await response.text(), /data-theme="dark"/);
    });
});

test("a note is kept, shown as Markdown, and harmless", async () => {
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.run}`);
        await page.getByText("Leave a note, a tag or a pin").click();
        await page.getByLabel("Note (Markdown)").fill("**kept** <script>document.title = 'taken over'</script>");
        await page.getByRole("button", { name: "Add the note" }).click();
        await page.locator(".note strong").filter({ hasText: "kept" }).waitFor();
        await page.getByText("<script>document.title").first().waitFor();
        assert.doesNotMatch(await page.title(), /taken over/);
        await page.getByLabel("Tag", { exact: true }).fill("night");
        await page.getByRole("button", { name: "Add the tag" }).click();
        await page.locator("#team .chips").getByText("night").waitFor();
        await page.getByRole("button", { name: "Pin it" }).click();
        await page.getByText(/Pinned by/).waitFor();
        assert.deepEqual(await view.faults(), []);
        await page.locator("#team .chips").getByRole("link", { name: "night" }).click();
        await page.waitForURL((url) => url.pathname === "/" && url.searchParams.get("tag") === "night");
        await view.awake();
        await page.getByRole("heading", { name: "Tagged night" }).waitFor();
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("heading", { name: "Pinned" }).waitFor();
        await page.locator("main .chips a").filter({ hasText: "run" }).first().click();
        await page.waitForURL((url) => url.pathname === `/runs/${acting.run}`);
        await view.awake();
        await unfold(page.locator(".note"), "Change");
        await page.getByLabel("The note (Markdown)").fill("- [x] **changed**");
        await page.getByRole("button", { name: "Save the note" }).click();
        await page.locator(".note .written strong").filter({ hasText: "changed" }).waitFor();
        await page.locator(".note").getByText("(changed)").waitFor();
        await unfold(page.locator(".note"), "Delete");
        await page.getByRole("button", { name: "Yes, delete it" }).click();
        await page.locator(".note").waitFor({ state: "detached" });
        await page.getByText("Leave a note, a tag or a pin").click();
        await page.getByRole("button", { name: "Remove the tag night" }).click();
        await page.locator("#team .chips").waitFor({ state: "detached" });
        await page.getByRole("button", { name: "Take the pin away" }).click();
        await page.getByText(/Pinned by/).waitFor({ state: "detached" });
    });
});

test("a link opens one run without a token, and nothing else", async () => {
    let link;
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.run}`);
        await page.getByText("Leave a note, a tag or a pin").click();
        await page.getByRole("button", { name: "Make a link for others to read" }).click();
        link = await page.locator("code.link").innerText();
        // It can be copied, is listed, and does not replace a session that can read the page.
        await page.getByRole("button", { name: "Copy", exact: true }).waitFor();
        await page.locator(".links").getByText(/valid until/).first().waitFor();
        assert.deepEqual(await view.faults(), []);
        await page.goto(link);
        await page.waitForURL((url) => url.pathname === `/runs/${acting.run}`);
        await view.awake();
        await page.locator("header .who").filter({ hasText: /admin|operator/ }).waitFor();
        await page.locator("summary").filter({ hasText: "Give a hint" }).or(page.locator("#team summary")).first().waitFor();
    });
    await viewing({ base }, async (view, page) => {
        view.allow(/403/);
        await page.goto(link);
        // The page that signs in names the run in its query: only the path tells them apart.
        await page.waitForURL((url) => url.pathname === `/runs/${acting.run}`);
        await page.locator("h1").filter({ hasText: "gaussian_a" }).waitFor();
        const other = await view.go(`/runs/${acting.second}`);
        assert.equal(other.status(), 403);
        assert.match(await page.locator("main").innerText(), /access\.link_limited/);
        assert.deepEqual(await view.faults(), []);
        // There is a way back, and nothing that would lead to another refusal.
        assert.deepEqual(await page.locator("header .sections a").allInnerTexts(), ["Shared with you"]);
        await page.locator("header .who").filter({ hasText: /shared with you until/ }).waitFor();
        await page.getByRole("link", { name: "Back to what was shared with you" }).click();
        await page.waitForURL((url) => url.pathname === `/runs/${acting.run}`);
        await view.awake();
        await view.fits();
        // A link to something else does not take this session away without a word.
        const second = await call(base, acting.token, "POST", "/shares", { target: acting.second, valid_for_ms: 3_600_000 });
        await page.goto(new URL(`/sign-in?next=/runs/${acting.second}#${second.secret}`, base).href);
        await page.getByText("Signing in with it ends the session that you have.").waitFor();
        assert.equal(await page.evaluate(() => location.hash), "", "it does not stay in the address");
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.waitForURL((url) => url.pathname === `/runs/${acting.second}`);
        await view.awake();
        await call(base, acting.token, "POST", `/shares/${second.share.id}/revoke`, {});
        const { items } = await call(base, acting.token, "GET", "/shares");
        const first = items.find((share) => share.target === acting.run && share.revoked_at === undefined);
        await call(base, acting.token, "POST", `/shares/${first.id}/revoke`, {});
    });
    await viewing({ base }, async (view, page) => {
        // It was taken back: it opens nothing any more.
        view.allow(/40[13]/);
        await page.goto(link);
        await view.awake();
        await page.locator(".problem").waitFor();
        assert.equal(new URL(page.url()).pathname, "/sign-in");
    });
});

test("who signs out can change nothing any more", async () => {
    await viewing({ base }, async (view, page) => {
        view.allow(/401/);
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.run}`);
        await page.getByText("Leave a note, a tag or a pin").click();
        // What a page offers is one thing, what the server does another: the session is gone, and the page does not know.
        await page.context().clearCookies();
        await page.getByRole("button", { name: "Pin it" }).click();
        await page.getByText("auth.required").waitFor();
        await signIn(view, page, acting.token);
        await page.getByRole("button", { name: "Sign out" }).click();
        await page.locator("header").getByRole("link", { name: "Sign in" }).waitFor();
        await view.go(`/runs/${acting.run}`);
        await page.getByText("You are not signed in: this needs the role operator.").first().waitFor();
    });
});
