// What people do on the pages: with their own rights, seen without a reload.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { call, facts, LIMIT_MS, start, stop, viewing } from "./page.mjs";

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

test("without signing in nothing can be changed, and the page says why", async () => {
    await viewing({ base }, async (view, page) => {
        view.allow(/401/);
        await view.go(`/runs/${acting.run}`);
        await page.getByRole("button", { name: "Pause" }).click();
        await page.getByText("auth.required").waitFor();
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

        await page.getByRole("button", { name: "Give a hint" }).click();
        await page.getByRole("textbox").fill("Mind the <b>cache</b> lines");
        await page.locator(".asking").getByRole("button", { name: "Give a hint" }).click();
        await page.getByText("Give a hint: done.").waitFor();

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
        await page.getByRole("button", { name: "Cancel", exact: true }).click();
        await page.getByText("cannot be taken back").waitFor();
        await page.getByRole("button", { name: "Leave it" }).click();
        assert.match(await page.locator("main h1 + p .tag").first().innerText(), /running/);
        await page.getByRole("button", { name: "Cancel", exact: true }).click();
        await page.locator(".asking").getByRole("button", { name: "Cancel" }).click();
        await page.locator("main h1 + p .tag").first().filter({ hasText: "cancelled" }).waitFor();
    });
});

test("a plan is rejected with a reason, and another one is made and waits in its place", async () => {
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.third}`);
        await page.getByRole("button", { name: "Reject plan" }).click();
        const send = page.locator(".asking").getByRole("button", { name: "Reject plan" });
        assert.equal(await send.isDisabled(), true, "a reason is wanted");
        await page.getByRole("textbox").fill("Not on this <i>machine</i>");
        await send.click();
        await page.getByRole("heading", { name: /Version 2/ }).waitFor({ timeout: 2 * LIMIT_MS });
        await page.locator("#plans").getByText("Not on this <i>machine</i>").first().waitFor();
        await page.getByRole("button", { name: "Approve plan" }).waitFor();
    });
});

test("a run that failed is tried again", async () => {
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.failed}`);
        await page.locator(".notice.bad").first().waitFor();
        assert.deepEqual(await view.faults(), []);
        await page.getByRole("button", { name: "Retry" }).click();
        await page.getByText("Retry: done.").waitFor();
        const { events } = await call(base, acting.token, "GET", `/runs/${acting.failed}/events?after=0`);
        assert.ok(events.some((event) => /retr/.test(event.kind)), JSON.stringify(events.map((event) => event.kind)));
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
        const box = page.locator("[data-row], li, tr").filter({ hasText: "gpu-box" }).filter({ has: page.getByRole("button", { name: "Drain" }) });
        await box.getByRole("button", { name: "Drain" }).first().click();
        await page.getByText("takes nothing new").waitFor();
        await page.locator(".asking").getByRole("button", { name: "Drain" }).click();
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
        await page.locator(".note").getByRole("button", { name: "Delete" }).click();
        await page.locator(".note").waitFor({ state: "detached" });
        await page.getByRole("button", { name: "Remove the tag night" }).click();
        await page.locator("#team .chips").waitFor({ state: "detached" });
        await page.getByRole("button", { name: "Take the pin away" }).click();
        await page.getByText(/Pinned by/).waitFor({ state: "detached" });
    });
});

test("a link opens one run for somebody without a token, and nothing else", async () => {
    let link;
    await viewing({ base }, async (view, page) => {
        await signIn(view, page, acting.token);
        await view.go(`/runs/${acting.run}`);
        await page.getByText("Leave a note, a tag or a pin").click();
        await page.getByRole("button", { name: "Make a link for others to read" }).click();
        link = await page.locator("code.link").innerText();
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
        const { items } = await call(base, acting.token, "GET", "/shares");
        await call(base, acting.token, "POST", `/shares/${items[0].id}/revoke`, {});
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
        await page.getByRole("button", { name: "Sign out" }).click();
        await page.getByRole("link", { name: "Sign in" }).waitFor();
        await view.go(`/runs/${acting.run}`);
        await page.getByText("Leave a note, a tag or a pin").click();
        await page.getByRole("button", { name: "Pin it" }).click();
        await page.getByText("auth.required").waitFor();
    });
});
