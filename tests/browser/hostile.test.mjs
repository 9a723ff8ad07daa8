// What models, programs, tools and people can write to harm who looks: it is shown, it is harmless, and the page stays small.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { call, facts, start, stop, until, viewing, WIDTHS } from "./page.mjs";

const { base, token, workerToken } = facts.hostile;
/** Largest page. */
const MAX_BYTES = 4 << 20;
/** Longest time for one, on a busy machine with a program that was not optimized. */
const MAX_MS = 20_000;
/** Marks that turn the direction of writing, and invisible characters. */
const TREACHEROUS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e0fff}]/u;
/** The tabs of an attempt's page. */
const TABS = ["overview", "profile", "source", "checks", "conversation"];
const MARKUP = "<script>document.title='taken over'</script><img src=x onerror=\"document.title='taken over'\"> \u202edlrow \u2066";

let campaign;
let runs;
let profiled;

before(async () => {
    await start();
    const campaigns = await call(base, token, "GET", "/campaigns");
    campaign = campaigns.items[0].id;
    const listed = await call(base, token, "GET", `/campaigns/${campaign}`);
    // The second one has the profile that every page of its run has to read.
    runs = listed.runs.toSorted((a, b) => a.digest.task.localeCompare(b.digest.task)).map((run) => run.id);
    profiled = runs[1];
    const wanted = listed.runs.reduce((sum, run) => sum + run.digest.attempts, 0);
    // The server reads every run and every text of it before it lists them.
    await until("the server lists every attempt", async () =>
        (await call(base, token, "GET", "/attempts?limit=1")).total === wanted);
    for (const target of [campaign, runs[0], `${runs[0]}/1`]) {
        await call(base, token, "POST", "/notes", { target, text: `# ${MARKUP}\n\n[a](javascript:document.title='taken') ${"w".repeat(3_000)}` });
        await call(base, token, "POST", "/tags", { target, add: [`<b>${"t".repeat(40)}`] });
        await call(base, token, "POST", "/pins", { target, pinned: true, label: MARKUP });
    }
    const { offers } = (await call(base, token, "GET", "/workers")).items[0];
    Object.assign(offers.machine, { host: MARKUP, processor: `${MARKUP} ${"p".repeat(2_000)}`, os: MARKUP });
    offers.devices = [{ index: 0, target: "cuda", name: MARKUP, uuid: `GPU-${MARKUP}`, memory_bytes: 1, shared_slots: 1 }];
    const { worker } = await call(base, workerToken, "POST", "/workers", { name: `${MARKUP} ${"n".repeat(500)}`.slice(0, 60), embedded: false, offers, version: "0" });
    await call(base, workerToken, "POST", `/workers/${worker}/heartbeat`, {
        leases: [],
        quarantined: [{ device: 0, quarantine: { incident: 1, code: "gpu.<b>", reason: `${MARKUP} ${"q".repeat(500)}` } }],
    });
});
after(stop);

/** Holds that a page came soon, is small, and holds nothing that a browser would obey. */
async function harmless(path) {
    const began = Date.now();
    const response = await fetch(new URL(path, base), { headers: { "accept-encoding": "identity" } });
    const text = await response.text();
    assert.equal(response.status, 200, `${path}: ${text.slice(0, 500)}`);
    assert.ok(Date.now() - began < MAX_MS, `${path} took ${Date.now() - began} ms`);
    assert.ok(text.length < MAX_BYTES, `${path} has ${text.length} characters`);
    const found = text.match(TREACHEROUS);
    assert.equal(found, null, `${path} holds U+${found?.[0].codePointAt(0).toString(16)}: ${text.slice(found?.index - 200, found?.index + 50)}`);
    assert.doesNotMatch(text, /<script>document|<img src=x|<svg\/onload|<iframe|<base |<meta http-equiv="refresh" content="0/, path);
    assert.doesNotMatch(text, /<[a-z][^<>]*\s(href|src|action)="?(javascript:|\/\/elsewhere)/, path);
    return text;
}

/** Holds that a page can be looked at. */
async function looked(view, page, path) {
    await view.reshape({ width: WIDTHS.laptop });
    await view.go(path);
    assert.equal(await page.locator("h1").count(), 1, path);
    assert.doesNotMatch(await page.title(), /^taken/, path);
    assert.equal(await page.locator("body").isVisible(), true);
    await view.fits();
    await view.reshape({ width: WIDTHS.phone });
    await view.fits();
}

test("attempts can be read: their pages are small, and nothing in it is obeyed", async () => {
    for (let number = 1; number <= 12; number += 1) {
        for (const tab of TABS) {
            await harmless(`/runs/${runs[0]}/attempts/${number}?tab=${tab}`);
        }
    }
});

test("pages about hostile names can be looked at", async () => {
    await viewing({ base }, async (view, page) => {
        const task = (await call(base, token, "GET", "/attempts?limit=1")).items[0].task;
        const paths = ["/", `/campaigns/${campaign}`, `/runs/${runs[0]}`, `/runs/${runs[1]}`, "/attempts", "/attempts?sort=speedup",
            `/attempts?${new URLSearchParams({ task })}`, `/tasks?${new URLSearchParams({ task })}`, "/tasks", "/models", "/workers",
            "/search?q=document", "/search?q=taken", `/search?${new URLSearchParams({ q: "\"><script>document.title='taken'</script>\u202e" })}`,
            `/compare?${runs.map((run) => `a=${run}/1&a=${run}/2&a=${run}/4`).join("&")}`, "/health"];
        for (const path of paths) {
            await harmless(path);
            await looked(view, page, path);
            await view.picture(`hostile${path.slice(0, 12).replaceAll(/\W+/g, "-")}-phone`);
        }
        assert.deepEqual(await view.faults(), []);
    });
});

test("pages about hostile texts, sizes and numbers can be looked at", async () => {
    await viewing({ base }, async (view, page) => {
        for (const number of [2, 3, 4, 5]) {
            for (const tab of TABS) {
                await looked(view, page, `/runs/${runs[0]}/attempts/${number}?tab=${tab}`);
                if (number === 2) {
                    assert.deepEqual(await view.faults(), []);
                }
            }
        }
        for (const query of ["diff=2&view=split", "diff=3"]) {
            await harmless(`/runs/${runs[0]}/attempts/6?${query}`);
            await looked(view, page, `/runs/${runs[0]}/attempts/6?${query}`);
        }
    });
});

test("a profile of ten thousand kernels is cut, told, and zoomed by its address", async () => {
    const { view: history } = await call(base, token, "GET", `/runs/${profiled}`);
    const { number } = history.attempts.find((attempt) => attempt.profile?.timeline?.kernels.length === 10_000);
    const attempt = `/runs/${profiled}/attempts/${number}`;
    const path = `${attempt}?tab=profile`;
    await viewing({ base }, async (view, page) => {
        await harmless(path);
        await looked(view, page, path);
        assert.match(await page.locator("main").innerText(), /more rows|not shown|left out/);
        await looked(view, page, `${path}&from=100&to=400`);
        await view.picture("hostile-profile-phone");
    });
    const trace = await (await fetch(new URL(`${attempt}/trace.json`, base))).json();
    assert.ok(trace.traceEvents.length >= 10_000);
});

test("a device with a hostile reason can be released", async () => {
    await viewing({ base }, async (view, page) => {
        await view.go("/workers");
        await page.locator(".notice.bad").getByText("quarantined").or(page.locator(".notice.bad")).first().waitFor();
        assert.doesNotMatch(await page.title(), /^taken/);
    });
});

test("reports of hostile things are files that show and do nothing", async () => {
    await viewing({ base }, async (view, page) => {
        for (const path of [`/campaigns/${campaign}/report.html`, `/runs/${runs[0]}/report.html`, `/runs/${runs[0]}/attempts/2/report.html`]) {
            await harmless(path);
            await page.goto(new URL(path, base).href);
            assert.doesNotMatch(await page.title(), /^taken/);
            await view.fits();
        }
    });
    for (const path of [`/runs/${runs[0]}/trace.json`]) {
        const trace = await (await fetch(new URL(path, base))).json();
        assert.ok(Array.isArray(trace.traceEvents));
    }
});
